# SPDX-License-Identifier: Apache-2.0
"""Device memory: statistics, limits, pools, snapshots and allocation by address.

Device memory comes from a caching allocator. *Allocated* is what tensors hold, *reserved* is what
was got from the driver, the difference is kept for later.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Literal

from flambeau import driver
from flambeau.cuda._management import management_index
from flambeau.cuda._memory_by_address import (
    caching_allocator_alloc,
    caching_allocator_delete,
    caching_allocator_disabled,
    caching_allocator_enable,
    numbered,
)
from flambeau.cuda._memory_history import (  # noqa: F401 - torch has them here
    _allocation_traceback,
    _annotate_tensor,
    _attach_out_of_memory_observer,
    _detach_out_of_memory_observer,
    _dump_snapshot,
    _get_memory_metadata,
    _memory_metadata_supported,
    _record_memory_history,
    _record_memory_history_legacy,
    _save_memory_usage,
    _save_segment_usage,
    _set_memory_metadata,
    _snapshot,
    memory_snapshot,
)
from flambeau.cuda._memory_pool import (  # noqa: F401 - torch has it here
    MemPool,
    _use_uvm,
    use_mem_pool,
)
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
from flambeau.cuda._pluggable_allocator import (  # noqa: F401 - torch has them here
    CUDAPluggableAllocator,
    _CUDAAllocator,
    _get_current_allocator,
    change_current_allocator,
)
from flambeau.cuda._utils import _get_device_index
from flambeau.driver.errors import DriverNotFoundError
from flambeau.runtime import _allocator, _allocator_settings, _cuda_device, _state, lazy_init
from flambeau.runtime._stream import BaseStream

if TYPE_CHECKING:
    from flambeau.cuda._utils import DeviceArgument
    from flambeau.runtime.out_of_memory import Figures

__all__ = [
    "CUDAPluggableAllocator",
    "MemPool",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "change_current_allocator",
    "empty_cache",
    "empty_host_cache",
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
    "memory_explain",
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
    "use_mem_pool",
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
    _state.note_pending()  # memory of tensors that died may wait to be freed
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


def empty_host_cache() -> None:
    """Give all pinned host memory that is not in use back to the driver (``cuMemFreeHost``).

    Nothing happens before CUDA is initialised.

    Examples
    --------
    >>> import flambeau as torch
    >>> p = torch.ones(1000).pin_memory()
    >>> del p
    >>> torch.cuda.memory.empty_host_cache()
    """
    _allocator.empty_host_cache()


def _host_allocator() -> int:
    """The address of the object that allocates pinned memory. Initialises CUDA."""
    return _allocator.host_allocator_address()


def memory_explain(device: DeviceArgument = None) -> Figures:
    """Where the memory of a device is: a balance that adds up. Initialises CUDA.

    The figures are those of an `OutOfMemoryError`, and its text says the same.

    Parameters
    ----------
    device
        Which; None is the current one.

    Returns
    -------
    Figures
        Amounts in bytes: ``total`` = ``free`` + ``elsewhere`` (other processes, the context) +
        ``reserved``; ``reserved`` = ``allocated`` + ``pending`` + ``idle_segments`` +
        ``split_remainders`` + ``pool_bytes``. As a str it is a report in lines.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.empty(1000, device="cuda")
    >>> figures = torch.cuda.memory_explain()
    >>> figures.total == figures.free + figures.elsewhere + figures.reserved
    True
    >>> "held by tensors" in str(figures)
    True
    """
    lazy_init.lazy_init()
    _allocator.check_native("memory reports")
    _state.note_pending()
    from flambeau.runtime import _allocator_report

    return _allocator_report.memory_balance(checked_index(device))


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
    limit = round(fraction * _cuda_device.total_memory(index))
    _allocator.set_memory_limit(index, None if fraction == 1 else limit)


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
    return checked_index(numbered(device), "Allocator not initialized for device")


def get_allocator_backend() -> Literal["native", "cudaMallocAsync", "pluggable"]:
    """The allocator in use.

    ``"native"`` is flambeau's own, ``"cudaMallocAsync"`` the driver's pools, which
    ``PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync`` chooses, ``"pluggable"`` the user's.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.get_allocator_backend()
    'native'
    """
    if _allocator.is_foreign():
        return "pluggable"
    return "cudaMallocAsync" if _allocator_settings.is_async() else "native"


def _set_allocator_settings(env: str) -> None:
    """Change allocator options while running, by the text of ``PYTORCH_ALLOC_CONF``; warns.

    Parameters
    ----------
    env
        The text, such as ``"max_split_size_mb:40"``. It counts as a whole or not at all.

    Raises
    ------
    AllocatorSettingsError
        The text is wrong: a ValueError and RuntimeError.
    RuntimeError
        It changes the backend.
    """
    warnings.warn(
        "torch.cuda.memory._set_allocator_settings is the old name of "
        "torch._C._accelerator_setAllocatorSettings",
        FutureWarning,
        stacklevel=2,
    )
    _allocator_settings.set_(env)


def _set_stream_reserve_class(stream: BaseStream | int, name: str | None) -> None:
    """Let a class of ``expandable_segments_reserve_by_class`` count for a stream's segments.

    Segments that grow later for the stream reserve as many addresses as the options give its class;
    without such a class, as many as ``expandable_segments_reserve`` says.

    Parameters
    ----------
    stream
        The stream or its handle.
    name
        The class; None takes the stream out of its class.

    Raises
    ------
    TypeError
        `stream` is no stream, or `name` no str.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.memory._set_stream_reserve_class(torch.cuda.Stream(), "small")
    """
    if not isinstance(name, str | None):
        raise TypeError(f"the class of a stream is a str or None, got {type(name).__name__}")
    handle = stream.cuda_stream if isinstance(stream, BaseStream) else stream
    if not isinstance(handle, int) or isinstance(handle, bool):
        raise TypeError(f"expected a Stream or its handle, got {type(stream).__name__}")
    _allocator_settings.attach_class(handle, name)
