# SPDX-License-Identifier: Apache-2.0
"""Host tensors through NumPy: views without a copy, and forms that NumPy lacks.

This is the only place where tensors meet NumPy; it is imported at the first operation on a host
tensor, never by ``import flambeau``.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from flambeau.ops.promotion import FLOAT32, category_of
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flambeau.ops.elementwise import Row
    from flambeau.runtime._tensor import Tensor

Array = np.ndarray[Any, np.dtype[Any]]

_DIRECT = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
# What ml_dtypes adds, under the same names.
_EXOTIC = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


@functools.cache
def numpy_dtype(code: int) -> np.dtype[Any]:
    """NumPy's dtype for a scalar type; bfloat16 and float8 come from ml_dtypes."""
    name = _dtype.dtype_from_code(code).name
    if name in _DIRECT:
        return np.dtype(name)
    if name in _EXOTIC:
        import ml_dtypes

        exotic: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return exotic
    raise TypeError(f"NumPy has no dtype for torch.{name}; convert with .to(dtype) first")


@functools.cache
def _codes() -> dict[np.dtype[Any], int]:
    return {
        numpy_dtype(_dtype.dtypes[name].code): _dtype.dtypes[name].code
        for name in [*_DIRECT, *_EXOTIC]
    }


def scalar_type(of: np.dtype[Any]) -> int:
    """The scalar type of a NumPy dtype.

    Raises
    ------
    TypeError
        Tensors have no such dtype.
    """
    found = _codes().get(of.newbyteorder("="))
    if found is None:
        raise TypeError(
            f"can't convert np.ndarray of type {of}. The only supported types are: "
            f"{', '.join(str(known) for known in _codes())}."
        )
    return found


def array(tensor: Tensor) -> Array:
    """A NumPy view of a host tensor's memory."""
    code = tensor.dtype.code
    wanted = numpy_dtype(code)
    if tensor.dtype.name in _EXOTIC:
        carrier = _dtype.dtypes["int16" if wanted.itemsize == 2 else "uint8"]
        return np.asarray(memoryview(tensor.view(carrier))).view(wanted)
    return np.asarray(memoryview(tensor)).view(wanted)  # "q" and "l" are two dtypes in NumPy


def tensor_of(values: Array | np.generic, code: int | None = None) -> Tensor:
    """A new host tensor with a copy of these values, converted to a scalar type."""
    from flambeau.runtime._tensor import empty

    source = np.asarray(values)
    target = scalar_type(source.dtype) if code is None else code
    made = empty(source.shape, dtype=_dtype.dtype_from_code(target))
    if source.size:
        array(made)[...] = convert(source, made.dtype.code)
    return made


def convert(values: Array, code: int) -> Array:
    """Values as another scalar type: floats truncate to integers, and wrap in uint8."""
    wanted = numpy_dtype(code)
    if values.dtype == wanted:
        return values
    with np.errstate(all="ignore"):
        if category_of(code) == 1 and values.dtype.kind not in "biu":
            if values.dtype.kind == "V":
                values = values.astype(np.float32)
            return values.astype(np.int64).astype(wanted)
        return values.astype(wanted)


def arithmetic_code(code: int) -> int:
    """The scalar type arithmetic is done in: float32 for the smaller floats."""
    of = _dtype.dtype_from_code(code)
    return FLOAT32 if of.category == 2 and of.itemsize < 4 else code


@functools.cache
def _compiled(row: Row) -> Callable[..., Any]:
    names = [*"abc"[: row.arity], *(f"s{k}" for k in range(row.scalars))]
    import sys

    scope = {"np": np, "host": sys.modules[__name__]}
    return eval(f"lambda {', '.join(names)}: {row.numpy}", scope)  # type: ignore[no-any-return]


def elementwise(
    row: Row,
    operands: Sequence[Tensor | complex],
    out: Tensor,
    compute_type: int,
    scalars: Sequence[complex] = (),
) -> None:
    """Run a row of the elementwise table on host tensors and store the result in `out`."""
    if out.numel() == 0:
        return
    compute = numpy_dtype(compute_type)
    arithmetic = numpy_dtype(arithmetic_code(compute_type))
    with np.errstate(all="ignore"):
        values = [_operand(operand, row, compute, arithmetic) for operand in operands]
        if compute.kind != "b":
            scalars = [arithmetic.type(s) for s in scalars]
        result = np.asarray(_compiled(row)(*values, *scalars))
        if row.kind not in {"real", "float_real"} and result.dtype not in {
            np.dtype(np.bool_),
            compute,
        }:
            result = convert(result, compute_type)
        array(out)[...] = convert(result, out.dtype.code)


def _operand(
    operand: Tensor | complex, row: Row, compute: np.dtype[Any], arithmetic: np.dtype[Any]
) -> Array | np.generic:
    if isinstance(operand, (bool, int, float, complex)):
        if compute.kind in "iu" and isinstance(operand, int):
            operand = _wrapped(int(operand), compute)
        number = np.asarray(operand)
        exact = number.astype(compute if row.kind == "compare" else arithmetic)
        return exact.astype(arithmetic)[()]
    values = array(operand)
    if values.dtype != compute:
        values = values.astype(compute)
    return values.astype(arithmetic) if arithmetic != compute else values


def _wrapped(value: int, of: np.dtype[Any]) -> int:
    bits = 8 * of.itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if of.kind == "i" and value >> (bits - 1) else value


# -- forms that NumPy lacks or does otherwise ------------------------------------------------------


def _refuse_zero(divisor: Array) -> None:
    if divisor.dtype.kind in "iu" and not np.all(divisor):
        raise RuntimeError("ZeroDivisionError: integer division by zero on a host tensor")


def floor_divide(a: Array, b: Array) -> Array:
    """Quotient rounded down."""
    _refuse_zero(np.asarray(b))
    return np.floor_divide(a, b)


def truncate_divide(a: Array, b: Array) -> Array:
    """Quotient rounded towards zero."""
    b = np.asarray(b)
    _refuse_zero(b)
    if b.dtype.kind not in "iu":
        return np.trunc(np.divide(a, b))  # type: ignore[no-any-return]
    quotient = np.floor_divide(a, b)
    return quotient + ((np.remainder(a, b) != 0) & (quotient < 0)).astype(quotient.dtype)  # type: ignore[no-any-return]


def remainder(a: Array, b: Array) -> Array:
    """Remainder with the divisor's sign."""
    _refuse_zero(np.asarray(b))
    return np.remainder(a, b)


def fmod(a: Array, b: Array) -> Array:
    """Remainder with the dividend's sign."""
    _refuse_zero(np.asarray(b))
    return np.fmod(a, b)


def power(a: Array, b: Array) -> Array:
    """Powers; integers to negative powers give 0, 1 or -1."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == "b":
        return np.asarray(np.logical_or(a, ~b))
    if a.dtype.kind not in "iu":
        return np.power(a, b)  # type: ignore[no-any-return]
    positive = np.power(a, np.maximum(b, b.dtype.type(0)))
    if b.dtype.kind == "u" or not np.any(b < 0):
        return positive  # type: ignore[no-any-return]
    alternating = np.where(b % 2 == 0, 1, -1)
    inverse = np.where(a == 1, 1, np.where(a == -1, alternating, 0))
    return np.where(b < 0, inverse, positive).astype(a.dtype)


def sign(a: Array) -> Array:
    """-1, 0 or 1; 0 for NaN."""
    if a.dtype.kind == "b":
        return a
    return np.nan_to_num(np.sign(a), nan=0) if a.dtype.kind == "f" else np.sign(a)


def sgn(a: Array) -> Array:
    """The sign; for complex numbers the direction, of length 1."""
    if a.dtype.kind != "c":
        return sign(a)
    size = np.abs(a)
    return np.asarray(np.where(size == 0, 0, a / np.where(size == 0, 1, size)), dtype=a.dtype)


def angle(a: Array) -> Array:
    """The argument of complex numbers; of real ones 0 or pi, NaN of NaN."""
    if a.dtype.kind == "c":
        return np.angle(a)
    return np.asarray(np.where(np.isnan(a), a, np.where(a < 0, np.pi, 0)), dtype=a.dtype)


def joined(a: Array, b: Array) -> Array:
    """Complex numbers of two parts, given as complex ones."""
    made = np.empty(np.broadcast_shapes(np.shape(a), np.shape(b)), a.dtype)
    made.real, made.imag = a.real, b.real
    return made


def polar(a: Array, b: Array) -> Array:
    """Complex numbers of a length and an angle, given as complex ones."""
    return np.asarray(a.real * np.exp(1j * b.real), dtype=a.dtype)


def xlogy(a: Array, b: Array) -> Array:
    """``a * log(b)``, 0 where a is 0."""
    return np.asarray(np.where(np.isnan(b), b, np.where(a == 0, 0, a * np.log(b))))


def heaviside(a: Array, b: Array) -> Array:
    """0 left of zero, 1 right of it, `b` at it."""
    if a.dtype.kind == "b":
        return np.asarray(a | b)
    return np.asarray(np.where(a == 0, b, a > 0), dtype=a.dtype)


def i0(a: Array) -> Array:
    """The modified Bessel function of order 0."""
    return np.asarray(np.where(np.isinf(a), np.inf, np.i0(np.where(np.isinf(a), 0, a))))


def lcm(a: Array, b: Array) -> Array:
    """The least common multiple, wrapping like the device's."""
    divisor = np.gcd(a, b)
    return np.asarray(
        np.abs(truncate_divide(a, np.where(divisor == 0, 1, divisor).astype(a.dtype)) * b)
    )


def special(name: str, *operands: Array) -> Array:
    """A function of `host_special`."""
    from flambeau.ops import host_special

    broadcast = np.broadcast_arrays(*operands)
    result = host_special.apply(name, [part.astype(np.float64) for part in broadcast])
    return result.astype(broadcast[0].dtype)


def signbit(a: Array) -> Array:
    """Whether the sign is set, also for -0."""
    return np.signbit(a) if a.dtype.kind == "f" else np.asarray(a < 0)


def lerp(a: Array, b: Array, weight: Array) -> Array:
    """Between a and b, computed from the nearer one."""
    near = a + weight * (b - a)
    far = b - (b - a) * (1 - weight)
    return np.asarray(np.where(np.abs(weight) < 0.5, near, far))


def shift_left(a: Array, b: Array) -> Array:
    """Shift; counts outside the width give 0."""
    bits = 8 * np.asarray(a).dtype.itemsize
    outside = (b < 0) | (b >= bits)
    return np.where(outside, 0, np.left_shift(a, np.where(outside, 0, b)))


def shift_right(a: Array, b: Array) -> Array:
    """Arithmetic shift; counts outside the width leave only the sign."""
    bits = 8 * np.asarray(a).dtype.itemsize
    outside = (b < 0) | (b >= bits)
    return np.where(outside, np.where(a < 0, -1, 0), np.right_shift(a, np.where(outside, 0, b)))


def _rounded(function: Callable[[Array], Array], a: Array) -> Array:
    return a if a.dtype.kind in "biu" else function(a)


def floor(a: Array) -> Array:
    """Round down."""
    return _rounded(np.floor, a)


def ceil(a: Array) -> Array:
    """Round up."""
    return _rounded(np.ceil, a)


def round(a: Array) -> Array:
    """Round to the nearest integer, halves to even."""
    return _rounded(np.rint, a)


def trunc(a: Array) -> Array:
    """Round towards zero."""
    return _rounded(np.trunc, a)


def nan_to_num(a: Array, nan: float, high: float, low: float) -> Array:
    """Replace NaN and infinities."""
    return np.nan_to_num(a, nan=nan, posinf=high, neginf=low)


def _vectorized(function: Callable[[float], float], a: Array) -> Array:
    results = [function(float(x)) for x in a.flat]
    return np.array(results, dtype=np.float64).reshape(a.shape).astype(a.dtype)


def erf(a: Array) -> Array:
    """The error function."""
    return _vectorized(math.erf, np.asarray(a))


def erfc(a: Array) -> Array:
    """One minus the error function."""
    return _vectorized(math.erfc, np.asarray(a))
