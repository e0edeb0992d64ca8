# SPDX-License-Identifier: Apache-2.0
"""Activities of virtual GPUs, on their modelled clock: the same program gives the same trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.driver.activity import Activities, DeviceWork, HostCall
from flambeau.driver.virtual import _calls, _machine

if TYPE_CHECKING:
    from flambeau.driver.activity import WorkKind

__all__ = ["VirtualActivity"]

_KINDS: dict[int, WorkKind] = {0: "kernel", 1: "memcpy", 2: "memset", 3: "host"}  # CUgraphNodeType
_CONTEXT = 1


class VirtualActivity:
    """What the machine notes of its work and its calls while it is asked to."""

    def unavailable(self) -> str:
        """Nothing stands in the way."""
        return ""

    def start(self) -> None:
        """Begin to collect; what was noted earlier is dropped."""
        _machine.take_trace()
        _machine.set_tracing(True)

    def stop(self) -> Activities:
        """End, and hand over what was collected."""
        _machine.set_tracing(False)
        work, calls = _machine.take_trace()
        found = Activities(
            [_work(*w) for w in work],
            [HostCall(_call_name(name), "driver", 0, *rest) for name, *rest in calls],
        )
        found.work.sort(key=lambda w: w.start)
        found.calls.sort(key=lambda c: c.start)
        return found

    def driver_version(self) -> int:
        """What virtual GPUs claim to be driven by."""
        return _calls.driver_version()

    def now(self) -> int:
        """The host's modelled time."""
        return _machine.clock()

    def epoch(self) -> int:
        """A modelled clock counts from nothing outside."""
        return 0

    def stream_number(self, stream: int, device: int) -> int:
        """The number of a stream in traces."""
        return _machine.stream_number(stream)


def _call_name(name: str) -> str:
    """An entry's name as CUDA has it; calls of libraries have their own."""
    if name == "Gemm":
        return "cublasLtMatmul"
    return f"cu{name}" if name[0].isupper() else name


def _work(
    type: int,
    name: str,
    device: int,
    stream: int,
    correlation: int,
    graph: int,
    node: int,
    queued: int,
    start: int,
    end: int,
    size: int,
    path: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    dynamic_shared: int,
    static_shared: int,
    registers: int,
    function: int,
) -> DeviceWork:
    return DeviceWork(
        kind=_KINDS.get(type, "kernel"),
        name=path or name,
        device=device,
        context=_CONTEXT + device,
        stream=stream,
        correlation=correlation,
        start=start,
        end=end,
        queued=queued,
        graph=graph,
        node=node,
        size=size,
        grid=grid,
        block=block,
        dynamic_shared=dynamic_shared,
        static_shared=static_shared,
        registers=registers,
        function=function,
    )
