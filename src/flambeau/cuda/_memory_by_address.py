# SPDX-License-Identifier: Apache-2.0
"""Device memory by address, and whether the allocator caches."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, SupportsIndex

from flambeau.cuda._utils import _get_device_index
from flambeau.runtime import _allocator, _cuda_device
from flambeau.runtime._stream import current_stream, stream_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flambeau.cuda._utils import DeviceArgument
    from flambeau.runtime._stream import Stream

__all__ = [
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "numbered",
]


def numbered(device: DeviceArgument) -> int:
    """None means the current device, but a device without a number is refused."""
    if device is None:
        return _cuda_device.current_device()
    return _get_device_index(device)


def caching_allocator_alloc(
    size: int, device: DeviceArgument = None, stream: Stream | int | None = None
) -> int:
    """Allocate device memory and return its address, for use with other libraries.

    Parameters
    ----------
    size
        Bytes.
    device
        Which; None and negative numbers are the current one, otherwise it must name a number.
    stream
        Where the memory is used first: a stream or its pointer; None is the current stream.

    Returns
    -------
    int
        The address; 0 for a size of 0. Free it with `caching_allocator_delete`.

    Raises
    ------
    ValueError
        `size` is negative or no int.
    TypeError
        `stream` is neither a stream nor an int.
    AcceleratorError
        There is no such device (101).
    OutOfMemoryError
        There is not enough memory.

    Examples
    --------
    >>> import flambeau as torch
    >>> address = torch.cuda.caching_allocator_alloc(1024)
    >>> torch.cuda.caching_allocator_delete(address)
    """
    if type(size) is type(device) is type(stream) is int and size >= 0 and device >= 0:
        return _allocator.raw_alloc(size, device, stream)
    index = numbered(device)
    if index < 0:
        index = _cuda_device.current_device()
    _cuda_device.require_device(index)
    if stream is None:
        pointer = current_stream(index).cuda_stream
    elif hasattr(stream, "__cuda_stream__"):
        pointer = stream_of(stream).cuda_stream
    elif isinstance(stream, int):
        pointer = stream
    else:
        raise TypeError(
            "Invalid type for stream argument, must be `torch.cuda.Stream` or `int`, the pointer "
            f"of an existing stream; got {type(stream).__name__}"
        )
    if not isinstance(size, SupportsIndex) or int(size) < 0:
        raise ValueError(f"Invalid memory size {size!r}: it is a number of bytes, an int from 0 up")
    return _allocator.raw_alloc(int(size), index, pointer)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free memory that `caching_allocator_alloc` returned.

    Parameters
    ----------
    mem_ptr
        The address.

    Raises
    ------
    RuntimeError
        No memory allocated by address starts there: ``invalid device pointer``.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(1))
    """
    _allocator.raw_delete(mem_ptr)


def caching_allocator_enable(value: bool = True) -> None:
    """Let the allocator keep memory for reuse, or not.

    Without caching every tensor is a ``cuMemAlloc`` of its exact size and every last reference a
    ``cuMemFree``, which waits for the device; no statistics count it. That makes tools see each
    tensor as an allocation. Memory that is cached already stays usable. It counts for the whole
    process, and does not initialise CUDA.

    Parameters
    ----------
    value
        Whether to cache.

    Raises
    ------
    RuntimeError
        `value` is no bool.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.caching_allocator_enable(False)
    >>> x = torch.empty(1 << 20, device="cuda")
    >>> torch.cuda.caching_allocator_enable(True)
    """
    if not isinstance(value, bool):
        raise RuntimeError(
            f"caching_allocator_enable takes a bool, got {type(value).__name__}: True or False"
        )
    _allocator.set_caching(value)


@contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """Do not cache device memory inside the block; see `caching_allocator_enable`.

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.cuda.caching_allocator_disabled():
    ...     x = torch.empty(1000, device="cuda")
    """
    before = _allocator.is_caching()
    _allocator.set_caching(False)
    try:
        yield
    finally:
        _allocator.set_caching(before)
