# SPDX-License-Identifier: Apache-2.0
"""Special functions whose Python signature is more than their operands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flambeau.ops import return_types
from flambeau.ops.arithmetic import clamp, float_power, nan_to_num
from flambeau.ops.common import store_out
from flambeau.ops.promotion import get_default_dtype
from flambeau.ops.registry import OPS, inplace_method, public
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

_INT32 = _dtype.dtypes["int32"]


def _as_float(input: Tensor) -> Tensor:
    return input if input.dtype.category >= 2 else input.to(get_default_dtype())


@public()
def logit(input: Tensor, eps: float | None = None, *, out: Tensor | None = None) -> Tensor:
    """Compute ``log(x / (1 - x))``.

    Parameters
    ----------
    input
        A tensor.
    eps
        Clamp to ``[eps, 1 - eps]`` first; None leaves what is outside [0, 1] as NaN.
    out
        Where to store the result.
    """
    held = _as_float(input)
    if eps is not None:
        held = clamp(held, eps, 1 - eps)
    return OPS["_logit"](held, out=out)


@public()
def polygamma(n: Any, input: Any, *, out: Tensor | None = None) -> Tensor:
    """Compute the n-th derivative of the digamma function."""
    if not isinstance(n, int):  # as a method: x.polygamma(n)
        n, input = input, n
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n, got {n}")
    if n < 2:
        return OPS["_trigamma" if n else "digamma"](input, out=out)
    factor = math.factorial(n) * (1.0 if n % 2 else -1.0)
    return store_out(OPS["_zeta"](float(n + 1), _as_float(input)) * factor, out)


@public()
def mvlgamma(input: Tensor, p: int, *, out: Tensor | None = None) -> Tensor:
    """Compute the logarithm of the multivariate gamma function of dimension `p`."""
    if p < 1:
        raise RuntimeError(f"p has to be greater than or equal to 1, got {p}")
    held = _as_float(input)
    total = OPS["lgamma"](held)
    for j in range(1, p):
        total = total + OPS["lgamma"](held - j / 2)
    return store_out(total + math.log(math.pi) * p * (p - 1) / 4, out)


@public()
def ldexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Compute ``input * 2 ** other``."""
    return OPS["mul"](input, OPS["_pow"](2.0, other), out=out)


@public()
def frexp(input: Tensor, *, out: Any = None) -> return_types.frexp:
    """Split into ``mantissa * 2 ** exponent`` with mantissas in [0.5, 1); exponents are int32."""
    mantissa = OPS["_frexp_mantissa"](input)
    exponent = OPS["_frexp_exponent"](input).to(_INT32)
    if out is not None:
        mantissa, exponent = store_out(mantissa, out[0]), store_out(exponent, out[1])
    return return_types.frexp(mantissa, exponent)


def _logit_(self: Tensor, eps: float | None = None) -> Tensor:
    """Replace this tensor by its `logit` and return it."""
    return store_out(logit(self, eps), self)


def _polygamma_(self: Tensor, n: int) -> Tensor:
    """Replace this tensor by its `polygamma` and return it."""
    return store_out(polygamma(n, self), self)


def _mvlgamma_(self: Tensor, p: int) -> Tensor:
    """Replace this tensor by its `mvlgamma` and return it."""
    return store_out(mvlgamma(self, p), self)


def _ldexp_(self: Tensor, other: Tensor) -> Tensor:
    """Multiply this tensor by ``2 ** other`` and return it."""
    return OPS["mul"].in_place(self, OPS["_pow"](2.0, other))


def _float_power_(self: Tensor, exponent: Any) -> Tensor:
    """Raise this tensor, which must be float64 or complex128, to a power and return it."""
    if self.dtype.name not in {"float64", "complex128"}:
        raise RuntimeError(
            f"the base given to float_power_ has dtype {_dtype.legacy_type_name(self.dtype)} but "
            "the operation's result requires dtype Double"
        )
    return self.copy_(float_power(self, exponent))


def _nan_to_num_(
    self: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """Replace NaN and infinities in this tensor and return it."""
    return self.copy_(nan_to_num(self, nan, posinf, neginf))


def _clamp_min_(self: Tensor, min: Any) -> Tensor:
    """Raise this tensor's elements to at least `min` and return it."""
    return OPS["_clamp_min"].in_place(self, min)


def _clamp_max_(self: Tensor, max: Any) -> Tensor:
    """Lower this tensor's elements to at most `max` and return it."""
    return OPS["_clamp_max"].in_place(self, max)


for _name, _call in (
    ("logit_", _logit_), ("polygamma_", _polygamma_), ("mvlgamma_", _mvlgamma_),
    ("ldexp_", _ldexp_), ("float_power_", _float_power_), ("nan_to_num_", _nan_to_num_),
    ("clamp_min_", _clamp_min_), ("clamp_max_", _clamp_max_),
):  # fmt: skip
    inplace_method(_name, _call)


@public(method=False)
def fill(input: Tensor, value: Any) -> Tensor:
    """Copy a tensor's layout, with every element set to a number."""
    return input.clone().fill_(value)
