# SPDX-License-Identifier: Apache-2.0
"""Elementwise operations whose Python signature is more than their operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from flambeau.ops.common import store_out
from flambeau.ops.promotion import category_of, kind_of, promote_kinds
from flambeau.ops.registry import METHODS, OPS, inplace_method, public
from flambeau.runtime import _dtype
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from flambeau.runtime._elementwise import ElementwiseOp

Number = bool | int | float | complex
RoundingMode = Literal["trunc", "floor"] | None


_ADD, _SUB = OPS["_add"], OPS["_sub"]


def _check_alpha(name: str, input: Tensor | Number, other: Tensor | Number, alpha: Number) -> None:
    category = category_of(promote_kinds((kind_of(input), kind_of(other))))
    if isinstance(alpha, bool) and category > 0:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if category < 3 and complex in {type(alpha)}:
        raise RuntimeError(
            "For non-complex input tensors, argument alpha must not be a complex number; "
            f"{name}() got alpha={alpha!r}"
        )
    if isinstance(alpha, float) and category < 2:
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number; "
            f"{name}() got alpha={alpha!r}"
        )


def _scaled(name: str, input: Any, other: Any, alpha: Any, out: Any, in_place: bool) -> Tensor:
    plain = alpha == 1 and not isinstance(alpha, (bool, float))
    scalars: tuple[Any, ...] = ()
    if not plain:
        _check_alpha(name, input, other, alpha)
        scalars = (alpha,)
    op = OPS[f"_{name}" if plain else f"_{name}_scaled"]
    if in_place:
        return op.in_place(input, other, scalars=scalars)
    return op(input, other, out=out, scalars=scalars)


@public(short_answer=_ADD.short_answer())
def add(
    input: Tensor, other: Tensor | Number, *, alpha: Number = 1, out: Tensor | None = None
) -> Tensor:
    """Add ``alpha * other`` to a tensor.

    Parameters
    ----------
    input, other
        Tensors that broadcast together, or numbers.
    alpha
        A factor for `other`; not a float when the result is an integer.
    out
        Where to store the result; resized if its shape differs.

    Returns
    -------
    Tensor
        Of the operands' common dtype.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.add(torch.tensor([1, 2]), 10, alpha=2)
    tensor([21, 22])
    """
    if type(alpha) is int and alpha == 1:
        return _ADD.binary(input, other, out)
    return _scaled("add", input, other, alpha, out, False)


@public("subtract", short_answer=_SUB.short_answer())
def sub(
    input: Tensor, other: Tensor | Number, *, alpha: Number = 1, out: Tensor | None = None
) -> Tensor:
    """Subtract ``alpha * other`` from a tensor; parameters as for `add`."""
    if type(alpha) is int and alpha == 1:
        return _SUB.binary(input, other, out)
    return _scaled("sub", input, other, alpha, out, False)


@public()
def rsub(input: Tensor, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """Subtract ``alpha * input`` from `other`; parameters as for `add`."""
    return _scaled("sub", other, input, alpha, None, False)


def _add_(self: Tensor, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """Add ``alpha * other`` to this tensor and return it."""
    if type(alpha) is int and alpha == 1:
        return _ADD.binary_in_place(self, other)
    return _scaled("add", self, other, alpha, None, True)


def _sub_(self: Tensor, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """Subtract ``alpha * other`` from this tensor and return it."""
    if type(alpha) is int and alpha == 1:
        return _SUB.binary_in_place(self, other)
    return _scaled("sub", self, other, alpha, None, True)


inplace_method("add_", _add_, _ADD.short_answer(in_place=True))
inplace_method("sub_", _sub_, _SUB.short_answer(in_place=True))
METHODS["subtract_"] = _sub_


def _division(rounding_mode: RoundingMode) -> ElementwiseOp:
    names = {None: "_div", "trunc": "_div_trunc", "floor": "_div_floor"}
    if rounding_mode not in names:
        raise RuntimeError(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
            f"{rounding_mode!r}"
        )
    return OPS[names[rounding_mode]]


@public("divide")
def div(
    input: Tensor,
    other: Tensor | Number,
    *,
    rounding_mode: RoundingMode = None,
    out: Tensor | None = None,
) -> Tensor:
    """Divide.

    Parameters
    ----------
    input, other
        Tensors that broadcast together, or numbers.
    rounding_mode
        None divides truly, integers giving the default floating-point dtype; ``"trunc"`` rounds
        towards zero and ``"floor"`` down, both in the operands' common dtype.
    out
        Where to store the result; resized if its shape differs.

    Returns
    -------
    Tensor
        The quotients.

    Raises
    ------
    RuntimeError
        Another rounding mode, or a host integer divided by zero. On a CUDA device an integer
        quotient by zero is unspecified.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.div(torch.tensor([-7, 7]), 2, rounding_mode="floor")
    tensor([-4,  3])
    """
    return _division(rounding_mode)(input, other, out=out)


@public()
def true_divide(input: Tensor, other: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Divide; integers give the default floating-point dtype. See `div`."""
    return OPS["_div"](input, other, out=out)


def _div_(self: Tensor, other: Tensor | Number, *, rounding_mode: RoundingMode = None) -> Tensor:
    """Divide this tensor and return it; see `div`."""
    return _division(rounding_mode).in_place(self, other)


inplace_method("div_", _div_)
METHODS["divide_"] = METHODS["true_divide_"] = _div_


def _check_power(base: Any, exponent: Any) -> None:
    negative = isinstance(exponent, int) and exponent < 0
    if negative and isinstance(base, Tensor) and base.dtype.category == 1:
        raise RuntimeError(
            "Integers to negative integer powers are not allowed; convert the base to a "
            f"floating-point dtype, got exponent {exponent}"
        )


@public()
def pow(input: Tensor | Number, exponent: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Raise to a power.

    Parameters
    ----------
    input, exponent
        Tensors that broadcast together; one of them may be a number.
    out
        Where to store the result; resized if its shape differs.

    Returns
    -------
    Tensor
        Of the operands' common dtype.

    Raises
    ------
    RuntimeError
        An integer tensor with a negative integer as exponent.
    """
    _check_power(input, exponent)
    twice = isinstance(exponent, (int, float)) and exponent == 2
    if twice and isinstance(input, Tensor) and input.dtype.category == 2:
        return OPS["_square"](input, out=out)
    return OPS["_pow"](input, exponent, out=out)


@public()
def square(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply every element by itself; bool counts as 0 and 1."""
    if input.dtype.category == 0:
        return OPS["_pow"](input, 2, out=out)
    return OPS["_square"](input, out=out)


def _abs_(self: Tensor) -> Tensor:
    """Replace this tensor's elements by their absolute values and return it."""
    if self.is_complex():
        raise RuntimeError("In-place abs is not supported for complex tensors.")
    return OPS["abs"].in_place(self)


inplace_method("abs_", _abs_)
METHODS["absolute_"] = METHODS["abs_"]


def _square_(self: Tensor) -> Tensor:
    """Square this tensor's elements and return it."""
    if self.dtype.category == 0:
        return store_out(square(self), self)
    return OPS["_square"].in_place(self)


inplace_method("square_", _square_)


def _pow_(self: Tensor, exponent: Tensor | Number) -> Tensor:
    """Raise this tensor to a power and return it; see `pow`."""
    _check_power(self, exponent)
    return OPS["_pow"].in_place(self, exponent)


inplace_method("pow_", _pow_)


def _clamp(input: Tensor, min: Any, max: Any) -> tuple[ElementwiseOp, tuple[Any, ...]]:
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if max is None:
        return OPS["_clamp_min"], (min,)
    if min is None:
        return OPS["_clamp_max"], (max,)
    return OPS["_clamp"], (min, max)


@public("clip")
def clamp(
    input: Tensor,
    min: Tensor | Number | None = None,
    max: Tensor | Number | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Limit every element to a range.

    Parameters
    ----------
    input
        A tensor.
    min, max
        Limits: numbers or tensors that broadcast; one may be left out. Where `min` is above `max`
        the result is `max`. NaN stays NaN.
    out
        Where to store the result; resized if its shape differs.

    Raises
    ------
    RuntimeError
        Neither limit is given.
    """
    op, limits = _clamp(input, min, max)
    return op(input, *limits, out=out)


@public()
def clamp_min(input: Tensor, min: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Raise every element to at least `min`."""
    return OPS["_clamp_min"](input, min, out=out)


@public()
def clamp_max(input: Tensor, max: Tensor | Number, *, out: Tensor | None = None) -> Tensor:
    """Lower every element to at most `max`."""
    return OPS["_clamp_max"](input, max, out=out)


def _clamp_(
    self: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None
) -> Tensor:
    """Limit this tensor's elements to a range and return it; see `clamp`."""
    op, limits = _clamp(self, min, max)
    return op.in_place(self, *limits)


inplace_method("clamp_", _clamp_)
METHODS["clip_"] = _clamp_


@public()
def lerp(
    input: Tensor, end: Tensor, weight: Tensor | float, *, out: Tensor | None = None
) -> Tensor:
    """Interpolate linearly: ``input + weight * (end - input)``, exact at both ends."""
    if isinstance(weight, Tensor) and weight.dtype != input.dtype:
        raise RuntimeError(
            f"expected dtype {input.dtype} for `weight` but got dtype {weight.dtype}"
        )
    if not input.is_complex() and complex in {type(weight)}:
        raise RuntimeError(
            f"value cannot be converted to type {input.dtype} without overflow: {weight}"
        )
    return OPS["lerp"](input, end, weight, out=out)


@public()
def addcmul(
    input: Tensor,
    tensor1: Tensor,
    tensor2: Tensor,
    *,
    value: Number = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Compute ``input + value * tensor1 * tensor2``."""
    return OPS["addcmul"](input, tensor1, tensor2, out=out, scalars=(value,))


@public()
def addcdiv(
    input: Tensor,
    tensor1: Tensor,
    tensor2: Tensor,
    *,
    value: Number = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Compute ``input + value * tensor1 / tensor2``, for floating-point tensors."""
    return OPS["addcdiv"](input, tensor1, tensor2, out=out, scalars=(value,))


def _lerp_(self: Tensor, end: Tensor, weight: Tensor | float) -> Tensor:
    """Interpolate from this tensor towards `end`, written into this tensor."""
    return OPS["lerp"].in_place(self, end, weight)


def _addcmul_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """Add ``value * tensor1 * tensor2`` to this tensor and return it."""
    return OPS["addcmul"].in_place(self, tensor1, tensor2, scalars=(value,))


def _addcdiv_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """Add ``value * tensor1 / tensor2`` to this tensor and return it."""
    return OPS["addcdiv"].in_place(self, tensor1, tensor2, scalars=(value,))


inplace_method("lerp_", _lerp_)
inplace_method("addcmul_", _addcmul_)
inplace_method("addcdiv_", _addcdiv_)


@public()
def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """Round to the nearest integer, halves to even.

    Parameters
    ----------
    input
        A tensor; integers are returned as they are.
    decimals
        How many decimal places to keep; negative ones round left of the point.
    out
        Where to store the result; resized if its shape differs.
    """
    if decimals == 0:
        return OPS["_round"](input, out=out)
    if input.dtype.category != 2:
        raise NotImplementedError(
            f"\"round\" with decimals not implemented for '{_dtype.legacy_type_name(input.dtype)}'"
        )
    power = 10.0 ** abs(decimals)
    if decimals > 0:
        return store_out(OPS["_round"](input * power) / power, out)
    return store_out(OPS["_round"](input / power) * power, out)


def _round_(self: Tensor, *, decimals: int = 0) -> Tensor:
    """Round this tensor's elements and return it; see `round`."""
    return self.copy_(round(self, decimals=decimals))


inplace_method("round_", _round_)


@public()
def nan_to_num(
    input: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Replace NaN and infinities.

    Parameters
    ----------
    input
        A tensor; integers are returned as they are.
    nan, posinf, neginf
        Replacements: 0, the dtype's largest and its lowest number unless given.
    out
        Where to store the result; resized if its shape differs.
    """
    if input.dtype.category < 2:
        return store_out(input.clone(), out)
    if input.is_complex():
        clean: Tensor = input.clone()
        for part in (clean.real, clean.imag):
            part.copy_(nan_to_num(part, nan, posinf, neginf))
        return store_out(clean, out)
    limits = _dtype.finfo(input.dtype)
    values = (
        0.0 if nan is None else nan,
        limits.max if posinf is None else posinf,
        limits.min if neginf is None else neginf,
    )
    return OPS["_nan_to_num"](input, out=out, scalars=values)


@public()
def float_power(
    input: Tensor | Number, exponent: Tensor | Number, *, out: Tensor | None = None
) -> Tensor:
    """Raise to a power in float64, complex numbers in complex128."""
    kinds = (kind_of(input), kind_of(exponent))
    wide = "complex128" if category_of(promote_kinds(kinds)) == 3 else "float64"
    double = _dtype.dtypes[wide]
    base = input.to(double) if isinstance(input, Tensor) else input
    power = exponent.to(double) if isinstance(exponent, Tensor) else exponent
    return OPS["_pow"](base, power, out=out)
