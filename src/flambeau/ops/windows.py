# SPDX-License-Identifier: Apache-2.0
"""Window functions, numerical gradients and distances of pairs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flambeau.ops.common import wrap_dims
from flambeau.ops.moments import norm
from flambeau.ops.promotion import get_default_dtype
from flambeau.ops.registry import OPS, public
from flambeau.ops.sequences import arange
from flambeau.ops.shapes import cat
from flambeau.runtime import _dtype
from flambeau.runtime._tensor import Tensor, empty

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.runtime._dtype import dtype


def _window(name: str, length: int, periodic: bool, options: dict[str, Any], form: Any) -> Tensor:
    of: dtype = options.pop("dtype", None) or get_default_dtype()
    device = options.pop("device", None)
    wanted = options.pop("requires_grad", False)
    if unknown := set(options) - {"layout", "pin_memory"}:
        raise TypeError(f"{name}() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    if of.category != 2:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {of!r}")
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got {length}")
    if length < 2:
        made = empty((length,), dtype=of, device=device).fill_(1)
    else:
        place = arange(length, dtype=_dtype.dtypes["float64"], device=device)
        made = form(place / (length if periodic else length - 1)).to(of)
    return made.requires_grad_() if wanted else made


def _cosines(*weights: float) -> Callable[[Tensor], Tensor]:
    """A sum of cosines of the multiples of a full turn."""

    def form(place: Tensor) -> Tensor:
        total = place * 0 + weights[0]
        for k, weight in enumerate(weights[1:], 1):
            total = total + OPS["cos"](place * (2 * math.pi * k)) * weight
        return total

    return form


@public(method=False)
def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """Make Hann's window.

    Parameters
    ----------
    window_length
        How many values.
    periodic
        Whether it shall be repeated; False makes it symmetric.
    options
        dtype, device, layout, requires_grad.
    """
    return _window("hann_window", window_length, periodic, options, _cosines(0.5, -0.5))


@public(method=False)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    **options: Any,
) -> Tensor:
    """Make Hamming's window, ``alpha - beta * cos``; parameters as for `hann_window`."""
    return _window("hamming_window", window_length, periodic, options, _cosines(alpha, -beta))


@public(method=False)
def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """Make Blackman's window; parameters as for `hann_window`."""
    form = _cosines(0.42, -0.5, 0.08)
    return _window("blackman_window", window_length, periodic, options, form)


@public(method=False)
def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """Make Bartlett's triangle; parameters as for `hann_window`."""
    return _window(
        "bartlett_window", window_length, periodic, options,
        lambda place: 1 - OPS["abs"](place * 2 - 1),
    )  # fmt: skip


@public(method=False)
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any
) -> Tensor:
    """Make Kaiser's window of shape `beta`; other parameters as for `hann_window`."""

    def form(place: Tensor) -> Tensor:
        height = OPS["i0"](OPS["sqrt"](1 - (place * 2 - 1) ** 2) * beta)
        return height / OPS["i0"](height.new_tensor(float(beta)))

    return _window("kaiser_window", window_length, periodic, options, form)


def _slope(input: Tensor, dim: int, spacing: float | Tensor, edge_order: int) -> Tensor:
    size = input.shape[dim]
    if size < edge_order + 1:
        raise RuntimeError(
            "torch.gradient expected each dimension size to be at least edge_order+1"
        )
    if isinstance(spacing, Tensor):
        shape = [-1 if d == dim else 1 for d, _ in enumerate(input.shape)]
        steps = (spacing[1:] - spacing[:-1]).reshape(shape)
    else:
        shape = [size - 1 if d == dim else 1 for d, _ in enumerate(input.shape)]
        steps = input.new_full(shape, float(spacing))
    rises = (input.narrow(dim, 1, size - 1) - input.narrow(dim, 0, size - 1)) / steps
    first, last = rises.narrow(dim, 0, 1), rises.narrow(dim, size - 2, 1)
    if size == 2:
        return cat([first, last], dim)
    left, right = steps.narrow(dim, 0, size - 2), steps.narrow(dim, 1, size - 2)
    before, after = rises.narrow(dim, 0, size - 2), rises.narrow(dim, 1, size - 2)
    inner = (before * right + after * left) / (left + right)
    if edge_order == 2:  # of parabolas through three points
        h0, h1 = steps.narrow(dim, 0, 1), steps.narrow(dim, 1, 1)
        first = first + (first - rises.narrow(dim, 1, 1)) * h0 / (h0 + h1)
        h2, h3 = steps.narrow(dim, size - 3, 1), steps.narrow(dim, size - 2, 1)
        last = last + (last - rises.narrow(dim, size - 3, 1)) * h3 / (h2 + h3)
    return cat([first, inner, last], dim)


@public(method=False)
def gradient(
    input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """Estimate derivatives along dimensions by differences of second order.

    Parameters
    ----------
    input
        A tensor of values.
    spacing
        The distance of the points: a number, one for each dimension, or a vector of coordinates for
        each.
    dim
        The dimension or dimensions, all by default.
    edge_order
        1 or 2: the order of the differences at the ends.

    Returns
    -------
    tuple of Tensor
        One for each dimension.
    """
    every = [d for d, _ in enumerate(input.shape)]
    spacing = 1 if spacing is None else spacing
    dims = every if dim is None else [dim] if isinstance(dim, int) else dim
    if len(set(wrap_dims(dims, input.ndim))) < len(dims):
        raise RuntimeError(f"dim appears multiple times in the list of dims: {list(dims)}")
    each = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    if len(each) != len(dims):
        raise RuntimeError(
            f"torch.gradient expected spacing to have {len(dims)} elements, got {len(each)}"
        )
    return tuple(
        _slope(input, d % input.ndim, h, edge_order) for d, h in zip(dims, each, strict=True)
    )


@public(method=False)
def range(start: Any = 0, end: Any = None, step: Any = 1, **options: Any) -> Tensor:
    """Make a vector of numbers from `start` to `end`, included; `arange` is what one wants."""
    if end is None:
        raise TypeError("range() takes a start and an end; arange() takes an end alone")
    options.setdefault("dtype", get_default_dtype())
    count = math.floor((end - start) / step) + 1
    return arange(start, start + count * step, step, **options)[:count]


@public(method=False)
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-06, keepdim: bool = False
) -> Tensor:
    """Compute the distances of the rows of one tensor from those of another, row by row."""
    return norm(x1 - x2 + eps, p, -1, keepdim)


@public(method=False)
def pdist(input: Tensor, p: float = 2) -> Tensor:
    """Compute the distances of all pairs of rows of a matrix, those above the diagonal."""
    from flambeau.ops.rearranging import triu_indices

    rows, columns = triu_indices(input.shape[0], input.shape[0], 1, device=input.device).unbind(0)
    return norm(input[rows] - input[columns], p, -1)
