# SPDX-License-Identifier: Apache-2.0
"""What instructions on integers and bits must give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.virtual.ptx.forms import Form, Reference, Text, clamp, typed, width
from driver.virtual.ptx.reference import signed

if TYPE_CHECKING:
    from collections.abc import Callable


def truncating(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGER: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "min": min,
    "max": max,
    "div": lambda a, b: truncating(a, b) if b else -1,
    "rem": lambda a, b: a - truncating(a, b) * b if b else -1,
    "sad": lambda a, b, c: c + abs(a - b),
    "abs": abs,
    "neg": lambda a: -a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
    "cnot": lambda a: int(a == 0),
    "mov": lambda a: a,
}


def integer_form(t: Text, kind: str) -> Form:
    bits = width(kind)
    function = INTEGER[t.opcode]
    count = function.__code__.co_argcount if hasattr(function, "__code__") else 2
    count = 1 if t.opcode == "abs" else count

    def reference(*operands: int) -> int:
        value = function(*(typed(kind, x) for x in operands))
        if "sat" in t.words:
            value = clamp(value, bits)
        return max(value, 0) if "relu" in t.words else value

    if kind != "pred":
        return Form(t.text, kind, (kind,) * count, reference)
    tests = "setp.ne.u32 %p, %a, 0; setp.ne.u32 %q, %b, 0;"
    operands = ", ".join(("%p", "%q")[:count])
    body = f"{tests} {t.text} %p, {operands}; selp.u32 %d, 1, 0, %p;"
    if count == 1:
        body = body.replace("setp.ne.u32 %q, %b, 0;", "")
    return Form(t.text, "u32", ("bool",) * count, lambda *v: reference(*v) & 1, 0, body)


def carry_form(t: Text) -> Form:
    """Sums through the carry flag, which the third or fourth source sets before."""
    kind, bits = t.type, width(t.type)
    takes, sets = t.opcode.endswith("c") and t.opcode != "sub", "cc" in t.words
    minus = t.opcode.startswith("sub")
    product = t.opcode.startswith("mad")
    operands = ["%a", "%b", "%c"] if product else ["%a", "%b"]
    last = "%e" if product else "%c"
    before = (f"sub.cc.u32 %x, 0, {last};" if minus else f"add.cc.u32 %x, {last}, -1;") * takes
    after = f"{'subc' if minus else 'addc'}.{kind} %d, 0, 0;"
    target = "%y" if sets else "%d"
    body = f"{before} {t.text} {target}, {', '.join(operands)}; {after * sets}"

    def reference(*v: int) -> int:
        x = list(v)
        if product:
            a, b = typed(kind, x[0]), typed(kind, x[1])
            full = a * b >> bits if "hi" in t.words else a * b
            x = [full & (1 << bits) - 1, *x[2:]]
        flag = int(x[2] != 0) if takes else 0
        total = x[0] - x[1] - flag if minus else x[0] + x[1] + flag
        return total >> bits if sets else total

    sources = (kind,) * len(operands) + ("u32",) * takes
    own = f".reg .b32 %x; .reg .b{bits} %y;"
    return Form(t.text, kind, sources, reference, 0, f"{own} {body}")


def dot_form(t: Text) -> Form:
    bits, count = (8, 4) if t.opcode == "dp4a" else (16, 2)
    skip = 16 if "hi" in t.words else 0

    def part(kind: str, word: int, at: int, size: int) -> int:
        value = word >> at & (1 << size) - 1
        return signed(value, size) if kind[0] == "s" else value

    def reference(a: int, b: int, c: int) -> int:
        return c + sum(
            part(t.types[0], a, bits * n, bits) * part(t.types[1], b, 8 * n + skip, 8)
            for n in range(count)
        )

    return Form(t.text, "u32", ("u32",) * 3, reference)


def find_leading(t: Text, value: int) -> int:
    bits = width(t.type)
    value = signed(value, bits) if t.type[0] == "s" else value
    place = (~value if value < 0 else value).bit_length() - 1
    return bits - 1 - place if "shiftamt" in t.words and place >= 0 else place


def count_form(t: Text) -> Form:
    bits = width(t.type)
    functions: dict[str, Reference] = {
        "popc": int.bit_count,
        "clz": lambda v: bits - v.bit_length(),
        "brev": lambda v: int(f"{v:0{bits}b}"[::-1], 2),
        "bfind": lambda v: find_leading(t, v),
    }
    result = t.type if t.opcode == "brev" else "u32"
    return Form(t.text, result, (t.type,), functions[t.opcode])


def nth_set(mask: int, base: int, offset: int) -> int:
    base, offset = base & 31, signed(offset, 32)
    if offset == 0:
        return base if mask >> base & 1 else -1
    step = 1 if offset > 0 else -1
    places = [p for p in range(base, 32 if step > 0 else -1, step) if mask >> p & 1]
    return places[abs(offset) - 1] if abs(offset) <= len(places) else -1


def nth_form(t: Text) -> Form:
    body = f".reg .b32 %x; and.b32 %x, %b, 31; {t.text} %d, %a, %x, %c;"
    return Form(t.text, "u32", ("u32", "u32", "count"), nth_set, 0, body)


def shift_form(t: Text) -> Form:
    kind, bits = t.type, width(t.type)

    def reference(value: int, amount: int) -> int:
        n = min(amount, bits)
        return typed(kind, value) << n if t.opcode == "shl" else typed(kind, value) >> n

    return Form(t.text, kind, (kind, "count"), reference)


def funnel_form(t: Text) -> Form:
    def reference(low: int, high: int, amount: int) -> int:
        n = amount & 31 if "wrap" in t.words else min(amount, 32)
        both = high << 32 | low
        return both << n >> 32 if "l" in t.words else both >> n

    return Form(t.text, "u32", ("u32", "u32", "count"), reference)


def extract_field(kind: str, value: int, position: int, length: int) -> int:
    bits = width(kind)
    position, length = position & 255, length & 255
    if length == 0:
        return 0
    moved = signed(value, bits) >> position if kind[0] == "s" else value >> position
    return signed(moved, length) if kind[0] == "s" else moved & (1 << length) - 1


def insert_field(bits: int, a: int, b: int, position: int, length: int) -> int:
    mask = ((1 << (length & 255)) - 1) << (position & 255) & (1 << bits) - 1
    return b & ~mask | a << (position & 255) & mask


def field_form(t: Text) -> Form:
    kind, wrap = t.type, "wrap" in t.words
    if t.opcode == "bfe":
        return Form(t.text, kind, (kind, "count", "count"), lambda *v: extract_field(kind, *v))
    if t.opcode == "bfi":
        bits = width(kind)
        sources = (kind, kind, "count", "count")
        return Form(t.text, kind, sources, lambda *v: insert_field(bits, *v))
    cut: Callable[[int], int] = (lambda n: n & 31) if wrap else (lambda n: min(n, 32))
    if t.opcode == "bmsk":
        return Form(t.text, "u32", ("count", "count"), lambda a, b: (1 << cut(b)) - 1 << cut(a))
    return Form(t.text, kind, (kind, "count"), lambda a, n: extract_field(kind, a, 0, cut(n)))


PERMUTATIONS: dict[str, Callable[[int, int], int]] = {
    "f4e": lambda k, s: s + k,
    "b4e": lambda k, s: (s - k) % 8,
    "rc8": lambda _k, s: s,
    "ecl": max,
    "ecr": min,
    "rc16": lambda k, s: 2 * (s & 1) + (k & 1),
}


def permute_form(t: Text) -> Form:
    mode = PERMUTATIONS.get(t.words[-1])

    def reference(a: int, b: int, selector: int) -> int:
        both = (a | b << 32).to_bytes(8, "little")
        if mode:
            return int.from_bytes((both[mode(k, selector & 3)] for k in range(4)), "little")
        picks = [selector >> 4 * k & 15 for k in range(4)]
        parts = [both[p & 7] for p in picks]
        signs = [255 if v & 128 else 0 for v in parts]
        chosen = (s if p & 8 else v for p, v, s in zip(picks, parts, signs, strict=True))
        return int.from_bytes(chosen, "little")

    return Form(t.text, "u32", ("u32",) * 3, reference)


TRUTH = (0x00, 0x1B, 0x80, 0x96, 0xCA, 0xE8, 0xFE, 0xFF)


def logic_form(t: Text) -> Form:
    """The results of eight truth tables, one xored onto the next."""
    steps = " ".join(
        f"{t.text} %x, %a, %b, %c, {table}; shf.l.wrap.b32 %d, %d, %d, 3; xor.b32 %d, %d, %x;"
        for table in TRUTH
    )

    def reference(a: int, b: int, c: int) -> int:
        total = 0
        for table in TRUTH:
            bits = sum(
                (table >> ((a >> n & 1) << 2 | (b >> n & 1) << 1 | c >> n & 1) & 1) << n
                for n in range(32)
            )
            total = ((total << 3 | total >> 29) & 0xFFFFFFFF) ^ bits
        return total

    body = f".reg .b32 %x; mov.b32 %d, 0; {steps}"
    return Form(t.text, "u32", ("u32",) * 3, reference, 0, body)
