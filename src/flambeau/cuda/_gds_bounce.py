# SPDX-License-Identifier: Apache-2.0
"""Files to device memory and back through page-locked memory, where cuFile cannot be used."""

from __future__ import annotations

import ctypes
import os
from collections import deque
from typing import TYPE_CHECKING

from flambeau.runtime import _dtype
from flambeau.runtime._event import Event
from flambeau.runtime._stream import current_stream
from flambeau.runtime._tensor import empty

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future, ThreadPoolExecutor

    from flambeau.runtime._storage import UntypedStorage
    from flambeau.runtime._tensor import Tensor

__all__ = ["move"]

PIECE = 16 << 20
READERS = 4
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
    own = _descriptor_for(descriptor, size, offset, writes)
    try:
        count = 1 if writes else min(READERS, -(-size // PIECE))
        buffers = [_Buffer(min(PIECE, size)) for _ in range(count)]
        return (_write if writes else _read)(own, device, offset, buffers)
    finally:
        if own != descriptor:
            os.close(own)


def _descriptor_for(descriptor: int, size: int, offset: int, writes: bool) -> int:
    """The file; without ``O_DIRECT`` to read, and where its rules about alignment are not kept."""
    if writes and size % _ALIGNMENT == 0 and offset % _ALIGNMENT == 0:
        return descriptor
    import fcntl

    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    if not flags & os.O_DIRECT:
        return descriptor
    return os.open(f"/proc/self/fd/{descriptor}", (flags & os.O_ACCMODE) | os.O_CLOEXEC)


def _fill(descriptor: int, view: memoryview, offset: int) -> int:
    """Read until the view is full or the file ends; the bytes read."""
    got = 0
    while got < len(view):
        more = os.preadv(descriptor, [view[got:]], offset + got)
        if more == 0:
            break
        got += more
    return got


def _read(descriptor: int, device: Tensor, offset: int, buffers: list[_Buffer]) -> int:
    """Several threads read ahead; what they have read is copied in order."""
    from concurrent.futures import ThreadPoolExecutor

    size, done = device.numel(), 0
    ahead: deque[tuple[int, _Buffer, Future[int]]] = deque()
    starts = iter(range(0, size, PIECE))
    with ThreadPoolExecutor(len(buffers)) as pool:
        for buffer in buffers:
            _read_ahead(pool, descriptor, offset, size, starts, buffer, ahead)
        while ahead:
            start, buffer, reading = ahead.popleft()
            got = reading.result()
            device.narrow(0, start, got).copy_(buffer.tensor.narrow(0, 0, got), non_blocking=True)
            buffer.copied.record()
            done = start + got
            if got < min(PIECE, size - start):  # the file ends
                break
            _read_ahead(pool, descriptor, offset, size, starts, buffer, ahead)
    current_stream().synchronize()
    return done


def _read_ahead(
    pool: ThreadPoolExecutor,
    descriptor: int,
    offset: int,
    size: int,
    starts: Iterator[int],
    buffer: _Buffer,
    ahead: deque[tuple[int, _Buffer, Future[int]]],
) -> None:
    """Have the next piece read into a buffer, once that has been copied."""
    start = next(starts, None)
    if start is None:
        return
    buffer.copied.synchronize()
    view = buffer.view[: min(PIECE, size - start)]
    ahead.append((start, buffer, pool.submit(_fill, descriptor, view, offset + start)))


def _write(descriptor: int, device: Tensor, offset: int, buffers: list[_Buffer]) -> int:
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
