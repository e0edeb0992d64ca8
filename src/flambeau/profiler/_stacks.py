# SPDX-License-Identifier: Apache-2.0
"""Smaller exports: folded stacks, and memory over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.profiler import _chrome

if TYPE_CHECKING:
    from flambeau.profiler._events import EventList
    from flambeau.profiler._recorder import MemoryNote
    from flambeau.profiler._timeline import Timeline

__all__ = ["memory_page", "write", "write_memory"]

_METRICS = {
    "self_cpu_time_total": "self_cpu_time_total",
    "self_cuda_time_total": "device_time_total",
    "self_device_time_total": "device_time_total",
}


def write(path: str, events: EventList, metric: str) -> None:
    """Write ``outer;inner NUMBER`` lines, the numbers in whole microseconds."""
    if metric not in _METRICS:
        raise ValueError(f"metric is one of {', '.join(_METRICS)}, got {metric!r}")
    totals: dict[str, float] = {}
    for event in events:
        if event.stack:
            frames = [frame.replace(" ", "_") for frame in reversed(event.stack)]
            stack = ";".join([*frames, event.name])
            totals[stack] = totals.get(stack, 0.0) + getattr(event, _METRICS[metric])
    with open(path, "w", encoding="utf-8") as file:
        for stack, total in totals.items():
            if int(total) > 0:
                file.write(f"{stack} {int(total)}\n")


def write_memory(path: str, timeline: Timeline, device: str | None) -> None:
    """Write memory over time as a page or as two lists in JSON."""
    if path.endswith(".html"):
        with open(path, "w", encoding="utf-8") as file:
            file.write(memory_page(timeline, device))
        return
    notes = _of_device(timeline, device)
    held = 0
    times, sizes = [], []
    for note in notes:
        held += note.size
        times.append((note.time - timeline.begin) / 1000)
        sizes.append(held)
    _chrome.write(path, {"times_us": times, "bytes": sizes})


def memory_page(timeline: Timeline, device: str | None) -> str:
    """Memory over time as a page."""
    from flambeau.cuda import _memory_pages

    entries = _entries(timeline, _of_device(timeline, device))
    snapshot = {"segments": [], "device_traces": [entries]}
    return _memory_pages.page(snapshot, "Memory of a profile")


def _of_device(timeline: Timeline, device: str | None) -> list[MemoryNote]:
    if device is None:
        index = min((n.device for n in timeline.memory if n.device >= 0), default=-1)
    else:
        kind, _, number = device.partition(":")
        index = -1 if kind == "cpu" else int(number or 0)
    return [note for note in timeline.memory if note.device == index]


def _entries(timeline: Timeline, notes: list[MemoryNote]) -> list[dict[str, object]]:
    """Notes as entries of a memory trace, with the operations that took the memory as frames."""
    entries: list[dict[str, object]] = []
    takers = {id(memory): op.name for op in timeline.operations for memory in op.memory}
    for note in notes:
        inside = takers.get(id(note))
        frames = [{"filename": "", "line": 0, "name": inside}] if inside else []
        entries.append(
            {
                "action": "alloc" if note.size > 0 else "free_completed",
                "addr": note.address,
                "size": abs(note.size),
                "stream": 0,
                "time_us": note.time // 1000,
                "frames": frames,
            }
        )
    return entries
