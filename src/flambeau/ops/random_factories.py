# SPDX-License-Identifier: Apache-2.0
"""New tensors of random numbers: each is made, then filled in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.ops.random import (
    INT64_MAX,
    INT64_MIN,
    normal_,
    random_in_range,
    uniform_,
)
from flambeau.ops.registry import public
from flambeau.runtime import _dtype, _factory, _random
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._generator import Generator

    Device = Any


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


rand = public(method=False)(_random.rand)
randn = public(method=False)(_random.randn)


def _number(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"randint(): bounds must be ints, not {type(value).__name__}")
    number = int(value.__index__())
    if not INT64_MIN <= number <= INT64_MAX:
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
    random_in_range(made, low, high, generator)
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
def rand_like(input: Tensor, *, generator: Generator | None = None, **options: Any) -> Tensor:
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
def randn_like(input: Tensor, *, generator: Generator | None = None, **options: Any) -> Tensor:
    """Draw from the standard normal distribution; parameters as for `rand_like`."""
    made = _like(input, options)
    return _finish(normal_(made, generator=generator), options)


@public(method=False)
def randint_like(
    input: Tensor, *bounds: Any, low: Any = 0, high: Any = None, **options: Any
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
    return _finish(random_in_range(made, _number(low), _number(high), generator), options)


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
        raise TypeError(
            "normal() needs a size when mean and std are numbers: normal(0.0, 1.0, (2, 3))"
        )
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
    made.mul_(std).add_(mean)
    return made


def _require_non_negative(std: Tensor) -> None:
    from flambeau.ops.random_sampling import check_elements

    check_elements(std, "normal expects all elements of std >= 0.0", least=0.0)
