# SPDX-License-Identifier: Apache-2.0
"""Norms of vectors and matrices, and condition numbers."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from flambeau.linalg import _matrices as matrices
from flambeau.linalg._solving import inv_ex
from flambeau.linalg._spectral import svdvals
from flambeau.ops.common import new_like, store_out, wrap_dim, wrap_dims
from flambeau.ops.registry import OPS
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._dtype import dtype as dtype_
    from flambeau.runtime._tensor import Tensor

__all__ = ["cond", "matrix_norm", "norm", "vector_norm"]

_MATRIX_ORDERS = {"fro", "nuc", 1, -1, 2, -2, inf, -inf}


def _converted(name: str, x: Tensor, dtype: dtype_ | None) -> Tensor:
    matrices.check_float(name, x, low_precision=True)
    if dtype is None:
        return x
    if dtype.category < 2 or (x.is_complex() and dtype.category != 3):
        raise RuntimeError(
            f"{name}: the dtype {dtype} cannot hold the norm of a "
            f"{_dtype.legacy_type_name(x.dtype)} tensor; it must be floating-point, and complex "
            "for complex input"
        )
    return x.to(dtype)


def vector_norm(
    x: Tensor,
    ord: float | str = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: dtype_ | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Compute norms of vectors.

    Parameters
    ----------
    x
        A floating-point or complex tensor.
    ord
        The order: 2; inf and -inf for the greatest and least absolute value; 0 for how many are
        not 0; any other number p for ``sum(abs(x)**p)**(1/p)``.
    dim
        The dimensions that make up a vector; None flattens.
    keepdim
        Whether these dimensions stay with size 1.
    dtype
        Convert to it first.
    out
        Where to store the result, which is real.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.linalg.vector_norm(torch.tensor([3.0, 4.0], device="cuda")).item()
    5.0
    """
    if isinstance(ord, str):
        raise TypeError(
            "linalg_vector_norm(): argument 'ord' (position 2) must be Number, not str; "
            f"{ord!r} is a norm of matrices"
        )
    x = _converted("linalg.vector_norm", x, dtype)
    dims = wrap_dims(dim, x.ndim)
    if ord in {inf, -inf} or ord < 0:
        for d in dims:
            if x.shape[d] == 0:
                raise RuntimeError(
                    f"linalg.vector_norm cannot compute the {ord} norm on an empty tensor because "
                    "the operation does not have an identity"
                )
    return store_out(_vector_norm(x, float(ord), dims, keepdim), out)


def _vector_norm(x: Tensor, order: float, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    sizes: Any = OPS["abs"](x)
    total: Tensor
    if not dims:
        total = (OPS["ne"](sizes, 0).to(sizes.dtype)) if order == 0 else sizes
        return total
    if order in {inf, -inf}:
        total = (sizes.amax if order > 0 else sizes.amin)(dims, keepdim)
        return total
    if order == 0:
        total = OPS["ne"](sizes, 0).sum(dims, keepdim=keepdim).to(sizes.dtype)
        return total
    narrow = sizes.dtype.itemsize == 2
    wide = sizes.to(_dtype.dtypes["float32"]) if narrow else sizes
    if order == 1:
        total = wide.sum(dims, keepdim=keepdim)
    elif order == 2:
        total = OPS["sqrt"]((wide * wide).sum(dims, keepdim=keepdim))
    else:
        total = (wide**order).sum(dims, keepdim=keepdim) ** (1 / order)
    return total.to(sizes.dtype) if narrow else total


def matrix_norm(
    A: Tensor,
    ord: float | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: dtype_ | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Compute norms of matrices.

    Parameters
    ----------
    A
        A floating-point or complex tensor of at least two dimensions.
    ord
        ``"fro"``; ``"nuc"`` for the sum of singular values; inf, -inf, 1 and -1 for the greatest
        and least sum of a row and of a column; 2 and -2 for the greatest and least singular value.
    dim
        The two dimensions of a matrix.
    keepdim
        Whether they stay with size 1.
    dtype
        Convert to it first.
    out
        Where to store the result, which is real.
    """
    matrices.check_matrix("linalg.matrix_norm", A)
    A = _converted("linalg.matrix_norm", A, dtype)
    if ord not in _MATRIX_ORDERS:
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    if len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {list(dim)}")
    rows, columns = (wrap_dim(d, A.ndim) for d in dim)
    if rows == columns:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got {list(dim)}")
    return store_out(_matrix_norm(A, ord, rows, columns, keepdim), out)


def _matrix_norm(a: Tensor, order: float | str, rows: int, columns: int, keepdim: bool) -> Tensor:
    found: Tensor
    if order == "fro":
        return _vector_norm(a, 2.0, (rows, columns), keepdim)
    if order in {"nuc", 2, -2}:
        values = svdvals(a.movedim((rows, columns), (-2, -1)))
        if order == "nuc":
            found = values.sum(-1)
        else:
            found = values.amax(-1) if order == 2 else values.amin(-1)
        return (
            found.unsqueeze(min(rows, columns)).unsqueeze(max(rows, columns)) if keepdim else found
        )
    summed, chosen = (rows, columns) if abs(float(order)) == 1 else (columns, rows)
    sums = OPS["abs"](a).sum(summed, keepdim=True)
    found = (sums.amax if float(order) > 0 else sums.amin)(chosen, True)
    if keepdim:
        return found
    return found.squeeze((rows, columns))


def norm(
    A: Tensor,
    ord: float | str | None = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
    dtype: dtype_ | None = None,
) -> Tensor:
    """Compute norms of vectors or matrices, as the arguments say.

    Parameters
    ----------
    A
        A floating-point or complex tensor.
    ord
        Of `vector_norm` or `matrix_norm`; None is the 2-norm of all elements of `dim`.
    dim
        One dimension for vectors, two for matrices. None: all elements without `ord`, else the
        tensor must have one or two dimensions.
    keepdim
        Whether these dimensions stay with size 1.
    out
        Where to store the result, which is real.
    dtype
        Convert to it first.
    """
    dims = (dim,) if isinstance(dim, int) else dim
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype, out=out)
    if dims is None:
        if A.ndim not in {1, 2}:
            raise RuntimeError(
                "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
                f"{A.ndim}D."
            )
        dims = tuple(range(A.ndim))
    if len(dims) == 2:
        return matrix_norm(A, ord, dims, keepdim, dtype=dtype, out=out)
    if isinstance(ord, str):
        raise RuntimeError(
            f"linalg.norm: the order {ord} is one of matrices, but dim names vectors"
        )
    return vector_norm(A, ord, dims, keepdim, dtype=dtype, out=out)


def cond(A: Tensor, p: float | str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Compute condition numbers of matrices, infinite for singular ones. Waits for the device.

    Parameters
    ----------
    A
        (*, m, n), float32, float64, complex64 or complex128; square unless `p` is None, 2 or -2.
    p
        The order of the norm, as in `matrix_norm`; None is 2.
    out
        Where to store the result, real (*).
    """
    matrices.check_matrix("linalg.cond", A)
    matrices.check_float("linalg.cond", A)
    if p is not None and p not in _MATRIX_ORDERS:
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    if p in {None, 2, -2}:
        values = svdvals(A)
        if values.shape[-1] == 0:
            return store_out(new_like(values, values.shape[:-1]).fill_(0), out)
        ratio = values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
        return store_out(ratio, out)
    matrices.check_square(f"linalg.cond(ord={p})", A)
    inverse, info = inv_ex(A)
    product = matrix_norm(A, p) * matrix_norm(inverse, p)
    return store_out(OPS["_where"](OPS["ne"](info, 0), inf, product), out)
