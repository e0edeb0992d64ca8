# SPDX-License-Identifier: Apache-2.0
"""Descriptors of another process, taken from it by their numbers (``pidfd_getfd``)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["fetch"]

_PIDFD_GETFD = 438  # the system call's number, the same on all architectures


def fetch(process: int, numbers: Iterable[int]) -> list[int]:
    """Descriptors of our own for those of a process.

    Raises
    ------
    RuntimeError
        The system forbids it; the text says what to do.
    """
    import ctypes

    if process == os.getpid():
        return [os.dup(number) for number in numbers]
    library = ctypes.CDLL(None, use_errno=True)
    opened: list[int] = []
    other = -1
    try:
        other = os.pidfd_open(process)
        for number in numbers:
            descriptor = library.syscall(_PIDFD_GETFD, other, number, 0)
            if descriptor < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            opened.append(descriptor)
    except OSError as error:
        for descriptor in opened:
            os.close(descriptor)
        raise RuntimeError(
            f"the descriptors of an expandable segment of process {process} cannot be had "
            f"(pidfd_getfd: {error}). Send tensors through flambeau.multiprocessing, which passes "
            "them over a socket, or use expandable_segments:False for what is to be sent."
        ) from error
    finally:
        if other >= 0:
            os.close(other)
    return opened
