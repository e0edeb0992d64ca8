# SPDX-License-Identifier: Apache-2.0
"""Loading cubins on NVIDIA GPUs."""

from __future__ import annotations

from flambeau.driver import _table
from flambeau.driver.errors import AcceleratorError
from flambeau.driver.nvidia import _nvidia
from flambeau.driver.status import describe

__all__ = ["NvidiaModules", "device_attribute"]


def device_attribute(which: int, device: int) -> int:
    """``cuDeviceGetAttribute`` of a device ordinal."""
    status, value = _nvidia.device_attribute(which, device)
    _table.check_status(status)
    return value


class NvidiaModules:
    """``cuModuleLoadDataEx`` and its kin, in the context of the calling thread.

    The caller has made the context of `device` current.
    """

    def load(self, image: bytes, device: int) -> int:
        """Load a cubin or PTX; a failure carries the driver's compiler log."""
        status, module, log = _nvidia.load_module(image)
        if status:
            said = f" The driver said: {log.strip()}" if log.strip() else ""
            raise AcceleratorError(
                f"CUDA error: {describe(status).text}\n"
                f"Code of {len(image)} bytes could not be loaded on device {device}.{said}",
                status,
            )
        return module

    def function(self, module: int, name: str) -> int:
        """Handle of the kernel `name`."""
        return _nvidia.module_function(module, name)

    def parameter_sizes(self, module: int, name: str) -> tuple[int, ...]:
        """The sizes in bytes of a kernel's parameters."""
        from cuda.bindings import driver

        function = driver.CUfunction(self.function(module, name))
        sizes: list[int] = []
        while True:
            status, _, size = driver.cuFuncGetParamInfo(function, len(sizes))
            if int(status) != 0:  # 1, invalid value: there are no more
                return tuple(sizes)
            sizes.append(int(size))

    def global_pointer(self, module: int, name: str) -> tuple[int, int]:
        """Address and size of a device variable."""
        return _nvidia.module_global(module, name)

    def unload(self, module: int) -> None:
        """Unload the module."""
        _nvidia.unload_module(module)
