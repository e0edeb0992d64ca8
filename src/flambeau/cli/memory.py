# SPDX-License-Identifier: Apache-2.0
"""``flambeau memory``: what a snapshot of the allocator shows, in the terminal and as a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flambeau.cli.tables import print_table
from flambeau.runtime.out_of_memory import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Holding", "changes", "convert", "diff", "holdings", "timeline", "top", "view"]

_BARS = " ▁▂▃▄▅▆▇█"


class Holding:
    """What one site holds: bytes, blocks and the stack, innermost frame first."""

    __slots__ = ("bytes", "count", "frames")

    def __init__(self, frames: list[dict[str, Any]]) -> None:
        self.frames = frames
        self.bytes = 0
        self.count = 0

    def site(self) -> str:
        """The innermost frame."""
        if not self.frames:
            return "<non-python>"
        frame = self.frames[0]
        return f"{frame['filename']}:{frame['line']} {frame['name']}"


def load(path: str) -> dict[str, Any]:
    """Read a snapshot; a bare list of segments becomes one without traces.

    Raises
    ------
    SystemExit
        The file cannot be read; the message says why.
    """
    from pickle import UnpicklingError

    from flambeau.cuda import _memory_file

    try:
        found = _memory_file.read(path)
    except (OSError, ValueError, UnpicklingError) as error:
        raise SystemExit(f"flambeau memory: {path}: {error}") from error
    if isinstance(found, list):
        found = {"segments": found, "device_traces": []}
    if not isinstance(found, dict) or not isinstance(found.get("segments"), list):
        raise SystemExit(f"flambeau memory: {path}: this is no snapshot of the allocator")
    found.setdefault("device_traces", [])
    return found


def holdings(snapshot: dict[str, Any]) -> dict[tuple[Any, ...], Holding]:
    """What every stack holds at the end, by stack."""
    found: dict[tuple[Any, ...], Holding] = {}
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                continue
            frames = block.get("frames") or []
            key = tuple((f["filename"], f["line"], f["name"]) for f in frames)
            holding = found.setdefault(key, Holding(frames))
            holding.bytes += block.get("requested_size", block["size"])
            holding.count += 1
    return found


def top(path: str, count: int) -> None:
    """Print what holds most at the end of a snapshot."""
    snapshot = load(path)
    found = sorted(holdings(snapshot).values(), key=lambda h: -h.bytes)
    reserved = sum(segment["total_size"] for segment in snapshot["segments"])
    held = sum(holding.bytes for holding in found)
    rows = [
        (format_size(h.bytes), f"{100 * h.bytes / held:.1f} %", str(h.count), h.site())
        for h in found[:count]
    ]
    print_table(
        ("held", "share", "blocks", "allocated at"),
        rows,
        f"{format_size(held)} held, {format_size(reserved)} reserved",
    )
    if len(found) > count:
        print(f"{len(found) - count} more sites; -n {len(found)} shows them")


def diff(before: str, after: str, count: int) -> None:
    """Print which sites hold more or less than they did."""
    rows = [
        (
            f"{'+' if delta > 0 else '-'}{format_size(abs(delta))}",
            format_size(was),
            format_size(now),
            site,
        )
        for delta, was, now, site in changes(load(before), load(after))[:count]
    ]
    if not rows:
        print("the same sites hold the same")
        return
    print_table(("change", "before", "after", "allocated at"), rows)


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[int, int, int, str]]:
    """Change, bytes before, bytes after and site of each site that changed, the largest first."""
    old, new = holdings(before), holdings(after)
    found = []
    for key in old.keys() | new.keys():
        was = old[key].bytes if key in old else 0
        now = new[key].bytes if key in new else 0
        if was != now:
            found.append((now - was, was, now, (new.get(key) or old[key]).site()))
    return sorted(found, key=lambda row: (-abs(row[0]), row[3]))


def timeline(path: str, device: int | None, width: int, height: int) -> None:
    """Draw how much was held over the trace, with characters."""
    snapshot = load(path)
    traces = snapshot["device_traces"]
    if device is None:
        device = next((i for i, entries in enumerate(traces) if entries), None)
    if device is None or not 0 <= device < len(traces) or not traces[device]:
        raise SystemExit(
            f"flambeau memory: {path}: there is no trace of this device; record one with "
            "torch.cuda.memory._record_memory_history()"
        )
    levels = _levels(snapshot, device)
    peak = max(levels, default=0)
    for line in _drawn(levels, width, height):
        print(line)
    print(
        f"device {device}: {len(traces[device]):,} entries, peak {format_size(peak)} after entry "
        f"{levels.index(peak):,}, at the end {format_size(levels[-1])}"
    )


def _levels(snapshot: dict[str, Any], device: int) -> list[int]:
    """Bytes held after each entry of a trace."""
    from flambeau.cuda._memory_pages import lives_of

    trace = snapshot["device_traces"][device]
    present = [s for s in snapshot["segments"] if s.get("device", 0) == device]
    change = [0] * (len(trace) + 1)
    for life in lives_of(trace, present, of_segments=False):
        change[life.start] += life.size
        if life.whole:
            change[life.end] -= life.size
    held, levels = 0, []
    for amount in change[: len(trace)]:
        held += amount
        levels.append(held)
    return levels


def _drawn(levels: list[int], width: int, height: int) -> Iterator[str]:
    width = max(min(width, len(levels)), 1)
    tops = [
        max(
            levels[
                c * len(levels) // width : max(
                    (c + 1) * len(levels) // width, c * len(levels) // width + 1
                )
            ]
        )
        for c in range(width)
    ]
    peak = max(tops) or 1
    eighths = [round(top / peak * height * 8) for top in tops]
    for row in range(height - 1, -1, -1):
        cells = "".join(_BARS[min(max(e - 8 * row, 0), 8)] for e in eighths)
        yield f"{format_size(peak * (row + 1) // height):>12} │{cells}"


def view(path: str, output: str | None) -> None:
    """Write the page of a snapshot."""
    from flambeau.cuda import _memory_pages

    snapshot = load(path)
    target = output or f"{path.removesuffix('.gz')}.html"
    text = _memory_pages.page(snapshot, f"Memory of {Path(path).name}")
    Path(target).write_text(text, encoding="utf-8")
    print(target)


def convert(path: str, output: str) -> None:
    """Write a snapshot in the format that the new name asks for."""
    import pickle

    from flambeau.cuda import _memory_file

    snapshot = load(path)
    if output.endswith((".jsonl", ".jsonl.gz")):
        _memory_file.write_lines(snapshot, output)
    elif output.endswith((".pickle", ".pkl")):
        with open(output, "wb") as file:
            pickle.dump(snapshot, file, protocol=4)
    else:
        sys.exit(f"flambeau memory: {output}: the name must end in .jsonl, .jsonl.gz or .pickle")
    print(output)
