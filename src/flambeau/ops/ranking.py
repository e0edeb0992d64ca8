# SPDX-License-Identifier: Apache-2.0
"""Statistics beyond sums: quantiles, covariances, integrals, clipped norms."""

from __future__ import annotations

from typing import Any

from flambeau.ops.common import store_out, wrap_dim
from flambeau.ops.complex_numbers import complex as joined
from flambeau.ops.complex_numbers import conj
from flambeau.ops.matmul import mm
from flambeau.ops.moments import norm
from flambeau.ops.promotion import promote_types
from flambeau.ops.registry import OPS, inplace_method, public
from flambeau.ops.sorting import sort
from flambeau.runtime import _dtype
from flambeau.runtime._tensor import Tensor

_INT64 = _dtype.dtypes["int64"]
_INTERPOLATIONS = ("linear", "lower", "higher", "nearest", "midpoint")


def _quantile(
    name: str, input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str,
    skip_nan: bool,
) -> Tensor:  # fmt: skip
    if input.dtype.name not in {"float32", "float64"}:
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, "
            f"but got {interpolation}"
        )
    if isinstance(q, Tensor):
        if q.dtype != input.dtype:
            raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
        levels = q
    else:
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
        levels = input.new_tensor(q)
    if input.numel() == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    rows = input.reshape(-1) if dim is None else input
    along = 0 if dim is None else wrap_dim(dim, input.ndim)
    rows = rows.reshape(1) if rows.ndim == 0 else rows.movedim(along, -1)
    found = _at_levels(rows, levels.reshape(-1), interpolation, skip_nan)
    result = found.movedim(-1, 0)  # (levels, others)
    if keepdim and input.ndim:
        if dim is None:
            result = result.reshape(result.shape[0], *[1] * input.ndim)
        else:
            result = result.unsqueeze(along + 1)
    return result.squeeze(0) if levels.ndim == 0 else result


def _at_levels(rows: Tensor, levels: Tensor, interpolation: str, skip_nan: bool) -> Tensor:
    """Values of sorted rows at levels between 0 and 1, along the last dimension."""
    values = sort(rows).values
    broken = OPS["isnan"](values)
    if skip_nan:
        last = (broken.logical_not().sum(-1, keepdim=True) - 1).clamp_min(0).to(rows.dtype)
    else:
        last = rows.new_full((*rows.shape[:-1], 1), rows.shape[-1] - 1)
    place = levels * last
    if interpolation == "lower":
        place = OPS["floor"](place)
    elif interpolation == "higher":
        place = OPS["ceil"](place)
    elif interpolation == "nearest":
        place = OPS["_round"](place)
    below = OPS["floor"](place)
    low = values.gather(-1, below.to(_INT64))
    high = values.gather(-1, OPS["ceil"](place).to(_INT64))
    weight = place - below
    if interpolation == "midpoint":
        weight = OPS["_where"](OPS["gt"](weight, 0), 0.5, weight)
    found = OPS["lerp"](low, high, weight)
    if skip_nan:
        return found
    return OPS["_where"](broken.any(-1, keepdim=True), float("nan"), found)


@public()
def quantile(
    input: Tensor,
    q: float | Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Tensor | None = None,
) -> Tensor:
    """Find the values below which given shares of the elements lie.

    Parameters
    ----------
    input
        A float32 or float64 tensor; a row with a NaN gives NaN.
    q
        Levels between 0 and 1: a number, or a vector of the tensor's dtype.
    dim
        The dimension; left out, all elements count.
    keepdim
        Whether the dimension stays with size 1.
    interpolation
        Between two elements: linear, lower, higher, nearest or midpoint.
    out
        Where to store the result.

    Returns
    -------
    Tensor
        With a first dimension for the levels if `q` is a vector.
    """
    return store_out(_quantile("quantile", input, q, dim, keepdim, interpolation, False), out)


@public()
def nanquantile(
    input: Tensor,
    q: float | Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Tensor | None = None,
) -> Tensor:
    """Find quantiles of what is not NaN; parameters as for `quantile`."""
    return store_out(_quantile("nanquantile", input, q, dim, keepdim, interpolation, True), out)


@public()
def cov(
    input: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """Estimate the covariance matrix of variables in rows.

    Parameters
    ----------
    input
        (variables, observations), or a vector of observations of one.
    correction
        Subtracted from the number of observations in the divisor.
    fweights
        How often each observation counts: integers.
    aweights
        The importance of each observation.
    """
    if input.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with "
            f"{input.ndim} dimensions"
        )
    rows = input.reshape(1, -1) if input.ndim < 2 else input
    if rows.dtype.category < 2:
        rows = OPS["_div"](rows, 1)
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is not None and given.ndim > 1:
            raise RuntimeError(
                f"cov(): expected {name} to have one or fewer dimensions but got {name} with "
                f"{given.ndim} dimensions"
            )
    weights = fweights
    if aweights is not None:
        rows = rows.to(promote_types(rows.dtype, aweights.dtype))
        weights = aweights if fweights is None else fweights * aweights
    if weights is None:
        centred = rows - rows.mean(1, keepdim=True)
        return (mm(centred, conj(centred).t()) / max(0.0, rows.shape[1] - correction)).squeeze()
    held = weights.to(rows.dtype)
    count = held.sum()
    centred = rows - (rows * held).sum(1, keepdim=True) / count
    product = mm(centred * held, conj(centred).t())
    freedom = count - correction
    if aweights is not None and correction:
        freedom = count - correction * (held * aweights.to(rows.dtype)).sum() / count
    if freedom.is_complex():
        freedom = freedom.real
    return (product / OPS["_clamp_min"](freedom, 0.0)).squeeze()


@public()
def corrcoef(input: Tensor) -> Tensor:
    """Estimate the correlation coefficients of variables in rows."""
    matrix = cov(input)
    if matrix.ndim == 0:
        return matrix / matrix
    spread = OPS["sqrt"](matrix.diagonal().real)
    ratios = matrix / spread.unsqueeze(1) / spread.unsqueeze(0)
    # Rounding may have gone beyond.
    if ratios.is_complex():
        return joined(ratios.real.clamp(-1, 1), ratios.imag.clamp(-1, 1))
    bounded: Tensor = ratios.clamp(-1, 1)
    return bounded


def _areas(y: Tensor, x: Tensor | None, dx: float | None, dim: int) -> Tensor:
    size = y.shape[dim]
    heights = y.narrow(dim, 1, size - 1) + y.narrow(dim, 0, size - 1)
    if x is None:
        return heights * ((1.0 if dx is None else dx) / 2)
    spread = x if x.ndim == y.ndim else x.reshape([-1 if d == dim else 1 for d in range(y.ndim)])
    steps = spread.narrow(dim, 1, size - 1) - spread.narrow(dim, 0, size - 1)
    return heights * steps / 2


@public("trapz", method=False)
def trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1
) -> Tensor:
    """Integrate by the trapezoidal rule along a dimension.

    Parameters
    ----------
    y
        Values.
    x
        Where they are taken; by default at distances of `dx`, which is 1.
    dx
        A distance.
    dim
        The dimension.
    """
    along = wrap_dim(dim, y.ndim)
    if y.shape[along] == 0:
        empty: Tensor = y.sum(along) * 1.0
        return empty
    total: Tensor = _areas(y, x, dx, along).sum(along)
    return total


@public(method=False)
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: float | None = None, dim: int = -1
) -> Tensor:
    """Integrate cumulatively by the trapezoidal rule; parameters as for `trapezoid`."""
    along = wrap_dim(dim, y.ndim)
    partial: Tensor = _areas(y, x, dx, along).cumsum(along)
    return partial


@public()
def renorm(
    input: Tensor, p: float, dim: int, maxnorm: float, *, out: Tensor | None = None
) -> Tensor:
    """Scale the slices along a dimension whose p-norm is above `maxnorm` down to it."""
    if input.ndim < 2:
        raise RuntimeError(
            f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions"
        )
    along = wrap_dim(dim, input.ndim)
    others = [d for d in range(input.ndim) if d != along]
    sizes = norm(input, p, others, keepdim=True)
    factor = OPS["_where"](OPS["gt"](sizes, maxnorm), maxnorm / (sizes + 1e-7), 1.0)
    return store_out(OPS["mul"](input, factor.to(input.dtype)), out)


def _renorm_(self: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Scale this tensor's slices as `renorm` does, and return it."""
    return self.copy_(renorm(self, p, dim, maxnorm))


inplace_method("renorm_", _renorm_)
