# SPDX-License-Identifier: Apache-2.0
"""Which bytes a tensor touches, gaps between rows excepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flambeau.runtime._tensor import Tensor

__all__ = ["Footprint", "footprint_of"]


class Footprint:
    """Runs of bytes at regular distances.

    Parameters
    ----------
    begin
        The address of the first byte.
    run
        Bytes of one run.
    dims
        How many runs and at which distance in bytes, the largest distance first; each distance is
        larger than a run.
    """

    __slots__ = ("begin", "dims", "end", "run")

    def __init__(self, begin: int, run: int, dims: tuple[tuple[int, int], ...] = ()) -> None:
        self.begin = begin
        self.run = run
        self.dims = dims
        self.end = begin + run + sum((count - 1) * step for count, step in dims)

    def covers(self, other: Footprint) -> bool:
        """Whether all bytes of another are known to be among these."""
        if self.dims:
            return (self.begin, self.run, self.dims) == (other.begin, other.run, other.dims)
        return self.begin <= other.begin and other.end <= self.end

    def overlaps(self, other: Footprint) -> bool:
        """Whether the two have a byte in common."""
        if self.end <= other.begin or other.end <= self.begin:
            return False
        if not self.dims and not other.dims:
            return True
        if len(self.dims) == len(other.dims) == 1 and self.dims[0][1] == other.dims[0][1]:
            return _same_step_overlap(self, other)
        few, many = sorted((self, other), key=Footprint.count)
        return any(many.touches(begin, begin + few.run) for begin in few.runs())

    def count(self) -> int:
        """How many runs there are."""
        total = 1
        for count, _ in self.dims:
            total *= count
        return total

    def runs(self, level: int = 0, begin: int | None = None) -> Iterator[int]:
        """The first byte of each run."""
        begin = self.begin if begin is None else begin
        if level == len(self.dims):
            yield begin
            return
        count, step = self.dims[level]
        for i in range(count):
            yield from self.runs(level + 1, begin + i * step)

    def touches(self, low: int, high: int, level: int = 0, begin: int | None = None) -> bool:
        """Whether a byte from `low` to before `high` is among these."""
        begin = self.begin if begin is None else begin
        if level == len(self.dims):
            return begin < high and low < begin + self.run
        extent = self.run + sum((count - 1) * step for count, step in self.dims[level + 1 :])
        count, step = self.dims[level]
        first = max(0, (low - begin - extent) // step + 1)
        last = min(count - 1, (high - 1 - begin) // step)
        return any(
            self.touches(low, high, level + 1, begin + i * step) for i in range(first, last + 1)
        )


def _same_step_overlap(a: Footprint, b: Footprint) -> bool:
    """Overlap of two rows of runs at one distance, by arithmetic."""
    (count_a, step), (count_b, _) = a.dims[0], b.dims[0]
    shift = b.begin - a.begin
    # Run i of a and run j of b overlap when (i - j) * step is between these, both excluded.
    low = (shift - a.run) // step + 1
    high = -((-shift - b.run) // step) - 1
    return max(low, 1 - count_b) <= min(high, count_a - 1)


def footprint_of(tensor: Tensor) -> Footprint | None:
    """The bytes of a tensor; None if it has no elements."""
    if tensor.numel() == 0:
        return None
    run: int = tensor.element_size()
    item = run
    dims: list[tuple[int, int]] = []
    for step, count in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        distance = step * item
        if count == 1 or distance == 0:
            continue
        if not dims and distance <= run:
            run += (count - 1) * distance
        elif dims and distance == dims[-1][0] * dims[-1][1]:
            dims[-1] = dims[-1][0] * count, dims[-1][1]
        else:
            dims.append((count, distance))
    return Footprint(tensor.data_ptr(), run, tuple(reversed(dims)))
