# SPDX-License-Identifier: Apache-2.0
"""What memory is in use: the figures of the caching allocators.

Questions before CUDA is initialised answer with zeros or nothing and do not initialise it.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from flambeau.cuda._memory_summary import format_summary
from flambeau.cuda._utils import _get_device_index
from flambeau.driver.errors import DriverNotFoundError
from flambeau.runtime import _allocator, _cuda_device, _state, lazy_init

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flambeau.cuda._utils import DeviceArgument

__all__ = [
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
]


def checked_index(device: DeviceArgument, problem: str = "Invalid device argument") -> int:
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
    return _allocator.allocated_bytes(checked_index(device)) if _state.is_initialized() else 0


def max_memory_allocated(device: DeviceArgument = None) -> int:
    """The most bytes that tensors held at once, since the start or the last peak reset.

    Parameters and errors are those of `memory_allocated`.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()
    True
    """
    return _allocator.max_allocated_bytes(checked_index(device)) if _state.is_initialized() else 0


def memory_reserved(device: DeviceArgument = None) -> int:
    """Bytes that the caching allocator has from the driver now.

    Parameters and errors are those of `memory_allocated`.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    True
    """
    return _allocator.reserved_bytes(checked_index(device)) if _state.is_initialized() else 0


def max_memory_reserved(device: DeviceArgument = None) -> int:
    """The most bytes that were reserved at once, since the start or the last peak reset.

    Parameters and errors are those of `memory_allocated`.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.max_memory_reserved() >= torch.cuda.memory_reserved()
    True
    """
    return _allocator.max_reserved_bytes(checked_index(device)) if _state.is_initialized() else 0


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
    """The figures of `memory_stats` as dictionaries inside each other; {} before initialisation.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.init()
    >>> sorted(torch.cuda.memory_stats_as_nested_dict()["segment"])
    ['all', 'large_pool', 'small_pool']
    """
    if not _state.is_initialized():
        return {}
    return _allocator.memory_stats_raw(checked_index(device))


def reset_peak_memory_stats(device: DeviceArgument = None) -> None:
    """Set every peak of a device to what is current. Initialises CUDA.

    Parameters and errors are those of `memory_stats`.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.reset_peak_memory_stats()
    >>> torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    True
    """
    lazy_init.lazy_init()
    _allocator.reset_peak(checked_index(device))


def reset_accumulated_memory_stats(device: DeviceArgument = None) -> None:
    """Set the sums ``allocated`` and ``freed`` and all ``num_...`` to 0. Initialises CUDA.

    Parameters and errors are those of `memory_stats`.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.reset_accumulated_memory_stats()
    >>> torch.cuda.memory_stats()["allocated_bytes.all.freed"]
    0
    """
    lazy_init.lazy_init()
    _allocator.reset_accumulated(checked_index(device))


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

    Examples
    --------
    >>> import flambeau as torch
    >>> table = torch.cuda.memory_summary(abbreviated=True)
    >>> "Allocated memory" in table
    True
    """
    try:
        lazy_init.lazy_init()
    except DriverNotFoundError:
        index = device if isinstance(device, int) else getattr(device, "index", 0)
        return format_summary({}, index or 0, abbreviated)
    return format_summary(memory_stats(device), checked_index(device), abbreviated)


def host_memory_stats() -> OrderedDict[str, int]:
    """All figures of the allocator of pinned host memory, sorted by name.

    ``allocations`` and ``allocated_bytes`` are what it owns, ``active_requests`` and
    ``active_bytes`` what is in use, each with ``current``, ``peak``, ``allocated`` and ``freed``;
    ``host_alloc_time`` and ``host_free_time`` are microseconds of driver calls.

    Returns
    -------
    OrderedDict
        Empty before CUDA is initialised.

    Examples
    --------
    >>> import flambeau as torch
    >>> p = torch.ones(1000).pin_memory()
    >>> torch.cuda.host_memory_stats()["active_bytes.current"] >= 4000
    True
    """
    return _flat(host_memory_stats_as_nested_dict())


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """The figures of `host_memory_stats` as dictionaries inside each other.

    Examples
    --------
    >>> import flambeau as torch
    >>> p = torch.ones(1).pin_memory()
    >>> torch.cuda.host_memory_stats_as_nested_dict()["allocations"]["current"] > 0
    True
    """
    return _allocator.host_memory_stats_raw()


def reset_peak_host_memory_stats() -> None:
    """Set every peak of pinned host memory to what is current.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.reset_peak_host_memory_stats()
    """
    _allocator.reset_peak_host()


def reset_accumulated_host_memory_stats() -> None:
    """Set the sums and counts of pinned host memory to 0.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.reset_accumulated_host_memory_stats()
    """
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


# --- old names ----------------------------------------------------------------------------------


def _old_name(old: str, new: str) -> None:
    warnings.warn(
        f"torch.cuda.{old} has been renamed to torch.cuda.{new}", FutureWarning, stacklevel=3
    )


def memory_cached(device: DeviceArgument = None) -> int:
    """The old name of `memory_reserved`; warns.

    Examples
    --------
    >>> import flambeau as torch
    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> torch.cuda.memory_cached() == torch.cuda.memory_reserved()
    True
    """
    _old_name("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: DeviceArgument = None) -> int:
    """The old name of `max_memory_reserved`; warns.

    Examples
    --------
    >>> import flambeau as torch
    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> torch.cuda.max_memory_cached() == torch.cuda.max_memory_reserved()
    True
    """
    _old_name("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def reset_max_memory_allocated(device: DeviceArgument = None) -> None:
    """Reset all peaks, as `reset_peak_memory_stats`, which it is an old name of; warns.

    Examples
    --------
    >>> import flambeau as torch
    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> torch.cuda.reset_max_memory_allocated()
    >>> torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    True
    """
    _old_name("reset_max_memory_allocated", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceArgument = None) -> None:
    """Reset all peaks, as `reset_peak_memory_stats`, which it is an old name of; warns.

    Examples
    --------
    >>> import flambeau as torch
    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> torch.cuda.reset_max_memory_cached()
    >>> torch.cuda.max_memory_reserved() == torch.cuda.memory_reserved()
    True
    """
    _old_name("reset_max_memory_cached", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)
