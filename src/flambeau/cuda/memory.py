# SPDX-License-Identifier: Apache-2.0
"""Device memory: statistics, limits, snapshots and allocation by address.

Device memory comes from a caching allocator. *Allocated* is what tensors hold, *reserved* is what
was got from the driver, the difference is kept for later. Questions before CUDA is initialised
answer with zeros or nothing and do not initialise it.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from flambeau import driver
from flambeau.cuda._management import management_index
from flambeau.cuda._memory_summary import format_summary
from flambeau.cuda._utils import _get_device_index
from flambeau.driver.errors import DriverNotFoundError
from flambeau.runtime import _allocator, _cuda_device, _state, lazy_init
from flambeau.runtime._stream import Stream, current_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

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


# --- device arguments ---------------------------------------------------------------------------


def _index(device: DeviceArgument, problem: str = "Invalid device argument") -> int:
    """The device whose books are asked for; CUDA is initialised."""
    if isinstance(device, bool):
        raise RuntimeError(f"{problem} {device}: a device is an int, a str or a torch.device.")
    index = _get_device_index(device, optional=True)
    total = _cuda_device.device_total()
    if not 0 <= index < total:
        raise RuntimeError(
            f"{problem} {index}: this process sees {total} device{'' if total == 1 else 's'}, "
            "numbered from 0."
        )
    return index


def _numbered(device: DeviceArgument) -> int:
    """None means the current device, but a device without a number is refused."""
    if device is None:
        return _cuda_device.current_device()
    return _get_device_index(device)


# --- what is in use -----------------------------------------------------------------------------


def memory_allocated(device: DeviceArgument = None) -> int:
    """Bytes of device memory that tensors hold now, rounded up to whole blocks.

    Parameters
    ----------
    device
        Which; None is the current one. Before initialisation it is not looked at.

    Returns
    -------
    int
        0 before CUDA is initialised.

    Raises
    ------
    ValueError
        It is not a CUDA device.
    RuntimeError
        There is no such device.

    Examples
    --------
    >>> import flambeau as torch
    >>> before = torch.cuda.memory_allocated()
    >>> x = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    >>> torch.cuda.memory_allocated() - before
    1048576
    """
    return _allocator.allocated_bytes(_index(device)) if _state.is_initialized() else 0


def max_memory_allocated(device: DeviceArgument = None) -> int:
    """The most bytes that tensors held at once, since the start or the last peak reset.

    Parameters and errors are those of `memory_allocated`.
    """
    return _allocator.max_allocated_bytes(_index(device)) if _state.is_initialized() else 0


def memory_reserved(device: DeviceArgument = None) -> int:
    """Bytes that the caching allocator has from the driver now.

    Parameters and errors are those of `memory_allocated`.
    """
    return _allocator.reserved_bytes(_index(device)) if _state.is_initialized() else 0


def max_memory_reserved(device: DeviceArgument = None) -> int:
    """The most bytes that were reserved at once, since the start or the last peak reset.

    Parameters and errors are those of `memory_allocated`.
    """
    return _allocator.max_reserved_bytes(_index(device)) if _state.is_initialized() else 0


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
    """
    _allocator.empty_cache()


# --- statistics ---------------------------------------------------------------------------------


def memory_stats(device: DeviceArgument = None) -> OrderedDict[str, int]:
    """All figures of a device's allocator, under names such as ``"allocated_bytes.all.peak"``.

    The first part is one of ``allocation``, ``segment``, ``active``, ``inactive_split`` (numbers of
    blocks), ``allocated_bytes``, ``reserved_bytes``, ``active_bytes``, ``inactive_split_bytes`` and
    ``requested_bytes``; the second is ``all``, ``large_pool`` or ``small_pool``; the third is
    ``current``, ``peak``, ``allocated`` (sum of increases) or ``freed`` (sum of decreases).
    ``oversize_allocations`` and ``oversize_segments`` have the third part only, and
    ``num_alloc_retries``, ``num_ooms``, ``num_sync_all_streams``, ``num_device_alloc``,
    ``num_device_free``, ``num_oom_rejections`` and ``max_split_size`` (-1: no limit) are single.

    Parameters
    ----------
    device
        Which; None is the current one. Before initialisation it is not looked at.

    Returns
    -------
    OrderedDict
        Sorted by name; empty before CUDA is initialised.

    Raises
    ------
    ValueError
        It is not a CUDA device.
    RuntimeError
        There is no such device.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.init()
    >>> torch.cuda.memory_stats()["num_ooms"]
    0
    """
    return _flat(memory_stats_as_nested_dict(device))


def memory_stats_as_nested_dict(device: DeviceArgument = None) -> dict[str, Any]:
    """The figures of `memory_stats` as dictionaries inside each other; {} before initialisation."""
    if not _state.is_initialized():
        return {}
    return _allocator.memory_stats_raw(_index(device))


def reset_peak_memory_stats(device: DeviceArgument = None) -> None:
    """Set every peak of a device to what is current. Initialises CUDA.

    Parameters and errors are those of `memory_stats`.
    """
    lazy_init.lazy_init()
    _allocator.reset_peak(_index(device))


def reset_accumulated_memory_stats(device: DeviceArgument = None) -> None:
    """Set the sums ``allocated`` and ``freed`` and all ``num_...`` to 0. Initialises CUDA.

    Parameters and errors are those of `memory_stats`.
    """
    lazy_init.lazy_init()
    _allocator.reset_accumulated(_index(device))


def memory_summary(device: DeviceArgument = None, abbreviated: bool = False) -> str:
    """The most telling figures of `memory_stats` as a table. Initialises CUDA.

    Parameters
    ----------
    device
        Which; None is the current one.
    abbreviated
        Whether to leave out the rows of the two pools.

    Returns
    -------
    str
        The table; all zeros where there is no device.
    """
    try:
        lazy_init.lazy_init()
    except DriverNotFoundError:
        index = device if isinstance(device, int) else getattr(device, "index", 0)
        return format_summary({}, index or 0, abbreviated)
    return format_summary(memory_stats(device), _index(device), abbreviated)


def host_memory_stats() -> OrderedDict[str, int]:
    """All figures of the allocator of pinned host memory, sorted by name.

    ``allocations`` and ``allocated_bytes`` are what it owns, ``active_requests`` and
    ``active_bytes`` what is in use, each with ``current``, ``peak``, ``allocated`` and ``freed``;
    ``host_alloc_time`` and ``host_free_time`` are microseconds of driver calls.

    Returns
    -------
    OrderedDict
        Empty before CUDA is initialised.
    """
    return _flat(host_memory_stats_as_nested_dict())


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """The figures of `host_memory_stats` as dictionaries inside each other."""
    return _allocator.host_memory_stats_raw()


def reset_peak_host_memory_stats() -> None:
    """Set every peak of pinned host memory to what is current."""
    _allocator.reset_peak_host()


def reset_accumulated_host_memory_stats() -> None:
    """Set the sums and counts of pinned host memory to 0."""
    _allocator.reset_accumulated_host()


def _flat(nested: dict[str, Any]) -> OrderedDict[str, int]:
    return OrderedDict(sorted(_leaves("", nested)))


def _leaves(prefix: str, nested: dict[Any, Any]) -> Iterator[tuple[str, int]]:
    for key, value in nested.items():
        name = "_".join(map(str, key)) if isinstance(key, tuple) else key
        if isinstance(value, dict):
            yield from _leaves(f"{prefix}{name}.", value)
        else:
            yield prefix + name, value


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
    """
    lazy_init.lazy_init()
    index = _limited(device)
    limit = _allocator.get_memory_limit(index)
    return 1.0 if limit is None else limit / _cuda_device.total_memory(index)


def _limited(device: DeviceArgument) -> int:
    return _index(_numbered(device), "Allocator not initialized for device")


# --- memory by address --------------------------------------------------------------------------


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
    """
    _allocator.raw_delete(mem_ptr)


def get_allocator_backend() -> Literal["native"]:
    """The name of the allocator in use: ``"native"``, flambeau's own."""
    return "native"


# --- old names ----------------------------------------------------------------------------------


def _old_name(old: str, new: str) -> None:
    warnings.warn(
        f"torch.cuda.{old} has been renamed to torch.cuda.{new}", FutureWarning, stacklevel=3
    )


def memory_cached(device: DeviceArgument = None) -> int:
    """The old name of `memory_reserved`; warns."""
    _old_name("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: DeviceArgument = None) -> int:
    """The old name of `max_memory_reserved`; warns."""
    _old_name("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def reset_max_memory_allocated(device: DeviceArgument = None) -> None:
    """Reset all peaks, as `reset_peak_memory_stats`, which it is an old name of; warns."""
    _old_name("reset_max_memory_allocated", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceArgument = None) -> None:
    """Reset all peaks, as `reset_peak_memory_stats`, which it is an old name of; warns."""
    _old_name("reset_max_memory_cached", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)
