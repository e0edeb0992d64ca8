# SPDX-License-Identifier: Apache-2.0
"""Checks that see each access to a virtual GPU's memory: what is on, and what was found."""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from flambeau.driver.virtual import _machine
from flambeau.driver.virtual.checks import stacks
from flambeau.driver.virtual.checks.stacks import Frame
from flambeau.driver.virtual.config import CHECKS as NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

__all__ = ["Access", "Block", "CheckError", "CheckReport", "CheckWarning", "Checks", "Frame"]

Mode = Literal["raise", "warn", "collect"]
_PAST = {"read": "read", "write": "wrote", "atomic": "updated atomically"}


class CheckWarning(UserWarning):
    """A check found something."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who touched memory.

    Parameters
    ----------
    work
        ``"kernel scale"``, ``"a copy"``, ``"a fill"``, ``"a matrix product"``.
    kind
        ``"read"``, ``"write"`` or ``"atomic"``.
    block, thread
        Of a kernel, else None.
    source
        The line of CUDA code, such as ``"scale.cu:7"``; of the PTX where line information lacks.
    stream
        The stream's name.
    submitted
        Where in the Python program the work was submitted, innermost frame first; empty if that
        is not known.
    """

    work: str
    kind: str
    block: tuple[int, int, int] | None
    thread: tuple[int, int, int] | None
    source: str
    stream: str
    submitted: tuple[Frame, ...]

    def __str__(self) -> str:
        parts = [f"{self.work}, {self.kind}"]
        if self.thread is not None:
            parts.append(f"thread {self.thread} of block {self.block}")
        if self.source:
            parts.append(self.source)
        text = ", ".join(parts) + f", on {self.stream}"
        return text + (f", submitted at {self.submitted[0]}" if self.submitted else "")


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of device memory.

    Parameters
    ----------
    address, size
        The first byte, and how many bytes were asked for.
    distance
        How many bytes the access reached past the end; below 0, how many bytes before the first
        byte it began; 0 if it lay inside.
    allocated, freed
        Where in the Python program; empty if that is not known or did not happen.
    """

    address: int
    size: int
    distance: int
    allocated: tuple[Frame, ...]
    freed: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """One thing that a check found.

    Parameters
    ----------
    check
        ``"memory"``, ``"init"`` or ``"race"``.
    problem
        What is wrong with the access, in a few words.
    space
        ``"global"`` or ``"shared"``: which memory.
    address, size
        The bytes that were touched; in shared memory an offset in that of the block.
    access
        Who touched them.
    other
        Of a race, the access before; else None.
    block
        The block of memory that was touched or, if it was none, the nearest one; None where
        nothing is known.
    count
        How often this was seen.
    """

    check: str
    problem: str
    space: str
    address: int
    size: int
    access: Access
    other: Access | None
    block: Block | None
    count: int

    def __str__(self) -> str:
        a = self.access
        where = f"offset {self.address} of" if self.space == "shared" else f"0x{self.address:x} in"
        verb = _PAST.get(a.kind, a.kind)
        lines = [
            f"{self.check}: {a.work} {verb} {self.size} bytes at {where} {self.space} memory "
            f"{self.problem}"
        ]
        if self.block is not None:
            lines += self._about(self.block)
        if self.other is None:
            lines.append(f"  by {a}")
        else:
            lines += [f"  first: {self.other}", f"  then:  {a}"]
        if self.count > 1:
            lines.append(f"  seen {self.count} times")
        return "\n".join(lines)

    @staticmethod
    def _about(block: Block) -> list[str]:
        what = f"a block of {block.size} bytes at 0x{block.address:x}"
        if block.distance > 0:
            text = f"  it reached {block.distance} bytes past the end of {what}"
        elif block.distance < 0:
            text = f"  it began {-block.distance} bytes before {what}"
        else:
            text = f"  it lies in {what}"
        lines = [text]
        if block.allocated:
            lines.append(f"  allocated at {block.allocated[0]}")
        if block.freed:
            lines.append(f"  freed at {block.freed[0]}")
        return lines


class CheckError(AssertionError):
    """Checks found something.

    Parameters
    ----------
    reports
        What they found.
    """

    def __init__(self, reports: Iterable[CheckReport]) -> None:
        self.reports = tuple(reports)
        super().__init__(summary(self.reports))


def turn(bits: int) -> None:
    """Have exactly these checks on. Work that is pending runs first."""
    if bits == _machine.checks():
        return
    _machine.finish()
    _machine.set_checks(bits)
    allocator: Any = sys.modules.get("flambeau.runtime._allocator")
    if allocator is not None:
        allocator.publish_blocks(bits != 0)


def take_reports(at_end: bool = False) -> list[CheckReport]:
    """Let pending work run, and give what was found since the last time.

    The end of a process does not wait for kernels that poll memory, nor for those that never end.
    """
    if at_end:
        _machine.drain()
    else:
        _machine.finish()
    return [_report(fields) for fields in _machine.take_findings()]


def _access(fields: dict[str, Any]) -> Access:
    return Access(
        fields["work"],
        fields["access"],
        fields["block"],
        fields["thread"],
        fields["source"],
        fields["stream"],
        stacks.frames(fields["stack"]),
    )


def _report(fields: dict[str, Any]) -> CheckReport:
    block = None
    if fields["block"] is not None:
        born, died = (stacks.frames(fields[name]) for name in ("born_stack", "died_stack"))
        address, size, distance = fields["block"]
        block = Block(address, size, distance, born, died)
    return CheckReport(
        check=NAMES[fields["check"].bit_length() - 1],
        problem=fields["problem"],
        space=fields["space"],
        address=fields["address"],
        size=fields["size"],
        access=_access(fields["actor"]),
        other=_access(fields["other"]) if fields["other"] is not None else None,
        block=block,
        count=fields["count"],
    )


def summary(reports: Iterable[CheckReport]) -> str:
    """All reports as text, and how many there are of each check."""
    reports = list(reports)
    counts = {name: sum(r.check == name for r in reports) for name in NAMES}
    totals = ", ".join(f"{count} of {name}" for name, count in counts.items() if count)
    noun = "problem" if len(reports) == 1 else "problems"
    return "\n".join([f"checks found {len(reports)} {noun}: {totals}", *map(str, reports)])


def print_summary() -> int:
    """Write what was found, if anything was, to stderr; how many reports there were.

    ``FLAMBEAU_CHECK_FILE`` names a file to append it to instead.
    """
    reports = take_reports(at_end=True)
    path = os.environ.get("FLAMBEAU_CHECK_FILE")
    if reports and path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{summary(reports)}\n")
    elif reports:
        print(f"flambeau: {summary(reports)}", file=sys.stderr, flush=True)
    return len(reports)


class Checks:
    """Checks that are on inside a ``with`` block; `flambeau.virtual.checks` makes one.

    Attributes
    ----------
    reports : list of CheckReport
        What was found; complete when the block has ended.
    """

    def __init__(self, bits: int, mode: Mode) -> None:
        self.reports: list[CheckReport] = []
        self._bits = bits
        self._mode = mode
        self._outer = 0

    def __enter__(self) -> Checks:
        self._outer = _machine.checks()
        turn(self._outer | self._bits)
        return self

    def collect(self) -> list[CheckReport]:
        """Let pending work run; all that was found since the block began."""
        self.reports += take_reports()
        return self.reports

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.collect()
        turn(self._outer)
        if not self.reports or kind is not None:
            return
        if self._mode == "raise":
            raise CheckError(self.reports)
        if self._mode == "warn":
            for report in self.reports:
                warnings.warn(str(report), CheckWarning, stacklevel=2)


for _public in (CheckError, CheckReport, CheckWarning):
    _public.__module__ = "flambeau.virtual"  # where programs find them
