# SPDX-License-Identifier: Apache-2.0
"""Addresses of all state spaces as pointers, each access with its check."""

from __future__ import annotations

from flambeau.driver.virtual.ptx.lowering import Lowering, Phase
from flambeau.driver.virtual.ptx.syntax import (
    Address,
    Instruction,
    Operand,
    Symbol,
    Vector,
)

__all__ = [
    "ATOMIC",
    "CACHE_HINTS",
    "MEMORY_TYPES",
    "PREFETCHES",
    "READ",
    "SCOPES",
    "SPACES",
    "WRITE",
    "checked_pointer",
    "items_of",
    "place",
    "pointer_at",
    "refuse_more_operands",
    "space_of",
    "watch",
]

READ, WRITE, ATOMIC = 0, 1, 2
READS, WRITES, STRONG, SHARED, ORDERS = 1, 2, 4, 8, 16  # as WatchedAccess has them
SPACES = {
    "global": "global",
    "shared": "shared",
    "shared::cta": "shared",
    "local": "local",
    "param": "param",
    "param::entry": "param",
    "param::func": "param",
    "const": "global",
}
SCOPES = "cta cluster gpu sys"
_STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"})
_ORDERING = frozenset({"acquire", "release", "acq_rel"})
CACHE_HINTS = """L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last
    L1::no_allocate L2::cache_hint"""
MEMORY_TYPES = """b8 u8 s8 b16 u16 s16 b32 u32 s32 f32 b64 u64 s64 f64"""
PREFETCHES = "L2::64B L2::128B L2::256B"


def space_of(instruction: Instruction) -> str:
    """The state space that an instruction names, or ``"generic"``."""
    for modifier in instruction.modifiers:
        if modifier in SPACES:
            return SPACES[modifier]
    return "generic"


def checked_pointer(
    f: Lowering, operand: Operand | None, space: str, size: int, access: int, i: Instruction
) -> str:
    """A pointer to `size` bytes that were found good to access."""
    return pointer_at(f, f.address(operand, i), space, size, access, i)


def pointer_at(
    f: Lowering, address: str, space: str, size: int, access: int, i: Instruction
) -> str:
    """A pointer for an address in a space, after its check."""
    if space in {"shared", "local"}:
        pointer = offset_pointer(f, address, space, size, access, i)
    else:
        check_address(f, address, size, access, i)
        pointer = absolute_pointer(f, address)
    if f.unit.watched and space != "local":
        watch(f, pointer, space, size, access, i)
    return pointer


def absolute_pointer(f: Lowering, address: str) -> str:
    """An address as a pointer, where loops are to be understood as an offset from null."""
    if f.phase is Phase.TRUSTED:
        return f.value(f"getelementptr i8, ptr {f.context_pointer('origin')}, i64 {address}")
    return f.value(f"inttoptr i64 {address} to ptr")


def watch(f: Lowering, pointer: str, space: str, size: int, access: int, i: Instruction) -> None:
    """Tell the watcher of an access; calls of the heap order what is around them."""
    flags = {READ: READS, WRITE: WRITES, ATOMIC: READS | WRITES | STRONG}[access]
    if not _STRONG.isdisjoint(i.modifiers):
        flags |= STRONG
    if not _ORDERING.isdisjoint(i.modifiers) or i.opcode in {"mbarrier", "call"}:
        flags |= ORDERS
    if space == "shared":
        flags |= SHARED
    f.unit.declare("fl_watch", "declare void {}(ptr, i32, i64, i32, i32) nounwind")
    address = f.value(f"ptrtoint ptr {pointer} to i64")
    site = f.unit.site(access, size, i)
    f.emit(f"call void @fl_watch(ptr %ctx, i32 %flat, i64 {address}, i32 {site}, i32 {flags})")


def check_address(f: Lowering, address: str, size: int, access: int, i: Instruction) -> None:
    """Check a generic address: against the range that this site touched last, then in full."""
    if f.phase is Phase.TRUSTED:
        return
    f.record(address)
    site = f.unit.site(access, size, i)
    sites = f.context_pointer("sites")
    entry = f.value(f"getelementptr i8, ptr {sites}, i64 {16 * site}")
    begin = f.value(f"load i64, ptr {entry}")
    second = f.value(f"getelementptr i8, ptr {entry}, i64 8")
    span = f.value(f"load i64, ptr {second}")
    distance = f.value(f"sub i64 {address}, {begin}")
    good = f.value(f"icmp ult i64 {in_units(f, distance, size)}, {span}")
    f.fault_unless(good, lambda: full_check(f, address, site))


def full_check(f: Lowering, address: str, site: int) -> str:
    """Look an address up in the memory map: whether the access is good."""
    f.unit.declare("fl_check", "declare i32 {}(ptr, i32, i64, i64, i32) cold nounwind")
    status = f.call(
        "i32",
        "fl_check",
        "ptr %ctx",
        "i32 %flat",
        "i64 %lbase",
        f"i64 {address}",
        f"i32 {site}",
    )
    return f.value(f"icmp eq i32 {status}, 0")


def kernel_parameter(
    f: Lowering, operand: Operand | None, size: int, access: int, i: Instruction
) -> str:
    """A pointer for a computed address among a kernel's parameters.

    The compiler computes one for every structure passed by value, and the parameters are in no
    memory map, so they have a comparison of their own.
    """
    address = f.address(operand, i)
    start = f.value(f"ptrtoint ptr {f.context_pointer('parameters')} to i64")
    distance = f.value(f"sub i64 {address}, {start}")
    last = max((v.offset + v.size for v in f.function.parameters), default=0) - size
    good = f.value(f"icmp ule i64 {distance}, {last}") if last >= 0 else "false"
    site = f.unit.site(access, size, i)
    f.record(address)
    f.fault_unless(good, lambda: full_check(f, address, site))
    if f.phase is Phase.SURVEY:  # which goes on with a bad address
        address = f.value(f"select i1 {good}, i64 {address}, i64 {start}")
    return absolute_pointer(f, address)


def in_units(f: Lowering, offset: str, size: int) -> str:
    """An offset divided by the access size; huge where it is not a multiple.

    The rotation moves the low bits, which must be zero, to the top, so that one comparison
    answers for bounds and alignment.
    """
    if size == 1:
        return offset
    shift = size.bit_length() - 1
    return f.call("i64", "llvm.fshr.i64", f"i64 {offset}", f"i64 {offset}", f"i64 {shift}")


def offset_pointer(
    f: Lowering, offset: str, space: str, size: int, access: int, i: Instruction
) -> str:
    """A pointer into shared or local memory, checked against its bounds."""
    is_shared = space == "shared"
    if not (is_shared and known_inside(f, offset, size)):
        limit = f.context("shared_size" if is_shared else "local_limit", "i64")
        span = f.value(f"lshr i64 {limit}, {size.bit_length() - 1}")
        good = f.value(f"icmp ult i64 {in_units(f, offset, size)}, {span}")
        site = f.unit.site(access, size, i)

        def slow() -> None:
            f.unit.declare(
                "fl_fault_offset", "declare void {}(ptr, i32, i64, i32, i32) cold nounwind"
            )
            f.emit(
                f"call void @fl_fault_offset(ptr %ctx, i32 %flat, i64 {offset}, i32 {site}, "
                f"i32 {int(is_shared)})"
            )

        f.fault_unless(good, slow)
    if is_shared:
        base = f.context_pointer("shared")
        return f.value(f"getelementptr i8, ptr {base}, i64 {offset}")
    address = f.value(f"add i64 %lbase, {offset}")
    return f.value(f"inttoptr i64 {address} to ptr")


def known_inside(f: Lowering, offset: str, size: int) -> bool:
    """Whether a constant offset lies in the kernel's own shared variables."""
    if not offset.isdigit():
        return False
    return int(offset) % size == 0 and int(offset) + size <= f.unit.static_shared


def parameter_place(f: Lowering, operand: Operand | None, size: int, i: Instruction) -> str | None:
    """A pointer to a named parameter; None if the address is computed."""
    if not isinstance(operand, Address) or not isinstance(operand.base, Symbol):
        return None
    name, offset = operand.base.name, operand.base.offset + operand.offset
    if name in f.function.variables:
        variable = f.function.variables[name]
        pointer = f'%"{name}"'
    else:
        known = [v for v in (*f.function.parameters, *f.function.results) if v.name == name]
        if not known:
            return None
        variable = known[0]
        pointer = f.parameter_pointer(name)
    if offset < 0 or offset + size > variable.size:
        i.unsupported("the access lies outside the parameter")
    return f.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")


def place(f: Lowering, operand: Operand | None, size: int, access: int, i: Instruction) -> str:
    """The pointer for a load, store or atomic."""
    space = space_of(i)
    if space == "param":
        pointer = parameter_place(f, operand, size, i)
        if pointer is not None:
            return pointer
        if f.function.is_entry:
            return kernel_parameter(f, operand, size, access, i)
        space = "generic"
    return checked_pointer(f, operand, space, size, access, i)


def refuse_more_operands(i: Instruction, count: int) -> None:
    """Check the number of operands; behind them a cache policy may stand."""
    if len(i.operands) != count + ("L2::cache_hint" in i.modifiers):
        i.unsupported("this number of operands")


def items_of(operand: Operand | None) -> tuple[Operand | None, ...]:
    """The elements of a vector operand, or the operand alone."""
    return operand.items if isinstance(operand, Vector) else (operand,)
