# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's driver behind the contract."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from flambeau.driver import _table
from flambeau.driver.contract import CodeTarget, Feature
from flambeau.driver.errors import DriverNotFoundError
from flambeau.driver.nvidia import _nvidia
from flambeau.driver.nvidia.cupti import NvidiaActivity
from flambeau.driver.nvidia.management import NvidiaManagement
from flambeau.driver.nvidia.modules import NvidiaModules, device_attribute

if TYPE_CHECKING:
    from flambeau.driver.contract import Collectives, Files, GreenContexts
    from flambeau.driver.nvidia.libraries import NvidiaLibraries

__all__ = ["MINIMUM_VERSION", "NvidiaDriver"]

LIBRARY = "libcuda.so.1"
MINIMUM_VERSION = 13000
"""The oldest driver that is served, as ``cuDriverGetVersion`` counts: 13.0, driver branch 580."""

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_SINCE: dict[str, int] = {"graph_node_ids": 13010, "green_contexts": 12080}
_NEVER: frozenset[Feature] = frozenset({"fault_details", "block_bounds"})


class NvidiaDriver:
    """The driver of ``libcuda.so.1``, loaded when its table is first asked for."""

    name = "nvidia"

    def __init__(self) -> None:
        self.modules = NvidiaModules()
        self.management = NvidiaManagement()
        self.activity = NvidiaActivity()
        self._targets: dict[int, CodeTarget] = {}

    @functools.cached_property
    def collectives(self) -> Collectives:
        """NCCL, loaded at its first use."""
        from flambeau.driver.nvidia.nccl import NvidiaCollectives

        return NvidiaCollectives()

    @functools.cached_property
    def green_contexts(self) -> GreenContexts:
        """Green contexts, by cuda-bindings."""
        from flambeau.driver.nvidia.green_context import NvidiaGreenContexts

        return NvidiaGreenContexts()

    @functools.cached_property
    def files(self) -> Files:
        """CuFile, loaded at its first use."""
        from flambeau.driver.nvidia.cufile import NvidiaFiles

        return NvidiaFiles()

    def table(self) -> int:
        """Load the library and fill the table; see `flambeau.driver.contract.Driver.table`."""
        outcome, reason, _ = _nvidia.load(LIBRARY)
        if outcome == 1:
            raise DriverNotFoundError(
                "Found no NVIDIA driver on your system. "
                f"{LIBRARY} could not be loaded ({reason}). Install a driver from "
                "https://www.nvidia.com/drivers, start the container with its GPUs, or use a "
                "virtual GPU: set FLAMBEAU_VIRTUAL=h200 or run `flambeau run --virtual`."
            )
        if outcome == 2:
            raise DriverNotFoundError(
                f"The NVIDIA driver is too old: {LIBRARY} was found, but {reason}. "
                "flambeau needs driver branch 580 (CUDA 13.0) or newer."
            )
        _nvidia.set_cublaslt_locator(functools.partial(_locate, "cublasLt"))
        _nvidia.set_cublas_locator(functools.partial(_locate, "cublas"))
        return _nvidia.table()

    @functools.cached_property
    def libraries(self) -> NvidiaLibraries:
        """The math libraries, each loaded at first use."""
        from flambeau.driver.nvidia.libraries import NvidiaLibraries

        return NvidiaLibraries()

    def supports(self, feature: Feature) -> bool:
        """Whether this driver version offers a feature."""
        if feature in _NEVER:
            return False
        if feature == "programmatic_launch":
            count = _nvidia.device_count()
            return all(device_attribute(_MAJOR, device) >= 9 for device in range(count))
        needed = _SINCE.get(feature)
        return needed is None or _nvidia.driver_version() >= needed

    def code_target(self, device: int) -> CodeTarget:
        """Machine code for the exact architecture: an older driver refuses a newer PTX."""
        target = self._targets.get(device)
        if target is None:
            major, minor = (device_attribute(which, device) for which in (_MAJOR, _MINOR))
            target = self._targets[device] = CodeTarget("cubin", f"sm_{major}{minor}")
        return target

    def explain(self, status: int) -> str | None:
        """Say what cuBLASLt said, if a matrix product was what failed."""
        trouble, blas_status = _nvidia.take_blas_trouble()
        if status == 500 and trouble:
            return f"A matrix product needs cuBLAS, which could not be loaded: {trouble}"
        if blas_status:
            return f"cuBLAS answered with status {blas_status}."
        return None

    def shutdown(self) -> None:
        """Leave everything to the process's end: the driver frees a dying process's memory."""
        _table.set_explainer(None)


def _locate(library: str) -> int:
    from flambeau.driver.nvidia._shared_library import dlopen_handle

    return dlopen_handle(library)
