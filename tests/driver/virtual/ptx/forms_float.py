# SPDX-License-Identifier: Apache-2.0
"""What floating-point instructions, comparisons and conversions must give."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from driver.virtual.ptx.forms import (
    INTEGRAL,
    Form,
    Reference,
    Text,
    clamp,
    typed,
    width,
)
from driver.virtual.ptx.forms_integer import INTEGER
from driver.virtual.ptx.reference import F32, F64, FORMATS, Format, compute, to_integral

if TYPE_CHECKING:
    from collections.abc import Callable

COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "num", "nan"} | {
    "equ", "neu", "ltu", "leu", "gtu", "geu",
}  # fmt: skip

OPERATIONS = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "mad": 3, "div": 2, "rcp": 1, "sqrt": 1}
ELEMENTARY: dict[str, Callable[[float], float]] = {
    "sin": lambda x: math.sin(x) if math.isfinite(x) else math.nan,
    "cos": lambda x: math.cos(x) if math.isfinite(x) else math.nan,
    "ex2": lambda x: math.inf if x > 1100 else 0.0 if x < -1100 else 2.0**x,
    "lg2": lambda x: math.nan if x < 0 else -math.inf if x == 0 else math.log2(x),
    "tanh": math.tanh,
    "rsqrt": lambda x: (
        math.copysign(math.inf, x) if x == 0 else math.nan if x < 0 else 1 / math.sqrt(x)
    ),
}


def extreme(form: Format, opcode: str, propagate: bool, a: int, b: int) -> int:
    if form.is_nan(a) or form.is_nan(b):
        both = form.is_nan(a) and form.is_nan(b)
        return form.nan if both or propagate else b if form.is_nan(a) else a
    order = sorted((a, b), key=lambda v: (form.number(v), not form.negative(v)))
    return order[0] if opcode == "min" else order[1]


def in_order(form: Format, opcode: str, operands: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """An instruction as an operation of the standard."""
    if opcode == "sub":
        return "add", (operands[0], operands[1] ^ form.sign)
    if opcode == "rcp":
        return "div", (form.round(Fraction(1)), *operands)
    return ("fma" if opcode == "mad" else opcode), operands


def float_form(t: Text, kind: str) -> Form:
    form = FORMATS[kind]
    ftz = "ftz" in t.words

    def reference(*operands: int) -> int:
        v = tuple(form.flush(x) for x in operands) if ftz else operands
        if t.opcode in {"abs", "neg"}:
            return v[0] & ~form.sign if t.opcode == "abs" else v[0] ^ form.sign
        if t.opcode == "copysign":
            return v[1] & ~form.sign | v[0] & form.sign
        if t.opcode in {"min", "max"}:
            value = extreme(form, t.opcode, "NaN" in t.words, *v)
        elif t.opcode in ELEMENTARY:
            value = form.from_float(ELEMENTARY[t.opcode](form.number(v[0])))
        else:
            operation, v = in_order(form, t.opcode, v)
            value = compute(form, operation, t.mode, *v)
        value = form.flush(value) if ftz else value
        value = form.saturate(value) if "sat" in t.words else value
        negative = form.negative(value) and not form.is_nan(value) and value != form.sign
        return 0 if "relu" in t.words and negative else value

    count = 1 if t.opcode in {"abs", "neg", *ELEMENTARY} else OPERATIONS.get(t.opcode, 2)
    ulps = {"f32": 2.0, "f64": 1.0}.get(kind, 0.51) if t.opcode in ELEMENTARY else 0.0
    if kind == "f64" and "approx" in t.words and ftz:
        return Form(t.text, kind, (kind,), lambda a: gross(reference(gross(a))), 2.0**33)
    return Form(t.text, kind, (kind,) * count, reference, ulps)


def gross(bits: int) -> int:
    """The upper half of an f64; subnormals as zero."""
    return F64.nan if F64.is_nan(bits) else F64.flush(bits) & ~0xFFFFFFFF


def property_form(t: Text) -> Form:
    form = FORMATS[t.type]

    def reference(a: int) -> int:
        nan, infinite, small = form.is_nan(a), form.is_infinite(a), form.is_subnormal(a)
        finite = not nan and not infinite
        return int({
            "finite": finite,
            "infinite": infinite,
            "number": not nan,
            "notanumber": nan,
            "normal": finite and not small,  # zero counts as normal
            "subnormal": small,
        }[t.words[0]])  # fmt: skip

    body = f"{t.text} %p, %a; selp.u32 %d, 1, 0, %p;"
    return Form(t.text, "u32", (t.type,), reference, 0, body)


def compare(t: Text, kind: str, a: int, b: int) -> bool:
    test = t.first(*COMPARISONS)
    x: float = typed(kind, a)
    y: float = typed(kind, b)
    if kind in FORMATS:
        form = FORMATS[kind]
        if "ftz" in t.words:
            a, b = form.flush(a), form.flush(b)
        x, y = form.number(a), form.number(b)
        unordered = math.isnan(x) or math.isnan(y)
        if test in {"num", "nan"}:
            return unordered == (test == "nan")
        if unordered:
            return test.endswith("u")
        test = test.removesuffix("u")
    test = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(test, test)
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[test]


def predicate_form(t: Text) -> Form:
    """Both predicates that ``setp`` sets, the first in the low bit."""
    combine = t.first("and", "or", "xor")

    def in_halves(a: int, b: int) -> int:
        kind = t.type.removesuffix("x2")
        low = compare(t, kind, a & 0xFFFF, b & 0xFFFF)
        return low | compare(t, kind, a >> 16, b >> 16) << 1

    def reference(a: int, b: int, c: int = 0) -> int:
        if t.type.endswith("x2"):
            return in_halves(a, b)
        good = compare(t, t.type, a, b)
        results = [good, not good]
        if combine:
            results = [bool(INTEGER[combine](int(r), c)) for r in results]
        return results[0] | results[1] << 1

    own = ".reg .pred %x;" + " setp.ne.u32 %x, %c, 0;" * bool(combine)
    operands = "%a, %b, %x" if combine else "%a, %b"
    body = f"{own} {t.text} %p|%q, {operands}; selp.u32 %d, 1, 0, %p; @%q add.u32 %d, %d, 2;"
    if t.type in {"f16", "bf16"}:  # which set one predicate
        body = f"{t.text} %p, %a, %b; selp.u32 %d, 1, 2, %p;"
    sources = (t.type, t.type, *(("bool",) * bool(combine)))
    return Form(t.text, "u32", sources, reference, 0, body)


def set_form(t: Text) -> Form:
    target, source = t.types
    if source.endswith("x2"):
        return set_pair_form(t)
    yes = FORMATS[target].round(Fraction(1)) if target in FORMATS else -1
    return Form(
        t.text, target, (source, source), lambda a, b: yes if compare(t, source, a, b) else 0
    )


def set_pair_form(t: Text) -> Form:
    target, source = t.types
    kind = source.removesuffix("x2")
    yes = FORMATS[kind].round(Fraction(1)) if target == source else 0xFFFF

    def reference(a: int, b: int) -> int:
        low = compare(t, kind, a & 0xFFFF, b & 0xFFFF)
        return yes * low | yes * compare(t, kind, a >> 16, b >> 16) << 16

    return Form(t.text, target, (source, source), reference)


def select_form(t: Text) -> Form:
    body = f"setp.ne.u32 %p, %c, 0; {t.text} %d, %a, %b, %p;"
    return Form(t.text, t.type, (t.type, t.type, "bool"), lambda a, b, c: a if c else b, 0, body)


def sign_select_form(t: Text) -> Form:
    kind, by = t.types

    def reference(a: int, b: int, c: int) -> int:
        if by == "s32":
            return b if c >> 31 else a
        c = F32.flush(c) if "ftz" in t.words else c
        return a if F32.number(c) >= 0 else b

    return Form(t.text, kind, (kind, kind, by), reference)


def move_form(t: Text) -> Form:
    """Moves; those of 32, 64 and 128 bits also take values apart and put them together."""
    if t.type == "pred":
        body = "setp.ne.u32 %q, %a, 0; mov.pred %p, %q; selp.u32 %d, 1, 0, %p;"
        return Form(t.text, "u32", ("bool",), lambda a: a, 0, body)
    if t.type == "b32":
        body = ".reg .b16 %x, %y; mov.b32 {%x, %y}, %a; mov.b32 %d, {%y, %x}; mov.b32 %d, %d;"
        return Form(t.text, "b32", ("b32",), lambda a: a >> 16 | a << 16, 0, body)
    if t.type == "b64":
        body = """.reg .b16 %x<4>; .reg .b32 %y<2>; mov.b64 {%x0, %x1, %x2, %x3}, %a;
            mov.b64 %d, {%x1, %x0, %x3, %x2}; mov.b64 {%y0, %y1}, %d; mov.b64 %d, {%y1, %y0};"""
        return Form(t.text, "b64", ("b64",), in_reverse, 0, body)
    if t.type == "b128":
        body = """.reg .b128 %x; .reg .b64 %y, %z; mov.b128 %x, {%a, %b};
            mov.b128 {%y, %z}, %x; sub.u64 %d, %y, %z;"""
        return Form(t.text, "b64", ("b64", "b64"), lambda a, b: a - b, 0, body)
    return Form(t.text, t.type, (t.type,), lambda a: a)


def in_reverse(value: int) -> int:
    """The four half words of a value, the last first."""
    return sum((value >> 16 * n & 0xFFFF) << 48 - 16 * n for n in range(4))


def convert_form(t: Text) -> Form:
    target, source = t.types
    if target.endswith("x2"):
        one = convert_number(t, target.removesuffix("x2"), source)
        return Form(t.text, target, (source,) * 2, lambda a, b: one(b) | one(a) << 16)
    if target == "tf32":
        return Form(t.text, target, (source,), to_tf32)
    return Form(t.text, target, (source,), convert_number(t, target, source))


def to_tf32(bits: int) -> int:
    special = bits & F32.infinity == F32.infinity
    return (bits if special else bits + 0x1000) & ~0x1FFF


def convert_number(t: Text, target: str, source: str) -> Reference:
    def reference(a: int) -> int:
        if source not in FORMATS:
            value = Fraction(typed(source, a))
        else:
            form = FORMATS[source]
            a = form.flush(a) if "ftz" in t.words and source == "f32" else a
            if target in FORMATS:
                return finish(t, target, from_float(t, form, FORMATS[target], a))
            if form.is_nan(a):
                return 1 << width(target) - 1 if source == "f64" or width(target) == 64 else 0
            if form.is_infinite(a):
                limit = -1 if form.negative(a) else 1
                return clamp(limit << 70, width(target), target[0] == "s")
            value = form.value(a)
            value = Fraction(to_integral(value, t.first(*INTEGRAL)))
            return clamp(int(value), width(target), target[0] == "s")
        if target in FORMATS:
            return FORMATS[target].round(value, t.mode)
        return (
            clamp(int(value), width(target), target[0] == "s") if "sat" in t.words else int(value)
        )

    return reference


def from_float(t: Text, form: Format, goal: Format, a: int) -> int:
    if form.is_nan(a):
        return goal.nan
    if form.is_infinite(a):
        return goal.infinity | (goal.sign if form.negative(a) else 0)
    value = form.value(a)
    integral = t.first(*INTEGRAL)
    if integral:
        value = Fraction(to_integral(value, integral))
    return goal.round(value, t.mode, negative_zero=form.negative(a))


def finish(t: Text, target: str, bits: int) -> int:
    form = FORMATS[target]
    if "ftz" in t.words and target == "f32":
        bits = form.flush(bits)
    if "relu" in t.words and form.negative(bits) and not form.is_nan(bits) and bits != form.sign:
        bits = 0
    return form.saturate(bits) if "sat" in t.words else bits
