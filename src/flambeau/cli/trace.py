# SPDX-License-Identifier: Apache-2.0
"""``flambeau trace``: what a profiler's trace shows, in the terminal and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flambeau.cli.tables import print_table
from flambeau.pages import trace as trace_page
from flambeau.profiler._table import format_time

__all__ = ["load", "summary", "view"]

_PARTS = (
    (
        "What the devices did",
        frozenset({"kernel", "gpu_memcpy", "gpu_memset", "gpu_host_function"}),
    ),
    ("What the host asked for", frozenset({"cpu_op", "user_annotation"})),
    ("What the host called", frozenset({"cuda_driver", "cuda_runtime"})),
)


def load(path: str) -> dict[str, Any]:
    """Read a trace.

    Raises
    ------
    SystemExit
        It cannot be read; the message says why.
    """
    try:
        return trace_page.load(path)
    except (OSError, ValueError) as error:
        raise SystemExit(f"flambeau trace: {error}") from error


def summary(path: str, count: int) -> None:
    """Print how long it took, how busy the devices were, and what took longest."""
    data = load(path)
    begin, end = trace_page.extent(data)
    print(f"{path}: {format_time(end - begin)} in all")
    for device, time in sorted(trace_page.busy(data).items()):
        share = 100 * time / (end - begin) if end > begin else 0.0
        print(f"device {device} worked for {format_time(time)}, {share:.1f} % of the time")
    for title, categories in _PARTS:
        found = [t for t in trace_page.totals(data) if t.category in categories]
        whole = sum(t.time for t in found)
        rows = [
            (
                t.name,
                f"{t.count:,}",
                format_time(t.time),
                f"{100 * t.time / whole:.1f} %" if whole else "",
                format_time(t.time / t.count),
                format_time(t.longest),
            )
            for t in found[:count]
        ]
        if rows:
            print_table(("name", "count", "total", "share", "mean", "longest"), rows, title)


def view(path: str, output: str | None) -> None:
    """Write the page of a trace."""
    data = load(path)
    target = output or f"{path.removesuffix('.gz').removesuffix('.json')}.html"
    Path(target).write_text(trace_page.page(data, f"Trace {Path(path).name}"), encoding="utf-8")
    print(target)
