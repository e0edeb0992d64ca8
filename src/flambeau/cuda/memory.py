# SPDX-License-Identifier: Apache-2.0
"""Device memory: statistics, limits, snapshots and allocation by address.

Device memory comes from a caching allocator. *Allocated* is what tensors hold, *reserved* is what
was got from the driver, the difference is kept for later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from flambeau import driver
from flambeau.cuda._management import management_index
from flambeau.cuda._memory_stats import (
    checked_index,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
)
from flambeau.cuda._utils import _get_device_index
from flambeau.driver.errors import DriverNotFoundError
from flambeau.runtime import _allocator, _cuda_device, lazy_init
from flambeau.runtime._stream import Stream, current_stream

if TYPE_CHECKING:
    from flambeau.cuda._utils import DeviceArgument

__all__ = [
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "list_gpu_processes",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


def mem_get_info(device: DeviceArgument = None) -> tuple[int, int]:
    """Free and total bytes of a device, as the driver sees it (``cuMemGetInfo``).

    Parameters
    ----------
    device
        Which; None and negative numbers are the current one.

    Returns
    -------
    free, total : int
        What other processes hold is not free.

    Raises
    ------
    AcceleratorError
        There is no such device (101).

    Examples
    --------
    >>> import flambeau as torch
    >>> free, total = torch.cuda.mem_get_info()
    >>> 0 < free <= total
    True
    """
    lazy_init.lazy_init()
    index = _get_device_index(device, optional=True)
    return _cuda_device.memory_info(index if index >= 0 else _cuda_device.current_device())


def list_gpu_processes(device: DeviceArgument = None) -> str:
    """The processes that use a device, and how much of its memory, as text.

    Parameters
    ----------
    device
        Which; None is the current one.

    Returns
    -------
    str
        A line ``GPU:`` with the management library's number, then one line per process. Without
        the management library: a sentence that says so.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.list_gpu_processes(0).startswith("GPU:")
    True
    """
    try:
        index = management_index(device)
        processes = driver.current().management.processes(index)
    except DriverNotFoundError as error:
        return str(error)
    lines = [
        f"process {process.pid:>10d} uses {process.used_bytes / 2**20:>12.3f} MB GPU memory"
        for process in processes
    ]
    return "\n".join([f"GPU:{index}", *(lines or ["no processes are running"])])


def empty_cache() -> None:
    """Give all memory that is reserved and not in use back to the driver (``cuMemFree``).

    It does not make more memory available to tensors. Nothing happens before CUDA is initialised.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.empty(1 << 20, device="cuda")
    >>> del x
    >>> torch.cuda.empty_cache()
    """
    _allocator.empty_cache()


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None, include_traces: bool = True
) -> list[dict[str, Any]]:
    """Every segment that is reserved on any device, and the blocks in it.

    Parameters
    ----------
    mempool_id
        Only the segments of this pool.
    include_traces
        Accepted as in torch; the segments have no traces.

    Returns
    -------
    list of dict
        By device and address. Each has ``device``, ``address``, ``total_size``,
        ``allocated_size``, ``active_size``, ``requested_size``, ``stream``, ``segment_type``,
        ``segment_pool_id``, ``is_expandable``, ``frames`` and ``blocks``; empty before CUDA is
        initialised and for an unknown pool.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.ones(1, device="cuda")
    >>> torch.cuda.memory_snapshot()[0]["segment_pool_id"]
    (0, 0)
    """
    segments = _allocator.memory_snapshot_raw()
    segments.sort(key=lambda segment: (segment["device"], segment["address"]))
    if mempool_id is None:
        return segments
    wanted = tuple(mempool_id)
    return [segment for segment in segments if tuple(segment["segment_pool_id"]) == wanted]


# --- limits -------------------------------------------------------------------------------------


def set_per_process_memory_fraction(fraction: float, device: DeviceArgument = None) -> None:
    """Limit how much of a device's memory this process may reserve.

    Parameters
    ----------
    fraction
        From 0 to 1, of the total. Reserving more raises `OutOfMemoryError`.
    device
        Which; None is the current one, otherwise it must name a number.

    Raises
    ------
    TypeError
        `fraction` is not a float.
    ValueError
        `fraction` is outside 0 to 1, or `device` names no number.
    RuntimeError
        `fraction` is not a number (NaN), or there is no such device.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.set_per_process_memory_fraction(0.5)
    >>> torch.cuda.get_per_process_memory_fraction()
    0.5
    >>> torch.cuda.set_per_process_memory_fraction(1.0)
    """
    lazy_init.lazy_init()
    index = _limited(device)
    if not isinstance(fraction, float):
        raise TypeError(
            "Invalid type for fraction argument, must be `float`, got "
            f"{type(fraction).__name__}: write {fraction!r} as a float, such as 0.5."
        )
    if fraction < 0 or fraction > 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    if fraction != fraction:  # noqa: PLR0124 - only NaN differs from itself
        raise RuntimeError("Invalid fraction value: nan is not a number. Allowed range: 0~1")
    _allocator.set_memory_limit(index, int(fraction * _cuda_device.total_memory(index)))


def get_per_process_memory_fraction(device: DeviceArgument = None) -> float:
    """The share of a device's memory that this process may reserve; 1.0 if no limit was set.

    Parameters
    ----------
    device
        As for `set_per_process_memory_fraction`.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.get_per_process_memory_fraction(0)
    1.0
    """
    lazy_init.lazy_init()
    index = _limited(device)
    limit = _allocator.get_memory_limit(index)
    return 1.0 if limit is None else limit / _cuda_device.total_memory(index)


def _limited(device: DeviceArgument) -> int:
    return checked_index(_numbered(device), "Allocator not initialized for device")


# --- memory by address --------------------------------------------------------------------------


def _numbered(device: DeviceArgument) -> int:
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
    index = _numbered(device)
    if index < 0:
        index = _cuda_device.current_device()
    _cuda_device.require_device(index)
    if stream is None:
        pointer = current_stream(index).cuda_stream
    elif isinstance(stream, Stream):
        pointer = stream.cuda_stream
    elif isinstance(stream, int):
        pointer = stream
    else:
        raise TypeError(
            "Invalid type for stream argument, must be `torch.cuda.Stream` or `int`, the pointer "
            f"of an existing stream; got {type(stream).__name__}"
        )
    if not isinstance(size, SupportsIndex) or int(size) < 0:
        raise ValueError(f"size is a number of bytes from 0 up, got {size!r}")
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


def get_allocator_backend() -> Literal["native"]:
    """The name of the allocator in use: ``"native"``, flambeau's own.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.get_allocator_backend()
    'native'
    """
    return "native"
