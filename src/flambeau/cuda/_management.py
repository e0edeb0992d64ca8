# SPDX-License-Identifier: Apache-2.0
"""Figures of a device from the management library (NVML): load, heat, power, clocks, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau import driver
from flambeau.cuda import _visible_devices
from flambeau.cuda._utils import _get_device_index

if TYPE_CHECKING:
    from flambeau.cuda._utils import DeviceArgument
    from flambeau.driver.contract import Management

__all__ = [
    "clock_rate",
    "device_memory_used",
    "memory_usage",
    "power_draw",
    "temperature",
    "utilization",
]


def management_index(device: DeviceArgument) -> int:
    """The management library's number of a device, by ``CUDA_VISIBLE_DEVICES``.

    Raises
    ------
    RuntimeError
        The device is not visible to this process, or it is a MIG instance.
    """
    ordinal = _get_device_index(device, optional=True)
    value = _visible_devices.read()
    if _visible_devices.is_mig(_visible_devices.parse(value)):
        raise RuntimeError(
            f"{_visible_devices.VARIABLE}={value!r} names MIG instances, of which the management "
            "library gives no such figures. Ask about the whole GPU from a process that sees it."
        )
    management = driver.current().management
    indices = _visible_devices.resolve(value, management.device_count(), management.uuid)
    if not 0 <= ordinal < len(indices):
        raise RuntimeError(
            f"device {ordinal} is not visible: {_visible_devices.VARIABLE} is {value!r} and shows "
            f"{len(indices)} of {management.device_count()} devices"
        )
    return indices[ordinal]


def _of(device: DeviceArgument) -> tuple[Management, int]:
    return driver.current().management, management_index(device)


def utilization(device: DeviceArgument = None) -> int:
    """Percent of the last sample period in which a kernel ran on a device.

    Parameters
    ----------
    device
        Which; None is the current one. ``CUDA_VISIBLE_DEVICES`` is honoured.

    Raises
    ------
    DriverNotFoundError
        The management library (NVML) cannot be used.
    RuntimeError
        The device is not visible.

    Examples
    --------
    >>> import flambeau as torch
    >>> 0 <= torch.cuda.utilization(0) <= 100
    True
    """
    management, index = _of(device)
    return management.utilization(index)


def memory_usage(device: DeviceArgument = None) -> int:
    """Percent of the last sample period in which device memory was read or written.

    Parameters and errors are those of `utilization`. The amount in use is `device_memory_used`.

    Examples
    --------
    >>> import flambeau as torch
    >>> 0 <= torch.cuda.memory_usage() <= 100
    True
    """
    management, index = _of(device)
    return management.memory_utilization(index)


def device_memory_used(device: DeviceArgument = None) -> int:
    """Bytes of device memory in use by all processes.

    Parameters and errors are those of `utilization`.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.device_memory_used() > 0
    True
    """
    management, index = _of(device)
    return management.used_bytes(index)


def temperature(device: DeviceArgument = None) -> int:
    """Degrees Celsius of a device's sensor.

    Parameters and errors are those of `utilization`.

    Examples
    --------
    >>> import flambeau as torch
    >>> 0 < torch.cuda.temperature() < 120
    True
    """
    management, index = _of(device)
    return management.temperature(index)


def power_draw(device: DeviceArgument = None) -> int:
    """Milliwatts that a device draws.

    Parameters and errors are those of `utilization`.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.power_draw() > 0
    True
    """
    management, index = _of(device)
    return management.power_draw(index)


def clock_rate(device: DeviceArgument = None) -> int:
    """The clock of a device's multiprocessors in MHz.

    Parameters and errors are those of `utilization`.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.clock_rate() > 0
    True
    """
    management, index = _of(device)
    return management.clock_rate(index)
