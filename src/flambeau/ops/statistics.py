# SPDX-License-Identifier: Apache-2.0
"""Reductions as users call them: sums, extremes, truth, moments, norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.ops import return_types
from flambeau.ops.common import store_out, wrap_dim, wrap_dims
from flambeau.ops.reductions import ON_CUDA, reduce, sum_code, truth_code
from flambeau.ops.registry import OPS, public
from flambeau.runtime import _dtype
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._dtype import dtype

    Dims = int | Sequence[int] | None


def _reduced(
    name: str, input: Tensor, dim: Dims, keepdim: bool, code: int, out: Tensor | None
) -> Tensor:
    dims = None if dim is None else wrap_dims(dim, input.ndim)
    result, _ = reduce(name, input, dims, keepdim, code)
    assert result is not None
    return result if out is None else store_out(result, out)


@public(short_answer=ON_CUDA["sum"].short_answer())
def sum(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Add up elements.

    Parameters
    ----------
    input
        A tensor.
    dim
        The dimension or dimensions to add up; all of them by default.
    keepdim
        Whether reduced dimensions stay with size 1.
    dtype
        Convert to this dtype first. By default integers and bool are added up as int64; half and
        bfloat16 are accumulated in float32.
    out
        Where to store the result.

    Returns
    -------
    Tensor
        The sums; 0 of nothing.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.arange(6).reshape(2, 3).sum(1)
    tensor([ 3, 12])
    """
    code = dtype.code if dtype else sum_code(input)
    return _reduced("sum", input, dim, keepdim, code, out)


@public()
def nansum(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Add up elements, NaN counting as 0; parameters as for `sum`."""
    if input.is_complex():
        raise RuntimeError("nansum does not support complex inputs")
    if input.dtype.category < 2:
        return sum(input, dim, keepdim, dtype=dtype, out=out)
    return _reduced("nansum", input, dim, keepdim, (dtype or input.dtype).code, out)


@public()
def mean(
    input: Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Average elements; parameters as for `sum`.

    Raises
    ------
    RuntimeError
        The result would be an integer; pass a floating-point `dtype`.
    """
    of = dtype or input.dtype
    if of.category < 2:
        what = "Input" if dtype is None else "Optional"
        raise RuntimeError(
            f"mean(): could not infer output dtype. {what} dtype must be either a floating point "
            f"or complex dtype. Got: {_dtype.legacy_type_name(of)}"
        )
    return _reduced("mean", input, dim, keepdim, of.code, out)


@public()
def nanmean(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: dtype | None = None
) -> Tensor:
    """Average what is not NaN; parameters as for `sum`."""
    present = sum(OPS["isnan"](input).logical_not(), dim, keepdim)
    return nansum(input, dim, keepdim, dtype=dtype) / present


@public()
def prod(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Multiply elements, all of them or along one dimension; parameters as for `sum`."""
    return _reduced("prod", input, dim, keepdim, dtype.code if dtype else sum_code(input), out)


@public()
def all(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Whether all elements are true, that is not zero; True of nothing."""
    return _reduced("all", input, dim, keepdim, truth_code(input), out)


@public()
def any(
    input: Tensor, dim: Dims = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Whether any element is true, that is not zero; False of nothing."""
    return _reduced("any", input, dim, keepdim, truth_code(input), out)


@public()
def count_nonzero(input: Tensor, dim: Dims = None) -> Tensor:
    """How many elements are not zero."""
    return sum(input != 0, dim)


def _need_order(name: str, input: Tensor) -> None:
    if input.is_complex():
        raise RuntimeError(f"{name}(): does not support complex input: it has no order")


def _need_elements(name: str, input: Tensor, dims: Sequence[int], given: bool) -> None:
    if input.numel():
        return
    if not given:
        error = IndexError if name.startswith("arg") else RuntimeError
        raise error(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify "
            "the reduction dim with the 'dim' argument."
        )
    for d in dims:
        if input.shape[d] == 0:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


def _extreme_along(name: str, input: Tensor, dim: int, keepdim: bool) -> Any:
    _need_order(name, input)
    dims = (wrap_dim(dim, input.ndim),) if input.ndim else ()
    wrap_dim(dim, input.ndim)
    _need_elements(name, input, dims, given=True)
    values, indices = reduce(name, input, dims, keepdim, input.dtype.code, indices=True)
    return getattr(return_types, name)(values, indices)


def _extreme(name: str, input: Tensor, dim: Any, keepdim: bool, out: Any) -> Any:
    if isinstance(dim, Tensor):
        return OPS["maximum" if name == "max" else "minimum"](input, dim, out=out)
    if dim is not None:
        result = _extreme_along(name, input, dim, keepdim)
        if out is None:
            return result
        stored = (store_out(one, into) for one, into in zip(result, out, strict=True))
        return getattr(return_types, name)(*stored)
    _need_order(name, input)
    _need_elements(name, input, range(input.ndim), given=False)
    return _reduced(f"a{name}", input, None, False, input.dtype.code, out)


@public()
def max(
    input: Tensor,
    dim: int | Tensor | None = None,
    keepdim: bool = False,
    *,
    other: Tensor | None = None,
    out: Any = None,
) -> Any:
    """Find the largest element, or the largest along a dimension, or of two tensors.

    Parameters
    ----------
    input
        A tensor.
    dim
        Left out: one element of all. A dimension: values and positions along it. A tensor: the
        larger of each pair, like `maximum`.
    keepdim
        Whether the reduced dimension stays with size 1.
    other
        The same as a tensor for `dim`.
    out
        Where to store: a tensor, with a dimension a pair of them.

    Returns
    -------
    Tensor or flambeau.return_types.max
        NaN beats every number. Of equal elements the first one's position is given.

    Raises
    ------
    RuntimeError, IndexError
        There is no element to choose from.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.tensor([[1, 5], [7, 2]]).max(1).indices
    tensor([1, 0])
    """
    return _extreme("max", input, other if dim is None else dim, keepdim, out)


@public()
def min(
    input: Tensor,
    dim: int | Tensor | None = None,
    keepdim: bool = False,
    *,
    other: Tensor | None = None,
    out: Any = None,
) -> Any:
    """Find the smallest element; everything else as for `max`."""
    return _extreme("min", input, other if dim is None else dim, keepdim, out)


def _arg(name: str, input: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    _need_order(name, input)
    dims = wrap_dims(dim, input.ndim)
    _need_elements(name, input, dims, given=dim is not None)
    if input.dtype.category == 0:
        raise RuntimeError(f"{name}(): does not support bool input; convert to uint8 first")
    _, indices = reduce(
        name[3:], input, dims, keepdim, input.dtype.code, values=False, indices=True
    )
    assert indices is not None
    return indices


@public()
def argmax(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Find where the largest element is.

    Parameters
    ----------
    input
        A tensor.
    dim
        A dimension; left out, positions count through the whole tensor row by row.
    keepdim
        Whether the reduced dimension stays with size 1.

    Returns
    -------
    Tensor
        int64 positions, the first one of equal elements; NaN is the largest.
    """
    return store_out(_arg("argmax", input, dim, keepdim), out)


@public()
def argmin(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Find where the smallest element is; as for `argmax`."""
    return store_out(_arg("argmin", input, dim, keepdim), out)


def _extreme_values(name: str, input: Tensor, dim: Dims, keepdim: bool, out: Any) -> Tensor:
    _need_order(name, input)
    given = dim is not None and (isinstance(dim, int) or len(dim) > 0)
    _need_elements(name, input, wrap_dims(dim, input.ndim), given)
    return _reduced(name, input, dim, keepdim, input.dtype.code, out)


@public()
def amax(
    input: Tensor, dim: Dims = (), keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Find the largest elements along one or several dimensions, all by default."""
    return _extreme_values("amax", input, dim, keepdim, out)


@public()
def amin(
    input: Tensor, dim: Dims = (), keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Find the smallest elements along one or several dimensions, all by default."""
    return _extreme_values("amin", input, dim, keepdim, out)


@public()
def aminmax(
    input: Tensor, *, dim: int | None = None, keepdim: bool = False, out: Any = None
) -> Any:
    """Find the smallest and the largest elements; `out` is a pair to store them in."""
    dims: Dims = () if dim is None else dim
    low, high = (None, None) if out is None else out
    for given in (low, high):
        if given is not None and given.dtype != input.dtype:
            raise RuntimeError(
                f"Expected out tensor to have dtype {input.dtype}, but got {given.dtype} instead"
            )
    return return_types.aminmax(
        amin(input, dims, keepdim, out=low), amax(input, dims, keepdim, out=high)
    )


# -- comparisons of whole tensors -----------------------------------------------------------------


@public()
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements; NaN equals nothing."""
    if input.shape != other.shape:
        return False
    return bool(all(OPS["eq"](input, other)).item())


@public()
def isclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> Tensor:
    """Whether elements agree within ``atol + rtol * abs(other)``."""
    if input.dtype != other.dtype:
        raise RuntimeError(
            f"{_dtype.legacy_type_name(input.dtype)} did not match "
            f"{_dtype.legacy_type_name(other.dtype)}: isclose compares tensors of one dtype"
        )
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {value}")
    close = OPS["eq"](input, other)
    if equal_nan and input.dtype.category == 2:
        close = close | (OPS["isnan"](input) & OPS["isnan"](other))
    if rtol == 0 and atol == 0:
        return close
    wide = input.to(_dtype.dtypes["float64"]) if input.dtype.category < 2 else input
    right = other.to(wide.dtype)
    error = OPS["abs"](wide - right)
    allowed = OPS["abs"](right) * rtol + atol
    return close | (OPS["isfinite"](error) & (error <= allowed))


@public()
def allclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> bool:
    """Whether all elements agree within ``atol + rtol * abs(other)``."""
    return bool(all(isclose(input, other, rtol, atol, equal_nan)).item())
