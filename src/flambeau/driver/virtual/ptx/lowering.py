# SPDX-License-Identifier: Apache-2.0
"""The frame of lowering: operands, registers, faults, and the table of instruction families.

A thread's registers are stack slots that LLVM promotes. Families register a handler for an opcode
and a kind of type, with the modifiers it understands; whatever is not in the table is refused when
the code is loaded.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from flambeau.driver.virtual.ptx.lexer import MALFORMED, syntax_error
from flambeau.driver.virtual.ptx.syntax import (
    Address,
    FloatImmediate,
    Function,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    SpecialRegister,
    Symbol,
    Variable,
)

__all__ = ["LLVM_TYPES", "Emitter", "Lowering", "Phase", "Unit", "lowers", "width"]

PAIRS = ("u16x2", "s16x2")
LLVM_TYPES = {
    "pred": "i1",
    **dict.fromkeys(("b8", "u8", "s8"), "i8"),
    **dict.fromkeys(("b16", "u16", "s16", "f16", "bf16"), "i16"),
    **dict.fromkeys(("b32", "u32", "s32", "f16x2", "bf16x2", "tf32", *PAIRS), "i32"),
    **dict.fromkeys(("b64", "u64", "s64"), "i64"),
    "b128": "i128",
    "f32": "float",
    "f64": "double",
}
_WIDTHS = {"i1": 1, "float": 32, "double": 64, "half": 16, "bfloat": 16}
INTEGER_TYPES = frozenset(
    t for t in LLVM_TYPES if t[0] in "bus" and t not in {"bf16", "bf16x2", *PAIRS}
)
FLOAT_TYPES = frozenset({"f32", "f64"})
HALF_TYPES = frozenset({"f16", "bf16", "f16x2", "bf16x2"})

Handler = Callable[["Lowering", Instruction], None]


def width(llvm_type: str) -> int:
    """The bits of a scalar LLVM type."""
    return _WIDTHS.get(llvm_type) or int(llvm_type[1:])


def kind_of(ptx_type: str) -> str:
    """Which family an arithmetic type belongs to."""
    if ptx_type in FLOAT_TYPES:
        return "float"
    if ptx_type in PAIRS:
        return "pair"
    if ptx_type in HALF_TYPES:
        return "half"
    return "integer" if ptx_type in INTEGER_TYPES or ptx_type == "pred" else ""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the instruction table."""

    handler: Handler
    modifiers: frozenset[str]
    types: frozenset[str]


TABLE: dict[tuple[str, str], Row] = {}


def lowers(
    opcodes: str, *, kind: str = "any", modifiers: str = "", types: str | None = None
) -> Callable[[Handler], Handler]:
    """Register a handler.

    Parameters
    ----------
    opcodes
        The opcodes it lowers, between spaces.
    kind
        ``"integer"``, ``"float"``, ``"half"``, ``"pair"`` by the instruction's last type, or
        ``"any"``.
    modifiers
        All modifiers it understands besides `types`; others are refused.
    types
        The types it takes, maybe none; by default all types of the kind.
    """
    by_kind = {
        "integer": INTEGER_TYPES,
        "float": FLOAT_TYPES,
        "half": HALF_TYPES,
        "pair": frozenset(PAIRS),
    }
    allowed = (
        frozenset(types.split()) if types is not None else by_kind.get(kind, frozenset(LLVM_TYPES))
    )

    def register(handler: Handler) -> Handler:
        row = Row(handler, frozenset(modifiers.split()), allowed)
        for opcode in opcodes.split():
            TABLE[opcode, kind] = row
        return handler

    return register


class Emitter:
    """LLVM IR text in the making."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def emit(self, text: str) -> None:
        """Add an instruction without a result."""
        self.lines.append(f"  {text}")

    def value(self, text: str) -> str:
        """Add an instruction; the name of its result."""
        self._count += 1
        name = f"%t{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def label(self) -> str:
        """A new label, not placed yet."""
        self._count += 1
        return f"L{self._count}"

    def place(self, label: str) -> None:
        """Start a block."""
        self.lines.append(f"{label}:")

    def call(self, result: str, name: str, *arguments: str) -> str:
        """Call an intrinsic or helper with a result; arguments are written with their types."""
        return self.value(f"call {result} @{name}({', '.join(arguments)})")


@dataclass(slots=True)
class Unit:
    """What the functions of one kernel share.

    Parameters
    ----------
    layout
        Offsets of the executor's structures, by ``Struct.field``.
    shared
        Offsets of variables in shared memory.
    globals
        Module variables that the kernel uses, by name, with their index in its address table.
    sites
        Places that can fault: access kind, bytes, PTX line, file, source line.
    pointed
        Functions whose addresses are taken, with these.
    loop
        The number of the metadata of the kernel's loop over threads.
    watched
        Whether the code tells a watcher of each access.
    """

    layout: dict[str, int]
    functions: dict[str, Function]
    variables: dict[str, Variable]
    prefix: str
    shared: dict[str, int] = field(default_factory=dict)
    globals: dict[str, int] = field(default_factory=dict)
    sites: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    site_numbers: dict[tuple[int, int, int], int] = field(default_factory=dict)
    declarations: dict[str, str] = field(default_factory=dict)
    local_frames: dict[str, dict[str, int]] = field(default_factory=dict)
    local_sizes: dict[str, int] = field(default_factory=dict)
    called: list[str] = field(default_factory=list)
    recursive: bool = False
    uses_clock: bool = False
    static_shared: int = 0
    pointed: dict[str, int] = field(default_factory=dict)
    loop: int = 0
    watched: bool = False

    def site(self, access: int, size: int, instruction: Instruction) -> int:
        """The index of a place that can fault, the same in all phases."""
        key = id(instruction), access, size
        if key not in self.site_numbers:
            self.site_numbers[key] = len(self.sites)
            self.sites.append(
                (access, size, instruction.line, instruction.file, instruction.source_line)
            )
        return self.site_numbers[key]

    def declare(self, name: str, signature: str) -> None:
        """Note a helper that the code calls, as an LLVM declaration with ``{}`` for its name."""
        self.declarations[name] = signature.format(f"@{name}")


class Phase(Enum):
    """What a body is lowered for; see `rows`."""

    CHECKED = ""  # each access with its check
    SURVEY = ".survey"  # the checks alone: nothing is loaded or stored
    TRUSTED = ".trusted"  # no checks: a survey found all accesses good


class Lowering(Emitter, ABC):
    """Lowers the instructions of one function.

    Parameters
    ----------
    unit
        The kernel that the function belongs to.
    function
        The function itself.
    phase
        What it is lowered for.
    """

    def __init__(self, unit: Unit, function: Function, phase: Phase = Phase.CHECKED) -> None:
        super().__init__()
        self.unit = unit
        self.function = function
        self.phase = phase
        self.slots = {name: f"%r{i}" for i, name in enumerate(function.registers)}
        self.parameter_names = {v.name for v in function.parameters}
        self.result_names = {v.name for v in function.results}
        self.live_after: dict[int, frozenset[str]] = {}
        self.saved: dict[str, int] = {}
        self.payload = 0  # where matrix fragments lie in the frame
        self.splits = False  # whether vector accesses are made element by element
        self.current: Instruction

    # Operands

    def read(self, operand: Operand | None, kind: str) -> str:
        """The value of an operand as an LLVM type: a name or constant."""
        match operand:
            case Register(name):
                own = LLVM_TYPES[self.function.registers[name]]
                return self.convert(self.value(f"load {own}, ptr {self.slots[name]}"), own, kind)
            case Immediate(value):
                return integer_constant(value, kind)
            case FloatImmediate():
                return float_constant(operand, kind)
            case Negated(register):
                return self.value(f"xor i1 {self.read(register, 'i1')}, true")
            case SpecialRegister(name):
                current, own = self.special(name)
                return self.convert(current, own, kind)
            case Symbol():
                return self.convert(self.symbol_address(operand), "i64", kind)
        raise TypeError(f"{operand!r} has no value")

    def convert(self, value: str, source: str, target: str) -> str:
        """Reinterpret bits; wider targets get zeros, narrower ones the low bits."""
        if source == target:
            return value
        if source in {"float", "double"} and width(source) != width(target):
            whole = f"i{width(source)}"
            value, source = self.value(f"bitcast {source} {value} to {whole}"), whole
        if width(source) == width(target):
            return self.value(f"bitcast {source} {value} to {target}")
        if target in {"float", "double"}:
            whole = f"i{width(target)}"
            return self.convert(self.convert(value, source, whole), whole, target)
        verb = "trunc" if width(source) > width(target) else "zext"
        return self.value(f"{verb} {source} {value} to {target}")

    def write(
        self, destination: Operand | None, value: str, kind: str, *, signed: bool = False
    ) -> None:
        """Set a register from an LLVM value; wider registers are extended."""
        if destination is None:
            return
        assert isinstance(destination, Register)
        own = LLVM_TYPES[self.function.registers[destination.name]]
        if signed and own[0] == kind[0] == "i" and width(own) > width(kind):
            value = self.value(f"sext {kind} {value} to {own}")
        else:
            value = self.convert(value, kind, own)
        self.emit(f"store {own} {value}, ptr {self.slots[destination.name]}")

    def destination_width(self, destination: Operand | None) -> int:
        """The bits of a destination register."""
        assert isinstance(destination, Register)
        return width(LLVM_TYPES[self.function.registers[destination.name]])

    # The executor's structures

    def context(self, name: str, kind: str, *, index: int = 0, fixed: bool = True) -> str:
        """A field of the context; `fixed` ones do not change while the function runs."""
        offset = self.unit.layout[f"Context.{name}"] + index * (width(kind) // 8)
        pointer = self.value(f"getelementptr i8, ptr %ctx, i64 {offset}")
        return self.value(f"load {kind}, ptr {pointer}{self.tags(invariant=fixed)}")

    def context_pointer(self, name: str) -> str:
        """A pointer field of the context."""
        offset = self.unit.layout[f"Context.{name}"]
        pointer = self.value(f"getelementptr i8, ptr %ctx, i64 {offset}")
        return self.value(f"load ptr, ptr {pointer}{self.tags(invariant=True)}")

    def tags(self, *, invariant: bool = False) -> str:
        """Metadata of a load or store: it may never change; threads of a row do not disturb it."""
        tags = ", !invariant.load !0" if invariant else ""
        return f"{tags}, !llvm.access.group !2" if self.phase is Phase.TRUSTED else tags

    def frame(self, name: str, index: int = 0) -> str:
        """The address of a field of the thread's frame."""
        offset = self.unit.layout[f"Frame.{name}"] + 4 * index
        return self.value(f"getelementptr i8, ptr %frame, i64 {offset}")

    @abstractmethod
    def special(self, name: str) -> tuple[str, str]:
        """A special register's value and type."""

    @abstractmethod
    def yield_point(self, reason: int, live: frozenset[str]) -> None:
        """Save registers, return to the executor, and come back here."""

    @abstractmethod
    def record(self, value: str) -> None:
        """In a survey of three threads: note a value that must be linear along the row."""

    @abstractmethod
    def advance_clock(self, cycles: str) -> None:
        """Move this thread's clock on."""

    def symbol_address(self, symbol: Symbol) -> str:
        """A variable's address in its own space, as i64."""
        name = symbol.name
        if name in self.unit.shared:
            return str(self.unit.shared[name] + symbol.offset)
        frame = self.unit.local_frames.get(self.function.name, {})
        if name in frame:
            return self.value(f"add i64 %loff, {frame[name] + symbol.offset}")
        if name in self.parameter_names or name in self.result_names:
            return self.parameter_address(symbol)
        if name in self.function.variables:
            base = self.value(f'ptrtoint ptr %"{name}" to i64')
            return self.value(f"add i64 {base}, {symbol.offset}") if symbol.offset else base
        if name in self.unit.pointed:
            return str(self.unit.pointed[name])
        if name not in self.unit.variables:
            why = "the address of the function" if name in self.unit.functions else "the symbol"
            self.current.unsupported(f"{why} {name}")
        index = self.unit.globals.setdefault(name, len(self.unit.globals))
        table = self.context_pointer("globals")
        pointer = self.value(f"getelementptr i64, ptr {table}, i64 {index}")
        base = self.value(f"load i64, ptr {pointer}{self.tags(invariant=True)}")
        return self.value(f"add i64 {base}, {symbol.offset}") if symbol.offset else base

    def parameter_pointer(self, name: str) -> str:
        """Where a parameter of this function lies."""
        if name in self.result_names:
            return f'%"{name}"'
        if not self.function.is_entry:
            return f'%"{name}"'
        variable = next(v for v in self.function.parameters if v.name == name)
        base = self.context_pointer("parameters")
        return self.value(f"getelementptr i8, ptr {base}, i64 {variable.offset}")

    def parameter_address(self, symbol: Symbol) -> str:
        """A parameter's address in the generic space."""
        pointer = self.parameter_pointer(symbol.name)
        base = self.value(f"ptrtoint ptr {pointer} to i64")
        return self.value(f"add i64 {base}, {symbol.offset}") if symbol.offset else base

    def address(self, operand: Operand | None, instruction: Instruction) -> str:
        """A memory operand's address in its own space, as i64."""
        if not isinstance(operand, Address):
            instruction.unsupported("this form of address")
        base, offset = operand.base, operand.offset
        if base is None:
            return str(offset)
        if isinstance(base, Symbol):
            return self.symbol_address(Symbol(base.name, base.offset + offset))
        own = LLVM_TYPES[self.function.registers[base.name]]
        value = self.value(f"load {own}, ptr {self.slots[base.name]}")
        if offset:
            value = self.value(f"add {own} {value}, {offset}")
        return self.convert(value, own, "i64")

    # Control

    def fault_unless(self, good: str, slow: Callable[[], str | None]) -> None:
        """Go on where an i1 holds; else run `slow` and end the thread.

        Where `slow` gives an i1, that decides once more whether the thread may go on. A survey only
        notes the condition.
        """
        if self.phase is not Phase.CHECKED:
            self.note(good)
            return
        bad, go_on = self.label(), self.label()
        self.emit(f"br i1 {good}, label %{go_on}, label %{bad}, !prof !1")
        self.place(bad)
        verdict = slow()
        if verdict is None:
            self.emit("br label %fault")
        else:
            self.emit(f"br i1 {verdict}, label %{go_on}, label %fault")
        self.place(go_on)

    def note(self, good: str) -> None:
        """In a survey: whether all is good so far."""
        if self.phase is Phase.SURVEY:
            so_far = self.value("load i1, ptr %good")
            self.emit(f"store i1 {self.value(f'and i1 {so_far}, {good}')}, ptr %good")

    def instruction(self, instruction: Instruction) -> None:
        """Lower one instruction that does not branch."""
        row = self.find_row(instruction)
        try:
            self._guarded(instruction, row.handler)
        except MALFORMED as error:
            text = f"{instruction.text} does not take these operands"
            raise syntax_error(instruction.line, text) from error

    def _guarded(self, instruction: Instruction, handler: Handler) -> None:
        if instruction.guard is None:
            handler(self, instruction)
            return
        condition = self.read(instruction.guard, "i1")
        run, skip = self.label(), self.label()
        targets = (skip, run) if instruction.guard_negated else (run, skip)
        self.emit(f"br i1 {condition}, label %{targets[0]}, label %{targets[1]}")
        self.place(run)
        handler(self, instruction)
        self.emit(f"br label %{skip}")
        self.place(skip)

    def find_row(self, instruction: Instruction) -> Row:
        """The table's row for an instruction; refuses what is not known."""
        kind = kind_of(instruction.type)
        row = TABLE.get((instruction.opcode, kind)) or TABLE.get((instruction.opcode, "any"))
        if row is None:
            instruction.unsupported()
        for modifier in instruction.modifiers:
            known = row.types if modifier in LLVM_TYPES else row.modifiers
            if modifier not in known:
                instruction.unsupported(f".{modifier} is not known here")
        return row


def integer_constant(value: int, kind: str) -> str:
    """An integer literal as an LLVM constant."""
    if kind == "i1":
        return "true" if value else "false"
    if kind in {"float", "double"}:
        bits = value & ((1 << width(kind)) - 1)
        return f"bitcast (i{width(kind)} {bits} to {kind})"
    return str(value & ((1 << width(kind)) - 1))


def float_constant(literal: FloatImmediate, kind: str) -> str:
    """A floating-point literal as an LLVM constant, bit for bit."""
    bits = literal.bits
    if kind == "float" and literal.width == 64:
        value = struct.unpack("<d", struct.pack("<Q", bits))[0]
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
    elif kind == "double" and literal.width == 32:
        value = struct.unpack("<f", struct.pack("<I", bits))[0]
        bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    if kind in {"float", "double"}:
        return f"bitcast (i{width(kind)} {bits} to {kind})"
    return str(bits & ((1 << width(kind)) - 1))
