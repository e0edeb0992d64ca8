# SPDX-License-Identifier: Apache-2.0
"""What the derivatives in the elementwise table call by name."""

from __future__ import annotations

import cmath
import math

import flambeau
from flambeau.ops.derivative_functions import between
from flambeau.ops.elementwise import ROWS
from flambeau.runtime._tensor import Tensor

__all__ = [
    "ROWS",
    "chosen",
    "logarithm",
    "power_base",
    "power_exponent",
    "shared",
    "sinc_slope",
    "wanted",
]

Operand = Tensor | complex


def chosen(condition: Tensor, grad: Tensor, other: Operand = 0) -> Tensor:
    """The gradient where a condition holds, else 0, whatever the gradient is there."""
    found: Tensor = flambeau.where(condition, grad, other)
    return found


def wanted(condition: Operand) -> Tensor:
    """A condition of any dtype as bool."""
    return condition != 0  # type: ignore[return-value]


shared = between


def sinc_slope(a: Tensor, out: Tensor) -> Tensor:
    """The derivative of sinc, 0 at 0."""
    zero = a == 0
    safe = chosen(zero, a * 0 + 1, a)
    return chosen(zero, a * 0, ((safe * 3.141592653589793).cos() - out) / safe)


def logarithm(value: Operand) -> Operand:
    """The natural logarithm of a tensor or a number."""
    if isinstance(value, Tensor):
        found: Tensor = value.log()
        return found
    return cmath.log(value) if isinstance(value, complex) else math.log(value)


def power_base(grad: Tensor, base: Tensor, exponent: Operand) -> Tensor:
    """The gradient of the base of a power; 0 where the exponent is."""
    if not isinstance(exponent, Tensor):
        if exponent == 0:
            return grad * 0
        return grad * (exponent * base ** (exponent - 1))
    slope = exponent * base ** (exponent - 1)
    return chosen(exponent == 0, grad * 0, grad * slope)


def power_exponent(grad: Tensor, base: Operand, exponent: Tensor, out: Tensor) -> Tensor:
    """The gradient of the exponent of a power; 0 where a base 0 has none that is negative."""
    if not isinstance(base, Tensor):
        return grad * 0 if base == 0 else grad * (out * logarithm(base))
    flat = (base == 0) & (exponent >= 0)
    return chosen(flat, grad * 0, grad * (out * base.log()))
