# SPDX-License-Identifier: Apache-2.0
"""A kernel with the functions that it calls: memory layout, entry points, its record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx.costs import estimate
from flambeau.driver.virtual.ptx.inline import Inliner
from flambeau.driver.virtual.ptx.lower_control import THREAD_ARGUMENTS, candidates
from flambeau.driver.virtual.ptx.lower_kernel import EXITED, FunctionLowering
from flambeau.driver.virtual.ptx.lowering import LLVM_TYPES, Phase, Unit, width
from flambeau.driver.virtual.ptx.rows import (
    ROW_LOOP,
    SMALLEST_ROW,
    RowPlan,
    plan_rows,
    survey_code,
)
from flambeau.driver.virtual.ptx.syntax import (
    Address,
    Function,
    Module,
    Operand,
    Register,
    Symbol,
    Vector,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["KernelRecord", "Program", "symbols_in"]

FIRST_LOOP = 10  # metadata numbers of the kernels' loops
RECURSION_STACK = 64 << 10  # bytes of local memory per thread where functions call themselves
RUN_ARGUMENTS = THREAD_ARGUMENTS.replace("ptr %frame", "ptr null")
SMALLEST_FRAME = 32  # so that endless recursion ends before the host's stack does


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """Everything but the code that is needed to run a kernel; kept in the cache.

    ``globals`` are names of module variables in the order of the kernel's address table; sizes in
    bytes; costs per thread.
    """

    name: str
    symbol: str
    yields: bool
    parameters: list[tuple[int, int]]
    sites: list[tuple[int, int, int, int, int]]
    globals: list[str]
    static_shared: int
    local_bytes: int
    max_threads: int
    registers: int
    frame_bytes: int
    in_order: bool
    uses_clock: bool
    global_bytes: float
    operations: float


def symbols_in(operand: Operand | None) -> Iterator[str]:
    """The names of variables in an operand."""
    match operand:
        case Symbol(name):
            yield name
        case Address(base, _) if isinstance(base, Symbol):
            yield base.name
        case Vector(items):
            for item in items:
                yield from symbols_in(item)


def pointed_functions(module: Module) -> Iterator[str]:
    """The device functions whose addresses are taken."""
    found = {symbol for v in module.variables.values() for _, symbol, _ in v.patches}
    for function in module.functions.values():
        for instruction in function.body:
            for operand in instruction.operands:
                found.update(symbols_in(operand))
    for name, function in module.functions.items():
        if name in found and function.defined and not function.is_entry:
            yield name


class Program:
    """Lowers one kernel.

    Parameters
    ----------
    module, kernel
        The PTX module and its kernel.
    index
        A number that is unique in the module, for symbol names.
    layout
        The executor's structure offsets.
    watched
        Whether its code tells a watcher of each access.
    """

    def __init__(
        self,
        module: Module,
        kernel: Function,
        index: int,
        layout: dict[str, int],
        *,
        watched: bool = False,
    ) -> None:
        self.module = module
        self.inliner = Inliner(module.functions)
        self.kernel = self.inliner.expand(kernel) if self.inliner.yields(kernel) else kernel
        self.symbol = f"k{index}"
        self.unit = Unit(
            layout,
            module.functions,
            module.variables,
            self.symbol,
            pointed={name: module.function_address(name) for name in pointed_functions(module)},
            loop=FIRST_LOOP + index,
            watched=watched,
        )
        self.functions = self._reachable()
        self.local_bytes = self._lay_out_local()
        self._lay_out_shared()

    # Memory layout

    def _calls(self, function: Function) -> Iterator[str]:
        for instruction in function.body:
            if isinstance(instruction.target, Symbol):
                callee = self.module.functions.get(instruction.target.name)
                if callee is not None and callee.defined:
                    yield callee.name
            elif isinstance(instruction.target, Register):
                for name in candidates(
                    self.unit.pointed, self.module.functions, function, instruction
                ):
                    if self.inliner.yields(self.module.functions[name]):
                        instruction.unsupported(f"barriers in {name}, called through a pointer")
                    yield name

    def _reachable(self) -> list[Function]:
        found = {self.kernel.name: self.kernel}  # by name: the kernel may be an expanded copy
        work = [self.kernel]
        while work:
            for name in self._calls(work.pop()):
                if name not in found:
                    found[name] = self.module.functions[name]
                    work.append(found[name])
        return list(found.values())

    def _lay_out_local(self) -> int:
        """Place local variables in frames; the depth in bytes that calls can reach."""
        for function in self.functions:
            offset, places = 0, {}
            for name, variable in function.variables.items():
                if variable.space == "local":
                    offset = -(-offset // variable.align) * variable.align
                    places[name] = offset
                    offset += variable.size
            if function is not self.kernel:
                offset = max(offset, SMALLEST_FRAME)
            self.unit.local_frames[function.name] = places
            self.unit.local_sizes[function.name] = -(-offset // 16) * 16
        depth = self._depth(self.kernel.name, ())
        self.unit.recursive = depth is None
        return RECURSION_STACK if depth is None else depth

    def _depth(self, name: str, path: tuple[str, ...]) -> int | None:
        if name in path:
            return None
        deepest = 0
        function = self.kernel if name == self.kernel.name else self.module.functions[name]
        for callee in self._calls(function):
            depth = self._depth(callee, (*path, name))
            if depth is None:
                return None
            deepest = max(deepest, depth)
        return deepest + self.unit.local_sizes[name]

    def _lay_out_shared(self) -> None:
        """Place the shared variables that are used; dynamic ones lie behind all others."""
        used = {
            name
            for function in self.functions
            for instruction in function.body
            for operand in instruction.operands
            for name in symbols_in(operand)
        }
        variables = [v for v in self.module.variables.values() if v.space == "shared"]
        for function in self.functions:
            variables += [v for v in function.variables.values() if v.space == "shared"]
        offset, dynamic = 0, []
        for variable in variables:
            if variable.name not in used:
                continue
            if variable.size == 0:
                dynamic.append(variable)
                continue
            offset = -(-offset // variable.align) * variable.align
            self.unit.shared[variable.name] = offset
            offset += variable.size
        if dynamic:
            align = max(16, *(v.align for v in dynamic))
            offset = -(-offset // align) * align
            self.unit.shared.update((v.name, offset) for v in dynamic)
        self.unit.static_shared = offset

    # Code

    def lower(self) -> tuple[str, KernelRecord]:
        """The kernel's LLVM IR and its record."""
        texts = []
        main: FunctionLowering | None = None
        for function in self.functions:
            lowering = FunctionLowering(self.unit, function)
            if function is self.kernel:
                main = lowering
            texts.append(lowering.lower())
        assert main is not None
        plan = self._plan(main)
        if plan is not None:
            survey = FunctionLowering(self.unit, self.kernel, Phase.SURVEY, plan)
            trusted = FunctionLowering(self.unit, self.kernel, Phase.TRUSTED, plan)
            texts += [survey.lower(), trusted.lower()]
            texts.append(self._rows(None if plan.watched is None else survey.recorded))
        else:
            texts.append(self._step() if main.yields else self._run())
        return "\n".join(texts), self._record(main)

    def _plan(self, main: FunctionLowering) -> RowPlan | None:
        """How the kernel's threads run side by side, if they can."""
        unit = self.unit
        if main.yields or unit.watched or unit.uses_clock or unit.shared or self.local_bytes:
            return None
        return plan_rows(self.kernel, main.graph)

    def _record(self, main: FunctionLowering) -> KernelRecord:
        unit, kernel = self.unit, self.kernel
        global_bytes, operations = estimate(main.graph)
        return KernelRecord(
            name=kernel.name,
            symbol=self.symbol,
            yields=main.yields,
            parameters=[(v.offset, v.size) for v in kernel.parameters],
            sites=unit.sites,
            globals=list(unit.globals),
            static_shared=unit.static_shared,
            local_bytes=self.local_bytes,
            max_threads=kernel.max_threads,
            registers=register_pressure(main),
            frame_bytes=main.frame_end,
            in_order=bool(main.spins),
            uses_clock=unit.uses_clock,
            global_bytes=global_bytes,
            operations=operations,
        )

    def _load(self, target: str, kind: str, base: str, offset: int) -> str:
        return (
            f"  %p.{target} = getelementptr i8, ptr {base}, i64 {offset}\n"
            f"  %{target} = load {kind}, ptr %p.{target}"
        )

    def _step(self) -> str:
        """``int step(Context *, Frame *)``: run one thread to its next yield."""
        layout = self.unit.layout
        loads = [
            self._load(f"t{axis}", "i32", "%frame", layout["Frame.tid"] + 4 * n)
            for n, axis in enumerate("xyz")
        ]
        loads += [
            self._load(f"c{axis}", "i32", "%ctx", layout["Context.block_index"] + 4 * n)
            for n, axis in enumerate("xyz")
        ]
        loads += [
            self._load("flat", "i32", "%frame", layout["Frame.flat"]),
            self._load("state", "i32", "%frame", layout["Frame.state"]),
            self._load("lbase", "i64", "%frame", layout["Frame.local"]),
        ]
        body = f'"{self.symbol}.{self.kernel.name}"'
        return "\n".join(
            (
                f"define i32 @{self.symbol}(ptr noalias %ctx, ptr noalias %frame) nounwind {{",
                *loads,
                f"  %status = call i32 @{body}({THREAD_ARGUMENTS}, i64 0, i32 %state)",
                # a thread that left by `exit` is finished as well
                f"  %exited = icmp eq i32 %status, {EXITED}",
                "  %result = select i1 %exited, i32 0, i32 %status",
                "  ret i32 %result",
                "}",
            )
        )

    def _run(self) -> str:
        """``int run(Context *, first, end)``: all threads of a range of blocks, one by one."""
        clock = CLOCK_RESET.format(**self._clock_offsets()) if self.unit.uses_clock else ""
        after = CLOCK_NOTE.format(**self._clock_offsets()) if self.unit.uses_clock else ""
        return RUN_LOOP.format(
            symbol=self.symbol,
            loads=self._grid_loads(),
            mp=self.unit.layout["Context.multiprocessor"],
            body=f'"{self.symbol}.{self.kernel.name}"',
            arguments=f"{RUN_ARGUMENTS}, i64 0, i32 0",
            clock=clock,
            after=after,
        )

    def _rows(self, recorded: int | None) -> str:
        """The same, row by row: surveyed, then trusted or checked."""

        def arguments(suffix: str) -> str:
            at = RUN_ARGUMENTS.replace("%tx", f"%tx.{suffix}").replace("%flat", f"%flat.{suffix}")
            return f"{at}, i64 0, i32 0"

        body = f"{self.symbol}.{self.kernel.name}"
        loop = self.unit.loop
        text = ROW_LOOP.format(
            symbol=self.symbol,
            loads=self._grid_loads(),
            mp=self.unit.layout["Context.multiprocessor"],
            smallest=SMALLEST_ROW,
            body=f'"{body}"',
            survey=survey_code(f'"{body}{Phase.SURVEY.value}"', arguments("s"), recorded),
            records="\n".join(
                f"  %record{n} = alloca [{max(recorded, 1)} x i64]\n"
                f"  store [{max(recorded, 1)} x i64] zeroinitializer, ptr %record{n}"
                for n in range(3)
            )
            if recorded is not None
            else "",
            trusted=f'"{body}{Phase.TRUSTED.value}"',
            careful_arguments=arguments("c"),
            trusted_arguments=arguments("t"),
            loop=loop,
        )
        return f"{text}\n!{loop} = distinct !{{!{loop}, !3}}"

    def _grid_loads(self) -> str:
        layout = self.unit.layout
        loads = [
            self._load(name, "i32", "%ctx", layout[f"Context.{field}"] + 4 * n)
            for name, field, n in (
                ("nx", "block_dim", 0),
                ("ny", "block_dim", 1),
                ("nz", "block_dim", 2),
                ("gx", "grid_dim", 0),
                ("gy", "grid_dim", 1),
                ("mps", "multiprocessors", 0),
            )
        ]
        loads.append(self._load("lbase", "i64", "%ctx", layout["Context.local"]))
        places = [
            f"  %p.b{axis} = getelementptr i8, ptr %ctx, i64 "
            f"{layout['Context.block_index'] + 4 * n}"
            for n, axis in enumerate("xyz")
        ]
        return "\n".join((*loads, *places))

    def _clock_offsets(self) -> dict[str, int]:
        names = ("clock", "clock_start", "clock_end")
        return {name: self.unit.layout[f"Context.{name}"] for name in names}


def register_pressure(main: FunctionLowering) -> int:
    """About how many 32-bit registers the kernel needs: the widest block boundary and a few."""

    def words(names: frozenset[str]) -> int:
        kinds = main.function.registers
        return sum(max(1, width(LLVM_TYPES[kinds[n]]) // 32) for n in names if kinds[n] != "pred")

    widest = max((words(block.live_in) for block in main.graph.blocks), default=0)
    return min(255, max(16, -(-(widest + 8) // 8) * 8))


CLOCK_RESET = """\
  %p.start = getelementptr i8, ptr %ctx, i64 {clock_start}
  %p.clock = getelementptr i8, ptr %ctx, i64 {clock}
  %clock.start = load i64, ptr %p.start
  store i64 %clock.start, ptr %p.clock"""

CLOCK_NOTE = """\
  %p.end = getelementptr i8, ptr %ctx, i64 {clock_end}
  %now = load i64, ptr %p.clock
  %latest = load i64, ptr %p.end
  %later = call i64 @llvm.umax.i64(i64 %now, i64 %latest)
  store i64 %later, ptr %p.end"""

RUN_LOOP = """\
define i32 @{symbol}(ptr noalias %ctx, i64 %first, i64 %end) nounwind {{
start:
{loads}
  %p.mp = getelementptr i8, ptr %ctx, i64 {mp}
  %area = mul i32 %nx, %ny
  %threads = mul i32 %area, %nz
  %gx6 = zext i32 %gx to i64
  %gy6 = zext i32 %gy to i64
  %mps6 = zext i32 %mps to i64
  br label %blocks
blocks:
  %block = phi i64 [ %first, %start ], [ %block.next, %block.end ]
  %cx6 = urem i64 %block, %gx6
  %row = udiv i64 %block, %gx6
  %cy6 = urem i64 %row, %gy6
  %cz6 = udiv i64 %row, %gy6
  %mp6 = urem i64 %block, %mps6
  %cx = trunc i64 %cx6 to i32
  %cy = trunc i64 %cy6 to i32
  %cz = trunc i64 %cz6 to i32
  %mp = trunc i64 %mp6 to i32
  store i32 %cx, ptr %p.bx
  store i32 %cy, ptr %p.by
  store i32 %cz, ptr %p.bz
  store i32 %mp, ptr %p.mp
  br label %threads.loop
threads.loop:
  %flat = phi i32 [ 0, %blocks ], [ %flat.next, %good ]
  %tx = phi i32 [ 0, %blocks ], [ %tx.next, %good ]
  %ty = phi i32 [ 0, %blocks ], [ %ty.next, %good ]
  %tz = phi i32 [ 0, %blocks ], [ %tz.next, %good ]
{clock}
  %status = call i32 @{body}({arguments})
  %bad = icmp slt i32 %status, 0
  br i1 %bad, label %failed, label %good, !prof !1
good:
{after}
  %tx.up = add i32 %tx, 1
  %row.end = icmp eq i32 %tx.up, %nx
  %tx.next = select i1 %row.end, i32 0, i32 %tx.up
  %ty.up = zext i1 %row.end to i32
  %ty.sum = add i32 %ty, %ty.up
  %plane.end = icmp eq i32 %ty.sum, %ny
  %ty.next = select i1 %plane.end, i32 0, i32 %ty.sum
  %tz.up = zext i1 %plane.end to i32
  %tz.next = add i32 %tz, %tz.up
  %flat.next = add i32 %flat, 1
  %last = icmp eq i32 %flat.next, %threads
  br i1 %last, label %block.end, label %threads.loop
block.end:
  %block.next = add i64 %block, 1
  %done = icmp uge i64 %block.next, %end
  br i1 %done, label %finished, label %blocks
finished:
  ret i32 0
failed:
  ret i32 -1
}}"""
