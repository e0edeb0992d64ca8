# SPDX-License-Identifier: Apache-2.0
"""Files straight into device memory, by NVIDIA's cuFile (GPUDirect Storage)."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NvidiaFiles"]

_OPAQUE_DESCRIPTOR = 1  # CU_FILE_HANDLE_TYPE_OPAQUE_FD


class NvidiaFiles:
    """cuFile through cuda-bindings. The library is opened at the first question."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._library: Any = None
        self._trouble: str | None = None

    def trouble(self) -> str | None:
        """Why cuFile cannot be used here, or None."""
        with self._lock:
            if self._library is None and self._trouble is None:
                self._trouble = self._start()
            return self._trouble

    def _start(self) -> str | None:
        """Open the library; what prevents it."""
        try:
            from cuda.bindings import cufile
        except ImportError as error:
            return f"cuda-bindings has no cuFile here ({error})"
        try:
            self._allow_detours(cufile)
            cufile.driver_open()
        except RuntimeError as error:  # what the search for a library raises
            first = str(error).partition("\n")[0]
            return f"libcufile was not found ({first}); install the package nvidia-cufile"
        except cufile.cuFileError as error:
            return f"cuFile does not start ({error}); /etc/cufile.json configures it"
        self._library = cufile
        return None

    @staticmethod
    def _allow_detours(cufile: Any) -> None:
        """Let cuFile use host memory where it cannot do without, unless a configuration says."""
        own = os.environ.get("CUFILE_ENV_PATH_JSON") or Path("/etc/cufile.json").exists()
        if own or "CUFILE_ALLOW_COMPAT_MODE" in os.environ:
            return
        try:
            which = cufile.BoolConfigParameter.PROPERTIES_ALLOW_COMPAT_MODE
            cufile.set_parameter_bool(which, True)
        except (AttributeError, cufile.cuFileError):
            return  # an older library, which does so by itself

    def _call(self, function: Callable[[Any], Any]) -> Any:
        trouble = self.trouble()
        if trouble is not None:
            raise RuntimeError(trouble)
        try:
            return function(self._library)
        except self._library.cuFileError as error:
            raise RuntimeError(self._explain(error)) from error

    def _explain(self, error: Exception) -> str:
        status = getattr(error, "status", None)
        if status is None:
            return str(error)
        code = abs(int(status))
        try:
            return f"{self._library.op_status_error(code)} ({error})"
        except ValueError:  # no status of cuFile: the system's
            return f"{os.strerror(code)} ({error})"

    def is_direct(self) -> bool:
        """Whether the kernel module that makes it possible is loaded."""
        return Path("/proc/driver/nvidia-fs/version").exists()

    def register_buffer(self, address: int, size: int) -> None:
        """``cuFileBufRegister``."""
        self._call(lambda library: library.buf_register(address, size, 0))

    def deregister_buffer(self, address: int) -> None:
        """``cuFileBufDeregister``."""
        self._call(lambda library: library.buf_deregister(address))

    def open(self, descriptor: int) -> int:
        """``cuFileHandleRegister``."""

        def register(library: Any) -> int:
            about = library.Descr()
            ctypes.memset(about.ptr, 0, library.descr_dtype.itemsize)  # not all versions do
            about.type = _OPAQUE_DESCRIPTOR
            about.handle.fd = descriptor
            return int(library.handle_register(about.ptr))

        return int(self._call(register))

    def close(self, handle: int) -> None:
        """``cuFileHandleDeregister``."""
        self._call(lambda library: library.handle_deregister(handle))

    def read(self, handle: int, address: int, size: int, offset: int) -> int:
        """``cuFileRead``."""
        return self._moved(self._call(lambda lib: lib.read(handle, address, size, offset, 0)))

    def write(self, handle: int, address: int, size: int, offset: int) -> int:
        """``cuFileWrite``."""
        return self._moved(self._call(lambda lib: lib.write(handle, address, size, offset, 0)))

    def _moved(self, result: int) -> int:
        if result < -1:
            raise RuntimeError(self._library.op_status_error(-result))
        if result == -1:
            raise RuntimeError("the system refused; is the file open for this, and large enough?")
        return int(result)
