# SPDX-License-Identifier: Apache-2.0
"""What threads do together: barriers and warp operations, as yields to the executor.

A thread writes its request into its frame, saves the registers that are needed later, and returns;
when everyone it waits for has come, the executor writes the result into the frame and the thread
goes on behind the yield.
"""

from __future__ import annotations

from flambeau.driver.virtual.ptx.lowering import LLVM_TYPES, Lowering, lowers
from flambeau.driver.virtual.ptx.syntax import Immediate, Instruction, Operand, Pair

__all__ = ["AT_BARRIER", "AT_WARP", "SPINNING", "warp_yield"]

AT_BARRIER, AT_WARP, SPINNING = 1, 2, 3
_WARP_OPERATIONS = (
    "sync", "up", "down", "bfly", "idx", "all", "any", "uni", "ballot", "match_any", "match_all",
    "active", "add", "smin", "smax", "umin", "umax", "and", "or", "xor", "mma",
    "ldmatrix", "wmma", "stmatrix", "movmatrix",
)  # fmt: skip
_WARP = {name: number for number, name in enumerate(_WARP_OPERATIONS)}
_BARRIER = {"sync": 0, "arrive": 1, "popc": 2, "and": 3, "or": 4}


def store(f: Lowering, name: str, kind: str, value: str, index: int = 0) -> None:
    """Set a field of the frame."""
    f.emit(f"store {kind} {value}, ptr {f.frame(name, index)}")


def outcome(f: Lowering, name: str, kind: str) -> str:
    """A field that the executor has set."""
    return f.value(f"load {kind}, ptr {f.frame(name)}")


def predicate(f: Lowering) -> str:
    """The executor's verdict as i1."""
    return f.value(f"icmp ne i32 {outcome(f, 'predicate', 'i32')}, 0")


def warp_yield(f: Lowering, i: Instruction, operation: str, mask: Operand | None) -> None:
    """Wait for the lanes of a mask."""
    store(f, "op", "i32", str(_WARP[operation]))
    store(f, "mask", "i32", f.read(mask, "i32"))
    f.yield_point(AT_WARP, f.live_after[id(i)])


def write_pair(f: Lowering, i: Instruction, value: str, kind: str) -> None:
    """Write a result, and the predicate behind ``|`` if there is one."""
    target = i.operands[0]
    if isinstance(target, Pair):
        f.write(target.first, value, kind)
        f.write(target.second, predicate(f), "i1")
    else:
        f.write(target, value, kind)


@lowers("shfl", modifiers="sync up down bfly idx", types="b32")
def shuffle(f: Lowering, i: Instruction) -> None:
    """``shfl.sync``."""
    if "sync" not in i.modifiers:
        i.unsupported("only the .sync form has a meaning since sm_70")
    value = f.value(f"zext i32 {f.read(i.operands[1], 'i32')} to i64")
    store(f, "value", "i64", value)
    for n in range(2):
        store(f, "argument", "i32", f.read(i.operands[2 + n], "i32"), n)
    mode = next(m for m in i.modifiers if m in {"up", "down", "bfly", "idx"})
    warp_yield(f, i, mode, i.operands[4])
    low = f.value(f"trunc i64 {outcome(f, 'value', 'i64')} to i32")
    write_pair(f, i, low, "i32")


@lowers("vote", modifiers="sync all any uni ballot", types="pred b32")
def vote(f: Lowering, i: Instruction) -> None:
    """``vote.sync``."""
    if "sync" not in i.modifiers:
        i.unsupported("only the .sync form has a meaning since sm_70")
    value = f.value(f"zext i1 {f.read(i.operands[1], 'i1')} to i64")
    store(f, "value", "i64", value)
    mode = next(m for m in i.modifiers if m in {"all", "any", "uni", "ballot"})
    warp_yield(f, i, mode, i.operands[2])
    if mode == "ballot":
        f.write(i.operands[0], f.value(f"trunc i64 {outcome(f, 'value', 'i64')} to i32"), "i32")
    else:
        f.write(i.operands[0], predicate(f), "i1")


@lowers("match", modifiers="sync any all", types="b32 b64")
def match(f: Lowering, i: Instruction) -> None:
    """``match.sync``."""
    kind = LLVM_TYPES[i.type]
    value = f.read(i.operands[1], kind)
    store(f, "value", "i64", f.convert(value, kind, "i64"))
    warp_yield(f, i, "match_all" if "all" in i.modifiers else "match_any", i.operands[2])
    write_pair(f, i, f.value(f"trunc i64 {outcome(f, 'value', 'i64')} to i32"), "i32")


@lowers("redux", modifiers="sync add min max and or xor", types="u32 s32 b32")
def reduce(f: Lowering, i: Instruction) -> None:
    """``redux.sync``."""
    value = f.value(f"zext i32 {f.read(i.operands[1], 'i32')} to i64")
    store(f, "value", "i64", value)
    mode = next(m for m in i.modifiers if m in {"add", "min", "max", "and", "or", "xor"})
    if mode in {"min", "max"}:
        mode = f"{i.type[0]}{mode}"
    warp_yield(f, i, mode, i.operands[2])
    f.write(i.operands[0], f.value(f"trunc i64 {outcome(f, 'value', 'i64')} to i32"), "i32")


@lowers("activemask", types="b32")
def active_mask(f: Lowering, i: Instruction) -> None:
    """``activemask``: the lanes that have come to the same place."""
    warp_yield(f, i, "active", Immediate(0))
    f.write(i.operands[0], f.value(f"trunc i64 {outcome(f, 'value', 'i64')} to i32"), "i32")


@lowers("bar", modifiers="sync arrive red warp cta popc and or", types="u32 pred")
@lowers("barrier", modifiers="sync arrive red aligned cta popc and or", types="u32 pred")
def barrier(f: Lowering, i: Instruction) -> None:
    """``bar``, ``barrier``: of the block or of a warp."""
    if "warp" in i.modifiers:
        warp_yield(f, i, "sync", i.operands[0])
        return
    reduces = "red" in i.modifiers
    operands = list(i.operands[1:] if reduces else i.operands)
    if reduces:
        value = f.value(f"zext i1 {f.read(operands.pop(), 'i1')} to i64")
        store(f, "value", "i64", value)
    mode = next(m for m in i.modifiers if m in ({"popc", "and", "or"} if reduces else _BARRIER))
    store(f, "op", "i32", str(_BARRIER[mode]))
    store(f, "argument", "i32", f.read(operands[0], "i32") if operands else "0")
    store(f, "mask", "i32", f.read(operands[1], "i32") if len(operands) > 1 else "0")
    f.yield_point(AT_BARRIER, f.live_after[id(i)])
    if mode == "popc":
        f.write(i.operands[0], f.value(f"trunc i64 {outcome(f, 'value', 'i64')} to i32"), "i32")
    elif reduces:
        f.write(i.operands[0], predicate(f), "i1")
