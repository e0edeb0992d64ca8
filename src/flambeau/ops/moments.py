# SPDX-License-Identifier: Apache-2.0
"""Variances, standard deviations, norms and sums of exponentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.ops import statistics
from flambeau.ops.common import store_out, wrap_dims
from flambeau.ops.promotion import get_default_dtype
from flambeau.ops.reductions import moments_code, reduce
from flambeau.ops.registry import OPS, public
from flambeau.ops.statistics import amax, amin, mean
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from flambeau.ops.statistics import Dims
    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._tensor import Tensor


def _variance(input: Tensor, dim: Dims, correction: float, keepdim: bool, name: str) -> Tensor:
    if input.is_complex():  # the mean squared distance is that of the parts
        real = _variance(input.real, dim, correction, keepdim, name)
        return OPS["_add"](real, _variance(input.imag, dim, correction, keepdim, name))
    if input.dtype.category != 2:
        raise RuntimeError(
            "std and var only support floating point and complex dtypes, "
            f"{name}() got {input.dtype!r}"
        )
    dims = wrap_dims(dim, input.ndim)
    squares, _ = reduce("squares", input, dims, keepdim, moments_code(input))
    assert squares is not None
    count = 1
    for d in dims:
        count *= input.shape[d]
    freedom = count - correction
    # Nothing to divide by: 0/0 is NaN, as the variance of one element with correction 1 must be.
    return OPS["_div"](squares, float(freedom) if freedom > 0 else 0.0)


def _correction(dim: Any, unbiased: Any, correction: float | None) -> tuple[Dims, float]:
    """``var(True)`` means unbiased, ``var(1)`` a dimension."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is not None:
        return dim, correction
    return dim, 0 if unbiased is False else 1


@public()
def var(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Compute the variance over dimensions.

    Parameters
    ----------
    input
        A floating-point tensor.
    dim
        The dimension or dimensions, all by default.
    unbiased
        False stands for ``correction=0``.
    keepdim
        Whether reduced dimensions stay with size 1.
    correction
        Subtracted from the number of elements in the divisor, 1 by default.
    out
        Where to store the result.

    Returns
    -------
    Tensor
        NaN where there are no more elements than `correction`.
    """
    dims, offset = _correction(dim, unbiased, correction)
    variance = _variance(input, dims, offset, keepdim, "var")
    return store_out(variance.to(input.dtype.to_real()), out)


@public()
def std(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Compute the standard deviation over dimensions; parameters as for `var`."""
    dims, offset = _correction(dim, unbiased, correction)
    spread = OPS["sqrt"](_variance(input, dims, offset, keepdim, "std"))
    return store_out(spread.to(input.dtype.to_real()), out)


@public(method=False)
def var_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the variance and the mean; parameters as for `var`."""
    dims, _ = _correction(dim, unbiased, correction)
    return (
        var(input, dim, unbiased, keepdim, correction=correction),
        mean(input, dims, keepdim),
    )


@public(method=False)
def std_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the standard deviation and the mean; parameters as for `var`."""
    dims, _ = _correction(dim, unbiased, correction)
    return (
        std(input, dim, unbiased, keepdim, correction=correction),
        mean(input, dims, keepdim),
    )


@public()
def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Compute a vector norm over dimensions.

    Parameters
    ----------
    input
        A floating-point tensor.
    p
        The order: ``"fro"`` and 2 for the Euclidean norm, 0 for the number of nonzero elements,
        infinities for the extreme absolute values, any other number. ``"nuc"`` is the sum of the
        singular values of a matrix.
    dim
        The dimension or dimensions, all by default.
    keepdim
        Whether reduced dimensions stay with size 1.
    dtype
        Convert to this dtype first.
    out
        Where to store the result.
    """
    if p == "nuc":
        from flambeau.linalg import matrix_norm

        dims = wrap_dims(dim, input.ndim)
        return matrix_norm(input, p, dims, keepdim, dtype=dtype, out=out)
    of = dtype or input.dtype
    if of.category < 2:
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            f"{_dtype.legacy_type_name(of)}"
        )
    if of.category == 3:
        wide, of = OPS["abs"](input.to(of)), of.to_real()
    else:
        wide = input.to(of if of.itemsize == 8 else _dtype.dtypes["float32"])
    order = 2.0 if p in {None, "fro"} else float(p)
    size = OPS["abs"](wide)
    if order == float("inf"):
        result = amax(size, dim, keepdim)
    elif order == float("-inf"):
        result = amin(size, dim, keepdim)
    elif order == 0:
        result = statistics.sum((wide != 0).to(wide.dtype), dim, keepdim)
    elif order == 1:
        result = statistics.sum(size, dim, keepdim)
    elif order == 2:
        result = OPS["sqrt"](statistics.sum(OPS["_square"](wide), dim, keepdim))
    else:
        result = OPS["_pow"](statistics.sum(OPS["_pow"](size, order), dim, keepdim), 1 / order)
    return store_out(result.to(of), out)


@public()
def logsumexp(
    input: Tensor, dim: Dims, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Compute the logarithm of a sum of exponentials without overflow."""
    if input.dtype.category < 2:
        input = input.to(get_default_dtype())
    if input.numel() == 0:
        return OPS["log"](statistics.sum(OPS["exp"](input), dim, keepdim), out=out)
    largest = amax(input.real if input.is_complex() else input, dim, keepdim=True)
    shift = OPS["_where"](OPS["isfinite"](largest), largest, 0.0)
    total = OPS["log"](statistics.sum(OPS["exp"](input - shift), dim, keepdim=True)) + shift
    if keepdim:
        return store_out(total, out)
    dims = wrap_dims(dim, input.ndim)
    kept = [n for d, n in enumerate(input.shape) if d not in dims]
    return store_out(total.reshape(kept), out)
