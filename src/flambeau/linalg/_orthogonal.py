# SPDX-License-Identifier: Apache-2.0
"""QR and Householder reflectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.linalg import _gradients as gradients
from flambeau.linalg import _matrices as matrices
from flambeau.linalg import return_types
from flambeau.linalg._factorizations import _store
from flambeau.ops.common import new_like, store_out
from flambeau.ops.custom_gradient import gradients_wanted, refuse_gradients, with_gradient
from flambeau.ops.matmul import matmul
from flambeau.ops.shapes import cat

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = ["householder_product", "qr"]

_MANY_UP_TO = 256  # reflectors; libraries form one Q after the other


def qr(A: Tensor, mode: str = "reduced", *, out: Any = None) -> return_types.linalg_qr:
    """Factor matrices into ``Q @ R`` with orthonormal columns in Q (``geqrf``, ``orgqr``).

    Parameters
    ----------
    A
        (*, m, n), float32, float64, complex64 or complex128.
    mode
        ``"reduced"``: Q (*, m, k), R (*, k, n) with k = min(m, n); ``"complete"``: Q (*, m, m),
        R (*, m, n); ``"r"``: only R (*, k, n), and an empty Q.
    out
        Two tensors to store the results in.

    Returns
    -------
    return_types.linalg_qr
        ``Q`` and ``R``.

    Examples
    --------
    >>> import flambeau as torch
    >>> Q, R = torch.linalg.qr(torch.eye(3, device="cuda"))
    >>> (Q @ R).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if mode not in {"reduced", "complete", "r"}:
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', "
            "or 'complete'"
        )
    matrices.check_matrix("linalg.qr", A)
    matrices.check_float("linalg.qr", A)
    if mode == "r":
        packed, _ = householder(A)
        triangle = packed.mT[..., : min(A.shape[-2:]), :].triu()
        return return_types.linalg_qr(*_store((new_like(A, (0,)), triangle), out))
    m, n = A.shape[-2:]
    if mode == "complete" and m > n:
        refuse_gradients(f"linalg.qr with mode='complete' of {m}x{n} matrices", A)
    if m < n and gradients_wanted(A):
        q, square = _qr(A[..., :m], complete=False)
        triangle = cat((square, matmul(matrices.adjoint(q), A[..., m:])), -1)
        return return_types.linalg_qr(*_store((q, triangle), out))
    return return_types.linalg_qr(*_store(_qr(A, complete=mode == "complete"), out))


@with_gradient(gradients.qr)
def _qr(a: Tensor, *, complete: bool) -> tuple[Tensor, Tensor]:
    m, n = a.shape[-2:]
    k = min(m, n)
    packed, tau = householder(a)
    width = m if complete else k
    triangle = packed.mT[..., :width, :].triu()
    if width == k:  # what is packed is not needed any more
        vectors = packed[..., :k, :].contiguous()
    else:
        vectors = new_like(a, (*a.shape[:-2], width, m)).fill_(0)
        vectors[..., :k, :] = packed[..., :k, :]
    return _form(vectors, tau), triangle


def householder(a: Tensor) -> tuple[Tensor, Tensor]:
    """Column-major Householder vectors and R, and their factors."""
    refuse_gradients("Householder vectors", a)
    m, n = a.shape[-2:]
    packed, tau = matrices.columns_of(a), new_like(a, (*a.shape[:-2], min(m, n)))
    if packed.numel():
        with matrices.call_on(a) as call:
            matrices.solver_of(a).qr_factor(
                call, a.dtype.name, m, n, matrices.batch_of(a), packed.data_ptr(), tau.data_ptr()
            )
            call.tell("qr_factor", (packed,), (packed, tau))
    return packed, tau


def _form_many(vectors: Tensor, tau: Tensor) -> Tensor:
    """`_form` of many small matrices by products: ``Q = I - V @ T @ V.mH`` for all reflectors.

    T is the inverse of ``diag(1 / tau) + triu(V.mH @ V, 1)`` (Puglisi 1992), which is solved for
    with tau multiplied in, since it may be 0.
    """
    from flambeau.linalg._solving import solve_triangular

    columns, k = vectors.shape[-2], tau.shape[-1]
    v = vectors[..., :k, :].mT.tril(-1)
    v.diagonal(dim1=-2, dim2=-1).fill_(1)
    factors = tau.unsqueeze(-1)
    left = matrices.full_product(matrices.adjoint(v), v).triu(1) * factors
    right = matrices.adjoint(v[..., :columns, :]) * factors
    inner = solve_triangular(left, right, upper=True, unitriangular=True)
    q: Tensor = matrices.full_product(v, inner).neg_()
    q.diagonal(dim1=-2, dim2=-1).add_(1)
    return q


def _form(vectors: Tensor, tau: Tensor) -> Tensor:
    """Q from column-major vectors (*, columns, m), which it replaces."""
    columns, m = vectors.shape[-2:]
    k = tau.shape[-1]
    if k == 0:
        vectors.diagonal(dim1=-2, dim2=-1).fill_(1)
    elif vectors.is_cuda and matrices.batch_of(vectors) > 1 and k <= _MANY_UP_TO:
        return _form_many(vectors, tau)
    elif vectors.numel():
        with matrices.call_on(vectors) as call:
            matrices.solver_of(vectors).qr_form(
                call,
                vectors.dtype.name,
                m,
                columns,
                k,
                matrices.batch_of(vectors),
                vectors.data_ptr(),
                tau.data_ptr(),
            )
            call.tell("qr_form", (vectors, tau), (vectors,))
    return vectors.mT


def householder_product(A: Tensor, tau: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply Householder reflectors, as ``geqrf`` leaves them (``orgqr``).

    Parameters
    ----------
    A
        (*, m, n) with m >= n, the vectors below the diagonal.
    tau
        (*, k) with k <= n, their factors.
    out
        Where to store the result.

    Returns
    -------
    Tensor
        (*, m, n), the first n columns of the product.
    """
    matrices.check_matrix("torch.linalg.householder_product", A, "input")
    matrices.check_float("torch.linalg.householder_product", A)
    m, n = A.shape[-2:]
    if m < n or tau.shape[-1] > n:
        raise RuntimeError(
            "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to "
            f"input.shape[-1], and that to tau.shape[-1]: got {m}, {n} and {tau.shape[-1]}"
        )
    if gradients_wanted(A, tau):
        return store_out(_reflected(A, tau), out)
    return store_out(_form(matrices.columns_of(A), tau.contiguous()), out)


def _reflected(vectors: Tensor, tau: Tensor) -> Tensor:
    """`householder_product` reflector by reflector, in operations that gradients go through."""
    below = vectors.tril(-1)
    unit = new_like(vectors, vectors.shape).fill_(0)
    unit.diagonal(dim1=-2, dim2=-1).fill_(1)
    made = unit
    for k in reversed(range(tau.shape[-1])):
        v = (below + unit)[..., k : k + 1]
        made = made - tau[..., None, k : k + 1] * matmul(v, matmul(matrices.adjoint(v), made))
    return made
