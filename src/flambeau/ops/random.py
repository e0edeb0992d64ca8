# SPDX-License-Identifier: Apache-2.0
"""Filling tensors with random numbers in place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flambeau.ops.registry import inplace_method
from flambeau.runtime import _dtype
from flambeau.runtime._random import RandomFill

if TYPE_CHECKING:
    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._generator import Generator
    from flambeau.runtime._tensor import Tensor

# From this range on a draw takes 64 bits.
_WIDE_RANGE = 1 << 28
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

# The bits that hold every integer exactly: floats their digits, integers without the sign.
_DIGITS = {
    "bool": 1, "uint8": 8, "int8": 7, "int16": 15, "int32": 31, "int64": 63,
    "float16": 11, "bfloat16": 8, "float32": 24, "float64": 53,
}  # fmt: skip
_BOUNDED_ONLY = {"uint16": 16, "uint32": 32, "uint64": 64}


# -- kernels --------------------------------------------------------------------------------------

_TEMPLATES = {
    "uniform": "Uniform", "normal": "Normal", "log_normal": "LogNormal",
    "exponential": "Exponential", "cauchy": "Cauchy", "geometric": "Geometric",
    "bernoulli": "Bernoulli", "random32": "Random32", "random64": "Random64",
}  # fmt: skip


def element_type(code: int) -> str:
    """The C++ name of an element type, of the wide unsigned integers too."""
    name = _dtype.dtype_from_code(code).name
    if name in _BOUNDED_ONLY:
        return name
    from flambeau.ops.codegen import cuda_type

    return cuda_type(code)


def _fill_source(name: str, code: int, strided: bool) -> str:
    out = element_type(code)
    distribution = f"{_TEMPLATES[name]}<{out}, {'double' if out == 'double' else 'float'}>"
    layout, body = (", const Layout layout", "strided") if strided else ("", "dense")
    passed = ", layout" if strided else ""
    return f"""#include "random.cuh"
FLAMBEAU_KERNEL(RANDOM_THREADS) fill({out} *out, const Philox philox, const Numbers numbers,
                                     const uint32 n, const uint32 threads{layout}) {{
  fill_{body}<{distribution}>(out, philox, numbers, n, threads{passed});
}}
"""


def _compile(fill: RandomFill, device: int, code: int, strided: bool) -> int:
    from flambeau.kernels.compile import get_function

    return get_function(_fill_source(fill.name, code, strided), "fill", device)


FILLS = {name: RandomFill(name, _compile) for name in _TEMPLATES}
_UNIFORM = FILLS["uniform"]


# -- continuous distributions ---------------------------------------------------------------------


def _legacy(of: dtype) -> str:
    return _dtype.legacy_type_name(of)


def require_float(target: Tensor, name: str, complex_too: bool = False) -> None:
    """Refuse dtypes other than floating-point, and complex ones unless they serve too.

    Raises
    ------
    NotImplementedError
        It is another dtype.
    """
    if target.dtype.category == 2 or (complex_too and target.dtype.category == 3):
        return
    raise NotImplementedError(
        f"\"{name}\" not implemented for '{_legacy(target.dtype)}': it draws floating-point numbers"
    )


def _require_continuous(target: Tensor, name: str) -> None:
    if target.dtype.category != 2:
        raise RuntimeError(
            f"{name} distribution is a continuous probability distribution. dtype must be a "
            f"floating point but you specified {_legacy(target.dtype)}"
        )


_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}


def uniform_(
    self: Tensor, from_: float = 0, to: float = 1, *, generator: Generator | None = None
) -> Tensor:
    """Fill with numbers drawn evenly from [from, to).

    Parameters
    ----------
    from_, to
        The bounds, also called ``from`` and ``to``.
    generator
        None is the default one of the tensor's device.

    Raises
    ------
    RuntimeError
        `to` is below `from`, or a bound or their distance exceeds the dtype.
    NotImplementedError
        The dtype is an integer.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.empty(1000, device="cuda").uniform_(2, 3)
    >>> bool((x >= 2).all() and (x < 3).all())
    True
    """
    require_float(self, "check_uniform_bounds", complex_too=True)
    low, high = float(from_), float(to)
    largest = _LARGEST.get(self.dtype.to_real().name, math.inf)
    for name, bound in (("from", low), ("to", high)):
        if not abs(bound) <= largest or math.isinf(bound):
            raise RuntimeError(f"{name} is out of bounds for {_legacy(self.dtype)}: {bound}")
    if low > high:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={from_} > to={to}"
        )
    if high - low > largest:
        raise RuntimeError(
            f"uniform_ expects to-from <= {largest}, the dtype's largest number, but found "
            f"to={to} and from={from_}"
        )
    return FILLS["uniform"](self, generator, low, high)


def _uniform_method(
    self: Tensor, *bounds: float, generator: Generator | None = None, **named: float
) -> Tensor:
    if not bounds and not named and self.dtype.category == 2:
        return _UNIFORM(self, generator, 0.0, 1.0)
    # `from` is a keyword of Python's, so it cannot be a parameter's name.
    given = dict(zip(("from", "to"), bounds, strict=False)) | named
    if len(bounds) > 2 or not given.keys() <= {"from", "to"}:
        raise TypeError(f"uniform_() takes from, to and generator, got {[*bounds, *named]}")
    return uniform_(self, given.get("from", 0), given.get("to", 1), generator=generator)


_uniform_method.__doc__ = uniform_.__doc__


def normal_(
    self: Tensor, mean: float = 0, std: float = 1, *, generator: Generator | None = None
) -> Tensor:
    """Fill with normally distributed numbers.

    Parameters
    ----------
    mean, std
        Mean and standard deviation. A complex number's parts each have this mean and
        ``std / sqrt(2)``.
    generator
        None is the default one of the tensor's device.

    Raises
    ------
    RuntimeError
        `std` is negative.
    NotImplementedError
        The dtype is an integer.
    """
    if not std >= 0.0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    require_float(self, "normal_kernel", complex_too=True)
    if self.dtype.category == 3:
        std /= math.sqrt(2)
    return FILLS["normal"](self, generator, float(mean), float(std))


def log_normal_(
    self: Tensor, mean: float = 1, std: float = 2, *, generator: Generator | None = None
) -> Tensor:
    """Fill with numbers whose logarithm has this mean and standard deviation."""
    if not std > 0.0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    require_float(self, "log_normal")
    return FILLS["log_normal"](self, generator, float(mean), float(std))


def exponential_(self: Tensor, lambd: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponentially distributed numbers of the rate `lambd`, greater than 0."""
    _require_continuous(self, "Exponential")
    if not lambd > 0.0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return FILLS["exponential"](self, generator, float(lambd))


def cauchy_(
    self: Tensor, median: float = 0, sigma: float = 1, *, generator: Generator | None = None
) -> Tensor:
    """Fill with Cauchy-distributed numbers around `median` with the scale `sigma`."""
    _require_continuous(self, "Cauchy")
    if not sigma > 0.0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    return FILLS["cauchy"](self, generator, float(median), float(sigma))


def geometric_(self: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers of trials up to the first success, each of probability `p` in (0, 1)."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    if self.dtype.category in {0, 3}:
        raise NotImplementedError(f"\"geometric\" not implemented for '{_legacy(self.dtype)}'")
    return FILLS["geometric"](self, generator, float(p))


# -- integers -------------------------------------------------------------------------------------


def _integer_bounds(of: dtype) -> tuple[int, int]:
    """The least and the greatest integer that `random_` draws for a dtype."""
    if of.name in _BOUNDED_ONLY:
        return 0, (1 << _BOUNDED_ONLY[of.name]) - 1
    if of.category == 2:
        return -int(_largest_of(of)), int(_largest_of(of))
    digits = _DIGITS[of.name]
    return (-(1 << digits) if of.name.startswith("int") else 0), (1 << digits) - 1


def _largest_of(of: dtype) -> float:
    return _LARGEST.get(of.name, 1.7976931348623157e308)


def _rounded(value: int, digits: int) -> int:
    """An integer as a float of so many digits has it: to the nearest, ties to even."""
    spare = max(abs(value).bit_length() - digits, 0)
    quotient, rest = divmod(value, 1 << spare)
    half = (1 << spare) >> 1
    up = spare > 0 and (rest > half or (rest == half and quotient % 2 == 1))
    return (quotient + up) << spare


def _inside(low: int, high: int, digits: int) -> tuple[int, int]:
    """Move bounds that a float would round outwards to its neighbours inside."""

    def stored(value: int) -> int:  # small floats are converted by way of float32
        return _rounded(_rounded(value, 24) if digits < 24 else value, digits)

    def step(value: int) -> int:
        return 1 << max(abs(value).bit_length() - digits, 0)

    first, last = stored(low + 1), stored(high - 1)
    if first < low:
        low = first + step(low + 1)
    if last >= high:
        high = last - step(high - 1)
    return low, high


def _check_bounds(of: dtype, low: int, last: int) -> None:
    least, greatest = _integer_bounds(of)
    for name, value in (("from", low), ("to - 1", last)):
        if not least <= value <= greatest:
            raise RuntimeError(
                f"{name} is out of bounds for {_C_NAMES.get(of.name, of.name)}: {value} does not "
                f"lie from {least} to {greatest}"
            )


_C_NAMES = {
    "uint8": "unsigned char", "int8": "signed char", "int16": "short", "int32": "int",
    "int64": "long", "float32": "float", "float64": "double", "float16": "c10::Half",
    "bfloat16": "c10::BFloat16", "bool": "bool",
}  # fmt: skip


def random_in_range(self: Tensor, low: int, high: int, generator: Generator | None) -> Tensor:
    """Fill with integers from `low` to ``high - 1``; errors as for `random_`."""
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    of = self.dtype
    if of.category == 2:
        low, high = _inside(low, high, _DIGITS[of.name])
        if low >= high:
            raise RuntimeError(
                "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but "
                f"got from={low} >= to={high}"
            )
    _check_bounds(of, low, high - 1)
    return _draw_integers(self, low, high - low, generator)


def _draw_integers(self: Tensor, low: int, range: int, generator: Generator | None) -> Tensor:
    fill = FILLS["random64" if range >= _WIDE_RANGE else "random32"]
    return fill(self, generator, 0.0, 0.0, range, low)


def _random_whole(self: Tensor, generator: Generator | None) -> Tensor:
    """Draw from all non-negative integers up to the dtype's digits."""
    of = self.dtype
    if of.name not in _DIGITS:
        raise NotImplementedError(
            f"\"random_\" not implemented for '{_legacy(of)}' without bounds: give from and to"
        )
    range = (1 << _DIGITS[of.name]) + (of.category == 2)
    wide = of.name in {"int64", "float64"}
    return FILLS["random64" if wide else "random32"](self, generator, 0.0, 0.0, range, 0)


def _random_from(self: Tensor, low: int, generator: Generator | None) -> Tensor:
    """Draw from `low` to the dtype's greatest, both included."""
    of = self.dtype
    if low == INT64_MIN:
        if of.name not in {"int64", "float64", "float32", "bfloat16"}:
            raise NotImplementedError(
                f"random_(-2**63, None) is defined for int64, float64, float32 and bfloat16, not "
                f"for {of.name}"
            )
        return FILLS["random64"](self, generator)
    last = min(_integer_bounds(of)[1], INT64_MAX)
    if of.category == 2:
        last = 1 << _DIGITS[of.name]
        low, _ = _inside(low, low + 1, _DIGITS[of.name])
    if low > last:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={last + 1}"
        )
    _check_bounds(of, low, last)
    return _draw_integers(self, low, last - low + 1, generator)


def random_(
    self: Tensor, *bounds: int | None, generator: Generator | None = None, **named: int | None
) -> Tensor:
    """Fill with integers drawn evenly.

    Parameters
    ----------
    bounds
        ``random_()`` draws from 0 to the greatest integer up to which the dtype has all of them,
        ``random_(to)`` from 0 to ``to - 1``, ``random_(from, to)`` from ``from`` to ``to - 1``,
        ``random_(from, None)`` from ``from`` to the dtype's greatest.
    generator
        None is the default one of the tensor's device.
    named
        ``from`` and ``to`` by name.

    Raises
    ------
    RuntimeError
        No integer lies between the bounds, or the dtype does not have them.
    """
    if len(bounds) > 2 or not named.keys() <= {"from", "to"}:
        raise TypeError(f"random_() takes from, to and generator, got {[*bounds, *named]}")
    if self.dtype.category == 3:
        raise NotImplementedError(f"\"random_\" not implemented for '{_legacy(self.dtype)}'")
    given = dict(zip(("from", "to") if len(bounds) == 2 else ("to",), bounds, strict=False))
    given |= named
    if not given:
        return _random_whole(self, generator)
    low = given.get("from", 0) or 0
    high = given.get("to")
    if high is None:
        return _random_from(self, int(low), generator)
    return random_in_range(self, int(low), int(high), generator)


for _method in (normal_, log_normal_, exponential_, cauchy_, geometric_, random_):
    inplace_method(_method.__name__, _method)
inplace_method("uniform_", _uniform_method)
