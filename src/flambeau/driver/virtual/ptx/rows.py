# SPDX-License-Identifier: Apache-2.0
"""Kernels whose threads may run side by side, a row of a block at a time.

Where control flow and addresses do not depend on what was loaded, a *survey* of a row computes the
addresses alone and finds out whether every access of every thread is good. Then the row runs
*trusted*: without checks, and with a promise to the compiler that its threads do not touch each
other's memory, so that it may use the processor's vector instructions. Threads of a block that do
not synchronise are in no order, so this is one that CUDA allows. A row with a bad access, or where
some threads leave early, runs thread by thread with all checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx.cfg import Block, Graph, reads, registers_of, writes
from flambeau.driver.virtual.ptx.linear import Shape, Watched, linear_values
from flambeau.driver.virtual.ptx.syntax import (
    Address,
    Instruction,
    Label,
    SpecialRegister,
    Vector,
)

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.syntax import Function

__all__ = ["RowPlan", "plan_rows"]

SMALLEST_ROW = 8  # threads
SPLIT_ABOVE = 12  # arithmetic instructions per vector access; above it elements go one by one
LARGEST_BODY = 2000  # instructions; the body is compiled three times
_OPCODES = """
    abs add addc and bfe bfi bfind bmsk bra brev clz cnot copysign cos cvt cvta div dp2a dp4a ex2
    exit fma fns ld ldu lg2 lop3 mad mad24 madc max min mov mul mul24 neg not or popc prefetch
    prefetchu prmt rcp rem ret rsqrt sad selp set setp shf shl shr sin slct sqrt st sub subc szext
    tanh testp xor"""
_SIMPLE = frozenset(_OPCODES.split())
_MEMORY = frozenset({"ld", "ldu", "st"})
_FAR = frozenset({"shared", "shared::cta", "local", "param::func"})
_STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "mmio"})
_CLOCKS = ("%clock", "%globaltimer", "%smid", "%envreg")


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How a kernel runs in rows.

    Parameters
    ----------
    loaded
        Registers that may hold what was loaded from memory; a survey does not know them.
    kept
        The blocks that rows run.
    sides
        Blocks whose branch leads out of these on one side, and whether all threads of a row must
        take it, or must not.
    split
        Whether vector accesses are better split into their elements.
    watched
        If everything is linear along a row: operands that must not wrap, by the instruction's
        identity. A survey then looks at three threads instead of all.
    """

    loaded: frozenset[str]
    kept: frozenset[int]
    sides: dict[int, bool]
    split: bool
    watched: dict[int, list[Watched]] | None


def plan_rows(function: Function, graph: Graph) -> RowPlan | None:
    """The plan for a kernel; None where its threads must run one by one."""
    if not 0 < len(function.body) <= LARGEST_BODY:
        return None
    if any(v.space in {"local", "shared"} for v in function.variables.values()):
        return None
    chosen = Chooser(graph).choose()
    if chosen is None:
        return None
    kept, sides = chosen
    body = [i for index in sorted(kept) for i in graph.blocks[index].instructions]
    loaded = loaded_registers(body)
    if any(loaded & deciding(i) for i in body):
        return None
    vectors = sum(1 for i in body if i.opcode in _MEMORY and takes_vector(i))
    arithmetic = sum(i.opcode not in _MEMORY and i.opcode != "mov" for i in body)
    split = vectors > 0 and arithmetic > SPLIT_ABOVE * vectors
    branches = [graph.blocks[index] for index in sorted(kept)]
    return RowPlan(loaded, kept, sides, split, watch_rows(body, branches, loaded, sides))


class Chooser:
    """Finds the part of a kernel that rows can run: without loops, and simple.

    Parameters
    ----------
    graph
        The kernel's control flow.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._looping = frozenset().union(*(loop.blocks for loop in graph.loops))
        self._clean: dict[int, bool] = {}

    def choose(self) -> tuple[frozenset[int], dict[int, bool]] | None:
        """The blocks, and which way to go where the other leads out of them."""
        if not self._works(0):
            return None
        kept: set[int] = set()
        sides: dict[int, bool] = {}
        work = [0]
        while work:
            index = work.pop()
            if index in kept or index >= len(self._graph.blocks):
                continue
            kept.add(index)
            wanted = self._side(self._graph.blocks[index])
            if wanted is None:
                work.extend(self._graph.blocks[index].successors)
            else:
                sides[index] = wanted
                taken, fallen = self._ways(self._graph.blocks[index])
                work.append(taken if wanted else fallen)
        return frozenset(kept), sides

    def _works(self, index: int) -> bool:
        """Whether rows can run from a block on, leaving out what they cannot."""
        if index >= len(self._graph.blocks):
            return True
        known = self._clean.get(index)
        if known is None:
            block = self._graph.blocks[index]
            self._clean[index] = False
            simple = index not in self._looping and all(map(is_simple, block.instructions))
            known = simple and (
                not block.successors
                or self._side(block) is not None
                or all(map(self._works, block.successors))
            )
            self._clean[index] = known
        return known

    def _ways(self, block: Block) -> tuple[int, int]:
        """Where a conditional branch leads if taken and if not; past the last block: to the end."""
        branch = block.branch
        assert branch is not None
        end = len(self._graph.blocks)
        label = branch.operands[0] if branch.operands else None
        taken = self._graph.target(label.name) if isinstance(label, Label) else end
        return taken, block.index + 1

    def _side(self, block: Block) -> bool | None:
        """Whether rows must take a branch (True) or not (False); None if they may do either."""
        branch = block.branch
        if branch is None or branch.guard is None:
            return None
        taken, fallen = self._ways(block)
        for way, other in ((taken, fallen), (fallen, taken)):
            useless = self._quiet(other) or not self._works(other)
            if useless and self._works(way) and not self._quiet(way):
                return way == taken
        return None

    def _quiet(self, index: int) -> bool:
        """Whether nothing happens from a block on until the thread ends."""
        if index >= len(self._graph.blocks):
            return True
        if index in self._looping:
            return False
        block = self._graph.blocks[index]
        if any(i.opcode not in {"ret", "exit", "bra"} for i in block.instructions):
            return False
        return all(map(self._quiet, block.successors))


def watch_rows(
    body: list[Instruction],
    blocks: list[Block],
    loaded: frozenset[str],
    sides: dict[int, bool],
) -> dict[int, list[Watched]] | None:
    """What to watch where all addresses and ways out are linear; None where some are not."""
    analysis = linear_values(body, loaded)
    for instruction in body:
        if instruction.opcode in _MEMORY:
            places = [o for o in instruction.operands if isinstance(o, Address)]
            if instruction.guard is not None or any(analysis.of(o) > Shape.LINEAR for o in places):
                return None
    for block in blocks:
        branch = block.branch
        if branch is None or branch.guard is None:
            continue
        allowed = {Shape.UNIFORM}
        if block.index in sides:
            out_if_true = sides[block.index] == branch.guard_negated
            allowed |= {Shape.LINEAR, Shape.ANY_OF if out_if_true else Shape.ALL_OF}
        if analysis.of(branch.guard) not in allowed:
            return None
    return analysis.watched


def is_simple(instruction: Instruction) -> bool:
    """Whether an instruction can run for several threads at once."""
    if instruction.opcode not in _SIMPLE:
        return False
    for operand in instruction.operands:
        if isinstance(operand, SpecialRegister) and operand.name.startswith(_CLOCKS):
            return False
    if instruction.opcode == "cvta":
        return _FAR.isdisjoint(instruction.modifiers)
    if instruction.opcode not in _MEMORY:
        return True
    if instruction.opcode == "st" and "param" in instruction.modifiers:
        return False
    return (_FAR | _STRONG).isdisjoint(instruction.modifiers)


def reads_parameter(instruction: Instruction) -> bool:
    """Whether it loads a kernel's argument, which a survey may do too."""
    return instruction.opcode == "ld" and not {"param", "param::entry"}.isdisjoint(
        instruction.modifiers
    )


def loaded_registers(body: list[Instruction]) -> frozenset[str]:
    """Registers whose values may depend on memory."""
    found: set[str] = set()
    before = -1
    while len(found) != before:
        before = len(found)
        for instruction in body:
            from_memory = instruction.opcode in {"ld", "ldu"} and not reads_parameter(instruction)
            if from_memory or found & reads(instruction):
                found |= writes(instruction)
            if instruction.opcode in {"addc", "subc", "madc"}:  # the carry flag is not followed
                found |= writes(instruction)
    return frozenset(found)


def deciding(instruction: Instruction) -> frozenset[str]:
    """The registers that decide which memory is touched and which way a thread goes."""
    found: set[str] = set()
    if instruction.opcode in {*_MEMORY, "bra", "ret", "exit"} and instruction.guard is not None:
        found.add(instruction.guard.name)
    if instruction.opcode in _MEMORY:
        for operand in instruction.operands:
            if isinstance(operand, Address):
                found.update(registers_of(operand))
    return frozenset(found)


def takes_vector(instruction: Instruction) -> bool:
    """Whether an access has several elements."""
    return any(isinstance(operand, Vector) for operand in instruction.operands)


LARGEST_STEP = 1 << 20  # of a linear value from thread to thread; so no row wraps twice

FULL_SURVEY = """\
survey:
  %tx.s = phi i32 [ 0, %rows ], [ %tx.s.next, %survey ]
  %good.s = phi i32 [ 1, %rows ], [ %row.good, %survey ]
  %flat.s = add i32 %flat0, %tx.s
  %good.t = call i32 @{name}({arguments}, ptr null)
  %row.good = and i32 %good.s, %good.t
  %tx.s.next = add nuw i32 %tx.s, 1
  %last.s = icmp eq i32 %tx.s.next, %nx
  br i1 %last.s, label %surveyed, label %survey"""


def survey_code(name: str, arguments: str, watched: int | None) -> str:
    """Code that surveys a row, in blocks from ``survey`` on to ``surveyed``; sets ``%row.good``.

    Parameters
    ----------
    name, arguments
        Of the survey of one thread, which it calls with ``%tx.s`` and ``%flat.s``.
    watched
        How many linear values a thread records; None to survey all threads.
    """
    if watched is None:
        return FULL_SURVEY.format(name=name, arguments=arguments)
    lines = ["survey:", "  %step.count = sub i32 %nx, 1", "  %steps = zext i32 %step.count to i64"]
    for n, place in enumerate(("0", "1", "%step.count")):
        lines.append(f"  %at{n} = add i32 0, {place}")
        lines.append(f"  %flat.{n} = add i32 %flat0, %at{n}")
        given = arguments.replace("%tx.s", f"%at{n}").replace("%flat.s", f"%flat.{n}")
        lines.append(f"  %good{n} = call i32 @{name}({given}, ptr %record{n})")
    lines.append("  %ends = and i32 %good0, %good2")
    lines.append("  %all = and i32 %ends, %good1")
    lines.append("  %linear0 = icmp ne i32 %all, 0")
    for k in range(watched):
        lines += straight(k)
    lines.append(f"  %row.good = zext i1 %linear{watched} to i32")
    lines.append("  br label %surveyed")
    return "\n".join(lines)


def straight(k: int) -> list[str]:
    """Whether a recorded value goes from thread to thread in equal, small steps."""
    lines = []
    for n in range(3):
        lines.append(f"  %p{k}.{n} = getelementptr i64, ptr %record{n}, i64 {k}")
        lines.append(f"  %v{k}.{n} = load i64, ptr %p{k}.{n}")
    return [
        *lines,
        f"  %step{k} = sub i64 %v{k}.1, %v{k}.0",
        f"  %whole{k} = sub i64 %v{k}.2, %v{k}.0",
        f"  %expected{k} = mul i64 %step{k}, %steps",
        f"  %equal{k} = icmp eq i64 %whole{k}, %expected{k}",
        f"  %biased{k} = add i64 %step{k}, {LARGEST_STEP}",
        f"  %small{k} = icmp ult i64 %biased{k}, {2 * LARGEST_STEP}",
        f"  %both{k} = and i1 %equal{k}, %small{k}",
        f"  %linear{k + 1} = and i1 %linear{k}, %both{k}",
    ]


ROW_LOOP = """\
define i32 @{symbol}(ptr noalias %ctx, i64 %first, i64 %end) nounwind {{
start:
{loads}
  %p.mp = getelementptr i8, ptr %ctx, i64 {mp}
  %gx6 = zext i32 %gx to i64
  %gy6 = zext i32 %gy to i64
  %mps6 = zext i32 %mps to i64
  %wide = icmp uge i32 %nx, {smallest}
{records}
  br label %blocks
blocks:
  %block = phi i64 [ %first, %start ], [ %block.next, %block.end ]
  %cx6 = urem i64 %block, %gx6
  %row6 = udiv i64 %block, %gx6
  %cy6 = urem i64 %row6, %gy6
  %cz6 = udiv i64 %row6, %gy6
  %mp6 = urem i64 %block, %mps6
  %cx = trunc i64 %cx6 to i32
  %cy = trunc i64 %cy6 to i32
  %cz = trunc i64 %cz6 to i32
  %mp = trunc i64 %mp6 to i32
  store i32 %cx, ptr %p.bx
  store i32 %cy, ptr %p.by
  store i32 %cz, ptr %p.bz
  store i32 %mp, ptr %p.mp
  br label %rows
rows:
  %tz = phi i32 [ 0, %blocks ], [ %tz.next, %row.end ]
  %ty = phi i32 [ 0, %blocks ], [ %ty.next, %row.end ]
  %flat0 = phi i32 [ 0, %blocks ], [ %flat0.next, %row.end ]
  br i1 %wide, label %survey, label %careful
{survey}
surveyed:
  %trust = icmp ne i32 %row.good, 0
  br i1 %trust, label %trusted, label %careful, !prof !1
trusted:
  %tx.t = phi i32 [ 0, %surveyed ], [ %tx.t.next, %trusted ]
  %flat.t = add i32 %flat0, %tx.t
  %ignored = call i32 @{trusted}({trusted_arguments})
  %tx.t.next = add nuw i32 %tx.t, 1
  %last.t = icmp eq i32 %tx.t.next, %nx
  br i1 %last.t, label %row.end, label %trusted, !llvm.loop !{loop}
careful:
  %tx.c = phi i32 [ 0, %rows ], [ 0, %surveyed ], [ %tx.c.next, %good ]
  %flat.c = add i32 %flat0, %tx.c
  %status = call i32 @{body}({careful_arguments})
  %bad = icmp slt i32 %status, 0
  br i1 %bad, label %failed, label %good, !prof !1
good:
  %tx.c.next = add nuw i32 %tx.c, 1
  %last.c = icmp eq i32 %tx.c.next, %nx
  br i1 %last.c, label %row.end, label %careful
row.end:
  %flat0.next = add i32 %flat0, %nx
  %ty.up = add i32 %ty, 1
  %plane.end = icmp eq i32 %ty.up, %ny
  %ty.next = select i1 %plane.end, i32 0, i32 %ty.up
  %tz.up = zext i1 %plane.end to i32
  %tz.next = add i32 %tz, %tz.up
  %last = icmp eq i32 %tz.next, %nz
  br i1 %last, label %block.end, label %rows
block.end:
  %block.next = add i64 %block, 1
  %done = icmp uge i64 %block.next, %end
  br i1 %done, label %finished, label %blocks
finished:
  ret i32 0
failed:
  ret i32 -1
}}"""
