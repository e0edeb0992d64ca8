# SPDX-License-Identifier: Apache-2.0
"""Which accesses to memory a later one can race with."""

from __future__ import annotations

import bisect
import itertools
from typing import TYPE_CHECKING

from flambeau.runtime.sanitizer_report import (
    HOST,
    Access,
    AccessType,
    Setting,
    UnsynchronizedAccessError,
)

if TYPE_CHECKING:
    import traceback
    from collections.abc import Callable

    from flambeau.runtime.happens_before import Order, Queue

__all__ = ["Memory"]


class Cell:
    """A block of memory, live or freed, and the accesses that count.

    An access counts until the host has waited for it, or until one that is ordered after it has
    overwritten all of its bytes.
    """

    __slots__ = (
        "begin",
        "end",
        "free_stack",
        "lent",
        "owner",
        "reads",
        "stack",
        "tenant",
        "writes",
    )

    def __init__(self, begin: int, end: int, tenant: int) -> None:
        self.begin = begin
        self.end = end
        self.tenant = tenant
        self.stack: traceback.StackSummary | None = None
        self.free_stack: traceback.StackSummary | None = None
        self.owner: Queue | None = None
        self.lent: set[Queue] = set()
        self.writes: list[Access] = []
        self.reads: list[Access] = []

    def keep(self, wanted: Callable[[Access], bool]) -> None:
        """Forget the accesses that are not wanted."""
        self.writes = [access for access in self.writes if wanted(access)]
        self.reads = [access for access in self.reads if wanted(access)]


class Memory:
    """All blocks that were seen, by address. Blocks do not overlap."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._begins: list[int] = []
        self._cells: dict[int, Cell] = {}
        self._tenants = itertools.count(1)

    # -- blocks ------------------------------------------------------------------------------------

    def allocate(
        self,
        begin: int,
        end: int,
        owner: Queue | None = None,
        stack: traceback.StackSummary | None = None,
    ) -> Cell:
        """A block is given out; accesses to its bytes under former tenants still count."""
        cell = Cell(begin, end, next(self._tenants))
        cell.owner, cell.stack = owner, stack
        for old in self._between(begin, end):
            self._remove(old)
            self._keep_rest(old, old.begin, begin)
            self._keep_rest(old, end, old.end)
            _take_over(cell.writes, old.writes, begin, end)
            _take_over(cell.reads, old.reads, begin, end)
            cell.free_stack = old.free_stack or cell.free_stack
        self._insert(cell)
        return cell

    def lend(self, address: int, queue: Queue) -> None:
        """A stream uses a block that was made on another: it is given out again only after that."""
        cell = self._cells.get(address)
        if cell is not None:
            cell.lent.add(queue)

    def free(self, address: int, stack: traceback.StackSummary) -> None:
        """A block is taken back; it is given out again when the streams it was lent to are done."""
        cell = self._cells.get(address)
        if cell is None:
            return
        cell.free_stack = stack
        clocks = [self._order.clock(queue) for queue in cell.lent]
        cell.lent.clear()
        if clocks:
            cell.keep(lambda a: all(clock.get(a.queue, 0) < a.seq_num for clock in clocks))
        self._drop_finished(cell)
        if not cell.writes and not cell.reads:
            self._remove(cell)

    def forget_accesses(self, begin: int, end: int) -> None:
        """Nothing uses these bytes any more."""
        for cell in self._between(begin, end):
            cell.keep(lambda a: not _within(a, begin, end))

    def cell_of(self, access: Access, block: tuple[int, int]) -> Cell:
        """The block of an access; memory that was not seen before becomes one."""
        footprint = access.footprint
        assert footprint is not None
        position = bisect.bisect_right(self._begins, footprint.begin) - 1
        if position >= 0:
            cell = self._cells[self._begins[position]]
            if footprint.end <= cell.end:
                return cell
        return self.allocate(*block)

    def known(self, address: int) -> Cell | None:
        """The block that an address is in, if one was seen."""
        position = bisect.bisect_right(self._begins, address) - 1
        if position < 0:
            return None
        cell = self._cells[self._begins[position]]
        return cell if address < cell.end else None

    def sweep(self) -> None:
        """Forget what the host has waited for, and freed blocks of which nothing is left."""
        for cell in list(self._cells.values()):
            self._drop_finished(cell)
            if cell.free_stack is not None and not cell.writes and not cell.reads:
                self._remove(cell)

    def _between(self, begin: int, end: int) -> list[Cell]:
        first = max(bisect.bisect_right(self._begins, begin) - 1, 0)
        last = bisect.bisect_left(self._begins, end)
        cells = [self._cells[start] for start in self._begins[first:last]]
        return [cell for cell in cells if cell.end > begin]

    def _insert(self, cell: Cell) -> None:
        bisect.insort(self._begins, cell.begin)
        self._cells[cell.begin] = cell

    def _remove(self, cell: Cell) -> None:
        del self._begins[bisect.bisect_left(self._begins, cell.begin)]
        del self._cells[cell.begin]

    def _keep_rest(self, old: Cell, begin: int, end: int) -> None:
        """Keep the part of a block that another does not replace."""
        if begin >= end:
            return
        rest = Cell(begin, end, old.tenant)
        rest.stack, rest.free_stack, rest.owner = old.stack, old.free_stack, old.owner
        rest.lent = set(old.lent)
        rest.writes = [a for a in old.writes if _within(a, begin, end)]
        rest.reads = [a for a in old.reads if _within(a, begin, end)]
        self._insert(rest)

    def _drop_finished(self, cell: Cell) -> None:
        if cell.writes or cell.reads:
            cell.keep(lambda a: not self._order.is_finished(a.queue, a.seq_num))

    # -- accesses ----------------------------------------------------------------------------------

    def check(self, cell: Cell, access: Access) -> list[UnsynchronizedAccessError]:
        """The races of an access with earlier ones."""
        self._drop_finished(cell)
        if access.type is AccessType.READ:
            racing = self._unordered(cell.writes, access)
        else:
            # A write that those reads came after is not worth a report of its own.
            racing = self._unordered(cell.reads, access) or self._unordered(cell.writes, access)
        return [self._error(cell, access, previous) for previous in racing]

    def add(self, cell: Cell, access: Access) -> None:
        """Have an access count from now on."""
        access.tenant = cell.tenant
        footprint = access.footprint
        assert footprint is not None

        def still_counts(old: Access) -> bool:
            assert old.footprint is not None
            return not (
                footprint.covers(old.footprint)
                and self._order.precedes(old.queue, old.seq_num, access.queue)
            )

        if access.type is AccessType.WRITE:
            cell.keep(still_counts)
            cell.writes.append(access)
        else:
            cell.reads = [old for old in cell.reads if still_counts(old)]
            cell.reads.append(access)

    def _unordered(self, earlier: list[Access], access: Access) -> list[Access]:
        footprint = access.footprint
        assert footprint is not None
        return [
            old
            for old in earlier
            if old.queue != access.queue
            and old.footprint is not None
            and footprint.overlaps(old.footprint)
            and not self._precedes(old, access)
        ]

    def _precedes(self, old: Access, access: Access) -> bool:
        if access.queue == HOST:
            return self._order.is_finished(old.queue, old.seq_num)
        return self._order.precedes(old.queue, old.seq_num, access.queue)

    def _error(self, cell: Cell, access: Access, previous: Access) -> UnsynchronizedAccessError:
        assert access.footprint is not None
        assert previous.footprint is not None
        if access.queue == HOST:
            setting = Setting("host")
        elif previous.tenant != cell.tenant:
            setting = Setting("reuse", cell.free_stack, cell.owner)
        else:
            setting = Setting("stream")
        data_ptr = max(access.footprint.begin, previous.footprint.begin)
        return UnsynchronizedAccessError(data_ptr, cell.stack, access, previous, setting)


def _take_over(kept: list[Access], accesses: list[Access], begin: int, end: int) -> None:
    """Add the accesses to some bytes; one that spans two blocks is in both."""
    known = {id(access) for access in kept}
    kept += [a for a in accesses if _within(a, begin, end) and id(a) not in known]


def _within(access: Access, begin: int, end: int) -> bool:
    footprint = access.footprint
    return footprint is not None and footprint.begin < end and begin < footprint.end
