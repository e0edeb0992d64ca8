# SPDX-License-Identifier: Apache-2.0
"""Functions and kernels: special registers, yields, and the loops that run threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx import (  # noqa: F401  the families fill the table
    lower_atomic,
    lower_control,
    lower_convert,
    lower_float,
    lower_half,
    lower_integer,
    lower_matrix,
    lower_mbarrier,
    lower_memory,
    lower_rare,
    lower_warp,
    lower_wmma,
)
from flambeau.driver.virtual.ptx.cfg import Block, Graph, registers_of, step, writes
from flambeau.driver.virtual.ptx.inline import YIELDING
from flambeau.driver.virtual.ptx.lower_control import THREAD_PARAMETERS
from flambeau.driver.virtual.ptx.lower_warp import SPINNING
from flambeau.driver.virtual.ptx.lowering import LLVM_TYPES, Lowering, Phase, Unit, width
from flambeau.driver.virtual.ptx.syntax import Function, Instruction, Label, Register

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.rows import RowPlan

__all__ = ["FunctionLowering"]

CLOCK_STEP = 32  # cycles that reading a clock register takes
MATRIX_OPCODES = frozenset({"mma", "ldmatrix", "stmatrix", "movmatrix", "wmma"})
PAYLOAD_BYTES = 128  # operands and result of a matrix instruction
EXITED = 1000  # what a thread returns that left by `exit`, from however deep a call
SPIN_PATIENCE = 64  # turns of a polling loop before other threads get theirs
_COORDINATES = {"%tid": "t", "%ctaid": "c"}
_DIMENSIONS = {"%ntid": "block_dim", "%nctaid": "grid_dim"}
_LANE_MASKS = {
    "%lanemask_eq": lambda lane: f"shl i32 1, {lane}",
    "%lanemask_ge": lambda lane: f"shl i32 -1, {lane}",
    "%lanemask_gt": lambda lane: f"shl i32 -2, {lane}",
}
_CONTEXT_FIELDS = {
    "%dynamic_smem_size": "dynamic_shared",
    "%total_smem_size": "total_shared",
    "%smid": "multiprocessor",
    "%nsmid": "multiprocessors",
}


class FunctionLowering(Lowering):
    """Lowers a kernel's or device function's body to one LLVM function.

    Parameters
    ----------
    unit, function
        The kernel that it belongs to, and the function.
    phase, plan
        What it is lowered for, and how its threads run in rows, if they do.
    """

    def __init__(
        self,
        unit: Unit,
        function: Function,
        phase: Phase = Phase.CHECKED,
        plan: RowPlan | None = None,
    ) -> None:
        super().__init__(unit, function, phase)
        self.plan = None if phase is Phase.CHECKED else plan
        self.splits = self.plan is not None and self.plan.split
        self.recorded = 0  # values of a survey
        self.graph = Graph(function)
        self.spins = {loop.header for loop in self.graph.cycles if self.graph.polls(loop)}
        self.resume_labels: list[str] = []
        self.frame_end = unit.layout["Frame.saved"]
        self._find_yields()

    @property
    def yields(self) -> bool:
        """Whether threads of this function give up control."""
        return bool(self.live_after or self.spins)

    def _find_yields(self) -> None:
        """What each yield must save: the registers that are read behind it."""
        for block in self.graph.blocks:
            live = set(block.live_out)
            for instruction in reversed(block.instructions):
                if instruction.opcode in YIELDING:
                    needed_after = live - writes(instruction)
                    if instruction.opcode == "stmatrix":  # it writes when it comes back
                        needed_after |= set(registers_of(instruction.operands[0]))
                    self.live_after[id(instruction)] = frozenset(needed_after)
                step(live, instruction)
        needed: set[str] = set().union(
            *self.live_after.values(), *(self.graph.blocks[h].live_in for h in self.spins)
        )
        for name in sorted(needed, key=lambda n: (-width(self.kind(n)), n)):
            size = max(1, width(self.kind(name)) // 8)
            self.frame_end = -(-self.frame_end // size) * size
            self.saved[name] = self.frame_end
            self.frame_end += size
        self.kept = self._keep_parameters() if self.yields else {}
        if any(i.opcode in MATRIX_OPCODES for i in self.function.body):
            self.payload = -(-self.frame_end // 16) * 16
            self.frame_end = self.payload + PAYLOAD_BYTES

    def _keep_parameters(self) -> dict[str, int]:
        """Place the variables that pass arguments in the frame, where they outlive yields."""
        places = {}
        for variable in self.function.variables.values():
            if variable.space == "param":
                self.frame_end = -(-self.frame_end // 16) * 16
                places[variable.name] = self.frame_end
                self.frame_end += max(variable.size, 1)
        return places

    def kind(self, register: str) -> str:
        """A register's LLVM type."""
        return LLVM_TYPES[self.function.registers[register]]

    def yield_point(self, reason: int, live: frozenset[str]) -> None:
        """Save registers, return to the executor, and come back here."""
        self.resume_labels.append(resume := self.label())
        ordered = sorted(live)
        for name in ordered:
            kind = self.kind(name)
            value = self.value(f"load {kind}, ptr {self.slots[name]}")
            if kind == "i1":
                value, kind = self.value(f"zext i1 {value} to i8"), "i8"
            self.emit(f"store {kind} {value}, ptr {self._saved(name)}")
        self.emit(f"store i32 {len(self.resume_labels)}, ptr {self.frame('state')}")
        self.emit(f"ret i32 {reason}")
        self.place(resume)
        for name in ordered:
            kind = self.kind(name)
            stored = "i8" if kind == "i1" else kind
            value = self.value(f"load {stored}, ptr {self._saved(name)}")
            if kind == "i1":
                value = self.value(f"trunc i8 {value} to i1")
            self.emit(f"store {kind} {value}, ptr {self.slots[name]}")

    def _saved(self, name: str) -> str:
        return self.value(f"getelementptr i8, ptr %frame, i64 {self.saved[name]}")

    # Special registers

    def special(self, name: str) -> tuple[str, str]:
        """A special register's value and type."""
        base, _, axis = name.partition(".")
        if base in _COORDINATES and axis in {"x", "y", "z"}:
            return f"%{_COORDINATES[base]}{axis}", "i32"
        if base in _DIMENSIONS and axis in {"x", "y", "z"}:
            return self.context(_DIMENSIONS[base], "i32", index="xyz".index(axis)), "i32"
        if name in _CONTEXT_FIELDS:
            fixed = name != "%smid"
            return self.context(_CONTEXT_FIELDS[name], "i32", fixed=fixed), "i32"
        if name in {"%clock", "%clock_hi", "%clock64"} or name.startswith("%globaltimer"):
            return self._clock(name)
        if name in {"%envreg1", "%envreg2"}:  # the halves of an address, the upper one first
            address = self.context("workspace", "i64")
            half = self.value(f"lshr i64 {address}, 32") if name == "%envreg1" else address
            return self.value(f"trunc i64 {half} to i32"), "i32"
        return self._place_in_warp(name), "i32"

    def _place_in_warp(self, name: str) -> str:
        lane = self.value("and i32 %flat, 31")
        if name == "%laneid":
            return lane
        if name == "%warpid":
            return self.value("lshr i32 %flat, 5")
        if name == "%nwarpid":
            sizes = [self.context("block_dim", "i32", index=n) for n in range(3)]
            area = self.value(f"mul i32 {sizes[0]}, {sizes[1]}")
            rounded = self.value(f"add i32 {self.value(f'mul i32 {area}, {sizes[2]}')}, 31")
            return self.value(f"lshr i32 {rounded}, 5")
        if name == "%gridid":
            return "0"
        if name in {"%lanemask_lt", "%lanemask_le"}:
            above = self.value(f"shl i32 {-1 if name.endswith('lt') else -2}, {lane}")
            return self.value(f"xor i32 {above}, -1")
        if name not in _LANE_MASKS:
            self.current.unsupported(f"the special register {name}")
        return self.value(_LANE_MASKS[name](lane))

    def _clock(self, name: str) -> tuple[str, str]:
        self.advance_clock(str(CLOCK_STEP))
        now = self.context("clock", "i64", fixed=False)
        if name in {"%clock64", "%globaltimer"}:
            return now, "i64"
        if name in {"%clock_hi", "%globaltimer_hi"}:
            now = self.value(f"lshr i64 {now}, 32")
        return self.value(f"trunc i64 {now} to i32"), "i32"

    def advance_clock(self, cycles: str) -> None:
        """Move this thread's clock on."""
        self.unit.uses_clock = True
        offset = self.unit.layout["Context.clock"]
        pointer = self.value(f"getelementptr i8, ptr %ctx, i64 {offset}")
        now = self.value(f"load i64, ptr {pointer}")
        self.emit(f"store i64 {self.value(f'add i64 {now}, {cycles}')}, ptr {pointer}")

    # Bodies

    def lower(self) -> str:
        """The LLVM function's text."""
        for block in self.graph.blocks:
            if self.plan is None or block.index in self.plan.kept:
                self._block(block)
        body, self.lines = self.lines, []
        self._prologue()
        head, self.lines = self.lines, []
        name = f'"{self.unit.prefix}.{self.function.name}{self.phase.value}"'
        inline = "alwaysinline " if self.function.is_entry else ""
        parameters = THREAD_PARAMETERS
        if self.function.is_entry:
            parameters += ", i32 %state"
            if (
                self.phase is not Phase.CHECKED
            ):  # when inlined, it would hide that rows are parallel
                parameters = parameters.replace(" noalias", "")
            if self.phase is Phase.SURVEY:
                parameters += ", ptr %record"
        else:
            pointers = (*self.function.results, *self.function.parameters)
            parameters = ", ".join((parameters, *(f'ptr %"{v.name}"' for v in pointers)))
        return "\n".join(
            (
                f"define internal i32 @{name}({parameters}) {inline}nounwind {{",
                *head,
                *body,
                "fault:",
                "  ret i32 -1",
                "}",
            )
        )

    def _prologue(self) -> None:
        self.place("entry")
        for name, slot in self.slots.items():
            self.emit(f"{slot} = alloca {self.kind(name)}")
        for variable in self.function.variables.values():
            if variable.name in self.kept:
                offset = self.kept[variable.name]
                self.emit(f'%"{variable.name}" = getelementptr i8, ptr %frame, i64 {offset}')
            elif variable.space == "param":
                size = max(variable.size, 1)
                self.emit(f'%"{variable.name}" = alloca [{size} x i8], align 16')
        self.emit("%carry = alloca i1")
        self.emit("store i1 false, ptr %carry")
        if self.phase is Phase.SURVEY:
            self.emit("%good = alloca i1")
            self.emit("store i1 true, ptr %good")
        for name in sorted(self.graph.blocks[0].live_in):  # may be read before it is written
            self.emit(f"store {self.kind(name)} zeroinitializer, ptr {self.slots[name]}")
        if self.spins:
            self.emit("%turns = alloca i32")
            self.emit("store i32 0, ptr %turns")
        if self.resume_labels:
            cases = " ".join(
                f"i32 {n}, label %{label}" for n, label in enumerate(self.resume_labels, 1)
            )
            self.emit(f"switch i32 %state, label %b0 [ {cases} ]")
        else:
            self.emit("br label %b0")

    def _block(self, block: Block) -> None:
        self.place(f"b{block.index}")
        if block.index in self.spins:
            self._spin(block)
        branch = block.branch
        for instruction in block.instructions:
            if instruction is not branch and not self._unknown(instruction):
                self.current = instruction
                self.instruction(instruction)
        self._leave(block, branch)

    def instruction(self, instruction: Instruction) -> None:
        """Lower an instruction; in a survey, note the operands that must not wrap."""
        watched = None if self.plan is None else self.plan.watched
        if self.phase is Phase.SURVEY and watched:
            for operand in watched.get(id(instruction), ()):
                kind = f"i{operand.bits}"
                value = self.read(instruction.operands[operand.operand], kind)
                if operand.bits < 64:
                    verb = "sext" if operand.signed else "zext"
                    value = self.value(f"{verb} {kind} {value} to i64")
                self.record(value)
        super().instruction(instruction)

    def record(self, value: str) -> None:
        """In a survey of three threads: note a value that must be linear along the row."""
        if self.phase is Phase.SURVEY and self.plan is not None and self.plan.watched is not None:
            at = self.value(f"getelementptr i64, ptr %record, i64 {self.recorded}")
            self.emit(f"store i64 {value}, ptr {at}")
            self.recorded += 1

    def _unknown(self, instruction: Instruction) -> bool:
        """Whether a survey leaves an instruction out: it works on what was loaded."""
        if self.plan is None or self.phase is not Phase.SURVEY:
            return False
        results = writes(instruction)
        return bool(results) and results <= self.plan.loaded and instruction.opcode != "ld"

    def _finish(self, status: str = "0") -> None:
        """Return from the function; a survey returns what it found."""
        if self.phase is Phase.SURVEY:
            status = self.value(f"zext i1 {self.value('load i1, ptr %good')} to i32")
        self.emit(f"ret i32 {status}")

    def _spin(self, block: Block) -> None:
        """At the head of a polling loop: let others run now and then."""
        turns = self.value(f"add i32 {self.value('load i32, ptr %turns')}, 1")
        self.emit(f"store i32 {turns}, ptr %turns")
        rest = self.value(f"and i32 {turns}, {SPIN_PATIENCE - 1}")
        tired = self.value(f"icmp eq i32 {rest}, 0")
        give_up, go_on = self.label(), self.label()
        self.emit(f"br i1 {tired}, label %{give_up}, label %{go_on}")
        self.place(give_up)
        self.yield_point(SPINNING, block.live_in)
        self.emit(f"br label %{go_on}")
        self.place(go_on)

    def _leave(self, block: Block, branch: Instruction | None) -> None:
        following = block.index + 1
        falls = f"b{following}" if following < len(self.graph.blocks) else None
        if branch is None:
            if falls:
                self.emit(f"br label %{falls}")
            else:
                self._finish()
            return
        self.current = branch
        if branch.guard is None:
            self._take(branch)
            return
        condition = self.read(Register(branch.guard.name), "i1")
        if self.plan is not None and block.index in self.plan.sides:
            self._stay(block, branch, condition)
            return
        taken = self.label()
        targets = (falls, taken) if branch.guard_negated else (taken, falls)
        self.emit(f"br i1 {condition}, label %{targets[0]}, label %{targets[1]}")
        self.place(taken)
        self._take(branch)

    def _stay(self, block: Block, branch: Instruction, condition: str) -> None:
        """A branch that leads out of what rows run on one side: all threads go the other way."""
        assert self.plan is not None
        taken = self.plan.sides[block.index]
        if taken == branch.guard_negated:
            condition = self.value(f"xor i1 {condition}, true")
        self.note(condition)
        if taken:
            self._take(branch)
        elif block.index + 1 < len(self.graph.blocks):
            self.emit(f"br label %b{block.index + 1}")
        else:
            self._finish()

    def _take(self, branch: Instruction) -> None:
        if branch.opcode == "bra":
            label = branch.operands[0]
            assert isinstance(label, Label)
            self.emit(f"br label %b{self.graph.target(label.name)}")
        elif branch.opcode == "brx":
            self._branch_by_index(branch)
        else:
            self._finish(str(EXITED) if branch.opcode == "exit" else "0")

    def _branch_by_index(self, branch: Instruction) -> None:
        label = branch.operands[1]
        assert isinstance(label, Label)
        targets = [f"b{self.graph.target(name)}" for name in self.function.tables[label.name]]
        index = self.read(branch.operands[0], "i32")
        cases = " ".join(f"i32 {n}, label %{t}" for n, t in enumerate(targets))
        self.emit(f"switch i32 {index}, label %{targets[-1]} [ {cases} ]")
