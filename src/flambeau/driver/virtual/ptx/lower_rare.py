# SPDX-License-Identifier: Apache-2.0
"""What compilers seldom write: modes of ``prmt``, ``fns``, pairs of 16 bits, hints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx.lower_warp import warp_yield
from flambeau.driver.virtual.ptx.lowering import LLVM_TYPES, Lowering, lowers
from flambeau.driver.virtual.ptx.syntax import Pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.driver.virtual.ptx.syntax import Instruction

__all__ = ["permute_by_mode"]


def half_word(f: Lowering, k: int, s: str) -> str:
    """Byte k of a pair of equal half words: of the lower or upper one."""
    start = f.value(f"shl i32 {f.value(f'and i32 {s}, 1')}, 1")
    return f.value(f"or i32 {start}, {k & 1}")


# For byte k of the result and the selector's low bits s: which of the eight bytes it is.
_MODES: dict[str, Callable[[Lowering, int, str], str]] = {
    "f4e": lambda f, k, s: f.value(f"add i32 {s}, {k}"),
    "b4e": lambda f, k, s: f.value(f"and i32 {f.value(f'sub i32 {s}, {k}')}, 7"),
    "rc8": lambda _f, _k, s: s,
    "ecl": lambda f, k, s: f.call("i32", "llvm.umax.i32", f"i32 {s}", f"i32 {k}"),
    "ecr": lambda f, k, s: f.call("i32", "llvm.umin.i32", f"i32 {s}", f"i32 {k}"),
    "rc16": half_word,
}


def permute_by_mode(f: Lowering, i: Instruction, both: str) -> str:
    """``prmt`` with a mode: bytes of two words in one of six patterns."""
    choose = _MODES[i.modifiers[-1]]
    selector = f.value(f"and i32 {f.read(i.operands[3], 'i32')}, 3")
    total = "0"
    for k in range(4):
        bits = f.value(f"shl i32 {choose(f, k, selector)}, 3")
        moved = f.value(f"lshr i64 {both}, {f.value(f'zext i32 {bits} to i64')}")
        byte = f.value(f"and i32 {f.value(f'trunc i64 {moved} to i32')}, 255")
        total = f.value(f"or i32 {total}, {f.value(f'shl i32 {byte}, {8 * k}')}")
    return total


@lowers("fns", types="b32")
def find_nth_set(f: Lowering, i: Instruction) -> None:
    """``fns``: the n-th set bit from a place on, upwards or downwards."""
    f.unit.declare("fl_find_nth", "declare i32 {}(i32, i32, i32) nounwind memory(none)")
    values = [f"i32 {f.read(operand, 'i32')}" for operand in i.operands[1:4]]
    f.write(i.operands[0], f.call("i32", "fl_find_nth", *values), "i32")


@lowers("add", kind="pair")
@lowers("min max", kind="pair", modifiers="relu")
def pairs(f: Lowering, i: Instruction) -> None:
    """``add``, ``min``, ``max`` of two 16-bit integers in a register."""
    a, b = (
        f.value(f"bitcast i32 {f.read(operand, 'i32')} to <2 x i16>") for operand in i.operands[1:3]
    )
    signed = i.type[0] == "s"
    if i.opcode == "add":
        if "relu" in i.modifiers:
            i.unsupported()
        both = f.value(f"add <2 x i16> {a}, {b}")
    else:
        name = f"llvm.{'s' if signed else 'u'}{i.opcode}.v2i16"
        both = f.call("<2 x i16>", name, f"<2 x i16> {a}", f"<2 x i16> {b}")
    if "relu" in i.modifiers:
        if not signed:
            i.unsupported()
        zero = "<2 x i16> zeroinitializer"
        both = f.call("<2 x i16>", "llvm.smax.v2i16", f"<2 x i16> {both}", zero)
    f.write(i.operands[0], f.value(f"bitcast <2 x i16> {both} to i32"), "i32")


@lowers("elect", modifiers="sync", types="")
def elect(f: Lowering, i: Instruction) -> None:
    """``elect.sync``: one lane of the mask, here the lowest."""
    f.emit(f"store i64 1, ptr {f.frame('value')}")
    warp_yield(f, i, "ballot", i.operands[1])
    value = f.value(f"load i64, ptr {f.frame('value')}")
    lanes = f.value(f"trunc i64 {value} to i32")
    leader = f.call("i32", "llvm.cttz.i32", f"i32 {lanes}", "i1 false")
    if not isinstance(i.operands[0], Pair):
        i.unsupported()
    f.write(i.operands[0].first, leader, "i32")
    own = f.value("and i32 %flat, 31")
    f.write(i.operands[0].second, f.value(f"icmp eq i32 {own}, {leader}"), "i1")


@lowers("griddepcontrol", modifiers="wait launch_dependents", types="")
@lowers("setmaxnreg", modifiers="inc dec sync aligned", types="u32")
@lowers("discard", modifiers="global L2", types="")
@lowers("applypriority", modifiers="global L2::evict_normal", types="")
@lowers("pmevent", modifiers="mask", types="")
def nothing(_f: Lowering, _i: Instruction) -> None:
    """Hints, and waits for a grid that has ended before this one began."""


@lowers(
    "createpolicy",
    modifiers="fractional range cvt L2 global L2::evict_last L2::evict_normal L2::evict_first "
    "L2::evict_unchanged",
    types="b64",
)
def policy(f: Lowering, i: Instruction) -> None:
    """``createpolicy``: how to cache, which no memory here does."""
    f.write(i.operands[0], "0", LLVM_TYPES["b64"])
