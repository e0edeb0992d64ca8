# SPDX-License-Identifier: Apache-2.0
"""LU and Cholesky."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from flambeau.linalg import _gradients as gradients
from flambeau.linalg import _matrices as matrices
from flambeau.linalg import return_types
from flambeau.ops.common import kernel, new_like, store_out
from flambeau.ops.custom_gradient import refuse_gradients, with_gradient
from flambeau.ops.sequences import arange
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = [
    "cholesky",
    "cholesky_ex",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
]

_INT64 = _dtype.dtypes["int64"]
_ZERO_PIVOT = (
    "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero. If you "
    "still want to perform the factorization, consider calling linalg.lu(A, pivot) or "
    "linalg.lu_factor_ex(A, pivot)"
)
_NOT_POSITIVE = (
    "The factorization could not be completed because the input is not positive-definite (the "
    "leading minor of order {0} is not positive-definite)."
)


def factor(a: Tensor, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """LU factors as column-major matrices, pivots and statuses, of checked matrices."""
    refuse_gradients("LU factors", a)
    m, n = a.shape[-2:]
    packed = matrices.columns_of(a)
    pivots = new_like(a, (*a.shape[:-2], min(m, n)), matrices.INT32)
    if not pivot:
        pivots.copy_(arange(1, min(m, n) + 1, dtype=matrices.INT32, device=a.device))
    info = matrices.new_info(a)
    if packed.numel():
        with matrices.call_on(a) as call:
            matrices.solver_of(a).lu_factor(
                call,
                a.dtype.name,
                m,
                n,
                matrices.batch_of(a),
                packed.data_ptr(),
                pivots.data_ptr() if pivot else 0,
                info.data_ptr(),
            )
            call.tell("lu_factor", (packed,), (packed, pivots, info))
    return packed.mT, pivots, info


@with_gradient(gradients.lu, constant=(1, 2))
def _factored(a: Tensor, *, pivot: bool) -> tuple[Tensor, Tensor, Tensor]:
    packed, pivots, info = factor(a, pivot)
    return packed, pivots, info


@with_gradient(gradients.lu_solution)
def _solution(packed: Tensor, b: Tensor, pivots: Tensor, *, adjoint: bool) -> Tensor:
    return solve_factored(packed, pivots, b, "C" if adjoint else "N")


def solve_factored(lu: Tensor, pivots: Tensor, b: Tensor, operation: str = "N") -> Tensor:
    """Solve with factors of column-major matrices; `b` has the same batch, and is not changed."""
    solution = matrices.columns_of(b)
    if solution.numel():
        packed = lu.mT.contiguous()
        with matrices.call_on(b) as call:
            matrices.solver_of(b).lu_solve(
                call,
                b.dtype.name,
                b.shape[-2],
                b.shape[-1],
                matrices.batch_of(b),
                packed.data_ptr(),
                pivots.data_ptr(),
                solution.data_ptr(),
                operation,
            )
            call.tell("lu_solve", (packed, pivots, solution), (solution,))
    return solution.mT


def lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: Any = None
) -> return_types.linalg_lu_factor_ex:
    """Factor matrices into packed triangles, and tell which are singular instead of raising.

    Parameters
    ----------
    A
        (*, m, n), float32, float64, complex64 or complex128.
    pivot
        Whether rows are exchanged. Without, a pivot may be 0 and rounding errors may grow.
    check_errors
        Raise as `lu_factor` does.
    out
        Three tensors to store the results in.

    Returns
    -------
    return_types.linalg_lu_factor_ex
        ``LU``, int32 ``pivots`` counted from 1, and int32 ``info``: the number of the first zero
        on U's diagonal, or 0.
    """
    matrices.check_float("torch.linalg.lu_factor_ex", A)
    matrices.check_matrix("linalg.lu_factor_ex", A)
    packed, pivots, info = _factored(A, pivot=pivot)
    if check_errors:
        matrices.raise_failures("torch.linalg.lu_factor_ex", info, _ZERO_PIVOT)
    stored = _store((packed, pivots, info), out)
    return return_types.linalg_lu_factor_ex(*stored)


def lu_factor(A: Tensor, *, pivot: bool = True, out: Any = None) -> return_types.linalg_lu_factor:
    """Factor matrices into packed triangles with row exchanges (``getrf``). Waits for the device.

    Parameters
    ----------
    A
        (*, m, n), float32, float64, complex64 or complex128.
    pivot
        Whether rows are exchanged. Without, a pivot may be 0 and rounding errors may grow.
    out
        Two tensors to store the results in.

    Returns
    -------
    return_types.linalg_lu_factor
        ``LU``, with U on and above the diagonal, and int32 ``pivots`` (*, min(m, n)): which row
        each row was exchanged with, counted from 1.

    Raises
    ------
    RuntimeError
        A diagonal element of U is zero, so that nothing can be solved with it.
    """
    matrices.check_float("torch.linalg.lu_factor", A)
    matrices.check_matrix("linalg.lu_factor", A)
    packed, pivots, info = _factored(A, pivot=pivot)
    matrices.raise_failures("torch.linalg.lu_factor", info, _ZERO_PIVOT)
    stored = _store((packed, pivots), out)
    return return_types.linalg_lu_factor(*stored)


_ORDER_SOURCE = """#include "pivots.cuh"
FLAMBEAU_KERNEL(PIVOT_THREADS)
order_of(int64 *orders, const int32 *exchanges, int64 rows, int64 k) {
  FLAMBEAU_GRID_WAIT();
  order_of_rows(orders, exchanges, rows, k);
}
"""


def permutation(pivots: Tensor, rows: int) -> Tensor:
    """The permutations of row exchanges, as int64 (*, rows): row i of P holds its 1 there."""
    if pivots.is_cuda:
        orders = new_like(pivots, (*pivots.shape[:-1], rows), _INT64)
        if orders.numel():
            made = kernel(_ORDER_SOURCE, "order_of", "PRqq", pivots.get_device())
            grid = (orders.numel() // rows, 1, 1)
            exchanges = pivots.contiguous()
            made(
                pivots.get_device(), grid, (32, 1, 1), 0, orders, exchanges, rows, pivots.shape[-1]
            )
        return orders
    from flambeau.ops.creation import tensor

    lists = pivots.reshape(-1, pivots.shape[-1]).tolist() if pivots.numel() else []
    orders_of_host = []
    for exchanges_of_one in lists:
        order = list(range(rows))
        for i, other in enumerate(exchanges_of_one):
            order[i], order[other - 1] = order[other - 1], order[i]
        orders_of_host.append(order)
    orders_of_host = orders_of_host or [list(range(rows))] * prod(pivots.shape[:-1])
    filled = tensor(orders_of_host, dtype=_INT64)
    return filled.reshape(*pivots.shape[:-1], rows)


def permutation_matrix(a: Tensor, pivots: Tensor) -> Tensor:
    """P of ``P @ L @ U``, of the dtype of the matrices."""
    m = a.shape[-2]
    rows = new_like(a, (*a.shape[:-2], m, m)).fill_(0)
    rows.scatter_(-1, permutation(pivots, m).unsqueeze(-1), 1)
    return rows.mT.contiguous()


def unpack(packed: Tensor) -> tuple[Tensor, Tensor]:
    """The unit lower and the upper triangle of packed factors."""
    m, n = packed.shape[-2:]
    k = min(m, n)
    lower = packed[..., :, :k].tril(-1)
    lower.diagonal(dim1=-2, dim2=-1).fill_(1)
    return lower, packed[..., :k, :].triu()


def lu(A: Tensor, *, pivot: bool = True, out: Any = None) -> return_types.linalg_lu:
    """Factor matrices into ``P @ L @ U``.

    Parameters
    ----------
    A
        (*, m, n), float32, float64, complex64 or complex128; it may be singular.
    pivot
        Whether rows are exchanged. Without, a pivot may be 0 and rounding errors may grow.
    out
        Three tensors to store the results in.

    Returns
    -------
    return_types.linalg_lu
        ``P`` (*, m, m), empty without exchanges, ``L`` (*, m, k) with ones on the diagonal, ``U``
        (*, k, n).

    Examples
    --------
    >>> import flambeau as torch
    >>> A = torch.tensor([[1.0, 2.0], [4.0, 4.0]], device="cuda")
    >>> P, L, U = torch.linalg.lu(A)
    >>> (P @ L @ U).tolist()
    [[1.0, 2.0], [4.0, 4.0]]
    """
    matrices.check_float("linalg.lu", A)
    if A.ndim < 2:
        raise RuntimeError(
            f"linalg.lu: Expected tensor with 2 or more dimensions. Got size: {list(A.shape)} "
            "instead"
        )
    packed, pivots, _ = _factored(A, pivot=pivot)
    order = permutation_matrix(A, pivots) if pivot else new_like(A, (0,))
    stored = _store((order, *unpack(packed)), out)
    return return_types.linalg_lu(*stored)


def lu_solve(
    LU: Tensor,
    pivots: Tensor,
    B: Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Solve ``A @ X = B`` with the result of `lu_factor` (``getrs``).

    Parameters
    ----------
    LU, pivots
        What `lu_factor` returned.
    B
        (*, n, k), of LU's dtype; batches broadcast.
    left
        False solves ``X @ A = B``.
    adjoint
        Solve with the conjugate transpose of A.
    out
        Where to store the result.
    """
    matrices.check_square("linalg.lu_solve", LU, "LU")
    matrices.check_float("linalg.lu_solve", LU)
    matrices.check_matrix("linalg.lu_solve", B, "B")
    matrices.check_pair("linalg.lu_solve", LU, B)
    if not left:
        solution = matrices.adjoint(lu_solve(LU, pivots, matrices.adjoint(B), adjoint=not adjoint))
        return store_out(solution, out)
    _check_shapes("linalg.lu_solve", LU, B)
    LU, B = matrices.broadcast_batches(LU, B)
    pivots = pivots.expand(*B.shape[:-2], pivots.shape[-1]).contiguous()
    return store_out(_solution(LU, B, pivots, adjoint=adjoint), out)


def _check_shapes(name: str, a: Tensor, b: Tensor) -> None:
    if a.shape[-2] != b.shape[-2]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation AX = B "
            f"({a.shape[-2]}x{a.shape[-1]} and {b.shape[-2]}x{b.shape[-1]})"
        )


def cholesky_ex(
    A: Tensor, *, upper: bool = False, check_errors: bool = False, out: Any = None
) -> return_types.linalg_cholesky_ex:
    """Factor as `cholesky` does, and tell which matrices are not positive-definite.

    Parameters
    ----------
    A
        (*, n, n), Hermitian; only one triangle is read.
    upper
        Give U with ``U.mH @ U``.
    check_errors
        Raise as `cholesky` does.
    out
        Two tensors to store the results in.

    Returns
    -------
    return_types.linalg_cholesky_ex
        ``L`` and int32 ``info``: the order of the first minor that is not positive-definite, or 0.
    """
    matrices.check_square("linalg.cholesky_ex", A)
    matrices.check_float("linalg.cholesky_ex", A)
    factors, info = _cholesky(A, upper)
    if check_errors:
        matrices.raise_failures("linalg.cholesky_ex", info, _NOT_POSITIVE)
    stored = _store((factors, info), out)
    return return_types.linalg_cholesky_ex(*stored)


def _cholesky(a: Tensor, upper: bool) -> tuple[Tensor, Tensor]:
    if not upper:
        return _lower(a)
    factors, info = _lower(matrices.adjoint(a))
    return matrices.adjoint(factors), info


@with_gradient(gradients.cholesky, constant=(1,))
def _lower(a: Tensor) -> tuple[Tensor, Tensor]:
    packed, info = matrices.columns_of(a), matrices.new_info(a)
    if packed.numel():
        with matrices.call_on(a) as call:
            matrices.solver_of(a).cholesky(
                call,
                a.dtype.name,
                a.shape[-1],
                matrices.batch_of(a),
                packed.data_ptr(),
                info.data_ptr(),
                False,
            )
            call.tell("cholesky", (packed,), (packed, info))
    return packed.triu_().mT, info


def cholesky(A: Tensor, *, upper: bool = False, out: Tensor | None = None) -> Tensor:
    """Factor positive-definite matrices into ``L @ L.mH`` (``potrf``). Waits for the device.

    Parameters
    ----------
    A
        (*, n, n), Hermitian, float32, float64, complex64 or complex128; only one triangle is read.
    upper
        Give U with ``U.mH @ U`` instead.
    out
        Where to store the result.

    Raises
    ------
    LinAlgError
        A matrix is not positive-definite.
    """
    matrices.check_square("linalg.cholesky", A)
    matrices.check_float("linalg.cholesky", A)
    factors, info = _cholesky(A, upper)
    matrices.raise_failures("linalg.cholesky", info, _NOT_POSITIVE)
    return store_out(factors, out)


def _store(results: tuple[Tensor, ...], out: Any) -> Any:
    """The results, or where the caller wants them."""
    if out is None:
        return results
    return tuple(store_out(result, to) for result, to in zip(results, out, strict=True))
