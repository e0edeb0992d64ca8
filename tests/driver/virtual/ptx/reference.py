# SPDX-License-Identifier: Apache-2.0
"""Arithmetic by definition: exact rational numbers, rounded once to a format, as bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Format:
    """A binary floating-point format; all but f64 have one NaN."""

    exponent: int
    fraction: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def nan(self) -> int:
        return self.sign - 1

    @property
    def lowest(self) -> int:
        """The exponent of the smallest subnormal number."""
        return 2 - (1 << (self.exponent - 1)) - self.fraction

    def is_nan(self, bits: int) -> bool:
        return bits & (self.sign - 1) > self.infinity

    def is_infinite(self, bits: int) -> bool:
        return bits & (self.sign - 1) == self.infinity

    def is_subnormal(self, bits: int) -> bool:
        return 0 < bits & (self.sign - 1) < 1 << self.fraction

    def negative(self, bits: int) -> bool:
        return bool(bits & self.sign)

    def value(self, bits: int) -> Fraction:
        """The exact value of a finite number."""
        field = bits >> self.fraction & ((1 << self.exponent) - 1)
        digits = bits & ((1 << self.fraction) - 1) | (1 << self.fraction if field else 0)
        size = Fraction(digits) * Fraction(2) ** (max(field, 1) - 1 + self.lowest)
        return -size if self.negative(bits) else size

    def number(self, bits: int) -> float:
        if self.is_nan(bits):
            return math.nan
        if self.is_infinite(bits):
            return -math.inf if self.negative(bits) else math.inf
        value = self.value(bits)
        return math.copysign(float(value), -1 if self.negative(bits) else 1)

    def round(self, value: Fraction, mode: str = "rn", *, negative_zero: bool = False) -> int:
        """The bits of a number in this format."""
        if value == 0:
            return self.sign if negative_zero else 0
        sign, size = (self.sign, -value) if value < 0 else (0, value)
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        if size < Fraction(2) ** exponent:
            exponent -= 1
        last = max(exponent - self.fraction, self.lowest)
        steps, rest = divmod(size / Fraction(2) ** last, 1)
        away = {"rz": False, "rm": bool(sign), "rp": not sign}.get(mode)
        if away is None:
            away = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and steps % 2 == 1)
        steps += bool(rest) and away
        bits = int(steps) + ((last - self.lowest) << self.fraction)
        if bits >= self.infinity:
            bits = self.infinity if mode == "rn" or away else self.infinity - 1
        return sign | bits

    def from_float(self, number: float, mode: str = "rn") -> int:
        if math.isnan(number):
            return self.nan
        if math.isinf(number):
            return self.infinity | (self.sign if number < 0 else 0)
        return self.round(Fraction(number), mode, negative_zero=math.copysign(1, number) < 0)

    def flush(self, bits: int) -> int:
        return bits & self.sign if self.is_subnormal(bits) else bits

    def saturate(self, bits: int) -> int:
        if self.is_nan(bits) or self.negative(bits):
            return 0
        return min(bits, self.round(Fraction(1)))


F16, BF16, F32, F64 = Format(5, 10), Format(8, 7), Format(8, 23), Format(11, 52)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def root(value: Fraction) -> Fraction:
    """A square root, exact or with enough digits to round it in any direction."""
    shift = 2 * 1200
    whole = (value.numerator << shift) // value.denominator
    digits = math.isqrt(whole)
    exact = digits * digits == whole and (value.numerator << shift) % value.denominator == 0
    return Fraction(2 * digits + (not exact), 1 << (shift // 2 + 1))


def special(operation: str, x: list[float]) -> float:
    """What comes of infinities and NaN."""
    if any(math.isnan(v) for v in x):
        return math.nan
    match operation:
        case "add":
            return x[0] + x[1]
        case "mul":
            return x[0] * x[1]
        case "fma":
            product = x[0] * x[1]
            return product + x[2] if math.isinf(product) or math.isnan(product) else x[2]
        case "sqrt":
            return math.nan if x[0] < 0 else x[0]
    if x[1] == 0:
        sign = math.copysign(1, x[0]) * math.copysign(1, x[1])
        return math.nan if x[0] == 0 else sign * math.inf
    return x[0] / x[1]


def compute(form: Format, operation: str, mode: str, *operands: int) -> int:
    """An operation of IEEE 754, rounded once."""
    x = [form.number(bits) for bits in operands]
    minus = [form.negative(bits) for bits in operands]
    finite = all(math.isfinite(v) for v in x)
    if not finite or (operation == "div" and x[1] == 0) or (operation == "sqrt" and x[0] < 0):
        return form.from_float(special(operation, x))
    v = [form.value(bits) for bits in operands]
    if operation in {"add", "fma"}:
        terms = (v[0], v[1]) if operation == "add" else (v[0] * v[1], v[2])
        signs = (minus[0], minus[1]) if operation == "add" else (minus[0] ^ minus[1], minus[2])
        zero_sign = signs[0] if signs[0] == signs[1] else mode == "rm"
        return form.round(terms[0] + terms[1], mode, negative_zero=zero_sign)
    if operation == "sqrt":
        return form.round(root(v[0]), mode, negative_zero=minus[0])
    value = v[0] * v[1] if operation == "mul" else v[0] / v[1]
    return form.round(value, mode, negative_zero=minus[0] ^ minus[1])


def signed(value: int, bits: int) -> int:
    """The low bits as a number in two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def to_integral(value: Fraction, mode: str) -> int:
    """Rounded to an integer: to nearest even, to zero, down or up."""
    functions: dict[str, Callable[[Fraction], int]] = {
        "rni": round,
        "rzi": math.trunc,
        "rmi": math.floor,
        "rpi": math.ceil,
    }
    return functions[mode](value)
