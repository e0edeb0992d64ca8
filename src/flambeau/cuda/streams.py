# SPDX-License-Identifier: Apache-2.0
"""Streams and events: queues of work on a device, and marks in them."""

from __future__ import annotations

from flambeau.runtime import _cuda_device, lazy_init
from flambeau.runtime._event import Event
from flambeau.runtime._stream import (
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "get_stream_from_external",
    "is_current_stream_capturing",
    "set_stream",
    "stream",
]


def is_current_stream_capturing() -> bool:
    """Whether work on the current stream goes into a graph instead of being done.

    Initialises nothing (``cuStreamIsCapturing``).

    Returns
    -------
    bool
        True also while the capture is invalid and has not been ended; False before CUDA is
        initialised.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.is_current_stream_capturing()
    False
    """
    if not lazy_init.is_initialized() and not lazy_init.in_bad_fork():
        return False
    return _cuda_device.capture_status() != 0


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    """Make a stream current that is known by its numbers, and its device with it."""
    set_stream(Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))
