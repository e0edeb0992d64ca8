# SPDX-License-Identifier: Apache-2.0
"""Driver-level memory for tests: buffers on a device and page-locked ones on the host."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flambeau.driver.errors import AcceleratorError
from flambeau.driver.virtual import _calls as calls

if TYPE_CHECKING:
    from collections.abc import Callable


def status_of(call: Callable[..., object], *args: object) -> int:
    """The status that a call fails with; 0 if it does not."""
    try:
        call(*args)
    except AcceleratorError as error:
        return error.error_code
    return 0


@dataclass
class Pinned:
    """Page-locked host memory."""

    address: int
    size: int

    @property
    def bytes(self) -> bytes:
        return ctypes.string_at(self.address, self.size)

    def set(self, value: int) -> Pinned:
        ctypes.memset(self.address, value, self.size)
        return self


@dataclass
class Buffer:
    """Device memory."""

    address: int
    size: int

    def fill(self, value: int, stream: int) -> None:
        calls.memset_d8_async(self.address, value, self.size, stream)

    def copy_to(self, other: Buffer, stream: int) -> None:
        calls.memcpy_dtod_async(other.address, self.address, self.size, stream)

    def load(self, source: Pinned, stream: int) -> None:
        calls.memcpy_htod_async(self.address, source.address, self.size, stream)

    def store(self, target: Pinned, stream: int) -> None:
        calls.memcpy_dtoh_async(target.address, self.address, self.size, stream)

    def peek(self) -> bytes:
        """What it holds now, with no order against any stream."""
        return ctypes.string_at(self.address, self.size)


class Bench:
    """Contexts, streams, events and memory that go away together."""

    def __init__(self) -> None:
        self.contexts = [calls.primary_ctx_retain(index) for index in range(2)]
        self._before = calls.ctx_get_current()
        self._undo: list[tuple[Callable[[int], None], int]] = []
        self.use(0)

    def use(self, device: int) -> None:
        calls.ctx_set_current(self.contexts[device])

    def buffer(self, size: int = 64) -> Buffer:
        address = calls.mem_alloc(size)
        self._undo.append((calls.mem_free, address))
        return Buffer(address, size)

    def pinned(self, size: int = 64) -> Pinned:
        address = calls.mem_host_alloc(size)
        self._undo.append((calls.mem_free_host, address))
        return Pinned(address, size)

    def stream(self, *, blocking: bool = False, priority: int = 0) -> int:
        stream = calls.stream_create(0 if blocking else 1, priority)
        self._undo.append((calls.stream_destroy, stream))
        return stream

    def event(self, flags: int = 0) -> int:
        event = calls.event_create(flags)
        self._undo.append((calls.event_destroy, event))
        return event

    def finish(self) -> None:
        for device in (1, 0):
            self.use(device)
            calls.ctx_synchronize()

    def close(self) -> None:
        self.finish()
        for undo, handle in reversed(self._undo):
            undo(handle)
        calls.ctx_set_current(self._before)
        for device in range(2):
            calls.primary_ctx_release(device)
