# SPDX-License-Identifier: Apache-2.0
"""Special functions of host tensors, in double precision, with the formulas of ``special.cuh``."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flambeau.ops.host import Array

__all__ = ["apply"]

_NAN, _INF = math.nan, math.inf


def _lgamma(x: float) -> float:
    if math.isinf(x):
        return _INF
    return _INF if x <= 0 and x == np.floor(x) else math.lgamma(x)


def _digamma(x: float) -> float:
    if math.isinf(x):
        return x if x > 0 else _NAN
    if x == 0:
        return math.copysign(_INF, -x)
    result = 0.0
    if x < 0:
        if x == np.floor(x):
            return _NAN
        result = -math.pi / math.tan(math.pi * math.fmod(x, 1.0))
        x = 1 - x
    while x < 10:
        result -= 1 / x
        x += 1
    y = 1 / (x * x) if math.isfinite(x) else 0.0
    terms = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
    series = sum(c * y ** (k + 1) for k, c in enumerate(terms))
    return result + math.log(x) - 0.5 / x - series


def _zeta(x: float, q: float) -> float:
    if x == 1:
        return _INF
    if not x > 1 or math.isnan(q):
        return _NAN
    if math.isinf(q):
        return 0.0 if q > 0 else _NAN
    if q <= 0:
        if q == np.floor(q):
            return _INF
        if x != np.floor(x):
            return _NAN
    total, a, k = 0.0, q, 0
    while k < 9 or a <= 9:
        total += a**-x
        k, a = k + 1, a + 1
    total += a ** (1 - x) / (x - 1) + 0.5 * a**-x
    terms = (
        1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
        1 / 74724249600,
    )  # fmt: skip
    factor, power = x, a ** (-x - 1)
    for k, coefficient in enumerate(terms):
        total += coefficient * factor * power
        factor *= (x + 2 * k + 1) * (x + 2 * k + 2)
        power /= a * a
    return float(total)


def _trigamma(x: float) -> float:
    if math.isnan(x) or x >= 0.5:
        return _zeta(2.0, x)
    if math.isinf(x):
        return _NAN
    sine = math.sin(math.pi * (x - np.floor(x)))
    return _INF if sine == 0 else math.pi**2 / sine**2 - _zeta(2.0, 1 - x)


def _i1(x: float) -> float:
    """The modified Bessel function of order 1: its series, and the asymptotic one far out."""
    z = abs(x)
    if not z < 700:
        return math.copysign(_INF, x) if z >= 700 else _NAN
    if z < 30:
        term = total = z / 2
        for k in range(1, 200):
            term *= z * z / 4 / (k * (k + 1))
            total += term
            if term <= total * 1e-17:
                break
    else:
        term = total = 1.0
        for k in range(1, 30):
            step = term * -(4 - (2 * k - 1) ** 2) / (8 * z * k)
            if abs(step) >= abs(term):
                break
            term = step
            total += term
        total *= math.exp(z) / math.sqrt(2 * math.pi * z)
    return math.copysign(total, x)


def _erfinv(x: float) -> float:
    if not -1 <= x <= 1:
        return _NAN
    if abs(x) == 1:
        return math.copysign(_INF, x)
    if x == 0:
        return x
    guess = NormalDist().inv_cdf((1 + x) / 2) / math.sqrt(2) if abs(x) < 1 - 1e-15 else 5.8
    guess = math.copysign(guess, x)
    for _ in range(2):  # Newton's method, from 16 digits or nearly
        slope = 2 / math.sqrt(math.pi) * math.exp(-guess * guess)
        guess -= (math.erf(guess) - x) / slope
    return guess


def _incomplete(a: float, x: float, upper: bool) -> float:
    if math.isnan(a) or math.isnan(x) or a < 0 or x < 0:
        return _NAN
    if a == 0:
        return (0.0 if upper else 1.0) if x > 0 else _NAN
    if x == 0:
        return 1.0 if upper else 0.0
    if math.isinf(a):
        return _NAN if math.isinf(x) else (1.0 if upper else 0.0)
    if math.isinf(x):
        return 0.0 if upper else 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for k in range(1, 10000):
            term *= x / (a + k)
            total += term
            if term <= total * 1e-17:
                break
        return 1 - front * total if upper else front * total
    fraction = _continued_fraction(a, x)
    return front * fraction if upper else 1 - front * fraction


def _continued_fraction(a: float, x: float) -> float:
    tiny = 1e-300
    b, c = x + 1 - a, 1 / tiny
    d = 1 / b
    h = d
    for k in range(1, 10000):
        n = -k * (k - a)
        b += 2
        d = n * d + b or tiny
        c = b + n / c or tiny
        d = 1 / d
        h *= d * c
        if abs(d * c - 1) < 1e-16:
            break
    return h


_FORMS: dict[str, Callable[..., float]] = {
    "lgamma": _lgamma,
    "digamma": _digamma,
    "trigamma": _trigamma,
    "erfinv": _erfinv,
    "i1": _i1,
    "zeta": _zeta,
    "igamma": lambda a, x: _incomplete(a, x, False),
    "igammac": lambda a, x: _incomplete(a, x, True),
}


def apply(name: str, operands: Sequence[Array]) -> Array:
    """Apply one of the functions, element by element, to float64 arrays of one shape."""
    # Python's own floats raise where the device has infinities; NumPy's do not.
    columns: list[Any] = [part.reshape(-1) for part in operands]
    form = _FORMS[name]
    with np.errstate(all="ignore"):
        results = [form(*row) for row in zip(*columns, strict=True)]
    return np.array(results, dtype=np.float64).reshape(operands[0].shape)
