# SPDX-License-Identifier: Apache-2.0
"""Loads, stores, atomics and address arithmetic, each access with its check."""

from __future__ import annotations

from flambeau.driver.virtual.ptx.lowering import LLVM_TYPES, Lowering, Phase, lowers, width
from flambeau.driver.virtual.ptx.rounding import from_half, to_half
from flambeau.driver.virtual.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Symbol,
    Vector,
)

__all__ = ["READ", "WRITE", "checked_pointer", "items_of", "pointer_at", "space_of"]

READ, WRITE, ATOMIC = 0, 1, 2
READS, WRITES, STRONG, SHARED, ORDERS = 1, 2, 4, 8, 16  # as WatchedAccess has them
_SPACES = {
    "global": "global",
    "shared": "shared",
    "shared::cta": "shared",
    "local": "local",
    "param": "param",
    "param::entry": "param",
    "param::func": "param",
    "const": "global",
}
_SCOPES = "cta cluster gpu sys"
_STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"})
_ORDERING = frozenset({"acquire", "release", "acq_rel"})
_CACHE = """ca cg cs lu cv wb wt nc L1::evict_normal L1::evict_unchanged L1::evict_first
    L1::evict_last L1::no_allocate L2::64B L2::128B L2::256B L2::cache_hint"""


def space_of(instruction: Instruction) -> str:
    """The state space that an instruction names, or ``"generic"``."""
    for modifier in instruction.modifiers:
        if modifier in _SPACES:
            return _SPACES[modifier]
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
    """Tell the watcher of an access."""
    flags = {READ: READS, WRITE: WRITES, ATOMIC: READS | WRITES | STRONG}[access]
    if not _STRONG.isdisjoint(i.modifiers):
        flags |= STRONG
    if not _ORDERING.isdisjoint(i.modifiers) or i.opcode == "mbarrier":
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


def is_argument(f: Lowering, i: Instruction) -> bool:
    """Whether a load reads an argument of the kernel, which nothing changes."""
    if space_of(i) != "param" or not f.function.is_entry:
        return False
    base = i.operands[1].base if isinstance(i.operands[1], Address) else None
    return not isinstance(base, Symbol) or base.name in f.parameter_names


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


def ordering(i: Instruction, strong: str) -> tuple[str, str]:
    """What stands around the LLVM access: ``volatile`` or ``atomic``, and the ordering."""
    if strong in i.modifiers:
        return "atomic ", f" {strong}"
    if "relaxed" in i.modifiers or "mmio" in i.modifiers:
        return "atomic volatile ", " monotonic"
    return ("volatile ", "") if "volatile" in i.modifiers else ("", "")


def refuse_more_operands(i: Instruction, count: int) -> None:
    """Check the number of operands; behind them a cache policy may stand."""
    if len(i.operands) != count + ("L2::cache_hint" in i.modifiers):
        i.unsupported("this number of operands")


def items_of(operand: Operand | None) -> tuple[Operand | None, ...]:
    """The elements of a vector operand, or the operand alone."""
    return operand.items if isinstance(operand, Vector) else (operand,)


@lowers(
    "ld ldu",
    modifiers=f"weak volatile relaxed acquire mmio {_SCOPES} v2 v4 {_CACHE} {' '.join(_SPACES)}",
)
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
    modifiers=f"weak volatile relaxed release mmio {_SCOPES} v2 v4 {_CACHE} {' '.join(_SPACES)}",
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
    "atom red",
    modifiers=f"relaxed acquire release acq_rel {_SCOPES} noftz {_ATOMICS} v2 v4 v8 L2::cache_hint "
    f"{' '.join(_SPACES)}",
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
        old = atomic_halves(f, pointer, value, i.type, order)
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
    if "add" not in i.modifiers or i.type not in {"f32", "f16", "bf16", "f16x2", "bf16x2"}:
        i.unsupported()
    pointer = place(f, arguments[0], size * len(items), ATOMIC, i)
    for n, item in enumerate(items):
        at = f.value(f"getelementptr i8, ptr {pointer}, i64 {n * size}") if n else pointer
        value = f.read(item, kind)
        if i.type == "f32":
            old = f.value(f"atomicrmw fadd ptr {at}, float {value} monotonic")
        else:
            old = atomic_halves(f, at, value, i.type, "monotonic")
        if destination is not None:
            f.write(olds[n], old, kind)


def atomic_halves(f: Lowering, pointer: str, value: str, ptx_type: str, order: str) -> str:
    """Add half-precision numbers: each element of a pair is atomic by itself."""
    if not ptx_type.endswith("x2"):
        return atomic_half(f, pointer, value, ptx_type, order)
    parts = []
    for n in range(2):
        part = f.value(f"lshr i32 {value}, 16") if n else value
        at = f.value(f"getelementptr i8, ptr {pointer}, i64 2") if n else pointer
        part = f.value(f"trunc i32 {part} to i16")
        old = atomic_half(f, at, part, ptx_type.removesuffix("x2"), order)
        parts.append(f.value(f"zext i16 {old} to i32"))
    high = f.value(f"shl i32 {parts[1]}, 16")
    return f.value(f"or i32 {parts[0]}, {high}")


def atomic_half(f: Lowering, pointer: str, value: str, ptx_type: str, order: str) -> str:
    """Add one half-precision number by compare-and-swap; what was there before."""
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
    total = f.value(f"fadd float {from_half(f, old, ptx_type)}, {addend}")
    new = to_half(f, total, ptx_type)
    pair = f.value(f"cmpxchg ptr {pointer}, i16 {old}, i16 {new} {order} {failure}")
    f.emit(f"{found} = extractvalue {{ i16, i1 }} {pair}, 0")
    good = f.value(f"extractvalue {{ i16, i1 }} {pair}, 1")
    f.emit(f"br i1 {good}, label %{done}, label %{again}")
    f.place(done)
    return old


@lowers("cvta", modifiers=f"to {' '.join(_SPACES)}", types="u64")
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


@lowers("isspacep", modifiers=" ".join(_SPACES))
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


@lowers("prefetch prefetchu", modifiers="global local L1 L2 L2::evict_last L2::evict_normal")
def prefetch(_f: Lowering, _i: Instruction) -> None:
    """``prefetch``: nothing to do."""


@lowers(
    "membar fence",
    modifiers=f"gl {_SCOPES} sc acq_rel acquire release proxy async alias mbarrier_init global "
    "shared::cta",
)
def fence(f: Lowering, i: Instruction) -> None:
    """``membar`` and ``fence``; a block's threads share one host thread."""
    scope = 'syncscope("singlethread") ' if "cta" in i.modifiers else ""
    f.emit(f"fence {scope}seq_cst")
    if f.unit.watched:
        f.unit.declare("fl_watch_fence", "declare void {}(ptr, i32) nounwind")
        f.emit("call void @fl_watch_fence(ptr %ctx, i32 %flat)")


@lowers(
    "cp",
    modifiers=f"async commit_group wait_group wait_all {_CACHE} {' '.join(_SPACES)}",
)
def copy_async(f: Lowering, i: Instruction) -> None:
    """``cp.async``: the copy happens at once, so that groups have nothing to wait for."""
    if "async" not in i.modifiers:
        i.unsupported()
    if not {"commit_group", "wait_group", "wait_all"}.isdisjoint(i.modifiers):
        return
    size = i.operands[2]
    if len(i.operands) > 4 or not isinstance(size, Immediate) or size.value not in {4, 8, 16}:
        i.unsupported("this form of copy")
    count = size.value
    target = checked_pointer(f, i.operands[0], "shared", count, WRITE, i)
    f.emit(f"store i{8 * count} 0, ptr {target}, align {count}")
    if len(i.operands) == 4:
        wanted = f.read(i.operands[3], "i32")
        whole = f.value(f"icmp eq i32 {wanted}, {count}")
        none = f.value(f"icmp eq i32 {wanted}, 0")
        known = f.value(f"or i1 {whole}, {none}")
        site = f.unit.site(3, 0, i)

        def slow() -> None:
            f.unit.declare("fl_trap", "declare void {}(ptr, i32, i32) cold nounwind")
            f.emit(f"call void @fl_trap(ptr %ctx, i32 %flat, i32 {site})")

        f.fault_unless(known, slow)
        run, skip = f.label(), f.label()
        f.emit(f"br i1 {whole}, label %{run}, label %{skip}")
        f.place(run)
    source = checked_pointer(f, i.operands[1], "global", count, READ, i)
    value = f.value(f"load i{8 * count}, ptr {source}, align {count}")
    f.emit(f"store i{8 * count} {value}, ptr {target}, align {count}")
    if len(i.operands) == 4:
        f.emit(f"br label %{skip}")
        f.place(skip)
