# SPDX-License-Identifier: Apache-2.0
"""Random fills in place, and the factories that draw a new tensor with them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flambeau.ops.registry import inplace_method, public
from flambeau.runtime import _dtype, _factory
from flambeau.runtime._random import RandomFill
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._generator import Generator

    Device = Any

# From this range on a draw takes 64 bits.
_WIDE_RANGE = 1 << 28
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1

# The bits that hold every integer exactly: floats their digits, integers without the sign.
_DIGITS = {
    "bool": 1, "uint8": 8, "int8": 7, "int16": 15, "int32": 31, "int64": 63,
    "float16": 11, "bfloat16": 8, "float32": 24, "float64": 53,
}  # fmt: skip
_BOUNDED_ONLY = {"uint16": 16, "uint32": 32, "uint64": 64}


# -- kernels -----------------------------------------------------------------------------------------

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


# -- continuous distributions ------------------------------------------------------------------------


def _legacy(of: dtype) -> str:
    return _dtype.legacy_type_name(of)


def _require_float(target: Tensor, name: str, complex_too: bool = False) -> None:
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
    _require_float(self, "check_uniform_bounds", complex_too=True)
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
    _require_float(self, "normal_kernel", complex_too=True)
    if self.dtype.category == 3:
        std /= math.sqrt(2)
    return FILLS["normal"](self, generator, float(mean), float(std))


def log_normal_(
    self: Tensor, mean: float = 1, std: float = 2, *, generator: Generator | None = None
) -> Tensor:
    """Fill with numbers whose logarithm has this mean and standard deviation."""
    if not std > 0.0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    _require_float(self, "log_normal")
    return FILLS["log_normal"](self, generator, float(mean), float(std))


def exponential_(
    self: Tensor, lambd: float = 1, *, generator: Generator | None = None
) -> Tensor:
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


# -- integers ----------------------------------------------------------------------------------------


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


def _random_in_range(self: Tensor, low: int, high: int, generator: Generator | None) -> Tensor:
    if low >= high:
        raise RuntimeError(
            "random_ expects 'from' to be less than 'to', but got "
            f"from={low} >= to={high}"
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
    if low == _INT64_MIN:
        if of.name not in {"int64", "float64", "float32", "bfloat16"}:
            raise NotImplementedError(
                f"random_(-2**63, None) is defined for int64, float64, float32 and bfloat16, not "
                f"for {of.name}"
            )
        return FILLS["random64"](self, generator)
    last = min(_integer_bounds(of)[1], _INT64_MAX)
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
    return _random_in_range(self, int(low), int(high), generator)


for _method in (normal_, log_normal_, exponential_, cauchy_, geometric_, random_):
    inplace_method(_method.__name__, _method)
inplace_method("uniform_", _uniform_method)


# -- new tensors -------------------------------------------------------------------------------------


def _new(
    size: tuple[Any, ...],
    named: Any,
    out: Tensor | None,
    dtype: dtype | None,
    device: Device,
    pin_memory: bool,
) -> Tensor:
    if named is not None:
        size = (named,)
    sizes = size[0] if len(size) == 1 else size
    if out is not None:
        return _factory.empty(sizes, out=out)
    return _factory.new_empty(sizes, dtype, device, pin_memory)


@public(method=False)
def rand(
    *shape: Any,
    size: Any = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Draw numbers evenly from [0, 1).

    Parameters
    ----------
    shape, size
        ``rand(2, 3)``, ``rand((2, 3))`` or ``rand(size=(2, 3))``.
    generator
        None is the default one of the device.
    out
        A tensor to resize and fill instead.
    dtype
        Floating-point or complex; by default the default dtype.
    layout
        Accepted: tensors are strided.
    device
        By default the default device.
    requires_grad
        Whether gradients shall be recorded for it.
    pin_memory
        Put a host tensor into pinned memory.

    Returns
    -------
    Tensor
        On CUDA the same numbers as torch on a device with as many threads.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch.Generator device=cpu seed=0>
    >>> torch.rand(2, device="cuda")
    tensor([0.3990, 0.5167], device='cuda:0')
    """
    made = _new(shape, size, out, dtype, device, pin_memory)
    _require_float(made, "check_uniform_bounds", complex_too=True)
    FILLS["uniform"](made, generator, 0.0, 1.0)
    return made.requires_grad_() if requires_grad else made


@public(method=False)
def randn(
    *shape: Any,
    size: Any = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Draw from the standard normal distribution; parameters as for `rand`.

    Complex numbers have variance 1: their parts have variance 1/2 each.
    """
    made = _new(shape, size, out, dtype, device, pin_memory)
    _require_float(made, "normal_kernel", complex_too=True)
    deviation = math.sqrt(0.5) if made.dtype.category == 3 else 1.0
    FILLS["normal"](made, generator, 0.0, deviation)
    return made.requires_grad_() if requires_grad else made


def _number(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"randint(): bounds must be ints, not {type(value).__name__}")
    number = int(value.__index__())
    if not _INT64_MIN <= number <= _INT64_MAX:
        raise ValueError(f"Overflow when unpacking long long: {number} is no 64-bit int")
    return number


@public(method=False)
def randint(
    *arguments: Any,
    low: int | None = None,
    high: int | None = None,
    size: Sequence[int] | None = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Draw integers evenly from `low` to ``high - 1``.

    Parameters
    ----------
    arguments
        ``randint(high, size)`` or ``randint(low, high, size)``; each may be given by name.
    low
        The least; 0 by default.
    high
        One above the greatest.
    size
        The sizes, as a sequence.
    generator, out, layout, device, requires_grad, pin_memory
        As for `rand`.
    dtype
        By default int64.

    Raises
    ------
    RuntimeError
        `low` is not below `high`, or the dtype does not have them.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.randint(0, 6, (2, 3), device="cuda").shape
    torch.Size([2, 3])
    """
    low, high, size = _randint_arguments(arguments, low, high, size)
    of = dtype or (out.dtype if out is not None else _dtype.dtypes["int64"])
    made = _new((size,), None, out, of, device, pin_memory)
    _random_in_range(made, low, high, generator)
    return made.requires_grad_() if requires_grad else made


def _randint_arguments(
    arguments: tuple[Any, ...], low: Any, high: Any, size: Any
) -> tuple[int, int, Any]:
    rest = list(arguments)
    if size is None and rest:
        size = rest.pop()
    if high is None and rest:
        high = rest.pop()
    if low is None and rest:
        low = rest.pop()
    if rest or high is None or size is None:
        raise TypeError(
            "randint() takes (high, size) or (low, high, size), by position or by name; got "
            f"{len(arguments)} positional arguments"
        )
    return _number(0 if low is None else low), _number(high), size


@public(method=False)
def rand_like(
    input: Tensor, *, generator: Generator | None = None, **options: Any
) -> Tensor:
    """Draw from [0, 1) with a tensor's shape, dtype, device and order in memory.

    Parameters
    ----------
    input
        The pattern.
    generator
        None is the default one of the device.
    options
        As for `empty_like`.
    """
    made = _like(input, options)
    return _finish(uniform_(made, generator=generator), options)


@public(method=False)
def randn_like(
    input: Tensor, *, generator: Generator | None = None, **options: Any
) -> Tensor:
    """Draw from the standard normal distribution; parameters as for `rand_like`."""
    made = _like(input, options)
    return _finish(normal_(made, generator=generator), options)


@public(method=False)
def randint_like(
    input: Tensor, *bounds: int, low: int = 0, high: int | None = None, **options: Any
) -> Tensor:
    """Draw integers with a tensor's shape and dtype.

    Parameters
    ----------
    input
        The pattern.
    bounds, low, high
        ``randint_like(input, high)`` or ``randint_like(input, low, high)``.
    options
        As for `empty_like`, and ``generator``.
    """
    generator = options.pop("generator", None)
    if len(bounds) == 2:
        low, high = bounds
    elif bounds:
        high = bounds[0] if high is None else high
    if isinstance(high, Tensor):
        high = high.item()
    if high is None or len(bounds) > 2:
        raise TypeError("randint_like() takes (input, high) or (input, low, high)")
    made = _like(input, options)
    return _finish(_random_in_range(made, _number(low), _number(high), generator), options)


def _like(input: Tensor, options: dict[str, Any]) -> Tensor:
    kept = {name: value for name, value in options.items() if name != "requires_grad"}
    return _factory.empty_like(input, **kept)


def _finish(made: Tensor, options: dict[str, Any]) -> Tensor:
    return made.requires_grad_() if options.get("requires_grad") else made


@public(method=False)
def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    size: Sequence[int] | None = None,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Draw normally distributed numbers, each with its own mean and deviation if these are tensors.

    Parameters
    ----------
    mean, std
        Numbers or tensors that broadcast together.
    size
        The sizes; needed, and allowed, only when both are numbers.
    generator
        None is the default one of the device.
    out
        A tensor to resize and fill instead.
    dtype, layout, device, requires_grad, pin_memory
        As for `rand`, when both are numbers.

    Raises
    ------
    RuntimeError
        A deviation is negative; on CUDA a negative element of a tensor shows at a later call.
    TypeError
        Sizes are missing or not wanted.
    """
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        if size is not None:
            raise TypeError("normal() takes a size only when mean and std are numbers")
        return _normal_of_tensors(mean, std, generator, out)
    if size is None:
        raise TypeError("normal() needs a size when mean and std are numbers: normal(0.0, 1.0, (2, 3))")
    made = _new((size,), None, out, dtype, device, pin_memory)
    normal_(made, mean, std, generator=generator)
    return made.requires_grad_() if requires_grad else made


def _normal_of_tensors(
    mean: Any, std: Any, generator: Generator | None, out: Tensor | None
) -> Tensor:
    from flambeau.ops.common import broadcast_shapes

    given = [x for x in (mean, std) if isinstance(x, Tensor)]
    shape = broadcast_shapes(*(tuple(x.shape) for x in given))
    if isinstance(std, Tensor):
        _require_non_negative(std)
    elif not std >= 0.0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    made = (
        _factory.new_empty(shape, given[0].dtype, given[0].device)
        if out is None
        else _factory.empty(shape, out=out)
    )
    normal_(made, generator=generator)
    return made.mul_(std).add_(mean)


def _require_non_negative(std: Tensor) -> None:
    from flambeau.ops.random_sampling import check_elements

    check_elements(std, "normal expects all elements of std >= 0.0", least=0.0)

