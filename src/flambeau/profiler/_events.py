# SPDX-License-Identifier: Apache-2.0
"""Events of a recording as objects with times in microseconds, and totals over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flambeau.profiler import _table
from flambeau.profiler._settings import DeviceType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flambeau.driver.activity import DeviceWork
    from flambeau.profiler._timeline import Timeline

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel", "events_of"]

# Among events of one time, which encloses which.
_ANNOTATION, _OPERATION, _CALL = range(3)


@dataclass(slots=True)
class Interval:
    """From `start` to `end`, in microseconds since the recording began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Its length in microseconds."""
        return self.end - self.start


@dataclass(slots=True)
class Kernel:
    """Work that an event brought about: name, device, and duration in microseconds."""

    name: str
    device: int
    duration: float


@dataclass(eq=False)
class FunctionEvent:
    """One thing that happened.

    Times are in microseconds, memory in bytes. `cpu_time_total` of an event includes the events
    inside it, `self_cpu_time_total` does not; the same for `device_time_total`, the time that the
    work took which was submitted inside.
    """

    id: int
    name: str
    thread: int
    time_range: Interval
    device_type: DeviceType = DeviceType.CPU
    device_index: int = -1
    device_resource_id: int = 0
    rank: int = _OPERATION
    input_shapes: list[list[int]] = field(default_factory=list)
    input_dtypes: list[str] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    flops: int = 0
    is_user_annotation: bool = False
    kernels: list[Kernel] = field(default_factory=list)
    self_cpu_memory_usage: int = 0
    self_device_memory_usage: int = 0
    cpu_parent: FunctionEvent | None = None
    cpu_children: list[FunctionEvent] = field(default_factory=list)
    count: int = 1
    is_async: bool = False
    is_remote: bool = False
    node_id: int = -1
    overload_name: str = ""
    scope: int = 0

    @property
    def key(self) -> str:
        """What totals are grouped by: the name."""
        return self.name

    @property
    def external_id(self) -> int:
        """The id that its work carries in a trace."""
        return self.id

    @property
    def of_cpu(self) -> bool:
        """Whether it took place on the host."""
        return self.device_type is DeviceType.CPU

    @property
    def cpu_time_total(self) -> float:
        """Its length on the host; 0 on a device."""
        return self.time_range.elapsed_us() if self.of_cpu else 0.0

    @property
    def self_cpu_time_total(self) -> float:
        """Its length on the host without the events inside it."""
        if not self.of_cpu:
            return 0.0
        return self.cpu_time_total - sum(c.cpu_time_total for c in self.cpu_children)

    @property
    def self_device_time_total(self) -> float:
        """What work took that it submitted itself; on a device its length."""
        if not self.of_cpu:
            return 0.0 if self.is_user_annotation else self.time_range.elapsed_us()
        return sum(kernel.duration for kernel in self.kernels)

    @property
    def device_time_total(self) -> float:
        """What work took that was submitted inside it; on a device its length."""
        if not self.of_cpu:
            return self.time_range.elapsed_us()
        inside = sum(child.device_time_total for child in self.cpu_children)
        return self.self_device_time_total + inside

    @property
    def cpu_memory_usage(self) -> int:
        """Bytes of host memory taken inside it, less those given back."""
        return self.self_cpu_memory_usage + sum(c.cpu_memory_usage for c in self.cpu_children)

    @property
    def device_memory_usage(self) -> int:
        """Bytes of device memory taken inside it, less those given back."""
        return self.self_device_memory_usage + sum(c.device_memory_usage for c in self.cpu_children)

    cpu_time = cpu_time_total
    device_time = device_time_total
    cuda_time = device_time_total
    cuda_time_total = device_time_total
    self_cuda_time_total = self_device_time_total
    use_device = "cuda"

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent {self.name} at {self.time_range.start:.3f} us: "
            f"cpu {self.cpu_time_total:.3f} us, device {self.device_time_total:.3f} us>"
        )


@dataclass(eq=False)
class FunctionEventAvg:
    """Totals over the events of one key; times are in microseconds."""

    key: str
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    device_time_total: float = 0.0
    self_device_time_total: float = 0.0
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    device_memory_usage: int = 0
    self_device_memory_usage: int = 0
    flops: int = 0
    input_shapes: list[list[int]] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    device_type: DeviceType = DeviceType.CPU
    is_user_annotation: bool = False
    use_device: str = "cuda"
    overload_name: str = ""

    _SUMMED = (
        "count",
        "cpu_time_total",
        "self_cpu_time_total",
        "device_time_total",
        "self_device_time_total",
        "cpu_memory_usage",
        "self_cpu_memory_usage",
        "device_memory_usage",
        "self_device_memory_usage",
        "flops",
    )

    def add(self, event: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        """Count one more event, or other totals; returns itself."""
        for name in self._SUMMED:
            setattr(self, name, getattr(self, name) + getattr(event, name))
        return self

    @property
    def cpu_time(self) -> float:
        """The mean over the events."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """The mean over the events."""
        return self.device_time_total / self.count if self.count else 0.0

    @property
    def cuda_time(self) -> float:
        """As `device_time`."""
        return self.device_time

    @property
    def cuda_time_total(self) -> float:
        """As `device_time_total`."""
        return self.device_time_total

    @property
    def self_cuda_time_total(self) -> float:
        """As `self_device_time_total`."""
        return self.self_device_time_total

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg {self.key}: {self.count} times, self cpu "
            f"{self.self_cpu_time_total:.3f} us, self device {self.self_device_time_total:.3f} us>"
        )


class EventList(list[Any]):
    """Events or totals, with tables."""

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of the host, each counted once."""
        return float(sum(event.self_cpu_time_total for event in self))

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Totals of events with the same name, and if asked the same shapes and callers.

        Parameters
        ----------
        group_by_input_shapes
            Whether events with different shapes are kept apart. Default False.
        group_by_stack_n
            How many innermost frames of the program must be the same. Default 0.
        group_by_overload_name
            Without effect: operations have no overloads here.
        """
        totals: dict[tuple[object, ...], FunctionEventAvg] = {}
        for event in self:
            shapes = str(event.input_shapes) if group_by_input_shapes else ""
            stack = tuple(event.stack[:group_by_stack_n])
            key = (event.key, event.device_type, event.is_user_annotation, shapes, stack)
            if key not in totals:
                totals[key] = FunctionEventAvg(
                    event.key,
                    device_type=event.device_type,
                    is_user_annotation=event.is_user_annotation,
                    input_shapes=event.input_shapes if group_by_input_shapes else [],
                    stack=list(stack),
                )
            totals[key].add(event)
        return EventList(totals.values())

    def total_average(self) -> FunctionEventAvg:
        """Totals over everything."""
        total = FunctionEventAvg("Total")
        for event in self:
            total.add(event)
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The events or totals as a text table.

        Parameters
        ----------
        sort_by
            The attribute to sort by, largest first: ``"self_cpu_time_total"``,
            ``"cuda_time_total"``, ``"count"`` and the like. Default None keeps the order.
        row_limit
            Most rows; -1 for all. Default 100.
        max_src_column_width, max_name_column_width, max_shapes_column_width
            Most characters of these columns. Defaults 75, 55, 80.
        header
            A line above the table. Default None.
        top_level_events_only
            Whether events inside others are left out. Default False.
        time_unit
            ``"us"``, ``"ms"`` or ``"s"``; default None chooses for each number.

        Raises
        ------
        ValueError
            There is no such unit.
        AttributeError
            There is no such attribute to sort by.
        """
        shown = [e for e in self if not (top_level_events_only and getattr(e, "cpu_parent", None))]
        return _table.build(
            shown,
            sort_by=sort_by,
            row_limit=row_limit,
            widths=(max_name_column_width, max_src_column_width, max_shapes_column_width),
            header=header,
            unit=time_unit,
        )

    def __str__(self) -> str:
        return self.table()


def work_name(work: DeviceWork) -> str:
    """What a piece of work is called in traces and tables."""
    if work.kind == "memcpy":
        return f"Memcpy {work.name}"
    if work.kind == "memset":
        return "Memset (Device)"
    return work.name or "host function"


def events_of(timeline: Timeline, *, flops: bool = False) -> EventList:
    """All events of a recording: those of the host in order, then those of the devices."""
    host = _host_events(timeline, flops=flops)
    _nest(host)
    device = [
        FunctionEvent(
            id=work.correlation,
            name=work_name(work),
            thread=work.stream,
            time_range=_interval(timeline, work.start, work.end),
            device_type=DeviceType.CUDA,
            device_index=work.device,
            device_resource_id=work.stream,
        )
        for work in timeline.work
    ]
    reaches = [
        FunctionEvent(
            id=timeline.span_ids[id(reach.span)],
            name=reach.span.name,
            thread=reach.stream,
            time_range=_interval(timeline, reach.start, reach.end),
            device_type=DeviceType.CUDA,
            device_index=reach.device,
            device_resource_id=reach.stream,
            is_user_annotation=True,
        )
        for reach in timeline.reaches()
    ]
    return EventList([*host, *device, *reaches])


def _interval(timeline: Timeline, start: int, end: int) -> Interval:
    return Interval((start - timeline.begin) / 1000, (end - timeline.begin) / 1000)


def _host_events(timeline: Timeline, *, flops: bool) -> list[FunctionEvent]:
    done: dict[int, list[Kernel]] = {}
    for work in timeline.work:
        kernel = Kernel(work_name(work), work.device, (work.end - work.start) / 1000)
        done.setdefault(work.correlation, []).append(kernel)
    events = [
        FunctionEvent(
            id=timeline.span_ids[id(span)],
            name=span.name,
            thread=span.thread,
            time_range=_interval(timeline, span.start, span.end),
            rank=_ANNOTATION,
            is_user_annotation=True,
        )
        for span in timeline.spans
    ]
    for op in timeline.operations:
        event = FunctionEvent(
            id=op.id,
            name=op.name,
            thread=op.thread,
            time_range=_interval(timeline, op.start, op.end),
            input_shapes=op.note.shapes,
            input_dtypes=op.note.types,
            stack=op.note.stack,
            flops=_flops(op.name, op.note.shapes) if flops else 0,
            kernels=[kernel for call in op.calls for kernel in done.pop(call.correlation, [])],
        )
        for memory in op.memory:
            if memory.device < 0:
                event.self_cpu_memory_usage += memory.size
            else:
                event.self_device_memory_usage += memory.size
        events.append(event)
    events += [
        FunctionEvent(
            id=call.correlation,
            name=call.name,
            thread=call.thread,
            time_range=_interval(timeline, call.start, call.end),
            rank=_CALL,
            kernels=done.get(call.correlation, []),  # of no operation: a graph's, a library's
        )
        for call in timeline.calls
    ]
    events.sort(key=lambda e: (e.time_range.start, -e.time_range.end, e.rank))
    return events


def _nest(events: Iterable[FunctionEvent]) -> None:
    """Find which event is inside which, by thread and time; events are in order."""
    open_: dict[int, list[FunctionEvent]] = {}
    for event in events:
        stack = open_.setdefault(event.thread, [])
        while stack and stack[-1].time_range.end < event.time_range.end:
            stack.pop()
        while (
            stack
            and event.time_range.start >= stack[-1].time_range.end > stack[-1].time_range.start
        ):
            stack.pop()  # it begins where the other ended
        while stack and stack[-1].rank == _CALL:
            stack.pop()
        if stack:
            event.cpu_parent = stack[-1]
            stack[-1].cpu_children.append(event)
        stack.append(event)


def _flops(name: str, shapes: list[list[int]]) -> int:
    """Floating-point operations, of what has a plain formula."""
    kind = name.rpartition("::")[2]
    if kind in {"matmul", "mm", "bmm", "addmm"} and len(shapes) >= 2:
        a, b = shapes[-2:]
        if a and b:
            rows = 1
            for extent in a[:-1]:
                rows *= extent
            return 2 * rows * a[-1] * (b[-1] if len(b) > 1 else 1)
    if kind in {"add", "mul", "sub", "div"} and shapes:
        largest = 0
        for shape in shapes:
            count = 1
            for extent in shape:
                count *= extent
            largest = max(largest, count)
        return largest
    return 0
