# SPDX-License-Identifier: Apache-2.0
"""Atomic operations, reductions into memory, and fences."""

from __future__ import annotations

from flambeau.driver.virtual.ptx.addressing import (
    ATOMIC,
    SCOPES,
    items_of,
    place,
    refuse_more_operands,
)
from flambeau.driver.virtual.ptx.lowering import LLVM_TYPES, Lowering, lowers, width
from flambeau.driver.virtual.ptx.rounding import from_half, to_half
from flambeau.driver.virtual.ptx.syntax import Instruction, Operand, Vector

__all__: list[str] = []

_TYPES = "b32 u32 s32 b64 u64 s64 f32 f64 f16 f16x2 bf16 bf16x2"
_SHAPES = "v2 v4 v8 L2::cache_hint global shared shared::cta"
_ATOMICS = "add min max and or xor exch cas inc dec"


def atomic_verb(operation: str, ptx_type: str, i: Instruction) -> str:
    """LLVM's name for an atomic operation."""
    floating = ptx_type in {"f32", "f64", "f16", "bf16", "f16x2", "bf16x2"}
    if floating and operation not in {"add", "exch"}:
        i.unsupported()
    if operation in {"min", "max"}:
        return operation if ptx_type[0] == "s" else f"u{operation}"
    return {
        "add": "fadd" if floating else "add",
        "exch": "xchg",
        "inc": "uinc_wrap",
        "dec": "udec_wrap",
    }.get(operation, operation)


@lowers(
    "atom",
    modifiers=f"relaxed acquire release acq_rel {SCOPES} noftz {_ATOMICS} {_SHAPES}",
    types=f"b16 {_TYPES}",
)
@lowers(
    "red",
    modifiers=f"relaxed release {SCOPES} noftz add min max and or xor inc dec {_SHAPES}",
    types=_TYPES,
)
def atomic(f: Lowering, i: Instruction) -> None:
    """``atom`` and ``red``."""
    returns = i.opcode == "atom"
    destination = i.operands[0] if returns else None
    arguments = i.operands[1:] if returns else i.operands
    operation = next(m for m in i.modifiers if m in _ATOMICS.split())
    refuse_more_operands(i, (3 if operation == "cas" else 2) + returns)
    if isinstance(arguments[1], Vector):
        atomic_vector(f, i, destination, arguments)
        return
    order = next((m for m in i.modifiers if m in {"acquire", "release", "acq_rel"}), "monotonic")
    kind = LLVM_TYPES[i.type]
    pointer = place(f, arguments[0], width(kind) // 8, ATOMIC, i)
    if operation == "cas":
        whole = f"i{width(kind)}"
        expected, new = f.read(arguments[1], whole), f.read(arguments[2], whole)
        failure = {"release": "monotonic", "acq_rel": "acquire"}.get(order, order)
        pair = f.value(
            f"cmpxchg ptr {pointer}, {whole} {expected}, {whole} {new} {order} {failure}"
        )
        old = f.value(f"extractvalue {{ {whole}, i1 }} {pair}, 0")
        f.write(destination, old, whole)
        return
    verb = atomic_verb(operation, i.type, i)
    value = f.read(arguments[1], kind)
    if i.type in {"f16", "bf16", "f16x2", "bf16x2"} and verb == "fadd":
        old = atomic_halves(f, pointer, value, "add", i.type, order)
    else:
        old = f.value(f"atomicrmw {verb} ptr {pointer}, {kind} {value} {order}")
    f.write(destination, old, kind, signed=i.type[0] == "s")


def atomic_vector(
    f: Lowering,
    i: Instruction,
    destination: Operand | None,
    arguments: tuple[Operand | None, ...],
) -> None:
    """``atom`` and ``red`` of vectors: each element is atomic by itself."""
    items, olds = items_of(arguments[1]), items_of(destination)
    kind = LLVM_TYPES[i.type]
    size = width(kind) // 8
    operation = next(m for m in i.modifiers if m in _ATOMICS.split())
    allowed = {"add"} if i.type == "f32" else {"add", "min", "max"}
    if operation not in allowed or i.type not in {"f32", "f16", "bf16", "f16x2", "bf16x2"}:
        i.unsupported()
    pointer = place(f, arguments[0], size * len(items), ATOMIC, i)
    for n, item in enumerate(items):
        at = f.value(f"getelementptr i8, ptr {pointer}, i64 {n * size}") if n else pointer
        value = f.read(item, kind)
        if i.type == "f32":
            old = f.value(f"atomicrmw fadd ptr {at}, float {value} monotonic")
        else:
            old = atomic_halves(f, at, value, operation, i.type, "monotonic")
        if destination is not None:
            f.write(olds[n], old, kind)


_HALF_OPERATIONS = {
    "add": "fadd float {}, {}",
    "min": "call float @llvm.minimumnum.f32(float {}, float {})",
    "max": "call float @llvm.maximumnum.f32(float {}, float {})",
}


def atomic_halves(
    f: Lowering, pointer: str, value: str, operation: str, ptx_type: str, order: str
) -> str:
    """Apply half-precision numbers: each element of a pair is atomic by itself."""
    if not ptx_type.endswith("x2"):
        return atomic_half(f, pointer, value, operation, ptx_type, order)
    parts = []
    for n in range(2):
        part = f.value(f"lshr i32 {value}, 16") if n else value
        at = f.value(f"getelementptr i8, ptr {pointer}, i64 2") if n else pointer
        part = f.value(f"trunc i32 {part} to i16")
        old = atomic_half(f, at, part, operation, ptx_type.removesuffix("x2"), order)
        parts.append(f.value(f"zext i16 {old} to i32"))
    high = f.value(f"shl i32 {parts[1]}, 16")
    return f.value(f"or i32 {parts[0]}, {high}")


def atomic_half(
    f: Lowering, pointer: str, value: str, operation: str, ptx_type: str, order: str
) -> str:
    """Change one half-precision number by compare-and-swap; what was there before."""
    addend = from_half(f, value, ptx_type)
    first, again, done = f.label(), f.label(), f.label()
    f.emit(f"br label %{first}")
    f.place(first)
    seen = f.value(f"load atomic i16, ptr {pointer} monotonic, align 2")
    f.emit(f"br label %{again}")
    f.place(again)
    failure = {"release": "monotonic", "acq_rel": "acquire"}.get(order, order)
    found = f"%{again}.found"
    old = f.value(f"phi i16 [ {seen}, %{first} ], [ {found}, %{again} ]")
    total = f.value(_HALF_OPERATIONS[operation].format(from_half(f, old, ptx_type), addend))
    new = to_half(f, total, ptx_type)
    pair = f.value(f"cmpxchg ptr {pointer}, i16 {old}, i16 {new} {order} {failure}")
    f.emit(f"{found} = extractvalue {{ i16, i1 }} {pair}, 0")
    good = f.value(f"extractvalue {{ i16, i1 }} {pair}, 1")
    f.emit(f"br i1 {good}, label %{done}, label %{again}")
    f.place(done)
    return old


@lowers("membar", modifiers="cta gl sys", types="")
@lowers(
    "fence",
    modifiers=f"{SCOPES} sc acq_rel acquire release proxy async alias mbarrier_init global "
    "shared::cta",
    types="",
)
def fence(f: Lowering, i: Instruction) -> None:
    """``membar`` and ``fence``; a block's threads share one host thread."""
    scope = 'syncscope("singlethread") ' if "cta" in i.modifiers else ""
    f.emit(f"fence {scope}seq_cst")
    if f.unit.watched:
        f.unit.declare("fl_watch_fence", "declare void {}(ptr, i32) nounwind")
        f.emit("call void @fl_watch_fence(ptr %ctx, i32 %flat)")
