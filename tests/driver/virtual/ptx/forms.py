# SPDX-License-Identifier: Apache-2.0
"""Forms of instructions that work on one element: their operands and what they must give."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from driver.virtual.ptx.reference import F32, F64, FORMATS, Format, compute, signed, to_integral

LIST = Path(__file__).parents[3] / "data" / "ptx_forms.txt"
WIDTHS = {"pred": 1, "f16x2": 32, "bf16x2": 32, "bf16": 16, "tf32": 32, "u16x2": 32, "s16x2": 32}
MODES = ("rn", "rz", "rm", "rp")
INTEGRAL = ("rni", "rzi", "rmi", "rpi")
TYPES = frozenset(WIDTHS) | {f"{k}{n}" for k in "busf" for n in (8, 16, 32, 64)} - {"f8"}
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "num", "nan"} | {
    "equ", "neu", "ltu", "leu", "gtu", "geu",
}  # fmt: skip

Reference = Callable[..., int]


def expand(pattern: str) -> Iterator[str]:
    """All texts that a pattern with braces stands for."""
    parts = [part.split(",") for part in re.split(r"[{}]", pattern)]
    choices = [p if n % 2 else [",".join(p)] for n, p in enumerate(parts)]
    yield from ("".join(words) for words in itertools.product(*choices))


def listed_forms() -> list[str]:
    lines = [line for line in LIST.read_text().splitlines() if line and line[0] != "#"]
    return [form for line in lines for form in expand(line)]


def width(kind: str) -> int:
    return WIDTHS.get(kind) or int(kind[1:])


@dataclass(frozen=True)
class Form:
    """An instruction with the types of its sources and its result.

    ``ulps`` is how far an approximation may be from the reference, in units of the last place.
    """

    text: str
    result: str
    sources: tuple[str, ...]
    reference: Reference
    ulps: float = 0
    body: str = ""

    @property
    def code(self) -> str:
        names = ", ".join(f"%{name}" for name in "abce"[: len(self.sources)])
        return self.body or f"{self.text} %d, {names};"


@dataclass(frozen=True)
class Text:
    """What an instruction's text says."""

    text: str
    opcode: str
    words: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Text:
        opcode, *words = text.split(".")
        return cls(text, opcode, tuple(words))

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(w for w in self.words if w in TYPES)

    @property
    def type(self) -> str:
        return self.types[-1]

    @property
    def mode(self) -> str:
        return next((w for w in self.words if w in MODES), "rn")

    def first(self, *names: str) -> str:
        return next((w for w in self.words if w in names), "")


def form_of(text: str) -> Form:
    """The form that a line of the list stands for."""
    t = Text.of(text)
    special = SPECIAL.get(t.opcode)
    if special:
        return special(t)
    kind = t.type.removesuffix("x2")
    if kind in FORMATS:
        return in_pairs(t, float_form(t, kind))
    if t.type.endswith("x2"):
        return in_pairs(t, integer_form(t, kind))
    return integer_form(t, kind)


def in_pairs(t: Text, form: Form) -> Form:
    """The form for two numbers in a register, from that for one."""
    if not t.type.endswith("x2"):
        return form

    def both(*words: int) -> int:
        low = form.reference(*(w & 0xFFFF for w in words)) & 0xFFFF
        return low | form.reference(*(w >> 16 for w in words)) << 16

    return Form(t.text, t.type, (t.type,) * len(form.sources), both, form.ulps)


# Integers


def truncating(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGER: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "min": min,
    "max": max,
    "div": lambda a, b: truncating(a, b) if b else -1,
    "rem": lambda a, b: a - truncating(a, b) * b if b else a,
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


def clamp(value: int, bits: int, is_signed: bool = True) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def typed(kind: str, value: int) -> int:
    return signed(value, width(kind)) if kind[0] == "s" else value


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


def sum_form(t: Text) -> Form:
    if t.type in FORMATS or t.type.endswith("x2"):
        kind = t.type.removesuffix("x2")
        return in_pairs(t, float_form(t, kind) if kind in FORMATS else integer_form(t, kind))
    carries = "cc" in t.words or t.opcode in {"addc", "subc", "madc"}
    return carry_form(t) if carries else integer_form(t, t.type)


def product_form(t: Text) -> Form:
    """``mul``, ``mad`` and their forms for 24 bits."""
    if t.type in FORMATS or t.type.endswith("x2"):
        return in_pairs(t, float_form(t, t.type.removesuffix("x2")))
    if "cc" in t.words or t.opcode == "madc":
        return carry_form(t)
    kind, bits = t.type, width(t.type)
    adds = t.opcode.startswith("mad")
    wide = f"{kind[0]}{2 * bits}" if "wide" in t.words else kind
    cut = 24 if "24" in t.opcode else bits

    def reference(*v: int) -> int:
        a, b = (signed(x, cut) if kind[0] == "s" else x & (1 << cut) - 1 for x in v[:2])
        value = a * b
        if "hi" in t.words:
            value = (value >> 16 if cut == 24 else value >> bits) & (1 << bits) - 1
        value += typed(wide, v[2]) if adds else 0
        if "sat" in t.words:
            value = clamp(signed(value - typed(wide, v[2]), bits) + typed(wide, v[2]), bits)
        return value

    return Form(t.text, wide, (kind, kind, *((wide,) * adds)), reference)


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


# Bits


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


# Floating point

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
            "normal": finite and not small and a & ~form.sign != 0,
            "subnormal": small,
        }[t.words[0]])  # fmt: skip

    body = f"{t.text} %p, %a; selp.u32 %d, 1, 0, %p;"
    return Form(t.text, "u32", (t.type,), reference, 0, body)


# Comparisons and choices


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

    def reference(a: int, b: int, c: int = 0) -> int:
        good = compare(t, t.type, a, b)
        results = [good, not good]
        if combine:
            results = [bool(INTEGER[combine](int(r), c)) for r in results]
        return results[0] | results[1] << 1

    own = ".reg .pred %x;" + " setp.ne.u32 %x, %c, 0;" * bool(combine)
    operands = "%a, %b, %x" if combine else "%a, %b"
    body = f"{own} {t.text} %p|%q, {operands}; selp.u32 %d, 1, 0, %p; @%q add.u32 %d, %d, 2;"
    sources = (t.type, t.type, *(("bool",) * bool(combine)))
    return Form(t.text, "u32", sources, reference, 0, body)


def set_form(t: Text) -> Form:
    target, source = t.types
    yes = FORMATS[target].round(Fraction(1)) if target in FORMATS else -1
    return Form(
        t.text, target, (source, source), lambda a, b: yes if compare(t, source, a, b) else 0
    )


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
    return Form(t.text, t.type, (t.type,), lambda a: a)


# Conversions


def convert_form(t: Text) -> Form:
    target, source = t.types
    if target.endswith("x2"):
        one = convert_number(t, target.removesuffix("x2"), source)
        return Form(t.text, target, (source,) * 2, lambda a, b: one(b) | one(a) << 16)
    if target == "tf32":
        return Form(t.text, target, (source,), to_tf32)
    return Form(t.text, target, (source,), convert_number(t, target, source))


def to_tf32(bits: int) -> int:
    if bits & F32.infinity == F32.infinity:
        return bits
    return bits + 0x1000 & ~0x1FFF


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


# Atomic operations


def atomic_form(t: Text) -> Form:
    """What was there before and what is there then, one rotated onto the other."""
    kind, bits = t.type, width(t.type)
    operation = t.first("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
    shared = "shared" in t.words
    place = "[%z]" if shared else "[%p_d]"
    space = "shared" if shared else "global"
    returns = t.opcode == "atom"
    operands = "%b, %c" if operation == "cas" else "%b"
    unit = f"b{bits}"
    body = f""".reg .{unit} %x, %y; .reg .b32 %z, %w; mov.u32 %z, %tid.x;
        mov.u32 %w, own; mad.lo.u32 %z, %z, 8, %w;
        mov.{unit} %y, 0; st.{space}.{unit} {place}, %a;
        {t.text} {"%y, " * returns}{place}, {operands}; ld.{space}.{unit} %x, {place};
        xor.{unit} %d, %x, %y;"""

    def one(old: int, value: int, new: int = 0) -> int:
        if operation == "cas":
            return new if old == value else old
        if operation in {"inc", "dec"}:
            up = 0 if old >= value else old + 1
            return up if operation == "inc" else value if old == 0 or old > value else old - 1
        if operation == "exch":
            return value
        if kind.removesuffix("x2") in FORMATS:
            form = FORMATS[kind.removesuffix("x2")]
            return compute(form, "add", "rn", old, value)
        return INTEGER[operation](typed(kind, old), typed(kind, value)) & (1 << bits) - 1

    single = kind.removesuffix("x2")
    whole = in_pairs(t, Form(t.text, single, (single,) * 2, one)).reference
    count = 3 if operation == "cas" else 2
    return Form(
        t.text, kind, (kind,) * count, lambda *v: whole(*v) ^ (v[0] if returns else 0), 0, body
    )


SPECIAL: dict[str, Callable[[Text], Form]] = {
    **dict.fromkeys(("add", "sub", "addc", "subc"), sum_form),
    **dict.fromkeys(("mul", "mad", "madc", "mul24", "mad24"), product_form),
    **dict.fromkeys(("dp2a", "dp4a"), dot_form),
    **dict.fromkeys(("popc", "clz", "brev", "bfind"), count_form),
    **dict.fromkeys(("shl", "shr"), shift_form),
    **dict.fromkeys(("bfe", "bfi", "bmsk", "szext"), field_form),
    "fns": nth_form,
    "shf": funnel_form,
    "prmt": permute_form,
    "lop3": logic_form,
    "testp": property_form,
    "setp": predicate_form,
    "set": set_form,
    "selp": select_form,
    "slct": sign_select_form,
    "mov": move_form,
    **dict.fromkeys(("atom", "red"), atomic_form),
    "cvt": convert_form,
}
