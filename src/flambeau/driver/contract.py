# SPDX-License-Identifier: Apache-2.0
"""The driver contract: what flambeau asks of "a CUDA driver", whichever it has.

The contract has a hot and a cold half. The hot half is the C table of ``table.hpp``: function
pointers with the CUDA Driver API's names, argument orders, units and status codes. The cold half
is the classes below. ``nvidia/`` and ``virtual/`` each implement both; nothing above this package
asks which one it has. What a driver may or may not offer is asked with `Driver.supports`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from flambeau.driver.activity import Activity
    from flambeau.driver.libraries import Libraries

__all__ = ["CodeTarget", "Driver", "Feature", "Management", "Modules", "ProcessInfo"]

Feature = Literal[
    "graph_node_ids",  # kernels of a graph carry ids in traces
    "green_contexts",
    "programmatic_launch",  # launch attribute 6 and griddepcontrol, on every device
    "quick_queries",  # event and stream queries run no work and call nobody back
    "fault_details",  # the driver knows thread and address of a fault
    "ipc_memory",
    "ipc_events",
    "virtual_memory",  # address ranges and physical memory apart
    "block_bounds",  # it wants to know, now, what a caching allocator hands out
]


@dataclass(frozen=True, slots=True)
class CodeTarget:
    """What to compile for a device.

    Parameters
    ----------
    kind
        ``"cubin"`` for machine code, ``"ptx"`` for PTX.
    arch
        What the compiler is told: ``"sm_90"`` for a cubin, ``"compute_80"`` for PTX.
    """

    kind: Literal["cubin", "ptx"]
    arch: str


class Modules(Protocol):
    """Loading compiled code (``cuModuleLoadDataEx``, ``cuModuleGetFunction``).

    All calls act on the context of `device`, which must be initialised.
    """

    def load(self, image: bytes, device: int) -> int:
        """Load a cubin or NUL-free PTX text; the module's handle.

        Raises
        ------
        AcceleratorError
            The image is not code for this device (200, 209, 218).
        UnsupportedPtxError
            A virtual GPU does not know one of its instructions.
        """

    def function(self, module: int, name: str) -> int:
        """The ``CUfunction`` of a kernel; error 500 if the module has none of this name."""

    def parameter_sizes(self, module: int, name: str) -> tuple[int, ...]:
        """The sizes in bytes of a kernel's parameters, in order (``cuFuncGetParamInfo``)."""

    def global_pointer(self, module: int, name: str) -> tuple[int, int]:
        """Address and size in bytes of a ``__device__`` or ``__constant__`` variable."""

    def unload(self, module: int) -> None:
        """Unload; its functions must not be used again."""


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process that has memory on a GPU.

    Parameters
    ----------
    pid
        Process id.
    used_bytes
        Bytes of device memory it holds.
    """

    pid: int
    used_bytes: int


class Management(Protocol):
    """The management library's view (NVML). It never makes a context.

    Indices here are physical: NVML's, before ``CUDA_VISIBLE_DEVICES``.
    """

    def device_count(self) -> int:
        """How many GPUs the machine has."""

    def uuid(self, index: int) -> str:
        """``GPU-`` and 36 characters."""

    def utilization(self, index: int) -> int:
        """Percent of the last sample period in which a kernel ran."""

    def memory_utilization(self, index: int) -> int:
        """Percent of the last sample period in which memory was read or written."""

    def used_bytes(self, index: int) -> int:
        """Bytes of device memory in use by all processes."""

    def temperature(self, index: int) -> int:
        """Degrees Celsius."""

    def power_draw(self, index: int) -> int:
        """Milliwatts."""

    def clock_rate(self, index: int) -> int:
        """The multiprocessors' clock in MHz."""

    def processes(self, index: int) -> list[ProcessInfo]:
        """Processes with compute contexts."""


@runtime_checkable
class Driver(Protocol):
    """One CUDA driver: the hot table's address and the cold half."""

    @property
    def name(self) -> str:
        """``"nvidia"`` or ``"virtual"``; for people to read, never to branch on."""

    @property
    def modules(self) -> Modules:
        """Loading of compiled code."""

    @property
    def management(self) -> Management:
        """Figures that need no context."""

    @property
    def libraries(self) -> Libraries:
        """The math libraries."""

    @property
    def activity(self) -> Activity:
        """What happened and when, for profilers."""

    def table(self) -> int:
        """The address of a filled ``DriverTable``.

        Raises
        ------
        DriverNotFoundError
            There is no driver here, or it is too old; the text says which and what to do.
        """

    def supports(self, feature: Feature) -> bool:
        """Whether this driver, in this version, offers a feature."""

    def code_target(self, device: int) -> CodeTarget:
        """What to compile for a device."""

    def explain(self, status: int) -> str | None:
        """What more is known about the last failure with this status, or None."""

    def shutdown(self) -> None:
        """Called once at interpreter exit, before modules are torn down."""
