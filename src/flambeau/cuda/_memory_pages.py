# SPDX-License-Identifier: Apache-2.0
"""Pages that show a memory history: one HTML file each, with nothing loaded from elsewhere."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html import escape
from typing import Any

__all__ = ["Life", "lives_of", "segment_page", "timeline_page"]

MOST = 5000  # lives drawn one by one; the smaller ones are drawn together


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
    """

    address: int
    size: int
    start: int
    end: int
    frames: list[dict[str, Any]] = field(default_factory=list)
    whole: bool = False


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
            open_[entry["addr"]] = life
            done.append(life)
        elif entry["action"] in end:
            if entry["addr"] not in open_:  # it began before the trace
                open_[entry["addr"]] = Life(entry["addr"], entry["size"], 0, 0)
                done.append(open_[entry["addr"]])
            life = open_.pop(entry["addr"])
            life.end, life.whole = position, True
    known = open_.keys()
    for address, size, frames in _present(segments, of_segments):
        if address not in known:
            done.append(Life(address, size, 0, len(trace), frames))
    return sorted(done, key=lambda life: life.start)


def _present(
    segments: list[dict[str, Any]], of_segments: bool
) -> list[tuple[int, int, list[dict[str, Any]]]]:
    if of_segments:
        return [(s["address"], s["total_size"], s.get("frames", [])) for s in segments]
    return [
        (block["address"], block["requested_size"], block.get("frames", []))
        for segment in segments
        for block in segment["blocks"]
        if block["state"] != "inactive"
    ]


def timeline_page(title: str, lives: list[Life], length: int) -> str:
    """How much memory is held over the trace, and by whom."""
    largest = sorted(lives, key=lambda life: -life.size)[:MOST]
    shown = {id(life) for life in largest}
    small = [life for life in lives if id(life) not in shown]
    data = {
        "length": max(length, 1),
        "areas": _stack(sorted(largest, key=lambda life: life.start), length, _sum(small, length)),
        "base": _sum(small, length),
    }
    return _page(title, _TIMELINE, data)


def _sum(lives: list[Life], length: int) -> list[int]:
    """Bytes held at each position, by all of these together."""
    change = [0] * (length + 2)
    for life in lives:
        change[life.start] += life.size
        if life.whole:
            change[life.end] -= life.size
    total, result = 0, []
    for amount in change[: length + 1]:
        total += amount
        result.append(total)
    return result


def _stack(lives: list[Life], length: int, base: list[int]) -> list[dict[str, Any]]:
    """Each life on top of those that are older: where it lies, at each change below it."""
    ends: dict[int, list[Life]] = {}
    for life in lives:
        ends.setdefault(life.end, []).append(life)
    starts: dict[int, list[Life]] = {}
    for life in lives:
        starts.setdefault(life.start, []).append(life)
    alive: list[Life] = []
    points: dict[int, list[int]] = {id(life): [] for life in lives}
    for position in range(length + 1):
        gone = {id(life) for life in ends.get(position, ()) if position < length}
        came = starts.get(position, [])
        if not gone and not came and position < length:
            continue
        alive = [life for life in alive if id(life) not in gone]
        alive += [life for life in came if life.end > position or position == length]
        height = 0
        for life in alive:
            places = points[id(life)]
            if not places or places[-1] != height:
                places += [position, height]
            height += life.size
    return [
        {
            "size": life.size,
            "start": life.start,
            "end": life.end,
            "points": points[id(life)],
            "text": describe(life),
        }
        for life in lives
    ]


def segment_page(title: str, segments: list[Life], blocks: list[Life], length: int) -> str:
    """The segments and the blocks in them, at any position of the trace."""
    data = {
        "length": max(length, 1),
        "segments": [_row(life) for life in sorted(segments, key=lambda life: life.address)],
        "blocks": [_row(life) for life in blocks],
    }
    return _page(title, _SEGMENTS, data)


def _row(life: Life) -> list[Any]:
    return [hex(life.address), life.size, life.start, life.end, describe(life)]


def describe(life: Life) -> str:
    """What a reader is told of a life: its place, its size and its stack."""
    frames = [f"{f['filename']}:{f['line']}:{f['name']}" for f in life.frames]
    return "\n".join([f"{life.address:#x}, {life.size} bytes", *(frames or ["<non-python>"])])


def _page(title: str, script: str, data: dict[str, Any]) -> str:
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return _PAGE.format(title=escape(title), script=script, data=text)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font-family: sans-serif; margin: 1em; }}
canvas {{ border: 1px solid #999; width: 100%; height: 65vh; }}
pre {{ min-height: 12em; background: #f4f4f4; padding: .5em; overflow: auto; }}
</style></head><body>
<h1>{title}</h1>
<div id="controls"></div><canvas id="picture"></canvas>
<pre id="what">Move the pointer over the picture.</pre>
<script id="data" type="application/json">{data}</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("picture"), what = document.getElementById("what");
const context = canvas.getContext("2d");
function colour(i) {{ return "hsl(" + (i * 47) % 360 + ",55%,60%)"; }}
function fit() {{ canvas.width = canvas.clientWidth; canvas.height = canvas.clientHeight; }}
{script}
window.addEventListener("resize", () => {{ fit(); draw(); }});
fit(); draw();
</script></body></html>
"""

_TIMELINE = """
function below(t) { return data.base[Math.min(Math.floor(t), data.base.length - 1)]; }
function offset(area, t) {
  let at = 0;
  for (let i = 0; i < area.points.length && area.points[i] <= t; i += 2) at = area.points[i + 1];
  return at + below(t);
}
let top_ = Math.max(1, ...data.base);
for (const area of data.areas)
  for (let i = 0; i < area.points.length; i += 2)
    top_ = Math.max(top_, area.points[i + 1] + below(area.points[i]) + area.size);
function x(t) { return t / data.length * canvas.width; }
function y(bytes) { return canvas.height * (1 - bytes / top_ * 0.97); }
function draw() {
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = "#ccc";
  for (let t = 0; t < data.length; ++t) {
    const height = y(0) - y(below(t));
    if (height > 0) context.fillRect(x(t), y(below(t)), x(t + 1) - x(t) + 0.5, height);
  }
  data.areas.forEach((area, i) => {
    context.fillStyle = colour(i);
    for (let p = 0; p < area.points.length; p += 2) {
      const from = area.points[p], to = p + 2 < area.points.length ? area.points[p + 2] : area.end;
      const low = area.points[p + 1] + below(from);
      context.fillRect(x(from), y(low + area.size), Math.max(x(to) - x(from), 0.5),
                       Math.max(y(low) - y(low + area.size), 0.5));
    }
  });
  context.fillStyle = "#000";
  context.fillText((top_ / 1048576).toFixed(2) + " MiB", 4, 12);
}
canvas.addEventListener("mousemove", (event) => {
  const t = event.offsetX / canvas.clientWidth * data.length;
  const bytes = (1 - event.offsetY / canvas.clientHeight) * top_ / 0.97;
  const hit = data.areas.find((area) => area.start <= t && t < area.end &&
    offset(area, t) <= bytes && bytes < offset(area, t) + area.size);
  if (hit) what.textContent = hit.text;
});
"""

_SEGMENTS = """
const slider = document.createElement("input");
slider.type = "range"; slider.min = 0; slider.max = data.length; slider.value = data.length;
slider.style.width = "100%";
document.getElementById("controls").append(slider);
slider.addEventListener("input", draw);
function alive(life) {
  const t = Number(slider.value);
  return life[2] <= t && (t < life[3] || (t === data.length && life[3] === t));
}
let rows = [];
function draw() {
  context.clearRect(0, 0, canvas.width, canvas.height);
  const segments = data.segments.filter(alive), blocks = data.blocks.filter(alive);
  const widest = Math.max(1, ...segments.map((s) => s[1]));
  const height = Math.max(3, Math.min(24, canvas.height / Math.max(1, segments.length)));
  rows = [];
  segments.forEach((segment, i) => {
    const start = Number(segment[0]), width = segment[1] / widest * canvas.width;
    context.fillStyle = "#e8e8e8";
    context.fillRect(0, i * height, width, height - 1);
    rows.push([0, i * height, width, height, "segment " + segment[4]]);
    blocks.forEach((block, j) => {
      const at = Number(block[0]) - start;
      if (at < 0 || at >= segment[1]) return;
      const left = at / widest * canvas.width;
      const wide = Math.max(block[1] / widest * canvas.width, 0.5);
      context.fillStyle = colour(j);
      context.fillRect(left, i * height, wide, height - 1);
      rows.push([left, i * height, wide, height, block[4]]);
    });
  });
}
canvas.addEventListener("mousemove", (event) => {
  const px = event.offsetX / canvas.clientWidth * canvas.width;
  const py = event.offsetY / canvas.clientHeight * canvas.height;
  const hits = rows.filter((r) => r[0] <= px && px < r[0] + r[2] && r[1] <= py && py < r[1] + r[3]);
  if (hits.length) what.textContent = hits[hits.length - 1][4];
});
"""
