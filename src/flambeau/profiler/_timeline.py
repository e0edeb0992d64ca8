# SPDX-License-Identifier: Apache-2.0
"""What was recorded, put together: operations with their calls, calls with their work.

The recorder hears of an operation once it is queued. The calls that the same thread made since what
it heard before are the operation's, and the first of them is where its time begins.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flambeau.driver.activity import Activities, DeviceWork, HostCall
    from flambeau.profiler._recorder import Mark, MemoryNote, Note, Recorder, Span

__all__ = ["Operation", "Reach", "Timeline", "Wait", "join"]

# Calls that no operation makes: what comes before them is not the operation's either.
_FOREIGN = re.compile(r"BeginCapture|EndCapture|Instantiate|Destroy|Create|Elapsed|Query$")
_WAITS = {
    "Context Sync": re.compile(r"(Ctx|Device)Synchronize"),
    "Stream Sync": re.compile(r"StreamSynchronize"),
    "Event Sync": re.compile(r"EventSynchronize"),
    "Stream Wait Event": re.compile(r"StreamWaitEvent"),
}


@dataclass(slots=True)
class Operation:
    """Something that a program asked for, from its first call into CUDA to its last."""

    id: int
    name: str
    thread: int
    start: int
    end: int
    note: Note
    calls: list[HostCall] = field(default_factory=list)
    memory: list[MemoryNote] = field(default_factory=list)  # taken and given back inside it


@dataclass(slots=True)
class Wait:
    """The host, or a stream, waited."""

    kind: str
    thread: int
    start: int
    end: int
    correlation: int
    device: int
    stream: int


@dataclass(slots=True)
class Reach:
    """Where the work that was submitted inside a span ran, on one stream."""

    span: Span
    device: int
    stream: int
    start: int
    end: int


@dataclass(slots=True)
class Timeline:
    """Everything of one recording, in order of time."""

    begin: int
    end: int
    epoch: int
    operations: list[Operation]
    spans: list[Span]
    calls: list[HostCall]
    work: list[DeviceWork]
    waits: list[Wait]
    memory: list[MemoryNote]
    marks: list[Mark]
    span_ids: dict[int, int]
    annotations: dict[int, dict[str, Any]]
    dropped: int = 0
    devices: list[dict[str, Any]] = field(default_factory=list)

    def rebase(self, by: int) -> None:
        """Count time from `by` nanoseconds later: small numbers stay exact as microseconds."""
        self.epoch += by
        self.begin -= by
        self.end -= by
        timed: tuple[list[Any], ...] = (
            self.operations,
            self.spans,
            self.calls,
            self.work,
            self.waits,
        )
        for items in timed:
            for item in items:
                item.start -= by
                item.end -= by
        instants: tuple[list[Any], ...] = (self.memory, self.marks)
        for items in instants:
            for item in items:
                item.time -= by
        for done in self.work:
            if done.queued:
                done.queued -= by

    def operation_of(self) -> dict[int, Operation]:
        """From a correlation to the operation whose call had it."""
        return {call.correlation: op for op in self.operations for call in op.calls}

    def reaches(self) -> list[Reach]:
        """Where the work of each span ran."""
        by_correlation: dict[int, list[DeviceWork]] = {}
        for work in self.work:
            by_correlation.setdefault(work.correlation, []).append(work)
        calls: dict[int, list[HostCall]] = {}
        for call in self.calls:  # in order of their starts
            calls.setdefault(call.thread, []).append(call)
        starts = {thread: [c.start for c in own] for thread, own in calls.items()}
        found: list[Reach] = []
        for span in self.spans:
            places: dict[tuple[int, int], Reach] = {}
            own = calls.get(span.thread, [])
            first = bisect.bisect_left(starts.get(span.thread, []), span.start)
            for place in range(first, len(own)):
                call = own[place]
                if call.end > span.end:
                    break
                for work in by_correlation.get(call.correlation, ()):
                    where = (work.device, work.stream)
                    if where not in places:
                        places[where] = Reach(span, *where, work.start, work.end)
                    reach = places[where]
                    reach.start = min(reach.start, work.start)
                    reach.end = max(reach.end, work.end)
            found += places.values()
        return found


def join(
    recorder: Recorder,
    found: Activities,
    begin: int,
    end: int,
    epoch: int,
    annotations: Mapping[int, list[dict[str, Any]]],
) -> Timeline:
    """Put together what a recorder heard and what the driver collected."""
    windows = _windows(recorder.notes, found.calls)
    operations: list[Operation] = []
    waits: list[Wait] = []
    previous: dict[int, Operation] = {}
    for note, calls in windows:
        if note.kind == "op":
            own = _own(calls)
            start = own[0].start if own else note.time
            op = Operation(0, note.name, note.thread, start, note.time, note, own)
            operations.append(op)
            previous[note.thread] = op
        else:
            before = previous.get(note.thread)
            call = _waiting(note, calls) or _waiting(note, before.calls if before else [])
            waits.append(_wait(note, call))
    _attach_memory(recorder, operations)
    operations.sort(key=lambda op: op.start)
    spans = sorted(recorder.spans, key=lambda span: (span.start, -span.end))
    for number, op in enumerate(operations, 1):
        op.id = number
    _name_kernels(found.work, {c.correlation: op for op in operations for c in op.calls})
    seen = {w.tools_id for w in found.work if w.graph}
    return Timeline(
        begin=begin,
        end=end,
        epoch=epoch,
        operations=operations,
        spans=spans,
        calls=found.calls,
        work=found.work,
        waits=waits,
        memory=recorder.memory,
        marks=recorder.marks,
        span_ids={id(span): len(operations) + n for n, span in enumerate(spans, 1)},
        annotations={key: dict(annotations[key][0]) for key in seen if annotations.get(key)},
        dropped=found.dropped,
    )


def _attach_memory(recorder: Recorder, operations: list[Operation]) -> None:
    """Give memory to the operation heard of next: its results, what it took and gave back.

    A cached block is taken before the operation's first call, where its time begins.
    """
    by_note = {id(op.note): op for op in operations}
    waiting: dict[tuple[int, int], MemoryNote] = {}  # taken before an operation, perhaps for it
    for memory in recorder.memory:
        later = map(recorder.notes.__getitem__, range(memory.after, len(recorder.notes)))
        note = next((n for n in later if n.thread == memory.thread and n.kind == "op"), None)
        op = by_note.get(id(note))
        if op is None or note is None:
            continue
        inside = op.start < memory.time <= op.end
        if inside or (memory.size > 0 and memory.address in note.places):
            taken = waiting.pop((id(op), memory.address), None)
            op.memory += [memory] if taken is None else [taken, memory]
        elif memory.size > 0:
            waiting[id(op), memory.address] = memory


def _windows(notes: list[Note], calls: list[HostCall]) -> list[tuple[Note, list[HostCall]]]:
    """Each note with the calls that its thread ended since the note before."""
    by_thread: dict[int, list[HostCall]] = {}
    for call in calls:
        by_thread.setdefault(call.thread, []).append(call)
    places = dict.fromkeys(by_thread, 0)
    result = []
    for note in notes:
        of_thread = by_thread.get(note.thread, [])
        first = last = places.get(note.thread, 0)
        while last < len(of_thread) and of_thread[last].end <= note.time:
            last += 1
        if note.kind == "sync" and last < len(of_thread):  # some are heard of before the call
            last += bool(_WAITS[note.name].search(of_thread[last].name))
        places[note.thread] = last
        result.append((note, of_thread[first:last]))
    return result


def _own(calls: list[HostCall]) -> list[HostCall]:
    for place in range(len(calls) - 1, -1, -1):
        if _FOREIGN.search(calls[place].name):
            return calls[place + 1 :]
    return calls


def _waiting(note: Note, calls: list[HostCall]) -> HostCall | None:
    pattern = _WAITS[note.name]
    return next((call for call in reversed(calls) if pattern.search(call.name)), None)


def _wait(note: Note, call: HostCall | None) -> Wait:
    start, end, correlation = note.time, note.time, 0
    if call is not None:
        start, end, correlation = call.start, call.end, call.correlation
    return Wait(note.name, note.thread, start, end, correlation, note.device, note.stream)


def _name_kernels(work: list[DeviceWork], operation_of: dict[int, Operation]) -> None:
    """Our generated kernels are all called ``kernel``; give them the names of what they do."""
    from flambeau.kernels.compile import title_of

    titles: dict[int, str | None] = {}
    for done in work:
        if done.kind != "kernel" or done.name != "kernel":
            continue
        if done.function not in titles:
            titles[done.function] = title_of(done.function) if done.function else None
        title = titles[done.function]
        op = operation_of.get(done.correlation)
        if title is None and op is not None and not done.graph:
            title = op.name.rpartition("::")[2]
        if title:
            done.name = f"{title.lower()}_kernel"
