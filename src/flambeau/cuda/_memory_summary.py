# SPDX-License-Identifier: Apache-2.0
"""The table that `flambeau.cuda.memory_summary` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["format_summary"]

_WIDTH = 75
_BYTES = [
    ("allocated_bytes", "Allocated memory"),
    ("active_bytes", "Active memory"),
    ("requested_bytes", "Requested memory"),
    ("reserved_bytes", "GPU reserved memory"),
    ("inactive_split_bytes", "Non-releasable memory"),
]
_COUNTS = [
    ("allocation", "Allocations"),
    ("active", "Active allocs"),
    ("segment", "GPU reserved segments"),
    ("inactive_split", "Non-releasable allocs"),
]
_OVERSIZE = [
    ("oversize_allocations", "Oversize allocations"),
    ("oversize_segments", "Oversize GPU segments"),
]
_POOLS = [("large_pool", "      from large pool"), ("small_pool", "      from small pool")]
_COLUMNS = ("current", "peak", "allocated", "freed")
_BYTE_UNITS = ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNT_UNITS = (" ", "K", "M")
_STEP_UP_BYTES = 768 * 1024
_STEP_UP_COUNT = 750 * 1000


def format_summary(stats: Mapping[str, int], device: int, abbreviated: bool) -> str:
    """Lay out the flat statistics of a device.

    Parameters
    ----------
    stats
        What `memory_stats` gives; missing figures count as 0.
    device
        Its ordinal.
    abbreviated
        Whether to leave out the rows of the two pools.

    Returns
    -------
    str
        Lines of 77 characters, each ended by a newline.
    """
    ooms, retries = stats.get("num_ooms", 0), stats.get("num_alloc_retries", 0)
    double, single = "=" * _WIDTH, "-" * _WIDTH
    lines = [
        double,
        f"{'':18}PyTorch CUDA memory summary, device ID {device:<17d} ",
        single,
        f"{'':12}CUDA OOMs: {ooms:<12d} |        cudaMalloc retries: {retries:<8d}  ",
        double,
        "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ",
    ]
    for group in _groups(stats, abbreviated):
        lines += [single, *group]
    return "".join(f"|{line}|\n" for line in [*lines, double])


def _groups(stats: Mapping[str, int], abbreviated: bool) -> Iterator[list[str]]:
    pools = [] if abbreviated else _POOLS
    for keys, as_bytes in ((_BYTES, True), (_COUNTS, False)):
        for key, title in keys:
            # The units of a group are those that suit its first row.
            units = [_exponent(stats.get(f"{key}.all.{c}", 0), as_bytes) for c in _COLUMNS]
            rows = [("all", title), *pools]
            yield [_row(name, stats, f"{key}.{pool}", units, as_bytes) for pool, name in rows]
    for key, title in _OVERSIZE:
        units = [_exponent(stats.get(f"{key}.{c}", 0), as_bytes=False) for c in _COLUMNS]
        yield [_row(title, stats, key, units, as_bytes=False)]


def _row(name: str, stats: Mapping[str, int], prefix: str, units: list[int], as_bytes: bool) -> str:
    cells = [
        _cell(stats.get(f"{prefix}.{column}", 0), unit, as_bytes)
        for column, unit in zip(_COLUMNS, units, strict=True)
    ]
    return f" {name:<21} | " + " | ".join(cells) + " "


def _exponent(value: int, as_bytes: bool) -> int:
    base, limit, units = (
        (1024, _STEP_UP_BYTES, _BYTE_UNITS) if as_bytes else (1000, _STEP_UP_COUNT, _COUNT_UNITS)
    )
    exponent = 0
    while value >= limit and exponent + 1 < len(units):
        value //= base
        exponent += 1
    return exponent


def _cell(value: int, exponent: int, as_bytes: bool) -> str:
    if as_bytes:
        return f"{value // 1024**exponent:6d} {_BYTE_UNITS[exponent]}"
    return f"{value // 1000**exponent:7d} {_COUNT_UNITS[exponent]} "
