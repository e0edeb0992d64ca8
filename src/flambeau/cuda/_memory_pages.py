# SPDX-License-Identifier: Apache-2.0
"""The memory page: who held how much, where it lay, and what happened, in one HTML file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flambeau import pages

__all__ = ["Life", "Sites", "lives_of", "page"]

_ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
    "annotate",
)


@dataclass(slots=True)
class Life:
    """A range of memory from the entry that took it to the one that gave it back.

    Parameters
    ----------
    address, size
        The range.
    start, end
        Positions in the trace; `end` is its length for what still lives.
    frames
        Who took it.
    whole
        Whether the end was seen, and so the range was freed.
    stream
        Handle of the stream that it was taken for.
    """

    address: int
    size: int
    start: int
    end: int
    frames: list[dict[str, Any]] = field(default_factory=list)
    whole: bool = False
    stream: int = 0


def lives_of(
    trace: list[dict[str, Any]], segments: list[dict[str, Any]], *, of_segments: bool
) -> list[Life]:
    """The lives in a trace, of blocks or of segments, with what lived before it began.

    Parameters
    ----------
    trace
        The entries of one device.
    segments
        The device's segments at the end of the trace.
    of_segments
        Which of the two.
    """
    begin = {"segment_alloc", "segment_map"} if of_segments else {"alloc"}
    end = {"segment_free", "segment_unmap"} if of_segments else {"free_completed"}
    done: list[Life] = []
    open_: dict[int, Life] = {}
    for position, entry in enumerate(trace):
        if entry["action"] in begin:
            life = Life(entry["addr"], entry["size"], position, len(trace), entry.get("frames", []))
            life.stream = entry.get("stream", 0)
            open_[entry["addr"]] = life
            done.append(life)
        elif entry["action"] in end:
            if entry["addr"] not in open_:  # it began before the trace
                open_[entry["addr"]] = Life(entry["addr"], entry["size"], 0, 0)
                done.append(open_[entry["addr"]])
            life = open_.pop(entry["addr"])
            life.end, life.whole = position, True
    known = open_.keys()
    for address, size, frames, stream in _present(segments, of_segments):
        if address not in known:
            done.append(Life(address, size, 0, len(trace), frames, stream=stream))
    return sorted(done, key=lambda life: life.start)


def _present(
    segments: list[dict[str, Any]], of_segments: bool
) -> list[tuple[int, int, list[dict[str, Any]], int]]:
    if of_segments:
        return [
            (s["address"], s["total_size"], s.get("frames", []), s.get("stream", 0))
            for s in segments
        ]
    return [
        (block["address"], block["requested_size"], block.get("frames", []), segment["stream"])
        for segment in segments
        for block in segment["blocks"]
        if block["state"] != "inactive"
    ]


class Sites:
    """Stacks, each kept once and known by a number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._by_frames: dict[int, tuple[list[dict[str, Any]], int]] = {}

    def number(self, frames: list[dict[str, Any]] | None) -> int:
        """The number of a stack; the innermost frame comes first."""
        if frames is not None:
            known = self._by_frames.get(id(frames))
            if known is not None:  # a list that many entries share is looked at once
                return known[1]
        text = site_text(frames or [])
        number = self._numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        if frames is not None:
            self._by_frames[id(frames)] = (frames, number)
        return number


def site_text(frames: list[dict[str, Any]]) -> str:
    """A stack as lines, the innermost frame first."""
    if not frames:
        return "<non-python>"
    return "\n".join(
        f"{f['filename']}:{f['line']} {f['name']}" if f["filename"] else f["name"] for f in frames
    )


def page(
    snapshot: dict[str, Any],
    title: str,
    *,
    devices: list[int] | None = None,
    of_segments: bool = False,
    living_only: bool = False,
    start: str = "timeline",
) -> str:
    """The page of a snapshot, as HTML.

    Parameters
    ----------
    snapshot
        With ``segments`` and ``device_traces``.
    title
        The page's title.
    devices
        Which devices; None takes all that have a trace or memory.
    of_segments
        Whether the timeline shows segments instead of blocks at first.
    living_only
        Whether blocks that were freed again are left out.
    start
        ``"segments"`` opens the page at the segments.
    """
    traces = snapshot["device_traces"]
    if devices is None:
        held = {segment.get("device", 0) for segment in snapshot["segments"]}
        devices = sorted(held | {i for i, entries in enumerate(traces) if entries}) or [0]
    shown = [
        _device(snapshot, device, traces[device] if device < len(traces) else [], living_only)
        for device in devices
    ]
    data = {"actions": _ACTIONS, "devices": shown, "ofSegments": of_segments, "start": start}
    return pages.render("memory", title, data)


def _device(
    snapshot: dict[str, Any], device: int, trace: list[dict[str, Any]], living_only: bool
) -> dict[str, Any]:
    sites = Sites()
    present = [s for s in snapshot["segments"] if s.get("device", 0) == device]
    blocks = lives_of(trace, present, of_segments=False)
    segments = lives_of(trace, present, of_segments=True)
    if living_only:
        blocks = [life for life in blocks if not life.whole]
        segments = [life for life in segments if not life.whole]
    number = {action: place for place, action in enumerate(_ACTIONS)}
    return {
        "name": f"device {device}",
        "length": len(trace),
        "blocks": _columns(blocks, sites),
        "segments": _columns(segments, sites),
        "ooms": [place for place, entry in enumerate(trace) if entry["action"] == "oom"],
        "trace": {
            "action": [number.get(entry["action"], len(_ACTIONS) - 1) for entry in trace],
            "addr": [entry.get("addr", 0) for entry in trace],
            "size": [entry["size"] for entry in trace],
            "time": [entry.get("time_us", 0) for entry in trace],
            "stream": [entry.get("stream", 0) for entry in trace],
            "site": [sites.number(entry.get("frames")) for entry in trace],
        },
        "sites": sites.texts,
    }


def _columns(lives: list[Life], sites: Sites) -> dict[str, list[int]]:
    return {
        "addr": [life.address for life in lives],
        "size": [life.size for life in lives],
        "start": [life.start for life in lives],
        "end": [life.end for life in lives],
        "freed": [int(life.whole) for life in lives],
        "site": [sites.number(life.frames) for life in lives],
        "stream": [life.stream for life in lives],
    }
