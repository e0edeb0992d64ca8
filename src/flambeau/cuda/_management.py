# SPDX-License-Identifier: Apache-2.0
"""Figures of a device from the management library (NVML): load, heat, power, clocks, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau import driver
from flambeau.cuda import _visible_devices
from flambeau.cuda._utils import _get_device_index
from flambeau.runtime import _cuda_device, lazy_init

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
    """The management library's number of a device.

    Once CUDA is initialised the device's UUID tells, whatever the order of the devices; before
    that ``CUDA_VISIBLE_DEVICES`` does.

    Raises
    ------
    RuntimeError
        The device is not visible to this process, or it is a MIG instance.
    """
    ordinal = _get_device_index(device, optional=True)
    management = driver.current().management
    count = management.device_count()
    if lazy_init.is_initialized():
        visible = _cuda_device.device_total()
        if 0 <= ordinal < visible:
            return _index_of_uuid(_uuid(ordinal), [management.uuid(i) for i in range(count)])
    else:
        value = _visible_devices.read()
        if _visible_devices.is_mig(_visible_devices.parse(value)):
            raise _mig_error(f"{_visible_devices.VARIABLE}={value!r}")
        indices = _visible_devices.resolve(value, count, management.uuid)
        visible = len(indices)
        if 0 <= ordinal < visible:
            return indices[ordinal]
    raise RuntimeError(
        f"device {ordinal} is not visible: this process sees {visible} of the machine's {count} "
        f"device{'' if count == 1 else 's'}, numbered from 0; {_visible_devices.VARIABLE} chooses "
        "them"
    )


def _uuid(ordinal: int) -> str:
    from flambeau.cuda._properties import read_properties

    return f"GPU-{read_properties(ordinal).uuid}"


def _index_of_uuid(wanted: str, uuids: list[str]) -> int:
    if wanted not in uuids:
        raise _mig_error(f"device {wanted}")
    return uuids.index(wanted)


def _mig_error(what: str) -> RuntimeError:
    return RuntimeError(
        f"{what} is a MIG instance, of which the management library gives no such figures. Ask "
        "about the whole GPU from a process that sees it."
    )


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
