# SPDX-License-Identifier: Apache-2.0
"""Device-neutral questions about memory. Figures are in bytes and begin at the first allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.accelerator._devices import index_of, require_accelerator
from flambeau.cuda import memory

if TYPE_CHECKING:
    from collections import OrderedDict

    from flambeau.cuda._utils import DeviceArgument

__all__ = [
    "empty_cache",
    "empty_host_cache",
    "get_memory_info",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]


def empty_cache() -> None:
    """Give device memory that no tensor needs back to the driver.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.accelerator.empty_cache()
    """
    memory.empty_cache()


def empty_host_cache() -> None:
    """Give page-locked memory that no tensor needs back.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.accelerator.empty_host_cache()
    """
    memory.empty_host_cache()


def get_memory_info(device_index: DeviceArgument = None, /) -> tuple[int, int]:
    """Free and total memory of a GPU, as the driver counts them (``cuMemGetInfo``).

    Parameters
    ----------
    device_index
        Which; None is the current one. So it is with all functions here.

    Raises
    ------
    RuntimeError
        There is no GPU. So it is with all functions here that take one.

    Examples
    --------
    >>> import flambeau as torch
    >>> free, total = torch.accelerator.get_memory_info()
    >>> 0 < free <= total
    True
    """
    return memory.mem_get_info(index_of(device_index))


def memory_stats(device_index: DeviceArgument = None, /) -> OrderedDict[str, Any]:
    """Counters of the caching allocator, flat: see `torch.cuda.memory_stats`.

    Examples
    --------
    >>> import flambeau as torch
    >>> stats = torch.accelerator.memory_stats()
    >>> stats["allocated_bytes.all.current"] == torch.accelerator.memory_allocated()
    True
    """
    return memory.memory_stats(index_of(device_index))


def memory_allocated(device_index: DeviceArgument = None, /) -> int:
    """Bytes that tensors hold.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.empty(1024, device="cuda")
    >>> before = torch.accelerator.memory_allocated()
    >>> del x
    >>> before - torch.accelerator.memory_allocated()
    4096
    """
    return memory.memory_allocated(index_of(device_index))


def max_memory_allocated(device_index: DeviceArgument = None, /) -> int:
    """The most bytes that tensors held since the start or `reset_peak_memory_stats`.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.accelerator.max_memory_allocated() >= torch.accelerator.memory_allocated()
    True
    """
    return memory.max_memory_allocated(index_of(device_index))


def memory_reserved(device_index: DeviceArgument = None, /) -> int:
    """Bytes that the allocator holds of the driver's.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.accelerator.memory_reserved() >= torch.accelerator.memory_allocated()
    True
    """
    return memory.memory_reserved(index_of(device_index))


def max_memory_reserved(device_index: DeviceArgument = None, /) -> int:
    """The most bytes that the allocator held since the start or `reset_peak_memory_stats`.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.accelerator.max_memory_reserved() >= torch.accelerator.memory_reserved()
    True
    """
    return memory.max_memory_reserved(index_of(device_index))


def reset_accumulated_memory_stats(device_index: DeviceArgument = None, /) -> None:
    """Begin the running totals, such as bytes allocated ever, at 0.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.accelerator.reset_accumulated_memory_stats()
    >>> torch.accelerator.memory_stats()["allocated_bytes.all.allocated"]
    0
    """
    memory.reset_accumulated_memory_stats(index_of(device_index))


def reset_peak_memory_stats(device_index: DeviceArgument = None, /) -> None:
    """Begin the peaks at what is held now.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.accelerator.reset_peak_memory_stats()
    >>> torch.accelerator.max_memory_allocated() == torch.accelerator.memory_allocated()
    True
    """
    memory.reset_peak_memory_stats(index_of(device_index))


def _snapshot(device: DeviceArgument = None, augment_with_fx_traces: bool = False) -> Any:
    """The allocator's state: that of `torch.cuda.memory._snapshot`."""
    require_accelerator()
    if augment_with_fx_traces:
        raise NotImplementedError("flambeau has no FX traces to add to a snapshot")
    from flambeau.cuda._memory_history import _snapshot as snapshot

    return snapshot(None if device is None else index_of(device))
