# SPDX-License-Identifier: Apache-2.0
"""cuFile on virtual GPUs: real files, read into and written from device memory."""

from __future__ import annotations

import fcntl
import itertools
import os
import threading

from flambeau.driver.virtual import _machine

__all__ = ["VirtualFiles"]


class VirtualFiles:
    """cuFile's calls. Transfers take time on the modelled clock, as from a fast disk."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handles: dict[int, int] = {}
        self._numbers = itertools.count(1)
        self._buffers: dict[int, int] = {}

    def trouble(self) -> str | None:
        """Nothing is ever missing."""
        return None

    def is_direct(self) -> bool:
        """They do: device memory is what the file is read into."""
        return True

    def register_buffer(self, address: int, size: int) -> None:
        """Note a buffer; one may be registered only once."""
        with self._lock:
            if address in self._buffers:
                raise RuntimeError("memory is already registered")
            self._buffers[address] = size

    def deregister_buffer(self, address: int) -> None:
        """Forget a buffer."""
        with self._lock:
            if self._buffers.pop(address, None) is None:
                raise RuntimeError("device pointer lookup failure: this memory is not registered")

    def open(self, descriptor: int) -> int:
        """A handle for an open file."""
        # Of its own, without O_DIRECT: cuFile takes care of transfers that are not aligned.
        access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        own = os.open(f"/proc/self/fd/{descriptor}", access | os.O_CLOEXEC)
        with self._lock:
            handle = next(self._numbers)
            self._handles[handle] = own
        return handle

    def close(self, handle: int) -> None:
        """Give the handle up."""
        with self._lock:
            descriptor = self._handles.pop(handle, None)
        if descriptor is not None:
            os.close(descriptor)

    def read(self, handle: int, address: int, size: int, offset: int) -> int:
        """Read into device memory."""
        return self._move(handle, False, address, size, offset)

    def write(self, handle: int, address: int, size: int, offset: int) -> int:
        """Write device memory."""
        return self._move(handle, True, address, size, offset)

    def _move(self, handle: int, writes: bool, address: int, size: int, offset: int) -> int:
        descriptor = self._handles.get(handle)
        if descriptor is None:
            raise RuntimeError("file descriptor is not registered")
        moved, error = _machine.transfer_file(descriptor, writes, address, size, offset)
        if error:
            raise OSError(error, os.strerror(error))
        return moved
