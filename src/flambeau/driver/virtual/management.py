# SPDX-License-Identifier: Apache-2.0
"""Management figures of virtual GPUs: what NVML would say of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flambeau.driver.contract import ProcessInfo
from flambeau.driver.virtual import _machine

if TYPE_CHECKING:
    from flambeau.driver.virtual.config import Plan

__all__ = ["VirtualManagement"]

_IDLE_CELSIUS = 35
_IDLE_MILLIWATTS = 75_000


class VirtualManagement:
    """NVML's questions, answered by the device model.

    A virtual GPU belongs to one process, so what others use of it is always nothing. It is idle
    whenever it is asked, because work runs when it is waited for: utilisation is 0, temperature and
    power are those of an idle device.

    Parameters
    ----------
    plan
        The machine's devices.
    """

    def __init__(self, plan: Plan) -> None:
        self._models = plan.models

    def _check(self, index: int) -> int:
        if not 0 <= index < len(self._models):
            raise IndexError(
                f"there is no GPU {index}; the virtual machine has {len(self._models)}, "
                f"counted from 0"
            )
        return index

    def device_count(self) -> int:
        """How many GPUs the machine has, visible or not."""
        return len(self._models)

    def uuid(self, index: int) -> str:
        """``GPU-`` and 36 characters, the same in every process."""
        return _machine.device_uuid(self._models[self._check(index)].name, index)

    def utilization(self, index: int) -> int:
        """Percent of time in which a kernel ran: 0."""
        self._check(index)
        return 0

    def memory_utilization(self, index: int) -> int:
        """Percent of time in which memory was read or written: 0."""
        self._check(index)
        return 0

    def used_bytes(self, index: int) -> int:
        """Bytes in use on the device, an active context's own included."""
        return _machine.used_bytes(self._check(index))

    def temperature(self, index: int) -> int:
        """Degrees Celsius."""
        self._check(index)
        return _IDLE_CELSIUS

    def power_draw(self, index: int) -> int:
        """Milliwatts."""
        self._check(index)
        return _IDLE_MILLIWATTS

    def clock_rate(self, index: int) -> int:
        """The multiprocessors' clock in MHz."""
        return self._models[self._check(index)].clock_khz // 1000

    def processes(self, index: int) -> list[ProcessInfo]:
        """Only the calling process, if it has a context on the device."""
        used = self.used_bytes(index)
        return [ProcessInfo(os.getpid(), used)] if used else []
