# SPDX-License-Identifier: Apache-2.0
"""Basic blocks, liveness and loops of a PTX function."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx.syntax import (
    Address,
    Function,
    Immediate,
    Instruction,
    Label,
    Negated,
    Operand,
    Pair,
    Register,
    Vector,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Block", "Graph", "Loop", "reads", "writes"]

_NO_DESTINATION = frozenset({
    "st", "stmatrix", "red", "bra", "brx", "ret", "exit", "trap", "brkpt", "membar", "fence",
    "prefetch", "prefetchu", "cp", "nanosleep", "call", "griddepcontrol", "setmaxnreg", "discard",
    "applypriority", "pmevent",
})  # fmt: skip
_BRANCHES = frozenset({"bra", "brx", "ret", "exit"})
_POLLING_LOADS = frozenset({"volatile", "acquire", "relaxed", "mmio"})


@dataclass(slots=True)
class Block:
    """Instructions that run one after the other; only the last may branch."""

    index: int
    instructions: list[Instruction] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)
    live_in: frozenset[str] = frozenset()
    live_out: frozenset[str] = frozenset()

    @property
    def branch(self) -> Instruction | None:
        """The branch or return at the end, if there is one."""
        if self.instructions and self.instructions[-1].opcode in _BRANCHES:
            return self.instructions[-1]
        return None


@dataclass(slots=True)
class Loop:
    """A natural loop: its header and all of its blocks."""

    header: int
    blocks: set[int]


def registers_of(operand: Operand | None) -> Iterator[str]:
    """The registers that an operand names."""
    match operand:
        case Register(name):
            yield name
        case Negated(register):
            yield register.name
        case Address(base, _) if isinstance(base, Register):
            yield base.name
        case Vector(items):
            for item in items:
                yield from registers_of(item)
        case Pair(first, second):
            yield from registers_of(first)
            yield from registers_of(second)


def has_destination(instruction: Instruction) -> bool:
    """Whether the first operand is written."""
    if instruction.operands and isinstance(instruction.operands[0], Address):
        return False
    if instruction.opcode in {"bar", "barrier"}:
        return "red" in instruction.modifiers
    return instruction.opcode not in _NO_DESTINATION


def writes(instruction: Instruction) -> frozenset[str]:
    """The registers that an instruction sets."""
    if not instruction.operands or not has_destination(instruction):
        return frozenset()
    return frozenset(registers_of(instruction.operands[0]))


def reads(instruction: Instruction) -> frozenset[str]:
    """The registers that an instruction needs, its guard among them."""
    first = 1 if has_destination(instruction) else 0
    found = {name for operand in instruction.operands[first:] for name in registers_of(operand)}
    if instruction.guard is not None:
        found.add(instruction.guard.name)
    if isinstance(instruction.target, Register):
        found.add(instruction.target.name)
    for argument in instruction.arguments:
        if not isinstance(argument, str):
            found.update(registers_of(argument))
    return frozenset(found)


class Graph:
    """The control flow of a function.

    Parameters
    ----------
    function
        A function with a body.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.blocks: list[Block] = []
        self._labels: dict[str, int] = {}
        self._split()
        self._connect()
        self._liveness()
        self.cycles = self._cycles()
        self.loops = self._loops()

    def target(self, label: str) -> int:
        """The block that a label stands in front of."""
        return self._labels[label]

    def _split(self) -> None:
        body = self.function.body
        leaders = {0, len(body), *self.function.labels.values()}
        leaders.update(i + 1 for i, inst in enumerate(body) if inst.opcode in _BRANCHES)
        starts = sorted(leaders)
        at = {start: index for index, start in enumerate(starts)}
        for index, start in enumerate(starts):
            end = starts[index + 1] if index + 1 < len(starts) else len(body)
            self.blocks.append(Block(index, body[start:end]))
        self._labels = {name: at[place] for name, place in self.function.labels.items()}

    def _connect(self) -> None:
        last = len(self.blocks) - 1
        for block in self.blocks:
            branch = block.branch
            falls = branch is None or branch.guard is not None
            if branch is not None and branch.opcode == "bra":
                label = branch.operands[0]
                assert isinstance(label, Label)
                block.successors.append(self.target(label.name))
            elif branch is not None and branch.opcode == "brx":
                label = branch.operands[1]
                assert isinstance(label, Label)
                targets = self.function.tables[label.name]
                block.successors.extend(self.target(name) for name in targets)
            if falls and block.index < last:
                block.successors.append(block.index + 1)

    def _liveness(self) -> None:
        generated: list[frozenset[str]] = []
        killed: list[frozenset[str]] = []
        predecessors: list[list[int]] = [[] for _ in self.blocks]
        for block in self.blocks:
            live: set[str] = set()
            kill: set[str] = set()
            for instruction in reversed(block.instructions):
                step(live, instruction)
                if instruction.guard is None:
                    kill |= writes(instruction)
            generated.append(frozenset(live))
            killed.append(frozenset(kill))
            for successor in block.successors:
                predecessors[successor].append(block.index)
        work = set(range(len(self.blocks)))
        while work:
            index = max(work)
            work.remove(index)
            block = self.blocks[index]
            block.live_out = frozenset().union(*(self.blocks[s].live_in for s in block.successors))
            live_in = generated[index] | (block.live_out - killed[index])
            if live_in != block.live_in:
                block.live_in = live_in
                work.update(predecessors[index])

    def _loops(self) -> list[Loop]:
        """Natural loops, one per header."""
        found: dict[int, set[int]] = {}
        for cycle in self.cycles:
            found.setdefault(cycle.header, set()).update(cycle.blocks)
        return [Loop(header, blocks) for header, blocks in found.items()]

    def _cycles(self) -> list[Loop]:
        """Natural loops by the back edges of a depth-first walk, one per edge.

        A loop whose first part is repeated by itself has the same header for both.
        """
        predecessors: list[list[int]] = [[] for _ in self.blocks]
        for block in self.blocks:
            for successor in block.successors:
                predecessors[successor].append(block.index)
        found: list[Loop] = []
        for tail, header in self._back_edges():
            body = {header}
            work = [tail]
            while work:
                index = work.pop()
                if index not in body:
                    body.add(index)
                    work.extend(predecessors[index])
            found.append(Loop(header, body))
        return found

    def _back_edges(self) -> Iterator[tuple[int, int]]:
        state = [0] * len(self.blocks)  # 0 not seen, 1 on the path, 2 left
        stack = [(0, iter(self.blocks[0].successors))]
        state[0] = 1
        while stack:
            index, successors = stack[-1]
            for successor in successors:
                if state[successor] == 1:
                    yield index, successor
                elif state[successor] == 0:
                    state[successor] = 1
                    stack.append((successor, iter(self.blocks[successor].successors)))
                    break
            else:
                state[index] = 2
                stack.pop()

    def depth(self, index: int) -> int:
        """How many loops a block lies in."""
        return sum(index in loop.blocks for loop in self.loops)

    def polls(self, loop: Loop) -> bool:
        """Whether a loop's end hangs on memory that others change: it may spin.

        A compare-and-swap loop that compares with what it saw last ends on its own when no other
        thread interferes, so it is not one. A loop that compares with a fixed value waits for it.
        """
        instructions = [i for b in loop.blocks for i in self.blocks[b].instructions]
        changing = frozenset().union(*(writes(i) for i in instructions if not sets_constant(i)))
        wanted: set[str] = set()
        for index in loop.blocks:
            branch = self.blocks[index].branch
            leaves = any(s not in loop.blocks for s in self.blocks[index].successors)
            if branch is not None and leaves:
                wanted |= reads(branch)
        changed = True
        while changed:
            before = len(wanted)
            for instruction in instructions:
                if wanted & writes(instruction):
                    wanted |= reads(instruction)
            changed = len(wanted) != before
        return any(is_poll(i, changing) and wanted & writes(i) for i in instructions)


def sets_constant(instruction: Instruction) -> bool:
    """Whether an instruction gives its register the same value each time."""
    return instruction.opcode == "mov" and isinstance(instruction.operands[1], Immediate)


def is_poll(instruction: Instruction, changing: frozenset[str]) -> bool:
    """Whether an instruction reads what other threads may be changing.

    Parameters
    ----------
    instruction
        An instruction of a loop.
    changing
        The registers that the loop sets.
    """
    if instruction.opcode == "mbarrier":
        return not {"test_wait", "try_wait"}.isdisjoint(instruction.modifiers)
    if instruction.opcode == "ld":
        return not _POLLING_LOADS.isdisjoint(instruction.modifiers)
    if instruction.opcode == "atom" and "cas" in instruction.modifiers:
        return changing.isdisjoint(registers_of(instruction.operands[2]))
    return instruction.opcode == "atom"


def step(live: set[str], instruction: Instruction) -> None:
    """Take liveness backwards over one instruction."""
    if instruction.guard is None:
        live -= writes(instruction)
    live |= reads(instruction)
