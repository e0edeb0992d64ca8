# SPDX-License-Identifier: Apache-2.0
"""Telling an attached profiler what to record."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from flambeau.cuda._runtime_api import check_error, cudart

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["profile", "start", "stop"]

DEFAULT_FLAGS = [
    "gpustarttimestamp",
    "gpuendtimestamp",
    "gridsize3d",
    "threadblocksize",
    "streamid",
    "enableonstart 0",
    "conckerneltrace",
]
"""Settings of the command-line profiler of long ago, kept for programs that name them."""


def start() -> None:
    """Make an attached profiler record from here on (``cuProfilerStart``).

    Raises
    ------
    CudaError
        The driver refused.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.profiler.start()
    >>> torch.cuda.profiler.stop()
    """
    check_error(cudart().cudaProfilerStart())


def stop() -> None:
    """Make an attached profiler stop recording (``cuProfilerStop``).

    Raises
    ------
    CudaError
        The driver refused.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.profiler.start()
    >>> torch.cuda.profiler.stop()
    """
    check_error(cudart().cudaProfilerStop())


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """Context manager: an attached profiler records what happens inside.

    Recording stops however the block ends.

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.cuda.profiler.profile():
    ...     torch.cuda.synchronize()
    """
    start()
    try:
        yield
    finally:
        stop()
