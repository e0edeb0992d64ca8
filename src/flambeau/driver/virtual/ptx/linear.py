# SPDX-License-Identifier: Apache-2.0
"""Which registers are linear in a thread's place in its row.

A linear address lies between those of the row's first and last thread, so that looking at these two
answers for all. The arithmetic is modular; where a 32-bit value is widened or compared it must
not wrap inside the row, which three threads' values tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx.cfg import registers_of, writes
from flambeau.driver.virtual.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Register,
    SpecialRegister,
    Symbol,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flambeau.driver.virtual.ptx.syntax import Operand

__all__ = ["Watched", "linear_values"]

_WORDS = {"u32": 32, "s32": 32, "b32": 32, "u64": 64, "s64": 64, "b64": 64}
_UNIFORM_SPECIAL = ("%tid.y", "%tid.z", "%ntid", "%ctaid", "%nctaid", "%nsmid")
_ORDERS = frozenset({"lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"})
_SAME = frozenset({"mov", "cvta", "neg", "not"})


class Shape(IntEnum):
    """How a register depends on the place in the row."""

    UNIFORM = 0
    LINEAR = 1  # of a predicate: changes at most once along the row
    ANY_OF = 2  # a disjunction of such predicates
    ALL_OF = 3  # a conjunction
    OTHER = 4


@dataclass(frozen=True, slots=True)
class Watched:
    """An operand that must not wrap inside a row.

    Parameters
    ----------
    operand
        Its index in the instruction.
    bits, signed
        How it is read.
    """

    operand: int
    bits: int
    signed: bool


@dataclass(slots=True)
class Analysis:
    """Shapes of registers, and the operands to watch, by the instruction's identity."""

    shapes: dict[str, Shape] = field(default_factory=dict)
    watched: dict[int, list[Watched]] = field(default_factory=dict)

    def of(self, operand: Operand | None) -> Shape:
        """The shape of an operand."""
        if isinstance(operand, Register):
            return self.shapes.get(operand.name, Shape.OTHER)
        if isinstance(operand, SpecialRegister):
            if operand.name == "%tid.x":
                return Shape.LINEAR
            known = operand.name.startswith(_UNIFORM_SPECIAL)
            return Shape.UNIFORM if known else Shape.OTHER
        if isinstance(operand, Address) and isinstance(operand.base, Register):
            return self.of(operand.base)
        if operand is None or isinstance(operand, Immediate | Symbol | Address):
            return Shape.UNIFORM
        inside = [self.shapes.get(name, Shape.OTHER) for name in registers_of(operand)]
        return Shape.UNIFORM if not any(inside) else Shape.OTHER

    def widen(self, i: Instruction, places: Iterable[int], bits: int, signed: bool) -> None:
        """Watch those of an instruction's operands that are linear."""
        watched = [Watched(n, bits, signed) for n in places if self.of(i.operands[n])]
        if watched:
            self.watched[id(i)] = watched


def linear_values(body: list[Instruction], loaded: frozenset[str]) -> Analysis:
    """Find the shapes of all registers that a body writes once; others have none."""
    counts: dict[str, int] = {}
    for instruction in body:
        for name in writes(instruction):
            counts[name] = counts.get(name, 0) + 1
    analysis = Analysis()
    for instruction in body:  # in the order of the text: a register that is used before is OTHER
        names = writes(instruction)
        if not names:
            continue
        shape = Shape.OTHER
        once = all(counts[n] == 1 for n in names)
        if once and names.isdisjoint(loaded) and instruction.guard is None:
            shape = shape_of(analysis, instruction)
        for name in names:
            analysis.shapes[name] = shape
    return analysis


def shape_of(a: Analysis, i: Instruction) -> Shape:
    """The shape of an instruction's result."""
    shapes = [a.of(operand) for operand in i.operands[1:]]
    if not any(shapes):
        return Shape.UNIFORM
    if i.opcode in {"or", "and"} and i.type == "pred":
        return joined_predicate(i.opcode, shapes)
    if max(shapes) > Shape.LINEAR:
        return Shape.OTHER
    if i.opcode in {"setp", "cvt"}:
        return compared(a, i) if i.opcode == "setp" else converted(a, i)
    return computed(a, i, shapes)


def computed(a: Analysis, i: Instruction, shapes: list[Shape]) -> Shape:
    """The shape of an arithmetic result whose operands are uniform or linear."""
    if i.type not in _WORDS or not {"sat", "cc"}.isdisjoint(i.modifiers):
        return Shape.OTHER
    if i.opcode in _SAME or i.opcode in {"add", "sub"}:
        return Shape.LINEAR
    if i.opcode == "shl":
        return Shape.OTHER if shapes[1] else Shape.LINEAR
    if i.opcode in {"mul", "mad"} and not (shapes[0] and shapes[1]):
        if "wide" in i.modifiers:
            a.widen(i, (1, 2), _WORDS[i.type], i.type[0] == "s")
            return Shape.LINEAR if i.type.endswith("32") else Shape.OTHER
        return Shape.LINEAR if "lo" in i.modifiers else Shape.OTHER
    return Shape.OTHER


def joined_predicate(opcode: str, shapes: list[Shape]) -> Shape:
    """The shape of a disjunction or conjunction."""
    wanted = Shape.ANY_OF if opcode == "or" else Shape.ALL_OF
    return wanted if set(shapes) <= {Shape.UNIFORM, Shape.LINEAR, wanted} else Shape.OTHER


def compared(a: Analysis, i: Instruction) -> Shape:
    """The shape of a comparison: an order between linear values changes once."""
    if _ORDERS.isdisjoint(i.modifiers) or i.type not in _WORDS or len(i.operands) != 3:
        return Shape.OTHER
    if not isinstance(i.operands[0], Register):
        return Shape.OTHER
    a.widen(i, (1, 2), _WORDS[i.type], i.type[0] == "s")
    return Shape.LINEAR


def converted(a: Analysis, i: Instruction) -> Shape:
    """The shape of a conversion between integers."""
    types = [m for m in i.modifiers if m in _WORDS]
    if len(types) != 2 or len(i.modifiers) != 2:
        return Shape.OTHER
    if types[1].endswith("32") and types[0].endswith("64"):
        a.widen(i, (1,), 32, types[1][0] == "s")
    return Shape.LINEAR
