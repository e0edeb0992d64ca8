# SPDX-License-Identifier: Apache-2.0
"""Figures of NVIDIA GPUs from the management library, NVML. It never makes a context."""

from __future__ import annotations

import threading
from typing import Any

from flambeau.driver.contract import ProcessInfo
from flambeau.driver.errors import DriverNotFoundError

__all__ = ["NvidiaManagement"]

_GPU_SENSOR = 0  # NVML_TEMPERATURE_GPU
_SM_CLOCK = 1  # NVML_CLOCK_SM


class NvidiaManagement:
    """The figures, each a fresh reading. The library starts at the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nvml: Any = None

    def _library(self) -> Any:
        with self._lock:
            if self._nvml is None:
                from cuda.bindings import nvml

                try:
                    nvml.init_v2()
                except (RuntimeError, nvml.NvmlError) as error:
                    raise DriverNotFoundError(
                        "The management library (libnvidia-ml.so.1) cannot be used: cuda driver "
                        f"can't be loaded, is there a GPU? ({error})"
                    ) from error
                self._nvml = nvml
            return self._nvml

    def _read(self, getter: str, index: int, *arguments: int) -> Any:
        """One reading of a GPU; what the GPU does not offer becomes a RuntimeError that says so."""
        nvml = self._library()
        try:
            device = nvml.device_get_handle_by_index_v2(index)
            return getattr(nvml, getter)(device, *arguments)
        except nvml.NvmlError as error:
            raise RuntimeError(
                f"GPU {index} does not answer {getter}: {error}. Not every GPU and every user may "
                "read every figure; nvidia-smi shows which."
            ) from error

    def device_count(self) -> int:
        """How many GPUs the machine has."""
        return int(self._library().device_get_count_v2())

    def uuid(self, index: int) -> str:
        """``GPU-`` and 36 characters."""
        return str(self._read("device_get_uuid", index))

    def utilization(self, index: int) -> int:
        """Percent of the last sample period in which a kernel ran."""
        return int(self._read("device_get_utilization_rates", index).gpu)

    def memory_utilization(self, index: int) -> int:
        """Percent of the last sample period in which memory was read or written."""
        return int(self._read("device_get_utilization_rates", index).memory)

    def used_bytes(self, index: int) -> int:
        """Bytes of device memory in use by all processes."""
        return int(self._read("device_get_memory_info_v2", index).used)

    def temperature(self, index: int) -> int:
        """Degrees Celsius."""
        return int(self._read("device_get_temperature_v", index, _GPU_SENSOR))

    def power_draw(self, index: int) -> int:
        """Milliwatts."""
        return int(self._read("device_get_power_usage", index))

    def clock_rate(self, index: int) -> int:
        """The multiprocessors' clock in MHz."""
        return int(self._read("device_get_clock_info", index, _SM_CLOCK))

    def processes(self, index: int) -> list[ProcessInfo]:
        """Processes with compute contexts."""
        running = self._read("device_get_compute_running_processes_v3", index)
        return [ProcessInfo(int(p.pid), int(p.used_gpu_memory)) for p in running]
