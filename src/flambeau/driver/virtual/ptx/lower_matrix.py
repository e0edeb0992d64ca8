# SPDX-License-Identifier: Apache-2.0
"""Matrix instructions of a warp: ``mma``, ``ldmatrix``, ``stmatrix`` and ``movmatrix``.

Lanes put their fragments into the payload of their frames; the executor puts matrices together,
multiplies, and leaves each lane its part of the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx.addressing import (
    READ,
    WRITE,
    checked_pointer,
    items_of,
    space_of,
)
from flambeau.driver.virtual.ptx.lower_warp import warp_yield
from flambeau.driver.virtual.ptx.lowering import LLVM_TYPES, Lowering, lowers
from flambeau.driver.virtual.ptx.syntax import Immediate

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.syntax import Instruction

__all__ = ["ALL_LANES", "payload", "read_payload"]

ALL_LANES = Immediate(0xFFFFFFFF)
RESULT_WORD = 12  # where a product starts in the payload, behind A, B and C
_ELEMENTS = {"f16": (0, 2), "bf16": (1, 2), "tf32": (2, 1), "s8": (3, 4), "u8": (4, 4)}
_ACCUMULATORS = {"f32": 0, "f16": 1, "s32": 2}
_SHAPES = {
    "m16n8k4": (4, {"tf32"}),
    "m16n8k8": (8, {"f16", "bf16", "tf32"}),
    "m16n8k16": (16, {"f16", "bf16", "s8", "u8"}),
    "m16n8k32": (32, {"s8", "u8"}),
}


def payload(f: Lowering, word: int) -> str:
    """The address of a word of the thread's payload."""
    return f.value(f"getelementptr i8, ptr %frame, i64 {f.payload + 4 * word}")


@lowers("mma", modifiers=f"sync aligned row col satfinite {' '.join(_SHAPES)}")
def multiply(f: Lowering, i: Instruction) -> None:
    """``mma.sync`` with 16 rows and 8 columns."""
    shape = next((m for m in i.modifiers if m in _SHAPES), "")
    types = [m for m in i.modifiers if m in LLVM_TYPES]
    if not shape or len(types) != 4 or "row col" not in " ".join(i.modifiers):
        i.unsupported()
    target, a, b, source = types
    depth, allowed = _SHAPES[shape]
    integer = a in {"s8", "u8"}
    sums = {"s32"} if integer else {"f16", "f32"} if a == "f16" else {"f32"}
    if a not in allowed or b not in allowed or (not integer and a != b):
        i.unsupported()
    if target not in sums or source != target or ("satfinite" in i.modifiers and not integer):
        i.unsupported()
    word = 0
    for operand in i.operands[1:4]:
        for item in items_of(operand):
            f.emit(f"store i32 {f.read(item, 'i32')}, ptr {payload(f, word)}")
            word += 1
    kinds = _ELEMENTS[a][0] | _ELEMENTS[b][0] << 4 | _ACCUMULATORS[target] << 8 | depth << 12
    kinds |= ("satfinite" in i.modifiers) << 20
    for n, value in enumerate((f.payload, kinds)):
        f.emit(f"store i32 {value}, ptr {f.frame('argument', n)}")
    warp_yield(f, i, "mma", ALL_LANES)
    read_payload(f, i, RESULT_WORD)


def read_payload(f: Lowering, i: Instruction, first: int) -> None:
    """Write the destination registers from the payload."""
    for n, item in enumerate(items_of(i.operands[0])):
        f.write(item, f.value(f"load i32, ptr {payload(f, first + n)}"), "i32")


@lowers("ldmatrix", modifiers="sync aligned m8n8 x1 x2 x4 trans shared shared::cta", types="b16")
def load_matrix(f: Lowering, i: Instruction) -> None:
    """``ldmatrix``: lane n brings the n-th row of 16 bytes, for as many as there are rows."""
    skip = with_row(f, matrices(i))
    row = checked_pointer(f, i.operands[1], space_of(i), 16, READ, i)
    value = f.value(f"load <4 x i32>, ptr {row}, align 16")
    f.emit(f"store <4 x i32> {value}, ptr {payload(f, 0)}, align 4")
    f.emit(f"br label %{skip}")
    f.place(skip)
    exchange(f, i, "ldmatrix")
    read_payload(f, i, 4)


def matrices(i: Instruction) -> int:
    """How many matrices an instruction moves."""
    return next(int(m[1:]) for m in i.modifiers if m in {"x1", "x2", "x4"})


def with_row(f: Lowering, count: int) -> str:
    """Go on with the lanes that have a row of so many matrices; the label for the others."""
    lane = f.value("and i32 %flat, 31")
    has = f.value(f"icmp ult i32 {lane}, {8 * count}")
    run, skip = f.label(), f.label()
    f.emit(f"br i1 {has}, label %{run}, label %{skip}")
    f.place(run)
    return skip


def exchange(f: Lowering, i: Instruction, operation: str) -> None:
    """Let lanes exchange rows and fragments in their payloads."""
    count = 1 if i.opcode == "movmatrix" else matrices(i)
    for n, word in enumerate((f.payload, count | ("trans" in i.modifiers) << 4)):
        f.emit(f"store i32 {word}, ptr {f.frame('argument', n)}")
    warp_yield(f, i, operation, ALL_LANES)


@lowers("stmatrix", modifiers="sync aligned m8n8 x1 x2 x4 trans shared shared::cta", types="b16")
def store_matrix(f: Lowering, i: Instruction) -> None:
    """``stmatrix``: lane n writes the n-th row of 16 bytes, for as many as there are rows."""
    for n, item in enumerate(items_of(i.operands[1])):
        f.emit(f"store i32 {f.read(item, 'i32')}, ptr {payload(f, n)}")
    exchange(f, i, "stmatrix")
    skip = with_row(f, matrices(i))
    row = checked_pointer(f, i.operands[0], space_of(i), 16, WRITE, i)
    value = f.value(f"load <4 x i32>, ptr {payload(f, 4)}, align 4")
    f.emit(f"store <4 x i32> {value}, ptr {row}, align 16")
    f.emit(f"br label %{skip}")
    f.place(skip)


@lowers("movmatrix", modifiers="sync aligned m8n8 trans", types="b16")
def transpose_matrix(f: Lowering, i: Instruction) -> None:
    """``movmatrix``: a matrix in fragments, transposed; as if it were stored and loaded."""
    f.emit(f"store i32 {f.read(i.operands[1], 'i32')}, ptr {payload(f, 0)}")
    exchange(f, i, "movmatrix")
    read_payload(f, i, 4)
