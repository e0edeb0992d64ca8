# SPDX-License-Identifier: Apache-2.0
"""Files to device memory and back through page-locked memory, where cuFile cannot be used."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

from flambeau.runtime import _dtype
from flambeau.runtime._event import Event
from flambeau.runtime._stream import current_stream
from flambeau.runtime._tensor import empty

if TYPE_CHECKING:
    from flambeau.runtime._storage import UntypedStorage
    from flambeau.runtime._tensor import Tensor

__all__ = ["move"]

PIECE = 16 << 20
_ALIGNMENT = 4096  # of O_DIRECT


class _Buffer:
    """A piece of page-locked memory, aligned for ``O_DIRECT``, and the event of its last copy."""

    def __init__(self, size: int) -> None:
        whole = empty((size + _ALIGNMENT,), dtype=_dtype.dtypes["uint8"], pin_memory=True)
        skipped = -whole.data_ptr() % _ALIGNMENT
        self.tensor: Tensor = whole.narrow(0, skipped, size)
        self.view = memoryview((ctypes.c_char * size).from_address(self.tensor.data_ptr())).cast(
            "B"
        )
        self.copied = Event()


def move(descriptor: int, storage: UntypedStorage, offset: int, *, writes: bool) -> int:
    """Move a storage's bytes; how many were moved, fewer where the file ends.

    Raises
    ------
    OSError
        The system refuses.
    """
    device = storage._bytes()
    size = storage.nbytes()
    own = _descriptor_for(descriptor, size, offset)
    try:
        buffers = [_Buffer(min(PIECE, size)) for _ in range(1 if writes or size <= PIECE else 2)]
        return (_write if writes else _read)(own, device, offset, buffers)
    finally:
        if own != descriptor:
            os.close(own)


def _descriptor_for(descriptor: int, size: int, offset: int) -> int:
    """The file, without ``O_DIRECT`` where its rules about alignment are not kept."""
    if size % _ALIGNMENT == 0 and offset % _ALIGNMENT == 0:
        return descriptor
    import fcntl

    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    if not flags & os.O_DIRECT:
        return descriptor
    return os.open(f"/proc/self/fd/{descriptor}", (flags & os.O_ACCMODE) | os.O_CLOEXEC)


def _read(descriptor: int, device: Tensor, offset: int, buffers: list[Any]) -> int:
    done, turn, size = 0, 0, device.numel()
    while done < size:
        buffer = buffers[turn % len(buffers)]
        buffer.copied.synchronize()
        wanted = min(PIECE, size - done)
        got = os.preadv(descriptor, [buffer.view[:wanted]], offset + done)
        device.narrow(0, done, got).copy_(buffer.tensor.narrow(0, 0, got), non_blocking=True)
        buffer.copied.record()
        done, turn = done + got, turn + 1
        if got < wanted:  # the file ends; what follows is not aligned
            break
    current_stream().synchronize()
    return done


def _write(descriptor: int, device: Tensor, offset: int, buffers: list[Any]) -> int:
    done, size = 0, device.numel()
    while done < size:
        buffer = buffers[0]
        wanted = min(PIECE, size - done)
        buffer.tensor.narrow(0, 0, wanted).copy_(device.narrow(0, done, wanted), non_blocking=True)
        current_stream().synchronize()
        sent = 0
        while sent < wanted:
            sent += os.pwritev(descriptor, [buffer.view[sent:wanted]], offset + done + sent)
        done += wanted
    return done
