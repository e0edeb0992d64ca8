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
    "angle_slope",
    "bessel_i1",
    "bessel_i1_slope",
    "chosen",
    "gamma_density",
    "logarithm",
    "missing",
    "polar_length",
    "power_base",
    "power_exponent",
    "power_of_exponent",
    "shared",
    "sign_slope",
    "sinc_slope",
    "wanted",
    "zeta_slope",
]

Operand = Tensor | complex


def chosen(condition: Tensor, grad: Tensor, other: Operand = 0) -> Tensor:
    """The gradient where a condition holds, else 0, whatever the gradient is there."""
    found: Tensor = flambeau.where(condition, grad, other)
    return found


def wanted(condition: Operand) -> Tensor:
    """A condition of any dtype as bool."""
    return condition != 0  # type: ignore[return-value]


def missing(name: str) -> Tensor:
    """Say that there is no derivative: called by the backward pass alone."""
    raise NotImplementedError(
        f"the derivative for '{name}' is not implemented. Detach that operand, or call the "
        "operation under torch.no_grad(), if no gradient is to flow through it."
    )


shared = between


def sinc_slope(a: Tensor, out: Tensor) -> Tensor:
    """The derivative of sinc, 0 at 0."""
    zero = a == 0
    safe = chosen(zero, a * 0 + 1, a)
    return chosen(zero, a * 0, ((safe * 3.141592653589793).cos() - out) / safe)


def sign_slope(grad: Tensor, a: Tensor, out: Tensor) -> Tensor:
    """The gradient of ``a / |a|``: 0 of real numbers and at 0; gradients come in conjugated."""
    if not a.is_complex():
        return grad * 0
    along = (out * grad).real
    length = chosen(a == 0, a.abs() * 0 + 1, a.abs())
    return chosen(a == 0, grad * 0, (grad - out.conj() * along) / length)


def angle_slope(grad: Tensor, a: Tensor) -> Tensor:
    """The gradient of the argument, a real one of complex numbers; 0 of real numbers."""
    if not a.is_complex():
        return grad * 0
    zero = a == 0
    square = a.real * a.real + a.imag * a.imag
    slope: Tensor = (a * 1j) / chosen(zero, square * 0 + 1, square)
    return grad * slope


def polar_length(grad: Tensor, angle: Tensor) -> Tensor:
    """The gradient of the lengths that complex numbers were made of."""
    turned: Tensor = grad.real * angle.real.cos() + grad.imag * angle.real.sin()
    return turned


def bessel_i1(a: Tensor) -> Tensor:
    """The modified Bessel function of order 1."""
    from flambeau.ops.registry import OPS

    found: Tensor = OPS["_i1"](a)
    return found


def bessel_i1_slope(a: Tensor, out: Tensor) -> Tensor:
    """The derivative of `bessel_i1`: half of 1 at 0."""
    zero = a == 0
    safe = chosen(zero, a * 0 + 1, a)
    return chosen(zero, a * 0 + 0.5, safe.i0() - out / safe)


def zeta_slope(s: Operand, a: Tensor) -> Tensor:
    """The derivative of Hurwitz's zeta function by its second operand."""
    from flambeau.ops.registry import OPS

    return OPS["_zeta"](s + 1, a) * -s


def gamma_density(a: Operand, x: Tensor) -> Tensor:
    """The derivative of the regularised incomplete gamma function by its second operand."""
    order = a if isinstance(a, Tensor) else flambeau.full_like(x, a)
    found: Tensor = ((order - 1) * x.log() - x - order.lgamma()).exp()
    return found


def power_of_exponent(a: Tensor) -> Tensor:
    """What `frexp` divides by to get the mantissa, as a factor."""
    from flambeau.ops.registry import OPS

    found: Tensor = (-OPS["_frexp_exponent"](a.detach())).exp2()
    return found


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
    flat = (base == 0) & (exponent.real >= 0)
    return chosen(flat, grad * 0, grad * (out * base.log()))
