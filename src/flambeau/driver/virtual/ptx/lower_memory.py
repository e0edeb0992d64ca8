# SPDX-License-Identifier: Apache-2.0
"""Loads, stores, copies, and conversions of addresses."""

from __future__ import annotations

from flambeau.driver.virtual.ptx.addressing import (
    CACHE_HINTS,
    MEMORY_TYPES,
    PREFETCHES,
    READ,
    SCOPES,
    SPACES,
    WRITE,
    checked_pointer,
    items_of,
    place,
    pointer_at,
    refuse_more_operands,
    space_of,
)
from flambeau.driver.virtual.ptx.lower_mbarrier import arrive_after_copies
from flambeau.driver.virtual.ptx.lowering import LLVM_TYPES, Lowering, Phase, lowers, width
from flambeau.driver.virtual.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Symbol,
)

__all__: list[str] = []


def is_argument(f: Lowering, i: Instruction) -> bool:
    """Whether a load reads an argument of the kernel, which nothing changes."""
    if space_of(i) != "param" or not f.function.is_entry:
        return False
    base = i.operands[1].base if isinstance(i.operands[1], Address) else None
    return not isinstance(base, Symbol) or base.name in f.parameter_names


def ordering(i: Instruction, strong: str) -> tuple[str, str]:
    """What stands around the LLVM access: ``volatile`` or ``atomic``, and the ordering."""
    if strong in i.modifiers:
        return "atomic ", f" {strong}"
    if "relaxed" in i.modifiers or "mmio" in i.modifiers:
        return "atomic volatile ", " monotonic"
    return ("volatile ", "") if "volatile" in i.modifiers else ("", "")


@lowers(
    "ld",
    modifiers=f"weak volatile relaxed acquire mmio {SCOPES} v2 v4 ca cg cs lu cv nc {CACHE_HINTS} "
    f"{PREFETCHES} {' '.join(SPACES)}",
    types=f"{MEMORY_TYPES} b128",
)
@lowers("ldu", modifiers="global v2 v4", types=MEMORY_TYPES)
def load(f: Lowering, i: Instruction) -> None:
    """``ld``: one check for all elements of a vector."""
    refuse_more_operands(i, 2)
    kind = LLVM_TYPES[i.type]
    items = items_of(i.operands[0])
    size = width(kind) // 8
    pointer = place(f, i.operands[1], size * len(items), READ, i)
    fixed = is_argument(f, i)
    if f.phase is Phase.SURVEY and not fixed:
        return
    tags = f.tags(invariant=fixed)
    signed = i.type[0] == "s"
    alignment = 1 if space_of(i) == "param" else size
    before, after = ordering(i, "acquire")
    if before or len(items) == 1 or f.splits:
        for n, item in enumerate(items):
            at = f.value(f"getelementptr i8, ptr {pointer}, i64 {n * size}") if n else pointer
            whole = f"i{width(kind)}"
            value = f.value(f"load {before}{whole}, ptr {at}{after}, align {alignment}{tags}")
            f.write(item, f.convert(value, whole, kind), kind, signed=signed)
        return
    wide = f"<{len(items)} x {kind}>"
    alignment *= len(items) if alignment > 1 else 1
    vector = f.value(f"load {wide}, ptr {pointer}, align {alignment}{tags}")
    for n, item in enumerate(items):
        if item is not None:
            value = f.value(f"extractelement {wide} {vector}, i32 {n}")
            f.write(item, value, kind, signed=signed)


@lowers(
    "st",
    modifiers=f"weak volatile relaxed release mmio {SCOPES} v2 v4 wb cg cs wt {CACHE_HINTS} "
    "global shared shared::cta local param param::func",
    types=f"{MEMORY_TYPES} b128",
)
def store(f: Lowering, i: Instruction) -> None:
    """``st``."""
    refuse_more_operands(i, 2)
    kind = LLVM_TYPES[i.type]
    items = items_of(i.operands[1])
    size = width(kind) // 8
    pointer = place(f, i.operands[0], size * len(items), WRITE, i)
    if f.phase is Phase.SURVEY:
        return
    alignment = 1 if space_of(i) == "param" else size
    before, after = ordering(i, "release")
    if before or len(items) == 1 or f.splits:
        whole = f"i{width(kind)}"
        for n, item in enumerate(items):
            at = f.value(f"getelementptr i8, ptr {pointer}, i64 {n * size}") if n else pointer
            value = f.read(item, whole)
            f.emit(f"store {before}{whole} {value}, ptr {at}{after}, align {alignment}{f.tags()}")
        return
    wide = f"<{len(items)} x {kind}>"
    vector = "poison"
    for n, item in enumerate(items):
        element = f.read(item, kind)
        vector = f.value(f"insertelement {wide} {vector}, {kind} {element}, i32 {n}")
    alignment *= len(items) if alignment > 1 else 1
    f.emit(f"store {wide} {vector}, ptr {pointer}, align {alignment}{f.tags()}")


@lowers(
    "cvta",
    modifiers="to global shared shared::cta local const param param::entry",
    types="u64",
)
def convert_address(f: Lowering, i: Instruction) -> None:
    """``cvta``: shared and local offsets to generic addresses and back."""
    value = f.read(i.operands[1], "i64")
    space = space_of(i)
    if space in {"shared", "local"}:
        base = "%lbase"
        if space == "shared":
            base = f.value(f"ptrtoint ptr {f.context_pointer('shared')} to i64")
        value = f.value(f"{'sub' if 'to' in i.modifiers else 'add'} i64 {value}, {base}")
    f.write(i.operands[0], value, "i64")


@lowers("isspacep", modifiers="global shared shared::cta local", types="")
def is_space(f: Lowering, i: Instruction) -> None:
    """``isspacep``: which window a generic address lies in."""
    address = f.read(i.operands[1], "i64")
    shared = f.value(f"ptrtoint ptr {f.context_pointer('shared')} to i64")
    inside = []
    for base, limit in ((shared, "shared_size"), ("%lbase", "local_limit")):
        distance = f.value(f"sub i64 {address}, {base}")
        inside.append(f.value(f"icmp ult i64 {distance}, {f.context(limit, 'i64')}"))
    space = space_of(i)
    if space in {"shared", "local"}:
        f.write(i.operands[0], inside[space == "local"], "i1")
    elif space == "global" and "const" not in i.modifiers:
        either = f.value(f"or i1 {inside[0]}, {inside[1]}")
        f.write(i.operands[0], f.value(f"xor i1 {either}, true"), "i1")
    else:
        i.unsupported()


@lowers("prefetch", modifiers="global local L1 L2 L2::evict_last L2::evict_normal", types="")
@lowers("prefetchu", modifiers="L1", types="")
def prefetch(_f: Lowering, _i: Instruction) -> None:
    """``prefetch``: nothing to do."""


@lowers(
    "cp",
    modifiers="async commit_group wait_group wait_all mbarrier arrive noinc ca cg L2::cache_hint "
    f"{PREFETCHES} shared shared::cta global",
    types="b64",
)
def copy_async(f: Lowering, i: Instruction) -> None:
    """``cp.async``: the copy happens at once, so that groups have nothing to wait for."""
    if "async" not in i.modifiers:
        i.unsupported()
    if not {"commit_group", "wait_group", "wait_all"}.isdisjoint(i.modifiers):
        return
    if "mbarrier" in i.modifiers:
        arrive_after_copies(f, i)
        return
    size = i.operands[2]
    operands = i.operands[: -1 if "L2::cache_hint" in i.modifiers else None]
    sizes = {16} if "cg" in i.modifiers else {4, 8, 16}
    if len(operands) > 4 or not isinstance(size, Immediate) or size.value not in sizes:
        i.unsupported("this form of copy")
    count = size.value
    target = checked_pointer(f, operands[0], "shared", count, WRITE, i)
    f.emit(f"store i{8 * count} 0, ptr {target}, align {count}")
    done = f.label()
    if len(operands) == 4:
        copy_part(f, i, target, count, done)
    source = checked_pointer(f, operands[1], "global", count, READ, i)
    value = f.value(f"load i{8 * count}, ptr {source}, align {count}")
    f.emit(f"store i{8 * count} {value}, ptr {target}, align {count}")
    f.emit(f"br label %{done}")
    f.place(done)


def source_size(f: Lowering, operand: Operand | None, count: int) -> str:
    """How many bytes to read: as said, or none where a predicate says to ignore the source."""
    register = operand.register if isinstance(operand, Negated) else operand
    if isinstance(register, Register) and f.function.registers[register.name] == "pred":
        return f.value(f"select i1 {f.read(operand, 'i1')}, i32 0, i32 {count}")
    return f.read(operand, "i32")


def copy_part(f: Lowering, i: Instruction, target: str, count: int, done: str) -> None:
    """Copy fewer bytes than there is room for and go to `done`; go on here for all of them."""
    wanted = source_size(f, i.operands[3], count)
    known = f.value(f"icmp ule i32 {wanted}, {count}")
    site = f.unit.site(3, 0, i)

    def slow() -> None:
        f.unit.declare("fl_trap", "declare void {}(ptr, i32, i32) cold nounwind")
        f.emit(f"call void @fl_trap(ptr %ctx, i32 %flat, i32 {site})")

    f.fault_unless(known, slow)
    part, some, again, whole = (f.label() for _ in range(4))
    all_of_it = f.value(f"icmp eq i32 {wanted}, {count}")
    f.emit(f"br i1 {all_of_it}, label %{whole}, label %{part}")
    f.place(part)
    none = f.value(f"icmp eq i32 {wanted}, 0")
    f.emit(f"br i1 {none}, label %{done}, label %{some}")
    f.place(some)
    first = f.address(i.operands[1], i)
    size = f.value(f"zext i32 {wanted} to i64")
    last = f.value(f"add i64 {first}, {f.value(f'sub i64 {size}, 1')}")
    source = pointer_at(f, first, "global", 1, READ, i)
    pointer_at(f, last, "global", 1, READ, i)
    start = f.label()
    f.emit(f"br label %{start}")
    f.place(start)
    f.emit(f"br label %{again}")
    f.place(again)
    following = f"%{again}.next"
    at = f.value(f"phi i64 [ 0, %{start} ], [ {following}, %{again} ]")
    byte = f.value(f"load i8, ptr {f.value(f'getelementptr i8, ptr {source}, i64 {at}')}")
    f.emit(f"store i8 {byte}, ptr {f.value(f'getelementptr i8, ptr {target}, i64 {at}')}")
    f.emit(f"{following} = add i64 {at}, 1")
    f.emit(f"br i1 {f.value(f'icmp eq i64 {following}, {size}')}, label %{done}, label %{again}")
    f.place(whole)
