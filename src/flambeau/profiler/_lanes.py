# SPDX-License-Identifier: Apache-2.0
"""Tracks that viewers can draw: on one of them, spans nest or follow each other.

Kernels of one stream may overlap: with programmatic dependent launch the next begins before the
last has ended. Perfetto drops a span that crosses the one before it, so such spans get a track
beside that of their stream. Their ``args`` still name the stream.
"""

from __future__ import annotations

from typing import Any

__all__ = ["untangle"]

_OF_DEVICES = frozenset(
    {"kernel", "gpu_memcpy", "gpu_memset", "gpu_host_function", "gpu_user_annotation"}
)
_APART = 1 << 20  # more than there are streams, so that the tracks beside them have free numbers


def untangle(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Move spans of devices that cross others, and the arrows to them; names of the new tracks.

    Parameters
    ----------
    events
        All events of a trace, changed in place.

    Returns
    -------
    list of dict
        Metadata events, to be put before the others.
    """
    tracks: dict[tuple[Any, int], list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] == "X" and event["cat"] in _OF_DEVICES:
            tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    names: list[dict[str, Any]] = []
    for (pid, stream), spans in tracks.items():
        for lane in range(1, _place(spans)):
            names += _named(pid, stream, lane, spans[0]["ts"])
    _follow(events, [span for spans in tracks.values() for span in spans])
    return names


def _nanoseconds(event: dict[str, Any]) -> tuple[int, int]:
    begin = round(event["ts"] * 1000)
    return begin, begin + round(event["dur"] * 1000)


def _place(spans: list[dict[str, Any]]) -> int:
    """Put each span on the first track where it crosses none; how many tracks there are."""
    lanes: list[list[int]] = []  # of each, the ends of the spans that are open, innermost last
    spans.sort(key=lambda span: (span["ts"], -span["dur"]))
    for span in spans:
        begin, end = _nanoseconds(span)
        for open_ends in lanes:
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
        fits = (lane for lane, ends in enumerate(lanes) if not ends or end <= ends[-1])
        lane = next(fits, len(lanes))
        if lane == len(lanes):
            lanes.append([])
        lanes[lane].append(end)
        span["tid"] += lane * _APART
    return len(lanes)


def _named(pid: Any, stream: int, lane: int, at: float) -> list[dict[str, Any]]:
    common = {"ph": "M", "pid": pid, "tid": stream + lane * _APART, "ts": at}
    title = f"stream {stream} (overlapping{f' {lane}' if lane > 1 else ''})"
    return [
        {**common, "name": "thread_name", "args": {"name": title}},
        {**common, "name": "thread_sort_index", "args": {"sort_index": stream}},
    ]


def _follow(events: list[dict[str, Any]], spans: list[dict[str, Any]]) -> None:
    """Let arrows end where the work is now."""
    places = {}
    for span in spans:
        args = span["args"]
        if "correlation" in args:
            stream = args.get("original_stream", args["stream"])
            places[span["pid"], stream, span["ts"], args["correlation"]] = span["tid"]
    for event in events:
        if event["ph"] == "f":
            key = (event["pid"], event["tid"], event["ts"], event["id"])
            event["tid"] = places.get(key, event["tid"])
