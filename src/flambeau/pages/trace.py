# SPDX-License-Identifier: Apache-2.0
"""The trace page, and totals of a trace: from the Chrome format, of whoever wrote it."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flambeau import pages

if TYPE_CHECKING:
    import os

__all__ = ["Total", "load", "page", "totals"]

_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "gpu_host_function"})
_CALLS = frozenset({"cuda_runtime", "cuda_driver"})
_LIMIT = 4 << 30


@dataclass(slots=True)
class Total:
    """What all spans of a name and category took, in microseconds."""

    name: str
    category: str
    count: int = 0
    time: float = 0.0
    longest: float = 0.0


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a trace, packed with gzip or not.

    Raises
    ------
    ValueError
        The file is no trace, or larger than 4 GiB.
    """
    raw = Path(path).read_bytes()
    if raw[:2] == b"\x1f\x8b":
        with gzip.open(path) as file:
            raw = file.read(_LIMIT + 1)
    if len(raw) > _LIMIT:
        raise ValueError(f"{path} has more than {_LIMIT >> 30} GiB")
    try:
        data = json.loads(raw)
    except ValueError as error:
        raise ValueError(f"{path} is no trace: it is not JSON ({error})") from error
    if isinstance(data, list):  # the format's short form
        data = {"traceEvents": data}
    if not isinstance(data, dict) or not isinstance(data.get("traceEvents"), list):
        raise ValueError(f"{path} is no trace: it has no traceEvents")
    return data


def spans(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The events with a duration, in order of their starts; of equal ones the longer first."""
    found = [e for e in data["traceEvents"] if e.get("ph") == "X" and "ts" in e]
    found += _paired(data)
    found = [e for e in found if e.get("cat") not in {"Trace", "overhead"}]
    return sorted(found, key=lambda e: (e["ts"], -e.get("dur", 0)))


def _paired(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Spans that a trace has as a beginning and an end."""
    begun: dict[tuple[object, ...], dict[str, Any]] = {}
    found = []
    for event in data["traceEvents"]:
        if event.get("ph") not in {"b", "e"} or "ts" not in event:
            continue
        key = (event.get("cat"), event.get("id"), event.get("name"))
        if event["ph"] == "b":
            begun[key] = event
        elif key in begun:
            first = begun.pop(key)
            found.append({**first, "ph": "X", "dur": event["ts"] - first["ts"]})
    return found


def totals(data: dict[str, Any]) -> list[Total]:
    """Totals by name and category, what took longest first."""
    found: dict[tuple[str, str], Total] = {}
    for event in spans(data):
        key = (str(event.get("name", "")), str(event.get("cat", "")))
        total = found.setdefault(key, Total(*key))
        total.count += 1
        total.time += event.get("dur", 0)
        total.longest = max(total.longest, event.get("dur", 0))
    return sorted(found.values(), key=lambda t: -t.time)


def busy(data: dict[str, Any]) -> dict[int, float]:
    """How many microseconds each device worked, each counted once however many streams did."""
    result: dict[int, float] = {}
    until: dict[int, float] = {}
    for event in spans(data):
        if event.get("cat") not in _DEVICE:
            continue
        device = event["pid"]
        start, end = event["ts"], event["ts"] + event.get("dur", 0)
        fresh = end - max(start, until.get(device, start))
        result[device] = result.get(device, 0.0) + max(fresh, 0.0)
        until[device] = max(end, until.get(device, end))
    return result


def extent(data: dict[str, Any]) -> tuple[float, float]:
    """When the first span begins and the last one ends."""
    events = spans(data)
    begin = min((e["ts"] for e in events), default=0.0)
    return begin, max((e["ts"] + e.get("dur", 0) for e in events), default=begin)


def page(data: dict[str, Any], title: str) -> str:
    """The page of a trace, as HTML."""
    builder = _Tracks(data)
    begin, end = extent(data)
    work = [t for t in totals(data) if t.category in _DEVICE]
    figures = [["whole time", _micros(end - begin)]]
    for device, time in sorted(busy(data).items()):
        share = 100 * time / (end - begin) if end > begin else 0.0
        figures.append([f"device {device} busy", f"{_micros(time)} ({share:.0f} %)"])
    figures.append(["pieces of device work", f"{sum(t.count for t in work):,}"])
    return pages.render(
        "trace",
        title,
        {
            "begin": begin,
            "end": end,
            "names": builder.names,
            "args": builder.args,
            "tracks": builder.build(),
            "figures": figures,
            "totals": [[t.name, t.category, t.count, t.time, t.longest] for t in totals(data)],
        },
    )


def _micros(us: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3f} {unit}"
    return f"{us:.3f} µs"


class _Tracks:
    """Spans sorted into tracks, with names and arguments kept once."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.names: list[str] = []
        self.args: list[Any] = []
        self._numbers: dict[str, int] = {}
        self._labels: dict[tuple[Any, Any], str] = {}
        self._processes: dict[Any, str] = {}
        self._tracks: dict[tuple[Any, Any, bool], dict[str, Any]] = {}
        for event in data["traceEvents"]:
            if event.get("ph") == "M":
                self._meta(event)
        for event in spans(data):
            self._add(event)

    def _meta(self, event: dict[str, Any]) -> None:
        given = event.get("args", {})
        if event["name"] == "process_labels":
            self._processes[event["pid"]] = str(given.get("labels", ""))
        elif event["name"] == "thread_name":
            self._labels[event["pid"], event.get("tid")] = str(given.get("name", ""))

    def _add(self, event: dict[str, Any]) -> None:
        category = event.get("cat", "")
        annotation = category == "gpu_user_annotation"
        on_device = category in _DEVICE or annotation
        key = (event["pid"], event.get("tid"), annotation)
        track = self._tracks.get(key)
        if track is None:
            columns = ("start", "dur", "depth", "label", "args", "correlation", "call")
            track = self._tracks[key] = {name: [] for name in columns}
            track |= {"device": on_device, "longest": 0.0, "open": []}
        start, duration = event["ts"], event.get("dur", 0)
        opened: list[tuple[float, int]] = track["open"]
        opened[:] = [one for one in opened if one[0] > start or (one[0] == start and not duration)]
        depth = 0
        taken = {row for _, row in opened}
        while depth in taken:
            depth += 1
        opened.append((start + duration, depth))
        name = str(event.get("name", ""))
        number = self._numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        given = {"category": category, **event.get("args", {})}
        correlation = 0 if annotation else given.get("correlation", 0)
        for column, value in (
            ("start", start),
            ("dur", duration),
            ("depth", depth),
            ("label", number),
            ("args", len(self.args)),
            ("correlation", correlation),
            ("call", int(category in _CALLS)),
        ):
            track[column].append(value)
        self.args.append(given)
        track["longest"] = max(track["longest"], duration)

    def build(self) -> list[dict[str, Any]]:
        """The tracks in order: the host's threads, then each device's streams."""
        order = sorted(
            self._tracks,
            key=lambda key: (
                self._tracks[key]["device"],
                str(key[0]),
                not key[2],
                str(key[1]).zfill(12),
            ),
        )
        result, last = [], None
        for key in order:
            pid, tid, annotation = key
            track = self._tracks[key]
            del track["open"]
            name = self._labels.get((pid, tid), f"track {tid}")
            track["name"] = f"annotations on {name}" if annotation else name
            if pid != last:
                label = self._processes.get(pid) or f"process {pid}"
                track["header"] = f"{label}" if track["device"] else f"{label} (process {pid})"
            last = pid
            result.append(track)
        return result
