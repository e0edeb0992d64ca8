# SPDX-License-Identifier: Apache-2.0
"""GPUDirect Storage: files straight into device memory and back, by NVIDIA's cuFile.

Where cuFile cannot be used, `GdsFile` moves the bytes through page-locked memory; ``GdsFile.path``
says which way they go.
"""

from __future__ import annotations

import errno
import operator
import os
import weakref
from typing import TYPE_CHECKING, Literal

from flambeau import driver
from flambeau.cuda import _gds_bounce
from flambeau.driver.errors import FlambeauError
from flambeau.runtime import lazy_init
from flambeau.runtime._cuda_device import device as on_device
from flambeau.runtime._storage import UntypedStorage
from flambeau.runtime._stream import current_stream
from flambeau.runtime.typed_storage import TypedStorage

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from flambeau.driver.contract import Files

__all__ = ["GdsFile", "gds_deregister_buffer", "gds_register_buffer"]

ALIGNMENT = 4096
"""Transfers whose file offset and size are multiples of this go to the disk as they are."""


class FileStateError(FlambeauError, AssertionError, RuntimeError):
    """A file is registered already, or not yet. An `AssertionError` too, as in torch."""


def _files() -> Files:
    lazy_init.lazy_init()
    return driver.current().files


def is_available() -> bool:
    """Whether cuFile can be used here.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.gds.is_available() in (True, False)
    True
    """
    try:
        return _files().trouble() is None
    except RuntimeError:
        return False


def _supported() -> Files:
    files = _files()
    trouble = files.trouble()
    if trouble is not None:
        raise RuntimeError(f"GPUDirect Storage is not supported on this platform: {trouble}")
    return files


def _device_storage(storage: object) -> UntypedStorage:
    """The bytes of a storage on a GPU.

    Raises
    ------
    TypeError, ValueError
        It is no storage, or the host's.
    """
    untyped = storage._untyped if isinstance(storage, TypedStorage) else storage
    if not isinstance(untyped, UntypedStorage):
        raise TypeError(
            f"expected a storage, as tensor.untyped_storage() gives, not a {type(storage).__name__}"
        )
    if not untyped.is_cuda:
        raise ValueError(
            f"expected a storage on a CUDA device, but this one is on {untyped.device}; files are "
            "read into host memory without GPUDirect Storage"
        )
    return untyped


def gds_register_buffer(s: UntypedStorage) -> None:
    """Prepare a storage for repeated transfers (``cuFileBufRegister``).

    Parameters
    ----------
    s
        On a GPU. It must be deregistered before its memory goes.

    Raises
    ------
    RuntimeError
        cuFile refuses or cannot be used here.
    TypeError, ValueError
        It is no storage on a GPU.

    Examples
    --------
    >>> import flambeau as torch
    >>> storage = torch.empty(1024, device="cuda").untyped_storage()
    >>> if torch.cuda.gds.is_available():
    ...     torch.cuda.gds.gds_register_buffer(storage)
    ...     torch.cuda.gds.gds_deregister_buffer(storage)
    """
    storage, files = _device_storage(s), _supported()
    try:
        with on_device(storage.get_device()):
            files.register_buffer(storage.data_ptr(), storage.nbytes())
    except RuntimeError as error:
        raise RuntimeError(f"cuFileBufRegister failed: {error}") from error


def gds_deregister_buffer(s: UntypedStorage) -> None:
    """Undo `gds_register_buffer`; arguments and errors are the same.

    Examples
    --------
    >>> import flambeau as torch
    >>> storage = torch.empty(1024, device="cuda").untyped_storage()
    >>> if torch.cuda.gds.is_available():
    ...     torch.cuda.gds.gds_register_buffer(storage)
    ...     torch.cuda.gds.gds_deregister_buffer(storage)
    """
    storage, files = _device_storage(s), _supported()
    try:
        with on_device(storage.get_device()):
            files.deregister_buffer(storage.data_ptr())
    except RuntimeError as error:
        raise RuntimeError(f"cuFileBufDeregister failed: {error}") from error


class GdsFile:
    """A file that storages on GPUs are read from and written to.

    It is opened with ``O_DIRECT`` where the file system allows, and registered with cuFile. As a
    context manager it is closed at the end of the block.

    Parameters
    ----------
    filename
        Its path.
    flags
        As for ``os.open``: ``os.O_RDONLY``, ``os.O_CREAT | os.O_RDWR``, ...

    Attributes
    ----------
    filename, flags
        As given.
    fd : int
        The file descriptor; -1 once closed.
    handle : int or None
        cuFile's handle; None while it is not registered, and where cuFile refuses the file.
    refusal : str or None
        Why cuFile cannot be used for this file, which then goes through page-locked memory.

    Raises
    ------
    OSError
        The file cannot be opened.

    Examples
    --------
    >>> import os, tempfile
    >>> import flambeau as torch
    >>> x = torch.arange(1024, device="cuda")
    >>> y = torch.empty_like(x)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     name = os.path.join(folder, "x.bin")
    ...     with torch.cuda.gds.GdsFile(name, os.O_CREAT | os.O_RDWR) as file:
    ...         file.save_storage(x.untyped_storage())
    ...         file.load_storage(y.untyped_storage())
    >>> torch.equal(x, y)
    True
    """

    def __init__(self, filename: str | os.PathLike[str], flags: int) -> None:
        self.filename = filename
        self.flags = operator.index(flags)
        self.fd = -1
        self.handle: int | None = None
        self.refusal: str | None = None
        self._registered = False
        self._open_handles: dict[int, Files] = {}
        self.fd, self._direct = _open(os.fspath(filename), self.flags)
        self._closer = weakref.finalize(self, _close_quietly, self.fd, self._open_handles)
        try:
            self.register_handle()
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> Literal["direct", "compat", "bounce"]:
        """Which way bytes go.

        ``"direct"`` from the disk to the GPU; ``"compat"`` through cuFile's own host memory, where
        the file or the system does not allow more; ``"bounce"`` through page-locked memory of ours,
        where cuFile cannot be used at all: see `refusal`.
        """
        if self.handle is None:
            return "bounce"
        direct = self._direct and self._open_handles[self.handle].is_direct()
        return "direct" if direct else "compat"

    def register_handle(self) -> None:
        """Register the file with cuFile (``cuFileHandleRegister``); the constructor does it.

        Raises
        ------
        FileStateError
            It is registered already; it is an `AssertionError` and a `RuntimeError`.
        """
        self._require_open()
        if self._registered:
            raise FileStateError("cannot register: the file handle is already registered")
        files = _files()
        self.refusal = files.trouble()
        if self.refusal is None:
            try:
                self.handle = files.open(self.fd)
            except RuntimeError as error:
                self.refusal = f"cuFileHandleRegister failed: {error}"
            else:
                self._open_handles[self.handle] = files
        self._registered = True

    def deregister_handle(self) -> None:
        """Undo `register_handle`; the file stays open.

        Raises
        ------
        FileStateError
            It is not registered.
        """
        self._require_registered()
        self._registered = False
        handle, self.handle = self.handle, None
        if handle is not None:
            self._open_handles.pop(handle).close(handle)

    def load_storage(self, storage: UntypedStorage, offset: int = 0) -> None:
        """Read a whole storage from the file, and wait for it (``cuFileRead``).

        Work that is queued on the storage's current stream comes first.

        Parameters
        ----------
        storage
            On a GPU.
        offset
            Where in the file, in bytes. Multiples of 4,096 go straight to the disk.

        Raises
        ------
        RuntimeError
            The file ends before the storage is full, or cuFile refuses.
        FileStateError
            The file is not registered.
        TypeError, ValueError
            It is no storage on a GPU, or the offset is negative.
        """
        self._move("cuFileRead", storage, offset)

    def save_storage(self, storage: UntypedStorage, offset: int = 0) -> None:
        """Write a whole storage to the file, and wait for it (``cuFileWrite``).

        Arguments and errors are those of `load_storage`.
        """
        self._move("cuFileWrite", storage, offset)

    def _move(self, call: Literal["cuFileRead", "cuFileWrite"], given: object, offset: int) -> None:
        self._require_registered()
        storage, start = _device_storage(given), operator.index(offset)
        if start < 0:
            raise ValueError(f"offset must not be negative, got {start}")
        size = storage.nbytes()
        if size == 0:
            return
        writes = call == "cuFileWrite"
        with on_device(storage.get_device()):
            current_stream().synchronize()
            try:
                if self.handle is None:
                    moved = _gds_bounce.move(self.fd, storage, start, writes=writes)
                else:
                    files = self._open_handles[self.handle]
                    transfer = files.write if writes else files.read
                    moved = transfer(self.handle, storage.data_ptr(), size, start)
            except (OSError, RuntimeError) as error:
                raise RuntimeError(f"{call} failed: {error}") from error
        if moved != size:
            done = "written to" if writes else "read from"
            raise RuntimeError(
                f"{call} failed: {moved} of {size} bytes were {done} {os.fspath(self.filename)!r} "
                f"at offset {start}; the file has {os.fstat(self.fd).st_size} bytes"
            )

    def close(self) -> None:
        """Deregister and close the file; again does nothing."""
        if self._closer.alive:
            self._closer()
        self.fd, self.handle, self._registered = -1, None, False

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _require_open(self) -> None:
        if self.fd < 0:
            raise ValueError(f"the file {os.fspath(self.filename)!r} is closed")

    def _require_registered(self) -> None:
        self._require_open()
        if not self._registered:
            raise FileStateError("the file handle is not registered; call register_handle first")


def _open(filename: str, flags: int) -> tuple[int, bool]:
    """A descriptor, and whether the file system allows ``O_DIRECT``."""
    try:
        return os.open(filename, flags | os.O_DIRECT | os.O_CLOEXEC, 0o664), True
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return os.open(filename, flags | os.O_CLOEXEC, 0o664), False


def _close_quietly(descriptor: int, handles: dict[int, Files]) -> None:
    """Give everything back. A finalizer calls it too, so it raises nothing."""
    while handles:
        handle, files = handles.popitem()
        try:
            files.close(handle)
        except RuntimeError:
            break
    os.close(descriptor)
