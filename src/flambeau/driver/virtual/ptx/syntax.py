# SPDX-License-Identifier: Apache-2.0
"""PTX as a tree: modules, functions, instructions and their operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from flambeau.driver.errors import UnsupportedPtxError

__all__ = [
    "Address",
    "FloatImmediate",
    "Function",
    "Immediate",
    "Instruction",
    "Label",
    "Module",
    "Negated",
    "Operand",
    "Pair",
    "Register",
    "SpecialRegister",
    "Symbol",
    "Variable",
    "Vector",
]


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual register; the name is unique in its function."""

    name: str


@dataclass(frozen=True, slots=True)
class SpecialRegister:
    """A read-only register of the machine, for example ``%tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """An integer constant."""

    value: int


@dataclass(frozen=True, slots=True)
class FloatImmediate:
    """A floating-point constant by its bits, of 32 or 64 bits width."""

    bits: int
    width: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable or function, with a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """A memory operand in brackets."""

    base: Register | Symbol | None
    offset: int


@dataclass(frozen=True, slots=True)
class Vector:
    """Operands in braces; None stands for the sink ``_``."""

    items: tuple[Operand | None, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two destinations, ``d|p``; either may be the sink ``_``."""

    first: Register | None
    second: Register | None


@dataclass(frozen=True, slots=True)
class Negated:
    """A predicate operand with ``!``."""

    register: Register


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target or a table of them."""

    name: str


Operand = (
    Register
    | SpecialRegister
    | Immediate
    | FloatImmediate
    | Symbol
    | Address
    | Vector
    | Pair
    | Negated
    | Label
)


@dataclass(slots=True)
class Instruction:
    """One instruction.

    Parameters
    ----------
    opcode, modifiers
        ``ld.global.v2.f32`` is ``"ld"`` with ``("global", "v2", "f32")``.
    operands
        In the order of the text. A call has none; see `target`.
    guard, guard_negated
        The predicate in front, ``@%p`` or ``@!%p``.
    line
        Line in the PTX text, from 1.
    file, source_line
        From ``.loc``; 0 where nothing is known.
    target, results, arguments
        Of a call: the function's name, or the register that points to it, and the names of
        parameter variables.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand | None, ...]
    guard: Register | None
    guard_negated: bool
    line: int
    file: int = 0
    source_line: int = 0
    target: Operand | None = None
    results: tuple[str, ...] = ()
    arguments: tuple[str | Operand, ...] = ()

    @property
    def text(self) -> str:
        """The opcode with its modifiers, as written."""
        return ".".join((self.opcode, *self.modifiers))

    @property
    def type(self) -> str:
        """The last modifier, by which most instructions name their type."""
        return self.modifiers[-1] if self.modifiers else ""

    def unsupported(self, why: str = "") -> NoReturn:
        """Raise `UnsupportedPtxError` for this instruction."""
        detail = f": {why}" if why else ""
        raise UnsupportedPtxError(
            f"not supported: {self.text} at line {self.line}{detail}. Virtual GPUs execute PTX "
            "for compute_80 and cannot execute this instruction; compile the code without it, or "
            "run it on a GPU."
        )


@dataclass(slots=True)
class Variable:
    """A declared variable or parameter; sizes and offsets in bytes.

    ``patches`` are places in the initial value that hold addresses: offset, symbol and addend.
    """

    name: str
    space: str
    type: str
    align: int
    size: int
    offset: int = 0
    initial: bytes = b""
    patches: tuple[tuple[int, str, int], ...] = ()
    visible: bool = False
    external: bool = False


@dataclass(slots=True)
class Function:
    """A kernel (``is_entry``) or device function; ``body`` is empty for a declaration."""

    name: str
    is_entry: bool
    line: int
    parameters: list[Variable] = field(default_factory=list)
    results: list[Variable] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    body: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    max_threads: int = 1024
    defined: bool = False


@dataclass(slots=True)
class Module:
    """A PTX text."""

    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)

    def function_address(self, name: str) -> int:
        """What a pointer to a function holds: a number of it, never 0."""
        return 16 * (1 + list(self.functions).index(name))
