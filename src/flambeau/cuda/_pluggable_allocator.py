# SPDX-License-Identifier: Apache-2.0
"""Allocators of the user's: functions in place of the driver's, for pools or for everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.runtime import _allocator, lazy_init

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

__all__ = ["CUDAPluggableAllocator", "PluggableFunctions", "change_current_allocator"]

_kept: list[Any] = []  # memory from these functions may outlive every object that names them


class PluggableFunctions:
    """The functions of an allocator by their addresses.

    Parameters
    ----------
    allocate
        ``void *allocate(ssize_t bytes, int device, cudaStream_t stream)``; null means that there
        is no memory.
    release
        ``void release(void *memory, size_t bytes, int device, cudaStream_t stream)``.
    """

    def __init__(self, allocate: int, release: int) -> None:
        import ctypes

        self._source = (ctypes.c_void_p * 2)(allocate, release)
        self._hooks = (ctypes.c_void_p * 4)()
        self.source = ctypes.addressof(self._source)
        self.hooks = ctypes.addressof(self._hooks)
        _kept.extend((self._source, self._hooks))

    def set_init_fn(self, address: int) -> None:
        """Set ``void init(int device_count)``, called when CUDA is initialised."""
        self._hooks[0] = address

    def set_reset_fn(self, address: int) -> None:
        """Set ``void reset()``, called by `empty_cache`."""
        self._hooks[1] = address

    def set_memory_fraction_fn(self, address: int) -> None:
        """Set ``void set(double fraction, int device)``."""
        self._hooks[2] = address

    def set_record_stream_fn(self, address: int) -> None:
        """Set ``void record(void *memory, cudaStream_t stream)``."""
        self._hooks[3] = address


class _CUDAAllocator:
    """A holder of an allocator; None stands for flambeau's own."""

    def __init__(self, allocator: PluggableFunctions | None) -> None:
        self._allocator = allocator

    def allocator(self) -> PluggableFunctions | None:
        """The functions."""
        return self._allocator


class CUDAPluggableAllocator(_CUDAAllocator):
    """An allocator made of two functions of a shared library.

    Use it for a pool, ``MemPool(x.allocator())``: it then supplies whole segments, and caching,
    statistics, limits and histories work on top. `change_current_allocator` instead sends it every
    single request.

    Parameters
    ----------
    path_to_so_file
        The library.
    alloc_fn_name
        ``extern "C" void *name(ssize_t bytes, int device, cudaStream_t stream)``.
    free_fn_name
        ``extern "C" void name(void *memory, size_t bytes, int device, cudaStream_t stream)``.

    Raises
    ------
    OSError
        The library cannot be loaded.
    AttributeError
        It has no such function.

    Examples
    --------
    >>> import flambeau as torch
    >>> try:
    ...     torch.cuda.CUDAPluggableAllocator("/nowhere.so", "allocate", "release")
    ... except OSError:
    ...     print("no such library")
    no such library
    """

    def __init__(
        self, path_to_so_file: str | os.PathLike[str], alloc_fn_name: str, free_fn_name: str
    ) -> None:
        import ctypes

        library = ctypes.CDLL(str(path_to_so_file))
        _kept.append(library)
        addresses = [
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
            for name in (alloc_fn_name, free_fn_name)
        ]
        super().__init__(PluggableFunctions(*addresses))

    @classmethod
    def from_functions(
        cls,
        allocate: Callable[[int, int, int], int | None],
        release: Callable[[int, int, int, int], object],
    ) -> _CUDAAllocator:
        """An allocator made of two Python functions.

        Parameters
        ----------
        allocate
            Gets bytes, device and stream, returns an address; None or 0 if there is no memory.
        release
            Gets address, bytes, device and stream.

        Examples
        --------
        >>> import flambeau as torch
        >>> allocator = torch.cuda.CUDAPluggableAllocator.from_functions(
        ...     lambda nbytes, device, stream: None, lambda *released: None
        ... )
        >>> pool = torch.cuda.MemPool(allocator.allocator())
        """
        import ctypes

        pointer, size, index = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        callbacks = (
            ctypes.CFUNCTYPE(pointer, ctypes.c_ssize_t, index, size)(allocate),
            ctypes.CFUNCTYPE(None, size, size, index, size)(release),
        )
        _kept.extend(callbacks)
        addresses = [ctypes.cast(callback, pointer).value or 0 for callback in callbacks]
        return _CUDAAllocator(PluggableFunctions(*addresses))


_current: PluggableFunctions | None = None


def change_current_allocator(allocator: _CUDAAllocator) -> None:
    """Serve every request for device memory with a user's allocator, without any cache.

    Statistics, snapshots, histories, pools and the getter of the memory fraction are then refused.
    A `MemPool` with the allocator keeps all of them.

    Parameters
    ----------
    allocator
        A `CUDAPluggableAllocator`.

    Raises
    ------
    RuntimeError
        CUDA is initialised, so that memory may have been handed out already, or the allocator was
        changed before.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.init()
    >>> try:
    ...     torch.cuda.change_current_allocator(None)
    ... except RuntimeError:
    ...     print("too late")
    too late
    """
    global _current
    if lazy_init.is_initialized() or _allocator.is_foreign():
        which = "one was installed before" if _allocator.is_foreign() else "CUDA is in use"
        raise RuntimeError(
            f"Can't swap an already initialized allocator: {which}. Call change_current_allocator "
            "once, before the first CUDA call; a MemPool may have its own allocator at any time."
        )
    if not isinstance(allocator, _CUDAAllocator) or allocator.allocator() is None:
        raise TypeError(
            f"change_current_allocator takes a CUDAPluggableAllocator, got {allocator!r}"
        )
    functions = allocator.allocator()
    assert functions is not None
    _allocator.install_foreign(functions.source, functions.hooks)
    _current = functions
    lazy_init.lazy_call(_allocator.foreign_initialized)


def _get_current_allocator() -> _CUDAAllocator:
    """The allocator that `change_current_allocator` installed, or a holder of None."""
    return _CUDAAllocator(_current)
