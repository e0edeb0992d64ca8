# SPDX-License-Identifier: Apache-2.0
"""What a driver can tell of what happened and when: the activity part of the contract (CUPTI's)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

__all__ = ["Activities", "Activity", "DeviceWork", "HostCall", "WorkKind"]

WorkKind = Literal["kernel", "memcpy", "memset", "host"]


@dataclass(slots=True)
class DeviceWork:
    """One piece of work that a device did. Times are nanoseconds of `Activity.now`.

    Parameters
    ----------
    kind
        What it was; ``"host"`` is a host function in a stream.
    name
        A kernel's name, or ``HtoD (Pinned -> Device)`` and the like of a copy.
    device, context, stream
        Where, as profilers number them: 7 is a default stream.
    correlation
        That of the call which submitted it.
    start, end
        When.
    queued
        When it was submitted; 0 if nobody knows.
    graph, node
        Ids of the executable graph and of the node in it; graph 0: it was not of a graph.
    size
        Bytes of a copy or a fill.
    grid, block
        Of a kernel.
    dynamic_shared, static_shared, registers
        Bytes, bytes, and registers per thread, of a kernel.
    function
        Handle of a kernel's function; 0 if that is not known.
    """

    kind: WorkKind
    name: str
    device: int
    context: int
    stream: int
    correlation: int
    start: int
    end: int
    queued: int = 0
    graph: int = 0
    node: int = 0
    size: int = 0
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    dynamic_shared: int = 0
    static_shared: int = 0
    registers: int = 0
    function: int = 0

    @property
    def tools_id(self) -> int:
        """The id that annotations are kept under, ``graph << 32 | node``; 0 outside graphs."""
        return self.graph << 32 | self.node if self.graph else 0


@dataclass(slots=True)
class HostCall:
    """One call of the host into CUDA.

    Parameters
    ----------
    name
        Such as ``cuLaunchKernel``.
    library
        ``"driver"`` or ``"runtime"``.
    number
        The callback id; 0 where calls have none.
    correlation
        A number that the work it submits carries too.
    thread
        The system's id of the calling thread.
    start, end
        When.
    """

    name: str
    library: Literal["driver", "runtime"]
    number: int
    correlation: int
    thread: int
    start: int
    end: int


@dataclass(slots=True)
class Activities:
    """What was collected.

    Parameters
    ----------
    work, calls
        In order of their starts.
    dropped
        How many records were lost because buffers were full.
    """

    work: list[DeviceWork] = field(default_factory=list)
    calls: list[HostCall] = field(default_factory=list)
    dropped: int = 0


class Activity(Protocol):
    """Collects what devices do and the host calls. Nothing is collected before `start`."""

    def unavailable(self) -> str:
        """Why nothing can be collected, and what to do; empty if it can."""

    def start(self) -> None:
        """Begin to collect."""

    def stop(self) -> Activities:
        """End, and hand over what was collected. Work still under way is not waited for."""

    def driver_version(self) -> int:
        """``cuDriverGetVersion``: 13000 for CUDA 13.0."""

    def now(self) -> int:
        """The host's time in nanoseconds, on the clock that work and calls are stamped with."""

    def epoch(self) -> int:
        """What `now` counts from, in nanoseconds since 1970; 0 for a modelled clock."""

    def stream_number(self, stream: int, device: int) -> int:
        """The number that work of a stream (a handle) shows under; 0 if that is not known."""
