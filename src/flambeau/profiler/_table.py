# SPDX-License-Identifier: Apache-2.0
"""Totals as a text table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["build", "format_memory", "format_time"]

_UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}


def format_time(microseconds: float, unit: str | None = None) -> str:
    """A time with three decimals in a unit that suits it, or in a given one."""
    if unit is None:
        size = abs(microseconds)
        unit = "s" if size >= 1e6 else "ms" if size >= 1e3 else "us"
    return f"{microseconds / _UNITS[unit]:.3f}{unit}"


def format_memory(count: float) -> str:
    """An amount of bytes with two decimals, in a unit that suits it."""
    for name, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.2f} {name}"
    return f"{count} B"


def build(
    events: Sequence[Any],
    *,
    sort_by: str | None,
    row_limit: int,
    widths: tuple[int, int, int],
    header: str | None,
    unit: str | None,
) -> str:
    """The table; see `EventList.table`."""
    if unit is not None and unit not in _UNITS:
        raise ValueError(f"time_unit is one of {', '.join(_UNITS)}, got {unit!r}")
    if not events:
        return ""
    ordered = list(events)
    if sort_by is not None:
        attribute = sort_by.replace("cuda", "device")
        ordered.sort(key=lambda event: getattr(event, attribute), reverse=True)
    cpu = sum(e.self_cpu_time_total for e in events)
    device = sum(e.self_device_time_total for e in events if e.device_type.name != "CPU")
    columns = _columns(events, widths, unit, cpu, device)
    rows = [
        [write(event) for _, _, write in columns]
        for event in (ordered if row_limit < 0 else ordered[:row_limit])
    ]
    lines = [header] if header else []
    lines += _layout([(name, left) for name, left, _ in columns], rows)
    lines.append(f"Self CPU time total: {format_time(cpu, unit)}")
    if device:
        lines.append(f"Self CUDA time total: {format_time(device, unit)}")
    return "\n".join(lines) + "\n"


def _columns(
    events: Sequence[Any],
    widths: tuple[int, int, int],
    unit: str | None,
    cpu: float,
    device: float,
) -> list[tuple[str, bool, Callable[[Any], str]]]:
    """Heading, whether it is aligned left, and what to write of an event."""

    def time(name: str) -> Callable[[Any], str]:
        return lambda e: format_time(getattr(e, name), unit)

    def share(name: str, whole: float) -> Callable[[Any], str]:
        return lambda e: f"{100 * getattr(e, name) / whole:.2f}%" if whole else "0.00%"

    def memory(name: str) -> Callable[[Any], str]:
        return lambda e: format_memory(getattr(e, name))

    def mean(name: str) -> Callable[[Any], str]:
        return lambda e: format_time(getattr(e, name) / e.count, unit)

    columns: list[tuple[str, bool, Callable[[Any], str]]] = [
        ("Name", True, lambda e: _cut(e.key, widths[0])),
        ("Self CPU %", False, share("self_cpu_time_total", cpu)),
        ("Self CPU", False, time("self_cpu_time_total")),
        ("CPU total %", False, share("cpu_time_total", cpu)),
        ("CPU total", False, time("cpu_time_total")),
        ("CPU time avg", False, mean("cpu_time_total")),
    ]
    if device:
        columns += [
            ("Self CUDA", False, time("self_device_time_total")),
            ("Self CUDA %", False, share("self_device_time_total", device)),
            ("CUDA total", False, time("device_time_total")),
            ("CUDA time avg", False, mean("device_time_total")),
        ]
    for title, kind in (("CPU", "cpu"), ("CUDA", "device")):
        if any(getattr(e, f"{kind}_memory_usage") for e in events):
            columns.append((f"{title} Mem", False, memory(f"{kind}_memory_usage")))
            columns.append((f"Self {title} Mem", False, memory(f"self_{kind}_memory_usage")))
    columns.append(("# of Calls", False, lambda e: str(e.count)))
    return columns + _rare_columns(events, widths)


def _rare_columns(
    events: Sequence[Any], widths: tuple[int, int, int]
) -> list[tuple[str, bool, Callable[[Any], str]]]:
    columns: list[tuple[str, bool, Callable[[Any], str]]] = []
    if any(e.input_shapes for e in events):
        columns.append(("Input Shapes", False, lambda e: _cut(str(e.input_shapes), widths[2])))
    if any(e.stack for e in events):
        columns.append(
            ("Source Location", True, lambda e: _cut(e.stack[0] if e.stack else "", widths[1]))
        )
    if any(e.flops for e in events):
        columns.append(("Total KFLOPs", False, lambda e: f"{e.flops / 1e3:.3f}"))
    return columns


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width or width <= 3 else f"{text[: width - 3]}..."


def _layout(heads: list[tuple[str, bool]], rows: list[list[str]]) -> list[str]:
    widths = [
        max(len(head), *(len(row[place]) for row in rows)) if rows else len(head)
        for place, (head, _) in enumerate(heads)
    ]

    def line(cells: Sequence[str]) -> str:
        parts = (
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, (_, left) in zip(cells, widths, heads, strict=True)
        )
        return "  ".join(parts).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return [rule, line([head for head, _ in heads]), rule, *map(line, rows), rule]
