# SPDX-License-Identifier: Apache-2.0
"""``wmma``: matrix tiles whose fragments have no documented layout, so that ours is our own.

Each lane holds neighbours of the row-major tile; where a fragment has more registers than it needs,
the others repeat them. Loading and storing then need no other lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx.addressing import (
    READ,
    WRITE,
    items_of,
    pointer_at,
    space_of,
)
from flambeau.driver.virtual.ptx.lower_matrix import ALL_LANES, payload, read_payload
from flambeau.driver.virtual.ptx.lower_warp import warp_yield
from flambeau.driver.virtual.ptx.lowering import LLVM_TYPES, Lowering, lowers

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.syntax import Instruction

__all__: list[str] = []

DEPTH = 16
B_WORD, C_WORD, RESULT_WORD = 8, 16, 24  # where things start in the payload
_SHAPES = {"m16n16k16": (16, 16), "m32n8k16": (32, 8), "m8n32k16": (8, 32)}
_INPUTS = {"f16": 0, "bf16": 1}


@lowers(
    "wmma",
    modifiers=f"load store mma a b c d sync aligned row col shared shared::cta global "
    f"{' '.join(_SHAPES)}",
    types="f16 bf16 f32",
)
def tile(f: Lowering, i: Instruction) -> None:
    """``wmma.load``, ``wmma.mma`` and ``wmma.store``."""
    if not any(m in _SHAPES for m in i.modifiers):
        i.unsupported()
    if i.modifiers[0] == "load":
        load(f, i)
    elif i.modifiers[0] == "store":
        store(f, i)
    else:
        multiply(f, i)


def extents(i: Instruction, matrix: str) -> tuple[int, int]:
    """Rows and columns of one of the matrices."""
    rows, columns = next(_SHAPES[m] for m in i.modifiers if m in _SHAPES)
    return {"a": (rows, DEPTH), "b": (DEPTH, columns)}.get(matrix, (rows, columns))


def element_pointer(f: Lowering, i: Instruction, matrix: str, index: str, access: int) -> str:
    """A checked pointer to the element at a row-major index of a matrix in memory."""
    rows, columns = extents(i, matrix)
    size = 4 if i.type == "f32" else 2
    memory = i.operands[1 if access == READ else 0]
    by_row = "row" in i.modifiers
    row = f.value(f"udiv i64 {index}, {columns}")
    column = f.value(f"urem i64 {index}, {columns}")
    far, near = (row, column) if by_row else (column, row)
    stride = str(columns if by_row else rows)
    if len(i.operands) > 2:
        stride = f.value(f"sext i32 {f.read(i.operands[2], 'i32')} to i64")
    place = f.value(f"add i64 {f.value(f'mul i64 {far}, {stride}')}, {near}")
    address = f.value(f"add i64 {f.address(memory, i)}, {f.value(f'mul i64 {place}, {size}')}")
    return pointer_at(f, address, space_of(i), size, access, i)


def element_indices(f: Lowering, i: Instruction, matrix: str) -> list[str]:
    """The row-major indices of the elements that this lane holds."""
    rows, columns = extents(i, matrix)
    own = rows * columns // 32
    lane = f.value(f"zext i32 {f.value('and i32 %flat, 31')} to i64")
    first = f.value(f"mul i64 {lane}, {own}")
    return [f.value(f"add i64 {first}, {n}") for n in range(own)]


def load(f: Lowering, i: Instruction) -> None:
    """Fill a fragment from memory."""
    matrix = i.modifiers[1]
    kind = "i32" if i.type == "f32" else "i16"
    values = [
        f.value(f"load {kind}, ptr {element_pointer(f, i, matrix, index, READ)}")
        for index in element_indices(f, i, matrix)
    ]
    if kind == "i16":
        values = [pair(f, values[n], values[n + 1]) for n in range(0, len(values), 2)]
    for n, item in enumerate(items_of(i.operands[0])):
        f.write(item, values[n % len(values)], "i32")


def pair(f: Lowering, low: str, high: str) -> str:
    """Two i16 in an i32."""
    upper = f.value(f"shl i32 {f.value(f'zext i16 {high} to i32')}, 16")
    return f.value(f"or i32 {upper}, {f.value(f'zext i16 {low} to i32')}")


def store(f: Lowering, i: Instruction) -> None:
    """Write a fragment to memory."""
    words = [f.read(item, "i32") for item in items_of(i.operands[1])]
    for n, index in enumerate(element_indices(f, i, "d")):
        pointer = element_pointer(f, i, "d", index, WRITE)
        if i.type == "f32":
            f.emit(f"store i32 {words[n]}, ptr {pointer}")
        else:
            moved = f.value(f"lshr i32 {words[n >> 1]}, {16 * (n & 1)}")
            f.emit(f"store i16 {f.value(f'trunc i32 {moved} to i16')}, ptr {pointer}")


def multiply(f: Lowering, i: Instruction) -> None:
    """``wmma.mma``: the types are those of D and C, with A and B between them for bf16."""
    types = [m for m in i.modifiers if m in LLVM_TYPES]
    inputs = types[1:-1] or ["f16", "f16"]
    if len(types) not in {2, 4} or inputs[0] not in _INPUTS or inputs[0] != inputs[1]:
        i.unsupported()
    if "bf16" in (types[0], types[-1]):
        i.unsupported()
    for operand, word in zip(i.operands[1:4], (0, B_WORD, C_WORD), strict=True):
        for n, item in enumerate(items_of(operand)):
            f.emit(f"store i32 {f.read(item, 'i32')}, ptr {payload(f, word + n)}")
    rows, columns = extents(i, "d")
    kinds = _INPUTS[inputs[0]] | rows << 8 | columns << 16
    kinds |= (types[-1] == "f16") << 4 | (types[0] == "f16") << 5
    for n, value in enumerate((f.payload, kinds)):
        f.emit(f"store i32 {value}, ptr {f.frame('argument', n)}")
    warp_yield(f, i, "wmma", ALL_LANES)
    read_payload(f, i, RESULT_WORD)
