# SPDX-License-Identifier: Apache-2.0
"""Flame graphs as SVG, drawn here from folded lines (``outer;inner BYTES``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING
from zlib import crc32

from flambeau.runtime.out_of_memory import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["draw", "parse"]

WIDTH, ROW, MARGIN = 1200, 17, 10
NARROWEST = 0.3  # pixels
CHARACTER = 6.6  # pixels


@dataclass(slots=True)
class Frame:
    """A box of the graph: its bytes include those of the boxes on it."""

    name: str
    size: int = 0
    children: dict[str, Frame] = field(default_factory=dict)

    def depth(self) -> int:
        """How many rows the boxes take."""
        return 1 + max((child.depth() for child in self.children.values()), default=0)


def parse(lines: str) -> Frame:
    """Build the tree of boxes from folded lines.

    Raises
    ------
    ValueError
        A line does not end in a number of bytes.
    """
    root = Frame("all")
    for line in lines.splitlines():
        if not line.strip():
            continue
        stack, _, amount = line.rpartition(" ")
        if not amount.isdecimal():
            raise ValueError(f"a folded line ends in a number of bytes, got {line!r}")
        frame = root
        frame.size += int(amount)
        for name in stack.split(";"):
            frame = frame.children.setdefault(name, Frame(name))
            frame.size += int(amount)
    return root


def draw(lines: str, title: str = "Memory") -> str:
    """An SVG image that shows the text of a box when the pointer rests on it."""
    root = parse(lines)
    height = root.depth() * ROW + 3 * ROW
    boxes = _boxes(root, root, MARGIN, 2 * ROW) if root.size else ()
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">',
            f'<rect width="{WIDTH}" height="{height}" fill="#fdfdf8"/>',
            f'<text x="{WIDTH / 2}" y="{ROW}" text-anchor="middle" font-size="14">'
            f"{escape(title)}: {format_size(root.size)}</text>",
            *boxes,
            "</svg>\n",
        ]
    )


def _boxes(frame: Frame, root: Frame, left: float, top: float) -> Iterator[str]:
    width = (WIDTH - 2 * MARGIN) * frame.size / root.size
    if width < NARROWEST:
        return
    share = frame.size / root.size
    text = f"{frame.name} ({format_size(frame.size)}, {share:.2%})"
    room = int(width / CHARACTER) - 1
    label = frame.name if len(frame.name) <= room else f"{frame.name[: room - 2]}.."
    yield (
        f'<g><title>{escape(text)}</title><rect x="{left:.1f}" y="{top}" width="{width:.1f}" '
        f'height="{ROW - 1}" rx="2" fill="{_colour(frame.name)}"/>'
        + (f'<text x="{left + 3:.1f}" y="{top + 12}">{escape(label)}</text>' if room > 3 else "")
        + "</g>"
    )
    for name in sorted(frame.children):
        child = frame.children[name]
        yield from _boxes(child, root, left, top + ROW)
        left += (WIDTH - 2 * MARGIN) * child.size / root.size


def _colour(name: str) -> str:
    """Warm and always the same for a name."""
    value = crc32(name.encode())
    return f"rgb({205 + value % 50},{80 + (value >> 8) % 120},{(value >> 16) % 60})"
