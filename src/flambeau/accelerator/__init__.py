# SPDX-License-Identifier: Apache-2.0
"""Device-neutral calls, under the names of ``torch.accelerator``. The accelerator here is CUDA."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from flambeau.accelerator import memory, random
from flambeau.accelerator._devices import index_of, require_accelerator
from flambeau.accelerator.memory import (
    empty_cache,
    empty_host_cache,
    get_memory_info,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from flambeau.cuda import _availability, _device, streams
from flambeau.runtime import _dtype, _state
from flambeau.runtime._device import device as device_type

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from flambeau.accelerator.graphs import Graph
    from flambeau.cuda._utils import DeviceArgument
    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._stream import BaseStream, Stream

__all__ = [
    "Graph",
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "empty_host_cache",
    "get_device_capability",
    "get_memory_info",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "random",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_stream",
    "synchronize",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name == "graphs":
        return importlib.import_module(f"{__name__}.graphs")
    if name == "Graph":
        from flambeau.accelerator.graphs import Graph

        globals()["Graph"] = Graph
        return Graph
    raise AttributeError(f"module 'flambeau.accelerator' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "Graph", "graphs"})


def is_available() -> bool:
    """Whether there is a GPU to use. Initialises nothing.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.accelerator.is_available()
    True
    """
    return _availability.is_available()


def device_count() -> int:
    """How many GPUs this process sees; 0 without a driver.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.accelerator.device_count() == torch.cuda.device_count()
    True
    """
    return _availability.device_count()


def current_accelerator(check_available: bool = False) -> device_type | None:
    """The kind of accelerator: ``device(type='cuda')``, without a number.

    Parameters
    ----------
    check_available
        Give None where there is no GPU.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.accelerator.current_accelerator()
    device(type='cuda')
    """
    return None if check_available and not is_available() else device_type("cuda")


def current_device_index() -> int:
    """The number of the GPU that new work goes to.

    Raises
    ------
    RuntimeError
        There is no GPU. So it is with all functions that need one.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.accelerator.current_device_index()
    0
    """
    require_accelerator()
    return _device.current_device()


def set_device_index(device: DeviceArgument, /) -> None:
    """Choose the GPU that new work of this thread goes to.

    Parameters
    ----------
    device
        A number, or a device or string that has one.

    Raises
    ------
    ValueError
        It is not a CUDA device, or has no number.
    AcceleratorError
        There is no such device.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.accelerator.set_device_index(0)
    """
    _device.set_device(index_of(device, optional=False))


def _deprecated(old: str, new: str) -> None:
    warnings.warn(
        f"torch.accelerator.{old} is deprecated; use torch.accelerator.{new}",
        FutureWarning,
        stacklevel=3,
    )


def current_device_idx() -> int:
    """Old name of `current_device_index`. Deprecated.

    Examples
    --------
    >>> import flambeau as torch
    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> torch.accelerator.current_device_idx()
    0
    """
    _deprecated("current_device_idx", "current_device_index")
    return current_device_index()


def set_device_idx(device: DeviceArgument, /) -> None:
    """Old name of `set_device_index`. Deprecated.

    Examples
    --------
    >>> import flambeau as torch
    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> torch.accelerator.set_device_idx(0)
    """
    _deprecated("set_device_idx", "set_device_index")
    set_device_index(device)


class device_index:  # noqa: N801 - torch's name
    """Context manager that switches the GPU by its number.

    Parameters
    ----------
    device
        The number; None changes nothing.

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.accelerator.device_index(0):
    ...     torch.ones(1, device="cuda").device
    device(type='cuda', index=0)
    """

    def __init__(self, device: int | None, /) -> None:
        if device is not None and (isinstance(device, bool) or not isinstance(device, int)):
            raise TypeError(f"device_index takes a number or None, not {type(device).__name__}")
        self.idx = device
        self.prev_idx = -1

    def __enter__(self) -> Self:
        if self.idx is not None:
            require_accelerator()
            self.prev_idx = _state.exchange_device(self.idx)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.idx is not None:
            _state.maybe_exchange_device(self.prev_idx)


def get_device_capability(device: DeviceArgument = None, /) -> dict[str, set[dtype]]:
    """What a GPU can do.

    Parameters
    ----------
    device
        Which; None is the current one.

    Returns
    -------
    dict
        ``"supported_dtypes"``: the set of dtypes that tensors on it may have.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.bfloat16 in torch.accelerator.get_device_capability()["supported_dtypes"]
    True
    """
    _device.get_device_properties(index_of(device))  # there is one
    return {"supported_dtypes": set(_dtype.dtypes.values())}


def current_stream(device: DeviceArgument = None, /) -> Stream:
    """The stream that takes this thread's work for a GPU; None is the current one.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.accelerator.current_stream() == torch.cuda.default_stream()
    True
    """
    return streams.current_stream(index_of(device))


def set_stream(stream: BaseStream) -> None:
    """Make a stream current for this thread, and its GPU too.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.accelerator.set_stream(torch.cuda.default_stream())
    """
    require_accelerator()
    if stream is None:
        raise TypeError("set_stream needs a stream, not None")
    streams.set_stream(stream)


def synchronize(device: DeviceArgument = None, /) -> None:
    """Wait until a GPU has no work left; None is the current one.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.accelerator.synchronize()
    """
    _device.synchronize(index_of(device))
