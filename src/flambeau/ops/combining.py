# SPDX-License-Identifier: Apache-2.0
"""Scattering and indexing that combine what several indices bring to one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.ops.gathering import _scatter
from flambeau.ops.registry import FUNCTIONS, METHODS, OPS, inplace_method, public
from flambeau.ops.selection import nonzero
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.runtime._tensor import Tensor

_ACTIONS = {
    "sum": "accumulate",
    "mean": "accumulate",
    "prod": "multiply",
    "amax": "maximum",
    "amin": "minimum",
}


def _identity(reduce: str, of: Any) -> float:
    """What changes nothing when combined."""
    if reduce in {"sum", "mean", "prod"}:
        return 1 if reduce == "prod" else 0
    lowest = reduce == "amax"
    if of.category == 2:
        return float("-inf") if lowest else float("inf")
    if of.category == 0:
        return 0 if lowest else 1
    limits = _dtype.iinfo(of)
    return limits.min if lowest else limits.max


def _scatter_reduce_(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Combine elements of `src` where `index` says, in place.

    Parameters
    ----------
    dim
        The dimension that `index` counts in.
    index
        int64 positions.
    src
        A tensor at least as large as `index`, of this tensor's dtype.
    reduce
        ``"sum"``, ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``.
    include_self
        False leaves out what was in the places before.
    """
    if reduce not in _ACTIONS:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}."
        )
    if self.is_complex() and reduce not in {"sum", "mean"}:
        raise NotImplementedError(
            f'"scatter_reduce" with {reduce} is not implemented for complex tensors'
        )
    if not include_self:
        _scatter("scatter_reduce", self, dim, index, _identity(reduce, self.dtype), "write")
    _scatter("scatter_reduce", self, dim, index, src, _ACTIONS[reduce])
    if reduce == "mean":
        counts = self.new_full(self.shape, 1 if include_self else 0, dtype=_dtype.dtypes["int64"])
        _scatter("scatter_reduce", counts, dim, index, 1, "accumulate")
        counts = counts.clamp_min(1)
        whole = self.dtype.category < 2
        self.copy_(OPS["floor_divide" if whole else "_div"](self, counts.to(self.dtype)))
    return self


def along(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """A vector of indices, expanded to a slice's shape in the other dimensions."""
    shape = [1] * self.ndim
    shape[dim] = -1
    whole = list(self.shape)
    whole[dim] = index.numel()
    return index.reshape(shape).expand(whole)


def _index_reduce_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Combine slices of `source` with those that `index` names: see ``scatter_reduce_``."""
    if reduce not in {"prod", "mean", "amax", "amin"}:
        raise RuntimeError(
            "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got "
            f"{reduce}."
        )
    dim = dim % max(self.ndim, 1)
    spread = along(self, dim, index) if self.ndim else index.reshape(1)
    return _scatter_reduce_(self, dim, spread, source, reduce, include_self=include_self)


inplace_method("scatter_reduce_", _scatter_reduce_)
inplace_method("index_reduce_", _index_reduce_)


@public()
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Copy a tensor and combine elements where `index` says; see ``Tensor.scatter_reduce_``."""
    return _scatter_reduce_(input.clone(), dim, index, src, reduce, include_self=include_self)


@public()
def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Copy a tensor and combine slices; see ``Tensor.index_reduce_``."""
    return _index_reduce_(input.clone(), dim, index, source, reduce, include_self=include_self)


@public()
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Copy a tensor and store elements of `source`, in order, where `mask` is true."""
    from flambeau.ops.common import broadcast_shapes

    shape = broadcast_shapes(input.shape, mask.shape)
    made: Tensor = input.expand(shape).clone()
    return METHODS["masked_scatter_"](made, mask, source)  # type: ignore[no-any-return]


@public()
def argwhere(input: Tensor) -> Tensor:
    """Find the elements that are not zero, as ``nonzero`` does: a row of indices for each."""
    found: Tensor = nonzero(input)
    return found


@public()
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """Find the first `size` elements that are not zero; rows that are too many get `fill_value`."""
    found: Tensor = nonzero(input)[:size]
    made: Tensor = found.new_full((size, input.ndim), fill_value)
    made[: found.shape[0]].copy_(found)
    return made


def _as_functions(names: str) -> None:
    """In-place methods that are functions of the namespace too."""
    for name in names.split():
        method: Callable[..., Any] = METHODS[name]
        FUNCTIONS[name] = method


# Imported last of the families, when every method is known.
def register_in_place_functions() -> None:
    """Register ``exp_(x)`` and the like beside ``x.exp_()``."""
    _as_functions(
        """
        abs_ acos_ acosh_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ asin_ asinh_
        atan_ atanh_ ceil_ clamp_ clip_ conj_physical_ cos_ cosh_ deg2rad_
        erf_ erfc_ exp2_ exp_ expm1_ fix_ floor_ frac_ gcd_ i0_ index_put_ lcm_ log10_ log1p_
        log2_ log_ neg_ negative_ rad2deg_ reciprocal_ round_ rsqrt_
        sigmoid_ sin_ sinc_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ xlogy_
        """
    )
