# SPDX-License-Identifier: Apache-2.0
"""Moves, comparisons, selections, calls, traps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx.addressing import ATOMIC, watch
from flambeau.driver.virtual.ptx.lower_half import flush_half
from flambeau.driver.virtual.ptx.lowering import LLVM_TYPES, Lowering, lowers, width
from flambeau.driver.virtual.ptx.rounding import flush, from_half, to_half
from flambeau.driver.virtual.ptx.syntax import (
    Instruction,
    Operand,
    Pair,
    Register,
    Symbol,
    Variable,
    Vector,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from flambeau.driver.virtual.ptx.syntax import Function

__all__ = ["THREAD_ARGUMENTS", "THREAD_PARAMETERS", "candidates", "lower_call"]

TRAP, ASSERTION, CALL = 3, 4, 5
HEAP, HEAP_BYTES = "malloc.heap", 8 << 20  # the name is none that PTX can write
_THREAD = "ptr %ctx, ptr %frame, i32 %tx, i32 %ty, i32 %tz, i32 %flat, i32 %cx, i32 %cy, i32 %cz"
THREAD_PARAMETERS = f"{_THREAD}, i64 %lbase, i64 %loff".replace("ptr %ctx", "ptr noalias %ctx")
THREAD_ARGUMENTS = f"{_THREAD}, i64 %lbase"


_SCALARS = "b16 u16 s16 b32 u32 s32 b64 u64 s64 f32 f64"


@lowers("mov", types=f"pred b128 {_SCALARS}")
def move(f: Lowering, i: Instruction) -> None:
    """``mov``, and packing and unpacking of vectors."""
    target, source = i.operands
    kind = LLVM_TYPES[i.type]
    if isinstance(target, Vector):
        unpack(f, target, f.read(source, f"i{width(kind)}"), width(kind))
    elif isinstance(source, Vector):
        f.write(target, pack_vector(f, source, width(kind)), f"i{width(kind)}")
    else:
        f.write(target, f.read(source, kind), kind)


def part_width(bits: int, vector: Vector) -> int:
    """The bits of one element."""
    part = bits // len(vector.items)
    if part * len(vector.items) != bits or part not in {8, 16, 32, 64}:
        raise ValueError(f"{bits} bits do not split into {len(vector.items)} registers")
    return part


def unpack(f: Lowering, target: Vector, value: str, bits: int) -> None:
    """Split a value into registers, the low bits first."""
    part = part_width(bits, target)
    for n, item in enumerate(target.items):
        if item is not None:
            moved = f.value(f"lshr i{bits} {value}, {n * part}") if n else value
            f.write(item, f.value(f"trunc i{bits} {moved} to i{part}"), f"i{part}")


def pack_vector(f: Lowering, source: Vector, bits: int) -> str:
    """Join registers into a value, the low bits first."""
    part = part_width(bits, source)
    total = "0"
    for n, item in enumerate(source.items):
        wide = f.value(f"zext i{part} {f.read(item, f'i{part}')} to i{bits}")
        moved = f.value(f"shl i{bits} {wide}, {n * part}") if n else wide
        total = f.value(f"or i{bits} {total}, {moved}")
    return total


_HALVES = "f16 bf16 f16x2 bf16x2"
_FLOAT_TESTS = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge",
    "num": "ord", "nan": "uno",
}  # fmt: skip
_INTEGER_TESTS = {
    "eq": "eq", "ne": "ne", "lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge",
}  # fmt: skip
_TESTS = " ".join({**_FLOAT_TESTS, **_INTEGER_TESTS})


def test_of(i: Instruction) -> str:
    """The comparison that an instruction names."""
    return next(m for m in i.modifiers if m in _FLOAT_TESTS or m in _INTEGER_TESTS)


def compare(f: Lowering, i: Instruction, a: Operand | None, b: Operand | None, kind: str) -> str:
    """An i1 that says whether the comparison holds for values of a PTX type."""
    test = test_of(i)
    if kind in {"f16", "bf16", "f32", "f64"}:
        if test not in _FLOAT_TESTS:
            i.unsupported()
        if kind in {"f16", "bf16"}:
            x, y = (from_half(f, f.read(operand, "i16"), kind) for operand in (a, b))
            if "ftz" in i.modifiers:
                x, y = flush_half(f, x, i, kind), flush_half(f, y, i, kind)
            return f.value(f"fcmp {_FLOAT_TESTS[test]} float {x}, {y}")
        llvm = LLVM_TYPES[kind]
        x, y = f.read(a, llvm), f.read(b, llvm)
        if "ftz" in i.modifiers and kind == "f32":
            x, y = flush(f, x), flush(f, y)
        return f.value(f"fcmp {_FLOAT_TESTS[test]} {llvm} {x}, {y}")
    llvm = LLVM_TYPES[kind]
    x, y = f.read(a, llvm), f.read(b, llvm)
    if test in {"lt", "le", "gt", "ge"}:
        verb = ("s" if kind[0] == "s" else "u") + test
    elif test in _INTEGER_TESTS:
        verb = _INTEGER_TESTS[test]
    else:
        i.unsupported()
    return f.value(f"icmp {verb} {llvm} {x}, {y}")


@lowers("setp", modifiers=f"{_TESTS} and or xor ftz", types=f"{_SCALARS} {_HALVES}")
def set_predicate(f: Lowering, i: Instruction) -> None:
    """``setp``, combined with another predicate or not."""
    if i.type in {"f16x2", "bf16x2"}:
        set_predicate_pair(f, i)
        return
    good = compare(f, i, i.operands[1], i.operands[2], i.type)
    target = i.operands[0]
    pair = isinstance(target, Pair)
    opposite = f.value(f"xor i1 {good}, true") if pair else ""
    combine = next((m for m in i.modifiers if m in {"and", "or", "xor"}), None)
    if combine:
        other = f.read(i.operands[3], "i1")
        good = f.value(f"{combine} i1 {good}, {other}")
        if pair:
            opposite = f.value(f"{combine} i1 {opposite}, {other}")
    if isinstance(target, Pair):
        f.write(target.first, good, "i1")
        f.write(target.second, opposite, "i1")
    else:
        f.write(target, good, "i1")


def halves_compared(f: Lowering, i: Instruction) -> list[str]:
    """The comparison of both numbers of a pair."""
    kind = i.type.removesuffix("x2")
    results = []
    for shift in (0, 16):
        values = []
        for operand in i.operands[1:3]:
            word = f.value(f"lshr i32 {f.read(operand, 'i32')}, {shift}")
            value = from_half(f, f.value(f"trunc i32 {word} to i16"), kind)
            values.append(flush_half(f, value, i, kind) if "ftz" in i.modifiers else value)
        results.append(f.value(f"fcmp {_FLOAT_TESTS[test_of(i)]} float {values[0]}, {values[1]}"))
    return results


def set_predicate_pair(f: Lowering, i: Instruction) -> None:
    """``setp`` on pairs of halves sets one predicate for each."""
    if not isinstance(i.operands[0], Pair) or len(i.operands) != 3:
        i.unsupported()
    low, high = halves_compared(f, i)
    f.write(i.operands[0].first, low, "i1")
    f.write(i.operands[0].second, high, "i1")


@lowers("set", modifiers=f"{_TESTS} ftz", types=f"{_SCALARS} {_HALVES}")
def set_value(f: Lowering, i: Instruction) -> None:
    """``set``: all ones or 1.0 where the comparison holds."""
    types = [m for m in i.modifiers if m in LLVM_TYPES]
    if len(types) != 2 or len(i.operands) != 3:
        i.unsupported()
    target, source = types
    if source in {"f16x2", "bf16x2"}:
        parts = [set_half(f, good, target) for good in halves_compared(f, i)]
        low, high = (f.value(f"zext i16 {part} to i32") for part in parts)
        f.write(i.operands[0], f.value(f"or i32 {f.value(f'shl i32 {high}, 16')}, {low}"), "i32")
        return
    good = compare(f, i, i.operands[1], i.operands[2], source)
    if target in {"f16", "bf16"}:
        f.write(i.operands[0], set_half(f, good, target), "i16")
    elif target == "f32":
        f.write(i.operands[0], f.value(f"uitofp i1 {good} to float"), "float")
    else:
        kind = LLVM_TYPES[target]
        f.write(i.operands[0], f.value(f"sext i1 {good} to {kind}"), kind)


def set_half(f: Lowering, good: str, target: str) -> str:
    """1.0 or 0.0 in half precision, or all ones or 0, as i16."""
    if target[0] in "us":
        return f.value(f"sext i1 {good} to i16")
    return to_half(f, f.value(f"uitofp i1 {good} to float"), target.removesuffix("x2"))


@lowers("selp", types=_SCALARS)
def select(f: Lowering, i: Instruction) -> None:
    """``selp``."""
    kind = LLVM_TYPES[i.type]
    a, b = f.read(i.operands[1], kind), f.read(i.operands[2], kind)
    chosen = f.read(i.operands[3], "i1")
    f.write(i.operands[0], f.value(f"select i1 {chosen}, {kind} {a}, {kind} {b}"), kind)


@lowers("slct", modifiers="ftz", types=_SCALARS)
def select_by_sign(f: Lowering, i: Instruction) -> None:
    """``slct``: the first where the third is not negative."""
    kind = LLVM_TYPES[next(m for m in i.modifiers if m in LLVM_TYPES)]
    a, b = f.read(i.operands[1], kind), f.read(i.operands[2], kind)
    if i.type == "f32":
        value = f.read(i.operands[3], "float")
        value = flush(f, value) if "ftz" in i.modifiers else value
        chosen = f.value(f"fcmp oge float {value}, 0.0")
    else:
        chosen = f.value(f"icmp sge i32 {f.read(i.operands[3], 'i32')}, 0")
    f.write(i.operands[0], f.value(f"select i1 {chosen}, {kind} {a}, {kind} {b}"), kind)


@lowers("trap brkpt")
def trap(f: Lowering, i: Instruction) -> None:
    """``trap``: the grid ends with an error."""
    site = f.unit.site(TRAP, 0, i)
    f.unit.declare("fl_trap", "declare void {}(ptr, i32, i32) cold nounwind")
    f.emit(f"call void @fl_trap(ptr %ctx, i32 %flat, i32 {site})")
    end_thread(f)


def end_thread(f: Lowering) -> None:
    """Leave by the fault exit; what follows in the block is dead."""
    f.emit("br label %fault")
    f.place(f.label())


@lowers("nanosleep", types="u32")
def sleep(f: Lowering, i: Instruction) -> None:
    """``nanosleep``: the thread's clock moves on."""
    time = f.value(f"zext i32 {f.read(i.operands[0], 'i32')} to i64")
    f.advance_clock(time)


@lowers("call", modifiers="uni")
def lower_call(f: Lowering, i: Instruction) -> None:
    """``call``: the runtime's functions and the module's own."""
    if isinstance(i.target, Register):
        call_pointer(f, i, i.target)
        return
    if not isinstance(i.target, Symbol):
        i.unsupported("this target")
    name = i.target.name
    if name == "vprintf":
        call_print(f, i)
    elif name == "__assertfail":
        call_assert(f, i)
    elif name in {"malloc", "free"} and not f.unit.functions[name].defined:
        call_malloc(f, i) if name == "malloc" else call_free(f, i)
    else:
        call_function(f, i, name)


def argument(f: Lowering, i: Instruction, index: int, kind: str) -> str:
    """A value that the caller stored in a parameter variable."""
    name = i.arguments[index]
    if not isinstance(name, str):
        i.unsupported("arguments in registers")
    return f.value(f'load {kind}, ptr %"{name}", align 1')


def call_print(f: Lowering, i: Instruction) -> None:
    """The device's ``printf``."""
    f.unit.declare("fl_print", "declare i32 {}(ptr, i64, i64, i64) nounwind")
    count = f.call(
        "i32",
        "fl_print",
        "ptr %ctx",
        "i64 %lbase",
        f"i64 {argument(f, i, 0, 'i64')}",
        f"i64 {argument(f, i, 1, 'i64')}",
    )
    if i.results:
        f.emit(f'store i32 {count}, ptr %"{i.results[0]}", align 1')


def call_assert(f: Lowering, i: Instruction) -> None:
    """A device assertion that failed."""
    condition, file = argument(f, i, 0, "i64"), argument(f, i, 1, "i64")
    line, function = argument(f, i, 2, "i32"), argument(f, i, 3, "i64")
    site = f.unit.site(ASSERTION, 0, i)
    f.unit.declare("fl_assert_fail", "declare void {}(ptr, i32, i32, i64, i64, i32, i64) cold")
    f.emit(
        f"call void @fl_assert_fail(ptr %ctx, i32 %flat, i32 {site}, i64 {condition}, i64 {file}, "
        f"i32 {line}, i64 {function})"
    )
    end_thread(f)


def heap(f: Lowering, i: Instruction) -> str:
    """The address of the module's heap."""
    f.unit.variables.setdefault(HEAP, Variable(HEAP, "global", "b8", 16, HEAP_BYTES))
    base = f.symbol_address(Symbol(HEAP))
    if f.unit.watched:  # who frees a block comes before whoever gets it next
        watch(f, f.value(f"inttoptr i64 {base} to ptr"), "global", 8, ATOMIC, i)
    return base


def call_malloc(f: Lowering, i: Instruction) -> None:
    """The device's ``malloc``: from the module's heap, null where that has no room."""
    base = heap(f, i)
    f.unit.declare("fl_malloc", "declare i64 {}(i64, i64, i64) nounwind")
    size = argument(f, i, 0, "i64")
    address = f.call("i64", "fl_malloc", f"i64 {base}", f"i64 {HEAP_BYTES}", f"i64 {size}")
    f.emit(f'store i64 {address}, ptr %"{i.results[0]}", align 1')


def call_free(f: Lowering, i: Instruction) -> None:
    """The device's ``free``."""
    heap(f, i)
    f.unit.declare("fl_free", "declare i32 {}(ptr, i32, i32, i64) nounwind")
    site, address = f.unit.site(CALL, 0, i), argument(f, i, 0, "i64")
    status = f.call("i32", "fl_free", "ptr %ctx", "i32 %flat", f"i32 {site}", f"i64 {address}")
    f.fault_unless(f.value(f"icmp eq i32 {status}, 0"), lambda: None)


def call_function(f: Lowering, i: Instruction, name: str) -> None:
    """A function of the module: arguments are passed by address, local memory is stacked."""
    callee = f.unit.functions.get(name)
    if callee is None or not callee.defined:
        i.unsupported(f"the function {name} is not defined")
    if not all(isinstance(a, str) for a in (*i.arguments, *i.results)):
        i.unsupported("arguments in registers")
    if name not in f.unit.called:
        f.unit.called.append(name)
    own, theirs = f.unit.local_sizes[f.function.name], f.unit.local_sizes[name]
    offset = f.value(f"add i64 %loff, {own}")
    if f.unit.recursive:
        check_stack(f, i, offset, theirs)
    passed = [f'ptr %"{a}"' for a in (*i.results, *i.arguments)]
    symbol = f'"{f.unit.prefix}.{name}"'
    status = f.call("i32", symbol, THREAD_ARGUMENTS, f"i64 {offset}", *passed)
    good = f.value(f"icmp eq i32 {status}, 0")
    stop, go_on = f.label(), f.label()
    f.emit(f"br i1 {good}, label %{go_on}, label %{stop}, !prof !1")
    f.place(stop)
    f.emit(f"ret i32 {status}")
    f.place(go_on)


def candidates(
    pointed: Mapping[str, int], functions: Mapping[str, Function], caller: Function, i: Instruction
) -> list[str]:
    """The functions that a pointer may lead to: their arguments and results have these sizes."""

    def sizes(variables: Iterable[Variable]) -> list[int]:
        return [variable.size for variable in variables]

    def given(names: Iterable[str | Operand]) -> list[int]:
        return sizes(caller.variables[n] for n in names if isinstance(n, str))

    arguments, results = given(i.arguments), given(i.results)
    return [
        name
        for name in pointed
        if sizes(functions[name].parameters) == arguments
        and sizes(functions[name].results) == results
    ]


def call_pointer(f: Lowering, i: Instruction, pointer: Register) -> None:
    """A call through a pointer: one of the functions that it may lead to, else a fault."""
    target = f.read(pointer, "i64")
    names = candidates(f.unit.pointed, f.unit.functions, f.function, i)
    places = [(f.label(), name) for name in names]
    wrong, done = f.label(), f.label()
    cases = " ".join(f"i64 {f.unit.pointed[name]}, label %{place}" for place, name in places)
    f.emit(f"switch i64 {target}, label %{wrong} [ {cases} ]")
    for place, name in places:
        f.place(place)
        call_function(f, i, name)
        f.emit(f"br label %{done}")
    f.place(wrong)
    site = f.unit.site(CALL, 0, i)
    f.unit.declare("fl_wrong_call", "declare void {}(ptr, i32, i32, i64) cold nounwind")
    f.emit(f"call void @fl_wrong_call(ptr %ctx, i32 %flat, i32 {site}, i64 {target})")
    f.emit("br label %fault")
    f.place(done)


def check_stack(f: Lowering, i: Instruction, offset: str, size: int) -> None:
    """End the thread where a call would leave its local memory."""
    end = f.value(f"add i64 {offset}, {size}")
    limit = f.context("local_limit", "i64")
    good = f.value(f"icmp ule i64 {end}, {limit}")
    site = f.unit.site(CALL, 0, i)

    def slow() -> None:
        f.unit.declare("fl_stack_overflow", "declare void {}(ptr, i32, i32) cold nounwind")
        f.emit(f"call void @fl_stack_overflow(ptr %ctx, i32 %flat, i32 {site})")

    f.fault_unless(good, slow)
