# SPDX-License-Identifier: Apache-2.0
"""The driver contract: what flambeau asks of "a CUDA driver", whichever it has.

The contract has a hot and a cold half. The hot half is the C table of ``table.hpp``: function
pointers with the CUDA Driver API's names, argument orders, units and status codes. The cold half
is the classes below. ``nvidia/`` and ``virtual/`` each implement both; nothing above this package
asks which one it has. What a driver may or may not offer is asked with `Driver.supports`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from flambeau.driver.activity import Activity
    from flambeau.driver.libraries import Libraries

__all__ = [
    "CodeTarget",
    "Collectives",
    "Communicator",
    "Driver",
    "Feature",
    "Files",
    "GreenContexts",
    "Management",
    "Modules",
    "MultiprocessorSet",
    "ProcessInfo",
    "SplitRequest",
]

Feature = Literal[
    "graph_node_ids",  # kernels of a graph carry ids in traces
    "green_contexts",
    "programmatic_launch",  # launch attribute 6 and griddepcontrol, on every device
    "small_products",  # a kernel of ours beats a call of Gemm for results of up to 64 x 64
    "quick_queries",  # event and stream queries run no work and call nobody back
    "visible_writes",  # the host sees copies to pinned memory arrive before it is told of their end
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


class Communicator(Protocol):
    """One rank of a communicator (``ncclComm_t``).

    Collectives take addresses of device memory, counts of elements, NCCL's own numbers for types
    (``ncclDataType_t``) and operations (``ncclRedOp_t``), and a stream of the rank's device. They
    return at once; the other ranks' calls may come later.

    Raises
    ------
    CollectiveError
        NCCL refused, or the communicator failed earlier.
    """

    @property
    def rank(self) -> int:
        """Its number, from 0."""

    @property
    def ranks(self) -> int:
        """How many there are."""

    @property
    def device(self) -> int:
        """Its GPU."""

    def all_reduce(
        self, send: int, receive: int, count: int, dtype: int, op: int, stream: int
    ) -> None:
        """``ncclAllReduce``."""

    def reduce(
        self, send: int, receive: int, count: int, dtype: int, op: int, root: int, stream: int
    ) -> None:
        """``ncclReduce``; `receive` counts at the root only."""

    def broadcast(
        self, send: int, receive: int, count: int, dtype: int, root: int, stream: int
    ) -> None:
        """``ncclBroadcast``; `send` counts at the root only."""

    def all_gather(self, send: int, receive: int, count: int, dtype: int, stream: int) -> None:
        """``ncclAllGather``; `count` elements are sent, `ranks` times as many received."""

    def reduce_scatter(
        self, send: int, receive: int, count: int, dtype: int, op: int, stream: int
    ) -> None:
        """``ncclReduceScatter``; `count` elements are received, `ranks` times as many sent."""

    def failure(self) -> str | None:
        """What went wrong asynchronously, such as a rank that never came; None if nothing did."""

    def abort(self) -> None:
        """Give up work under way and the communicator (``ncclCommAbort``)."""

    def destroy(self) -> None:
        """Free it (``ncclCommDestroy``), when its work is done."""


class Collectives(Protocol):
    """The communication library (NCCL)."""

    def version(self) -> tuple[int, int, int]:
        """Major, minor and patch.

        Raises
        ------
        MissingExtraError
            The library is not installed. All the other calls may raise it too.
        """

    def unique_id(self) -> bytes:
        """128 bytes that the ranks of a new communicator share."""

    def join(
        self, ranks: int, unique_id: bytes, rank: int, device: int, timeout: float
    ) -> Communicator:
        """Become a rank on `device`, whose context is current; returns when all ranks have come.

        Raises
        ------
        CollectiveError
            `timeout` seconds have passed, or a rank failed.
        """

    def join_all(self, devices: Sequence[int], timeout: float) -> Sequence[Communicator]:
        """Make a communicator with one rank on each device, all of this process."""

    def group(self) -> AbstractContextManager[None]:
        """Collectives called inside begin together (``ncclGroupStart``, ``ncclGroupEnd``)."""


@dataclass(frozen=True, slots=True)
class MultiprocessorSet:
    """Multiprocessors of a device (``CUdevResource`` of type ``SM``).

    Parameters
    ----------
    device
        Whose.
    count
        How many.
    alignment
        Groups are made of so many that are scheduled together.
    minimum
        The smallest group that can be split off.
    handle
        What the driver knows it by.
    """

    device: int
    count: int
    alignment: int
    minimum: int
    handle: Any


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """One group of a split.

    Parameters
    ----------
    count
        Multiprocessors wanted; 0 for as many as can be had.
    coscheduled, preferred_coscheduled
        How many must, and should, be schedulable together; 0 leaves it to the driver.
    backfill
        Take multiprocessors that do not fit the groups to make `count`.
    """

    count: int
    coscheduled: int = 0
    preferred_coscheduled: int = 0
    backfill: bool = False


class GreenContexts(Protocol):
    """Contexts that are limited to a part of a device's multiprocessors (``CUgreenCtx``)."""

    def supports(self, what: Literal["split", "workqueues"]) -> bool:
        """Whether the driver splits into unequal groups at once, and has work queues."""

    def multiprocessors(self, device: int) -> MultiprocessorSet:
        """All of a device (``cuDeviceGetDevResource``)."""

    def split(
        self, whole: MultiprocessorSet, groups: Sequence[SplitRequest]
    ) -> tuple[list[MultiprocessorSet], MultiprocessorSet | None]:
        """Cut groups off, in order, and say what is left.

        Raises
        ------
        RuntimeError
            They do not fit.
        """

    def workqueue_limit(self, device: int) -> int:
        """The most streams' work that a context's queues keep apart."""

    def create(
        self,
        device: int,
        partition: MultiprocessorSet | None,
        workqueues: tuple[str, int | None] | None,
    ) -> tuple[Any, MultiprocessorSet]:
        """A green context and the multiprocessors that it got (``cuGreenCtxCreate``).

        `workqueues` is a scope, ``"device_ctx"`` or ``"balanced"``, and a limit of concurrency.
        """

    def stream(self, context: Any, priority: int) -> int:
        """A new non-blocking stream of a green context (``cuGreenCtxStreamCreate``)."""

    def destroy(self, context: Any) -> None:
        """Free a green context (``cuGreenCtxDestroy``); its streams must not be used any more."""


class Files(Protocol):
    """Transfers between files and device memory (cuFile)."""

    def trouble(self) -> str | None:
        """Why files cannot be read straight into device memory here; None if they can."""

    def is_direct(self) -> bool:
        """Whether bytes go from disk to GPU without a stop in host memory, where files allow it."""

    def register_buffer(self, address: int, size: int) -> None:
        """Prepare device memory for transfers (``cuFileBufRegister``)."""

    def deregister_buffer(self, address: int) -> None:
        """Undo it (``cuFileBufDeregister``)."""

    def open(self, descriptor: int) -> int:
        """A handle for an open file (``cuFileHandleRegister``)."""

    def close(self, handle: int) -> None:
        """Give it up (``cuFileHandleDeregister``); the file stays open."""

    def read(self, handle: int, address: int, size: int, offset: int) -> int:
        """Read into device memory; the bytes read, fewer where the file ends (``cuFileRead``)."""

    def write(self, handle: int, address: int, size: int, offset: int) -> int:
        """Write device memory; the bytes written (``cuFileWrite``)."""


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

    @property
    def collectives(self) -> Collectives:
        """Sums, broadcasts and gathers over several GPUs."""

    @property
    def green_contexts(self) -> GreenContexts:
        """Contexts on a part of a device."""

    @property
    def files(self) -> Files:
        """Transfers between files and device memory."""

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
