# SPDX-License-Identifier: Apache-2.0
"""The current device, and questions about devices."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from flambeau.cuda._utils import _get_device_index
from flambeau.driver.errors import FlambeauError
from flambeau.runtime import _cuda_device, _state, lazy_init, sync_debug
from flambeau.runtime._cuda_device import current_device, device

if TYPE_CHECKING:
    from flambeau.cuda._properties import _CudaDeviceProperties
    from flambeau.cuda._utils import DeviceArgument

__all__ = [
    "InvalidDeviceError",
    "can_device_access_peer",
    "current_device",
    "device",
    "device_of",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "ipc_collect",
    "set_device",
    "synchronize",
]

_CAPABILITY = (75, 76)  # the numbers of CUdevice_attribute for major and minor


class InvalidDeviceError(FlambeauError, AssertionError, ValueError):
    """A device number that no device has. An `AssertionError` too, as in torch."""


class device_of(device):  # noqa: N801 - torch's name
    """Context manager that makes the device of a CUDA tensor or storage current.

    Parameters
    ----------
    obj
        A tensor or storage. If it is not on a CUDA device the manager does nothing.

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.cuda.device_of(torch.ones(1, device="cuda:0")):
    ...     torch.cuda.current_device()
    0
    """

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)


def set_device(device: DeviceArgument) -> None:
    """Make a device current for the calling thread, with its context.

    `torch.cuda.device` as a context manager, or ``CUDA_VISIBLE_DEVICES``, usually serve better.

    Parameters
    ----------
    device
        Which; it must name a number. A negative one changes nothing.

    Raises
    ------
    ValueError
        No number is given, or it is not a CUDA device.
    AcceleratorError
        There is no such device (101).
    RuntimeError
        ``TORCH_CUDA_CHECK_STRAY_CONTEXT=error`` and this process has a context on another device;
        with ``warn`` it is a warning. The variable is read at each call.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.set_device("cuda:0")
    """
    index = _get_device_index(device)
    if index < 0:
        return
    _state.set_device(index)
    check = os.environ.get("TORCH_CUDA_CHECK_STRAY_CONTEXT")
    if check in {"warn", "error"}:
        _report_stray_contexts(index, check == "error")


def _report_stray_contexts(index: int, as_error: bool) -> None:
    stray = [other for other in _primary_context_devices() if other != index]
    if not stray:
        return
    message = (
        f"set_device({index}) found CUDA contexts of this process on device"
        f"{'s' if len(stray) > 1 else ''} {', '.join(map(str, stray))} already. Each holds some "
        "hundred megabytes there. Call set_device before anything else that uses CUDA, or hide "
        "the other devices with CUDA_VISIBLE_DEVICES."
    )
    if as_error:
        raise RuntimeError(message)
    warnings.warn(message, stacklevel=3)


def _primary_context_devices() -> list[int]:
    """The devices on which this process has a primary context; none before initialisation."""
    if not lazy_init.is_initialized():
        return []
    return [i for i in range(_cuda_device.device_total()) if _cuda_device.has_context(i)]


def synchronize(device: DeviceArgument = None) -> None:
    """Wait until all work on all streams of a device is done (``cuCtxSynchronize``).

    Other Python threads run meanwhile.

    Parameters
    ----------
    device
        Which; None is the current one.

    Raises
    ------
    ValueError
        It is not a CUDA device.
    AcceleratorError
        There is no such device (101), or earlier work on it failed.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.synchronize("cuda:0")
    """
    lazy_init.lazy_init()
    sync_debug.report_explicit("torch.cuda.synchronize")
    _state.synchronize(_get_device_index(device, optional=True))


def ipc_collect() -> None:
    """Take back device memory that no process needs any more. Initialises CUDA.

    That is memory of tensors which were sent to other processes, are gone here, and have been
    dropped there; and the frees that finalizers left for the next call. Both happen by themselves
    when memory runs short or the next tensor that was sent dies.

    Raises
    ------
    RuntimeError
        There is no driver or no device.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.ipc_collect()
    """
    lazy_init.lazy_init()
    _state.note_pending()
    sharing = sys.modules.get("flambeau.runtime._sharing")  # nothing was sent unless it is loaded
    if sharing is not None:
        sharing.collect()


def get_device_properties(device: DeviceArgument = None) -> _CudaDeviceProperties:
    """What the driver says about a device.

    Parameters
    ----------
    device
        Which; None is the current one.

    Returns
    -------
    _CudaDeviceProperties
        Name, compute capability, memory in bytes, clocks in kHz and limits.

    Raises
    ------
    InvalidDeviceError
        There is no such device; it is an `AssertionError` and a `ValueError`.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.get_device_properties(0).warp_size
    32
    """
    from flambeau.cuda._properties import read_properties

    return read_properties(_existing(device))


def get_device_name(device: DeviceArgument = None) -> str:
    """The name of a device; arguments and errors as for `get_device_properties`.

    Examples
    --------
    >>> import flambeau as torch
    >>> "H200" in torch.cuda.get_device_name(0)
    True
    """
    return _cuda_device.name(_existing(device))


def get_device_capability(device: DeviceArgument = None) -> tuple[int, int]:
    """The compute capability of a device, major and minor.

    Arguments and errors are those of `get_device_properties`.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.get_device_capability() >= (7, 5)
    True
    """
    index = _existing(device)
    major, minor = (_cuda_device.attribute(index, which) for which in _CAPABILITY)
    return major, minor


def can_device_access_peer(device: DeviceArgument, peer_device: DeviceArgument) -> bool:
    """Whether a device can read and write another's memory (``cuDeviceCanAccessPeer``).

    Parameters
    ----------
    device
        The device that accesses; None is the current one.
    peer_device
        The device whose memory is accessed; it must name a number.

    Returns
    -------
    bool
        False for a device and itself.

    Raises
    ------
    InvalidDeviceError
        One of them does not exist; it is an `AssertionError` and a `ValueError`.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.can_device_access_peer(0, 0)
    False
    """
    index = _existing(device)
    peer = _require(_get_device_index(peer_device), "Invalid peer device id")
    return index != peer and _cuda_device.can_access_peer(index, peer)


def _existing(device: DeviceArgument) -> int:
    lazy_init.lazy_init()
    return _require(_get_device_index(device, optional=True), "Invalid device id")


def _require(index: int, problem: str) -> int:
    total = _cuda_device.device_total()
    if not 0 <= index < total:
        raise InvalidDeviceError(
            f"{problem}: {index} was given, and this process sees {total} device"
            f"{'' if total == 1 else 's'}, numbered from 0."
        )
    return index


def _exchange_device(device: int) -> int:
    """Make a device current, with its context, and return the previous; -1 for a negative one."""
    return _state.exchange_device(device)


def _maybe_exchange_device(device: int) -> int:
    """As `_exchange_device`, but a device without a context gets none."""
    return _state.maybe_exchange_device(device)


def _sleep(cycles: int) -> None:
    """Keep the current stream busy for about this many clock cycles of the device."""
    _cuda_device.spin(cycles)
