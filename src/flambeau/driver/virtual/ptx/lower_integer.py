# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic, logic, shifts and bit fields."""

from __future__ import annotations

from flambeau.driver.virtual.ptx.lower_rare import permute_by_mode
from flambeau.driver.virtual.ptx.lowering import LLVM_TYPES, Lowering, lowers, width
from flambeau.driver.virtual.ptx.syntax import Immediate, Instruction

__all__: list[str] = []


def is_signed(i: Instruction) -> bool:
    """Whether the instruction's type is a signed integer."""
    return i.type[0] == "s"


def sources(f: Lowering, i: Instruction) -> tuple[str, list[str]]:
    """The LLVM type of the instruction and its source operands in it."""
    kind = LLVM_TYPES[i.type]
    return kind, [f.read(operand, kind) for operand in i.operands[1:]]


def result(f: Lowering, i: Instruction, value: str) -> None:
    """Write a result of the instruction's own type."""
    f.write(i.operands[0], value, LLVM_TYPES[i.type], signed=is_signed(i))


def extend(f: Lowering, value: str, kind: str, target: str, signed: bool) -> str:
    """Sign- or zero-extend."""
    return f.value(f"{'sext' if signed else 'zext'} {kind} {value} to {target}")


# Sums with and without carry

_NUMBERS = "u16 s16 u32 s32 u64 s64"
_WIDE_NUMBERS = "u32 s32 u64 s64"
_SUMS = {"add": "add", "addc": "add", "sub": "sub", "subc": "sub"}


@lowers("add sub", kind="integer", modifiers="sat cc", types=_NUMBERS)
@lowers("addc subc", kind="integer", modifiers="cc", types=_WIDE_NUMBERS)
def sum_or_difference(f: Lowering, i: Instruction) -> None:
    """``add``, ``sub`` and their carry forms."""
    kind, (a, b) = sources(f, i)
    verb = _SUMS[i.opcode]
    if "sat" in i.modifiers:
        if i.type != "s32":
            i.unsupported()
        result(f, i, f.call(kind, f"llvm.s{verb}.sat.{kind}", f"{kind} {a}", f"{kind} {b}"))
    elif "cc" in i.modifiers or i.opcode.endswith("c"):
        result(f, i, carry(f, i, verb, kind, a, b))
    else:
        result(f, i, f.value(f"{verb} {kind} {a}, {b}"))


def carry(f: Lowering, i: Instruction, verb: str, kind: str, a: str, b: str) -> str:
    """Add or subtract through the carry flag, which ``.cc`` sets and ``...c`` opcodes read."""
    wide = f"i{width(kind) + 8}"
    total = f.value(
        f"{verb} {wide} {extend(f, a, kind, wide, False)}, {extend(f, b, kind, wide, False)}"
    )
    if i.opcode.endswith("c"):
        flag = f.value("load i1, ptr %carry")
        total = f.value(f"{verb} {wide} {total}, {extend(f, flag, 'i1', wide, False)}")
    if "cc" in i.modifiers:
        over = f.value(f"lshr {wide} {total}, {width(kind)}")
        f.emit(f"store i1 {f.value(f'trunc {wide} {over} to i1')}, ptr %carry")
    return f.value(f"trunc {wide} {total} to {kind}")


# Products


def product(f: Lowering, kind: str, a: str, b: str, mode: str, signed: bool) -> tuple[str, str]:
    """A product's low half, high half or all of it, with its type."""
    if mode == "lo":
        return f.value(f"mul {kind} {a}, {b}"), kind
    wide = f"i{2 * width(kind)}"
    full = f.value(
        f"mul {wide} {extend(f, a, kind, wide, signed)}, {extend(f, b, kind, wide, signed)}"
    )
    if mode == "wide":
        return full, wide
    high = f.value(f"lshr {wide} {full}, {width(kind)}")
    return f.value(f"trunc {wide} {high} to {kind}"), kind


def product_mode(i: Instruction) -> str:
    """Which part of a product is wanted."""
    mode = next((m for m in i.modifiers if m in {"lo", "hi", "wide"}), "")
    if not mode or (mode == "wide" and width(LLVM_TYPES[i.type]) > 32):
        i.unsupported()
    return mode


@lowers("mul", kind="integer", modifiers="lo hi wide", types=_NUMBERS)
def multiply(f: Lowering, i: Instruction) -> None:
    """``mul``."""
    kind, (a, b) = sources(f, i)
    value, kind = product(f, kind, a, b, product_mode(i), is_signed(i))
    f.write(i.operands[0], value, kind, signed=is_signed(i))


@lowers("mad", kind="integer", modifiers="lo hi wide cc sat", types=_NUMBERS)
@lowers("madc", kind="integer", modifiers="lo hi cc", types=_WIDE_NUMBERS)
def multiply_add(f: Lowering, i: Instruction) -> None:
    """``mad`` and its carry forms."""
    mode = product_mode(i)
    kind = LLVM_TYPES[i.type]
    a, b = (f.read(operand, kind) for operand in i.operands[1:3])
    value, kind = product(f, kind, a, b, mode, is_signed(i))
    c = f.read(i.operands[3], kind)
    if "sat" in i.modifiers:
        if i.type != "s32" or mode != "hi":
            i.unsupported()
        total = f.call(kind, f"llvm.sadd.sat.{kind}", f"{kind} {value}", f"{kind} {c}")
    elif "cc" in i.modifiers or i.opcode == "madc":
        total = carry(f, i, "add", kind, value, c)
    else:
        total = f.value(f"add {kind} {value}, {c}")
    f.write(i.operands[0], total, kind, signed=is_signed(i))


@lowers("mul24", kind="integer", modifiers="lo hi", types="u32 s32")
@lowers("mad24", kind="integer", modifiers="lo hi sat", types="u32 s32")
def multiply_24(f: Lowering, i: Instruction) -> None:
    """``mul24`` and ``mad24``: products of the low 24 bits."""
    kind, values = sources(f, i)
    shift = "ashr" if is_signed(i) else "lshr"
    factors = []
    for value in values[:2]:
        raised = f.value(f"shl i32 {value}, 8")
        low = f.value(f"{shift} i32 {raised}, 8")
        factors.append(extend(f, low, "i32", "i64", is_signed(i)))
    full = f.value(f"mul i64 {factors[0]}, {factors[1]}")
    if "hi" in i.modifiers:
        full = f.value(f"lshr i64 {full}, 16")
    total = f.value(f"trunc i64 {full} to i32")
    if "sat" in i.modifiers:
        if i.opcode != "mad24" or i.type != "s32" or "hi" not in i.modifiers:
            i.unsupported()
        total = f.call("i32", "llvm.sadd.sat.i32", f"i32 {total}", f"i32 {values[2]}")
    elif i.opcode == "mad24":
        total = f.value(f"add {kind} {total}, {values[2]}")
    result(f, i, total)


@lowers("sad", kind="integer", types=_NUMBERS)
def sum_of_difference(f: Lowering, i: Instruction) -> None:
    """``sad``: c + |a - b|."""
    kind, (a, b, c) = sources(f, i)
    sign = "s" if is_signed(i) else "u"
    high = f.call(kind, f"llvm.{sign}max.{kind}", f"{kind} {a}", f"{kind} {b}")
    low = f.call(kind, f"llvm.{sign}min.{kind}", f"{kind} {a}", f"{kind} {b}")
    result(f, i, f.value(f"add {kind} {c}, {f.value(f'sub {kind} {high}, {low}')}"))


@lowers("div rem", kind="integer", types=_NUMBERS)
def divide(f: Lowering, i: Instruction) -> None:
    """``div`` and ``rem``: what is divided by 0 gives all ones; INT_MIN/-1 wraps."""
    kind, (a, b) = sources(f, i)
    zero = f.value(f"icmp eq {kind} {b}, 0")
    divisor = f.value(f"select i1 {zero}, {kind} 1, {kind} {b}")
    if is_signed(i):
        minus = f.value(f"icmp eq {kind} {b}, -1")
        divisor = f.value(f"select i1 {minus}, {kind} 1, {kind} {divisor}")
    verb = ("s" if is_signed(i) else "u") + i.opcode
    value = f.value(f"{verb} {kind} {a}, {divisor}")
    if is_signed(i):
        special = f.value(f"sub {kind} 0, {a}") if i.opcode == "div" else "0"
        value = f.value(f"select i1 {minus}, {kind} {special}, {kind} {value}")
    result(f, i, f.value(f"select i1 {zero}, {kind} -1, {kind} {value}"))


# One source


@lowers("neg", kind="integer", types="s16 s32 s64")
def negate(f: Lowering, i: Instruction) -> None:
    """``neg``."""
    kind, (a,) = sources(f, i)
    result(f, i, f.value(f"sub {kind} 0, {a}"))


@lowers("abs", kind="integer", types="s16 s32 s64")
def absolute(f: Lowering, i: Instruction) -> None:
    """``abs``."""
    kind, (a,) = sources(f, i)
    result(f, i, f.call(kind, f"llvm.abs.{kind}", f"{kind} {a}", "i1 false"))


@lowers("not", kind="integer", types="pred b16 b32 b64")
def invert(f: Lowering, i: Instruction) -> None:
    """``not``."""
    kind, (a,) = sources(f, i)
    result(f, i, f.value(f"xor {kind} {a}, {'true' if kind == 'i1' else '-1'}"))


@lowers("cnot", kind="integer", types="b16 b32 b64")
def logical_not(f: Lowering, i: Instruction) -> None:
    """``cnot``: 1 for 0, else 0."""
    kind, (a,) = sources(f, i)
    zero = f.value(f"icmp eq {kind} {a}, 0")
    result(f, i, extend(f, zero, "i1", kind, False))


@lowers("popc clz", kind="integer", types="b32 b64")
def count_bits(f: Lowering, i: Instruction) -> None:
    """``popc`` and ``clz``; the result has 32 bits."""
    kind, (a,) = sources(f, i)
    if i.opcode == "popc":
        value = f.call(kind, f"llvm.ctpop.{kind}", f"{kind} {a}")
    else:
        value = f.call(kind, f"llvm.ctlz.{kind}", f"{kind} {a}", "i1 false")
    f.write(i.operands[0], f.convert(value, kind, "i32"), "i32")


@lowers("bfind", kind="integer", modifiers="shiftamt", types="u32 s32 u64 s64")
def find_leading_bit(f: Lowering, i: Instruction) -> None:
    """``bfind``: the highest bit that differs from the sign; -1 without any."""
    kind, (a,) = sources(f, i)
    if is_signed(i):
        sign = f.value(f"ashr {kind} {a}, {width(kind) - 1}")
        a = f.value(f"xor {kind} {a}, {sign}")
    zeros = f.convert(f.call(kind, f"llvm.ctlz.{kind}", f"{kind} {a}", "i1 false"), kind, "i32")
    place = zeros if "shiftamt" in i.modifiers else f.value(f"sub i32 {width(kind) - 1}, {zeros}")
    none = f.value(f"icmp eq {kind} {a}, 0")
    f.write(i.operands[0], f.value(f"select i1 {none}, i32 -1, i32 {place}"), "i32")


@lowers("brev", kind="integer", types="b32 b64")
def reverse_bits(f: Lowering, i: Instruction) -> None:
    """``brev``."""
    kind, (a,) = sources(f, i)
    result(f, i, f.call(kind, f"llvm.bitreverse.{kind}", f"{kind} {a}"))


# Two sources and more


@lowers("and or xor", kind="integer", types="pred b16 b32 b64")
def logic(f: Lowering, i: Instruction) -> None:
    """``and``, ``or``, ``xor``, on predicates too."""
    kind, (a, b) = sources(f, i)
    result(f, i, f.value(f"{i.opcode} {kind} {a}, {b}"))


@lowers("min max", kind="integer", types="u16 s16 u32 s32 u64 s64")
def extreme(f: Lowering, i: Instruction) -> None:
    """``min`` and ``max``."""
    kind, (a, b) = sources(f, i)
    name = f"llvm.{'s' if is_signed(i) else 'u'}{i.opcode}.{kind}"
    result(f, i, f.call(kind, name, f"{kind} {a}", f"{kind} {b}"))


@lowers("lop3", types="b32")
def logic_of_three(f: Lowering, i: Instruction) -> None:
    """``lop3``: any function of three bits by its truth table."""
    if len(i.operands) != 5 or not isinstance(i.operands[4], Immediate):
        i.unsupported()
    values = [f.read(operand, "i32") for operand in i.operands[1:4]]
    inverse = [f.value(f"xor i32 {v}, -1") for v in values]
    total = "0"
    for row in range(8):
        if i.operands[4].value >> row & 1:
            a, b, c = ((values if row >> (2 - n) & 1 else inverse)[n] for n in range(3))
            term = f.value(f"and i32 {f.value(f'and i32 {a}, {b}')}, {c}")
            total = f.value(f"or i32 {total}, {term}")
    f.write(i.operands[0], total, "i32")


def at_most(f: Lowering, value: str, limit: int) -> str:
    """The smaller of an i32 and a constant, unsigned."""
    return f.call("i32", "llvm.umin.i32", f"i32 {value}", f"i32 {limit}")


@lowers("shl", kind="integer", types="b16 b32 b64")
@lowers("shr", kind="integer", types=f"b16 b32 b64 {_NUMBERS}")
def shift(f: Lowering, i: Instruction) -> None:
    """``shl`` and ``shr``: amounts past the width give 0 or the sign."""
    kind = LLVM_TYPES[i.type]
    bits = width(kind)
    value, amount = f.read(i.operands[1], kind), f.read(i.operands[2], "i32")
    if i.opcode == "shr" and is_signed(i):
        amount = f.convert(at_most(f, amount, bits - 1), "i32", kind)
        result(f, i, f.value(f"ashr {kind} {value}, {amount}"))
        return
    far = f.value(f"icmp uge i32 {amount}, {bits}")
    near = f.convert(f.value(f"and i32 {amount}, {bits - 1}"), "i32", kind)
    verb = "shl" if i.opcode == "shl" else "lshr"
    moved = f.value(f"{verb} {kind} {value}, {near}")
    result(f, i, f.value(f"select i1 {far}, {kind} 0, {kind} {moved}"))


def join(f: Lowering, low: str, high: str) -> str:
    """Two i32 as one i64."""
    upper = f.value(f"shl i64 {extend(f, high, 'i32', 'i64', False)}, 32")
    return f.value(f"or i64 {upper}, {extend(f, low, 'i32', 'i64', False)}")


@lowers("shf", modifiers="l r wrap clamp", types="b32")
def funnel_shift(f: Lowering, i: Instruction) -> None:
    """``shf``: shift two words as one."""
    low, high, amount = (f.read(operand, "i32") for operand in i.operands[1:4])
    amount = f.value(f"and i32 {amount}, 31") if "wrap" in i.modifiers else at_most(f, amount, 32)
    both, amount = join(f, low, high), extend(f, amount, "i32", "i64", False)
    if "l" in i.modifiers:
        moved = f.value(f"lshr i64 {f.value(f'shl i64 {both}, {amount}')}, 32")
    else:
        moved = f.value(f"lshr i64 {both}, {amount}")
    f.write(i.operands[0], f.value(f"trunc i64 {moved} to i32"), "i32")


def bit_mask(f: Lowering, kind: str, position: str, length: str) -> str:
    """Ones from a position on, for a length; both are i32 from 0 to 255."""
    bits = width(kind)
    wide = f"i{2 * bits}"
    length = f.convert(at_most(f, length, bits), "i32", wide)
    one = f.value(f"sub {wide} {f.value(f'shl {wide} 1, {length}')}, 1")
    position = f.convert(at_most(f, position, bits), "i32", wide)
    moved = f.value(f"shl {wide} {one}, {position}")
    return f.value(f"trunc {wide} {moved} to {kind}")


def byte(f: Lowering, value: str) -> str:
    """The low 8 bits of an i32."""
    return f.value(f"and i32 {value}, 255")


@lowers("bmsk", modifiers="clamp wrap", types="b32")
def make_mask(f: Lowering, i: Instruction) -> None:
    """``bmsk``."""
    start, length = f.read(i.operands[1], "i32"), f.read(i.operands[2], "i32")
    if "wrap" in i.modifiers:
        start, length = (f.value(f"and i32 {v}, 31") for v in (start, length))
    f.write(i.operands[0], bit_mask(f, "i32", start, length), "i32")


@lowers("bfi", kind="integer", types="b32 b64")
def insert_field(f: Lowering, i: Instruction) -> None:
    """``bfi``: put the low bits of a into b."""
    kind = LLVM_TYPES[i.type]
    a, b = f.read(i.operands[1], kind), f.read(i.operands[2], kind)
    position, length = (byte(f, f.read(operand, "i32")) for operand in i.operands[3:5])
    mask = bit_mask(f, kind, position, length)
    near = f.convert(f.value(f"and i32 {position}, {width(kind) - 1}"), "i32", kind)
    field = f.value(f"and {kind} {f.value(f'shl {kind} {a}, {near}')}, {mask}")
    rest = f.value(f"and {kind} {b}, {f.value(f'xor {kind} {mask}, -1')}")
    result(f, i, f.value(f"or {kind} {field}, {rest}"))


@lowers("bfe", kind="integer", types="u32 s32 u64 s64")
def extract_field(f: Lowering, i: Instruction) -> None:
    """``bfe``: bits past the end are 0, or the sign where the type is signed."""
    kind = LLVM_TYPES[i.type]
    bits = width(kind)
    a = f.read(i.operands[1], kind)
    position, length = (byte(f, f.read(operand, "i32")) for operand in i.operands[2:4])
    wide = f"i{2 * bits}" if bits == 32 else "i128"
    value = extend(f, a, kind, wide, is_signed(i))
    down = f.convert(at_most(f, position, bits), "i32", wide)
    shifted = f.value(f"{'ashr' if is_signed(i) else 'lshr'} {wide} {value}, {down}")
    low = f.value(f"trunc {wide} {shifted} to {kind}")
    unused = f.value(f"sub i32 {bits}, {at_most(f, length, bits)}")
    near = f.convert(at_most(f, unused, bits - 1), "i32", kind)
    raised = f.value(f"shl {kind} {low}, {near}")
    field = f.value(f"{'ashr' if is_signed(i) else 'lshr'} {kind} {raised}, {near}")
    empty = f.value(f"icmp eq i32 {length}, 0")
    result(f, i, f.value(f"select i1 {empty}, {kind} 0, {kind} {field}"))


@lowers("szext", modifiers="clamp wrap", types="u32 s32")
def extend_field(f: Lowering, i: Instruction) -> None:
    """``szext``: extend from the low bits."""
    value, length = f.read(i.operands[1], "i32"), f.read(i.operands[2], "i32")
    if "wrap" in i.modifiers:
        length = f.value(f"and i32 {length}, 31")
    unused = f.value(f"sub i32 32, {at_most(f, length, 32)}")
    near = at_most(f, unused, 31)
    raised = f.value(f"shl i32 {value}, {near}")
    field = f.value(f"{'ashr' if is_signed(i) else 'lshr'} i32 {raised}, {near}")
    empty = f.value(f"icmp eq i32 {length}, 0")
    f.write(i.operands[0], f.value(f"select i1 {empty}, i32 0, i32 {field}"), "i32")


@lowers("prmt", modifiers="f4e b4e rc8 ecl ecr rc16", types="b32")
def permute(f: Lowering, i: Instruction) -> None:
    """``prmt``: pick bytes of two words, or their signs."""
    low, high, selector = (f.read(operand, "i32") for operand in i.operands[1:4])
    both = join(f, low, high)
    if i.type != "b32":
        f.write(i.operands[0], permute_by_mode(f, i, both), "i32")
        return
    total = "0"
    for n in range(4):
        nibble = f.value(f"lshr i32 {selector}, {4 * n}")
        index = f.value(f"shl i32 {f.value(f'and i32 {nibble}, 7')}, 3")
        moved = f.value(f"lshr i64 {both}, {extend(f, index, 'i32', 'i64', False)}")
        picked = f.value(f"trunc i64 {moved} to i8")
        sign = f.value(f"ashr i8 {picked}, 7")
        wants_sign = f.value(f"icmp ne i32 {f.value(f'and i32 {nibble}, 8')}, 0")
        picked = f.value(f"select i1 {wants_sign}, i8 {sign}, i8 {picked}")
        part = f.value(f"shl i32 {extend(f, picked, 'i8', 'i32', False)}, {8 * n}")
        total = f.value(f"or i32 {total}, {part}")
    f.write(i.operands[0], total, "i32")


@lowers("dp4a", types="u32 s32")
@lowers("dp2a", modifiers="lo hi", types="u32 s32")
def dot_product(f: Lowering, i: Instruction) -> None:
    """``dp4a`` and ``dp2a``: bytes, or half words with the lower or upper two bytes, added to c."""
    signs = [m[0] == "s" for m in i.modifiers if m in LLVM_TYPES]
    a, b, total = (f.read(operand, "i32") for operand in i.operands[1:4])
    bits, count, skip = (8, 4, 0) if i.opcode == "dp4a" else (16, 2, 16 * ("hi" in i.modifiers))
    for n in range(count):
        first = extract(f, a, bits * n, bits, signs[0])
        second = extract(f, b, 8 * n + skip, 8, signs[1])
        total = f.value(f"add i32 {total}, {f.value(f'mul i32 {first}, {second}')}")
    f.write(i.operands[0], total, "i32")


def extract(f: Lowering, value: str, position: int, bits: int, signed: bool) -> str:
    """Some bits of an i32, extended to an i32."""
    moved = f.value(f"lshr i32 {value}, {position}")
    return extend(f, f.value(f"trunc i32 {moved} to i{bits}"), f"i{bits}", "i32", signed)
