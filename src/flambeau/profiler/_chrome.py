# SPDX-License-Identifier: Apache-2.0
"""Traces in the Chrome format, which Perfetto and ``chrome://tracing`` open."""

from __future__ import annotations

import gzip
import json
import os
from typing import TYPE_CHECKING, Any

from flambeau.profiler import _lanes
from flambeau.profiler._events import work_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flambeau.driver.activity import DeviceWork
    from flambeau.profiler._timeline import Timeline

__all__ = ["GraphLanes", "trace", "write"]

_CATEGORIES = {
    "kernel": "kernel",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
    "host": "gpu_host_function",
}
_GRAPH_NODE = "graph node id"


class GraphLanes:
    """How work of graphs is shown.

    Parameters
    ----------
    annotations
        From a node's id to its fields, or to a list with one dict of them; the ids may be text, as
        they are in JSON. None: what was alive when the recording ended.
    lanes
        ``"none"`` or ``"all"``: whether work moves to the stream that its annotation names.
    default_stream
        Where ``"all"`` puts work of graphs without such an annotation.

    Raises
    ------
    ValueError
        There is no such choice, or ``"all"`` comes without annotations.
    """

    def __init__(
        self,
        annotations: Mapping[Any, Any] | None,
        lanes: str,
        default_stream: int,
    ) -> None:
        if lanes not in {"none", "all"}:
            raise ValueError(f"graph_lanes is 'none' or 'all', got {lanes!r}")
        if lanes == "all" and annotations is None:
            raise ValueError(
                "graph_lanes='all' needs cuda_graph_annotations, for example "
                "torch.cuda.graph_annotations.get_kernel_annotations()"
            )
        self.given = None if annotations is None else _by_id(annotations)
        self.move = lanes == "all"
        self.default_stream = default_stream

    def apply(self, event: dict[str, Any], fields: Mapping[str, Any] | None) -> None:
        """Write an annotation into the event of a node."""
        arguments = event["args"]
        for name, value in (fields or {}).items():
            if name == "stream":
                continue
            arguments[name] = str(value)
        wanted = (fields or {}).get("stream")
        if self.move:
            arguments["original_stream"] = arguments["stream"]
            event["tid"] = self.default_stream if wanted is None else int(wanted)
            arguments["stream"] = event["tid"]
        elif wanted is not None:
            arguments["annotated_stream"] = str(wanted)


def _by_id(annotations: Mapping[Any, Any]) -> dict[int, dict[str, Any]]:
    found = {}
    for key, value in annotations.items():
        fields = value[0] if isinstance(value, (list, tuple)) and value else value
        if fields:
            found[int(key)] = dict(fields)
    return found


def write(path: str | os.PathLike[str], data: Mapping[str, Any]) -> None:
    """Write a trace, packed with gzip if the name ends in ``.gz``."""
    name = os.fspath(path)
    text = json.dumps(data, separators=(",", ":")).encode()
    with open(name, "wb") as file:
        file.write(gzip.compress(text) if name.endswith(".gz") else text)


def trace(
    timeline: Timeline,
    graph_lanes: GraphLanes,
    *,
    metadata: Mapping[str, Any],
    name: str,
    waits: bool = False,
    keep: set[str] | None = None,
) -> dict[str, Any]:
    """The whole trace as JSON data.

    Parameters
    ----------
    timeline
        What was recorded.
    graph_lanes
        How work of graphs is shown.
    metadata
        More entries for the header.
    name
        The trace's name.
    waits
        Whether waits get events of their own.
    keep
        Categories to keep; None keeps all.
    """
    events = [e for e in _events(timeline, graph_lanes, waits) if not keep or e["cat"] in keep]
    names = [*_names(timeline), *_lanes.untangle(events)]
    data: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": timeline.devices,
        **metadata,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": timeline.epoch,
        "traceEvents": [*names, *events],
        "traceName": name,
    }
    annotated = graph_lanes.given is not None or bool(timeline.annotations)
    if annotated:
        data["cudaGraphInlineAnnotated"] = True
    return data


def _events(timeline: Timeline, lanes: GraphLanes, waits: bool) -> Iterator[dict[str, Any]]:
    yield from _host(timeline)
    yield from _calls(timeline)
    yield from _work(timeline, lanes)
    if waits:
        yield from _waits(timeline)
    yield from _flows(timeline)
    yield from _instants(timeline)


def _span(
    category: str, name: str, pid: Any, tid: Any, start: int, end: int, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "args": args,
    }


def _host(timeline: Timeline) -> Iterator[dict[str, Any]]:
    pid = os.getpid()
    for index, op in enumerate(timeline.operations):
        args: dict[str, Any] = {"External id": op.id, "Record function id": op.id, "Ev Idx": index}
        if op.note.shapes:
            args["Input Dims"] = op.note.shapes
            args["Input type"] = op.note.types
        if op.note.stack:
            args["Call stack"] = ";".join(op.note.stack)
        yield _span("cpu_op", op.name, pid, op.thread, op.start, op.end, args)
    for span in timeline.spans:
        args = {"External id": timeline.span_ids[id(span)]}
        if span.arguments is not None:
            args["Arguments"] = span.arguments
        if span.domain is not None:
            args["NVTX domain"] = span.domain
        event = _span("user_annotation", span.name, pid, span.thread, span.start, span.end, args)
        yield from _loose(event, timeline.span_ids[id(span)]) if span.crosses else [event]
    for reach in timeline.reaches():
        args = {"External id": timeline.span_ids[id(reach.span)]}
        yield _span(
            "gpu_user_annotation",
            reach.span.name,
            reach.device,
            reach.stream,
            reach.start,
            reach.end,
            args,
        )


def _loose(event: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """A span that others may cross, as a beginning and an end; viewers drop crossing spans."""
    duration = event.pop("dur")
    yield {**event, "ph": "b", "id": number}
    yield {**event, "ph": "e", "id": number, "ts": event["ts"] + duration, "args": {}}


def _calls(timeline: Timeline) -> Iterator[dict[str, Any]]:
    operations = timeline.operation_of()
    for call in timeline.calls:
        args: dict[str, Any] = {"cbid": call.number, "correlation": call.correlation}
        op = operations.get(call.correlation)
        if op is not None:
            args = {"External id": op.id, **args}
        category = f"cuda_{call.library}"
        yield _span(category, call.name, os.getpid(), call.thread, call.start, call.end, args)


def _work(timeline: Timeline, lanes: GraphLanes) -> Iterator[dict[str, Any]]:
    operations = timeline.operation_of()
    annotations = timeline.annotations if lanes.given is None else lanes.given
    for work in timeline.work:
        args: dict[str, Any] = {}
        op = operations.get(work.correlation)
        if op is not None and not work.graph:
            args["External id"] = op.id
        args |= _describe(work, timeline)
        event = _span(
            _CATEGORIES[work.kind],
            work_name(work),
            work.device,
            work.stream,
            work.start,
            work.end,
            args,
        )
        if work.graph:
            args["graph id"] = work.graph
            args[_GRAPH_NODE] = work.tools_id
            lanes.apply(event, annotations.get(work.tools_id))
        yield event


def _describe(work: DeviceWork, timeline: Timeline) -> dict[str, Any]:
    common = {
        "device": work.device,
        "context": work.context,
        "stream": work.stream,
        "correlation": work.correlation,
    }
    if work.kind in {"memcpy", "memset"}:
        rate = work.size / (work.end - work.start) if work.end > work.start else 0.0
        return {**common, "bytes": work.size, "memory bandwidth (GB/s)": rate}
    if work.kind == "host":
        return common
    return {"queued": work.queued, **common, **_shape(work, timeline)}


def _shape(work: DeviceWork, timeline: Timeline) -> dict[str, Any]:
    """A kernel's extents, and how it fills the multiprocessors."""
    blocks = work.grid[0] * work.grid[1] * work.grid[2]
    threads = work.block[0] * work.block[1] * work.block[2]
    shape: dict[str, Any] = {
        "registers per thread": work.registers,
        "shared memory": work.static_shared + work.dynamic_shared,
        "grid": list(work.grid),
        "block": list(work.block),
    }
    of = next((d for d in timeline.devices if d["id"] == work.device), None)
    if of is not None and of["numSms"]:
        warps = blocks * ((threads + of["warpSize"] - 1) // of["warpSize"])
        most = of["maxThreadsPerMultiprocessor"] / of["warpSize"]
        shape["blocks per SM"] = blocks / of["numSms"]
        shape["warps per SM"] = warps / of["numSms"]
        share = min(1.0, warps / of["numSms"] / most)
        shape["est. achieved occupancy %"] = round(100 * share)
    return shape


def _waits(timeline: Timeline) -> Iterator[dict[str, Any]]:
    for wait in timeline.waits:
        args = {
            "cuda_sync_kind": wait.kind,
            "stream": wait.stream,
            "correlation": wait.correlation,
            "device": wait.device,
            "context": wait.device + 1,
        }
        yield _span(
            "cuda_sync", wait.kind, max(wait.device, 0), wait.stream, wait.start, wait.end, args
        )


def _flows(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Arrows from a call to the work that it submitted."""
    calls = {call.correlation: call for call in timeline.calls}
    begun: set[int] = set()
    for work in timeline.work:
        call = calls.get(work.correlation)
        if call is None:
            continue
        flow: dict[str, Any] = {"id": work.correlation, "cat": "ac2g", "name": "ac2g"}
        if work.correlation not in begun:
            begun.add(work.correlation)
            at = {"pid": os.getpid(), "tid": call.thread, "ts": call.start / 1000}
            yield {"ph": "s", **flow, **at}
        at = {"pid": work.device, "tid": work.stream, "ts": work.start / 1000}
        yield {"ph": "f", "bp": "e", **flow, **at}


def _instants(timeline: Timeline) -> Iterator[dict[str, Any]]:
    pid = os.getpid()
    for mark in timeline.marks:
        yield {
            "ph": "i",
            "s": "t",
            "cat": "user_annotation",
            "name": mark.name,
            "pid": pid,
            "tid": mark.thread,
            "ts": mark.time / 1000,
            "args": {},
        }
    for note in timeline.memory:
        yield {
            "ph": "i",
            "s": "t",
            "cat": "cpu_instant_event",
            "name": "[memory]",
            "pid": pid,
            "tid": note.thread,
            "ts": note.time / 1000,
            "args": {
                "Total Reserved": note.reserved,
                "Total Allocated": note.allocated,
                "Bytes": note.size,
                "Device Id": note.device,
                "Device Type": 1 if note.device >= 0 else 0,
                "Addr": note.address,
            },
        }


def _names(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """What processes, threads and streams are called."""
    at = timeline.begin / 1000
    pid = os.getpid()
    yield _meta("process_name", pid, 0, at, name="python")
    yield _meta("process_labels", pid, 0, at, labels="CPU")
    yield _meta("process_sort_index", pid, 0, at, sort_index=0)
    threads = {c.thread for c in timeline.calls} | {o.thread for o in timeline.operations}
    for thread in sorted(threads):
        yield _meta("thread_name", pid, thread, at, name=f"thread {thread} (python)")
    for device in sorted({w.device for w in timeline.work}):
        yield _meta("process_name", device, 0, at, name="python")
        yield _meta("process_labels", device, 0, at, labels=f"GPU {device}")
        yield _meta("process_sort_index", device, 0, at, sort_index=5000000 + device)
        for stream in sorted({w.stream for w in timeline.work if w.device == device}):
            yield _meta("thread_name", device, stream, at, name=f"stream {stream}")
            yield _meta("thread_sort_index", device, stream, at, sort_index=stream)


def _meta(kind: str, pid: int, tid: int, at: float, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": at, "args": args}
