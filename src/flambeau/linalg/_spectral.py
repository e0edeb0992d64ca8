# SPDX-License-Identifier: Apache-2.0
"""Singular values and eigenvalues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.linalg import _gradients as gradients
from flambeau.linalg import _matrices as matrices
from flambeau.linalg import return_types
from flambeau.linalg._factorizations import _store
from flambeau.ops.common import new_like, store_out
from flambeau.ops.custom_gradient import gradients_wanted, with_gradient
from flambeau.ops.registry import OPS

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = ["eig", "eigh", "eigvals", "eigvalsh", "svd", "svdvals"]

_SMALL = 32  # rows; of batches of such matrices libraries make only the whole U at once
_NO_CONVERGENCE = (
    "The algorithm failed to converge because the input matrix is ill-conditioned or has too many "
    "repeated singular values (error code: {0})."
)
_NOT_FINITE = (
    "The algorithm failed to converge because the input matrix contained non-finite values."
)
_NO_EIGENVALUES = (
    "The algorithm failed to converge because the input matrix is ill-conditioned or has too many "
    "repeated eigenvalues (error code: {0})."
)


def _tall_svd(a: Tensor, job: str, method: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and Vh of matrices with at least as many rows as columns.

    Jacobi's method is the first choice, and QR iteration where that does not converge.
    """
    if job == "S" and matrices.batch_of(a) > 1 and a.shape[-2] <= _SMALL:
        u, s, vh = _tall_svd(a, "A", method)
        return u[..., : a.shape[-1]], s, vh
    u, s, vh, failed = _svd_once(a, job, method or "gesvdj")
    if failed is None:
        return u, s, vh
    finite = OPS["isfinite"](a).all().item()
    if finite and method is None:
        u, s, vh, failed = _svd_once(a, job, "gesvd")
    if failed is not None:
        matrices.raise_failures("linalg.svd", failed, _NO_CONVERGENCE if finite else _NOT_FINITE)
    return u, s, vh


def _svd_once(a: Tensor, job: str, method: str) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """`_tall_svd` by one method, and which matrices failed, None if none did."""
    m, n = a.shape[-2:]
    batch = a.shape[:-2]
    columns = {"A": m, "S": n, "N": 0}[job]
    left = new_like(a, (*batch, columns, m))
    right = new_like(a, (*batch, n if columns else 0, n))
    values = new_like(a, (*batch, n), matrices.real_dtype(a.dtype))
    if n == 0 or values.numel() == 0:
        if left.numel():
            left.fill_(0).diagonal(dim1=-2, dim2=-1).fill_(1)
        return left.mT, values, right.mT, None
    packed, info = matrices.columns_of(a), matrices.new_info(a)
    with matrices.call_on(a) as call:
        has_v = matrices.solver_of(a).svd(
            call,
            a.dtype.name,
            m,
            n,
            matrices.batch_of(a),
            packed.data_ptr(),
            values.data_ptr(),
            left.data_ptr() if columns else 0,
            right.data_ptr() if columns else 0,
            info.data_ptr(),
            job,
            method,
        )
        call.tell("svd", (packed,), (values, left, right, info))
    vh = matrices.conj(right) if has_v else right.mT
    return left.mT, values, vh, _failures(values, info)


def _failures(values: Tensor, info: Tensor) -> Tensor | None:
    """Statuses if one is bad. Not every library says so of a NaN. Waits for the device."""
    broken = OPS["isfinite"](values).all(-1).logical_not()
    failed = OPS["maximum"](info, broken.to(matrices.INT32))
    return failed if failed.numel() and failed.any().item() else None


@with_gradient(gradients.singular_values)
def _tall_values(a: Tensor, *, method: str | None) -> Tensor:
    return _tall_svd(a, "N", method)[1]


@with_gradient(gradients.svd)
def _tall_vectors(a: Tensor, *, job: str, method: str | None) -> tuple[Tensor, Tensor, Tensor]:
    return _tall_svd(a, job, method)


def _tall(a: Tensor, job: str, method: str | None) -> tuple[Tensor, Tensor, Tensor]:
    if not gradients_wanted(a):
        return _tall_svd(a, job, method)
    if job == "N":
        values = _tall_values(a, method=method)
        return values, values, values
    return _tall_vectors(a, job=job, method=method)


def decompose(a: Tensor, job: str, method: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and Vh; `job` is ``"A"`` for square U and Vh, ``"S"`` thin ones, ``"N"`` none."""
    if a.shape[-2] >= a.shape[-1]:
        return _tall(a, job, method)
    u, s, vh = _tall(matrices.adjoint(a), job, method)
    if job == "N":
        return s, s, s
    return matrices.adjoint(vh), s, matrices.adjoint(u)


def svd(
    A: Tensor, full_matrices: bool = True, *, driver: str | None = None, out: Any = None
) -> return_types.linalg_svd:
    """Decompose matrices into ``U @ diag(S) @ Vh``. Waits for the device.

    Parameters
    ----------
    A
        (*, m, n), float32, float64, complex64 or complex128.
    full_matrices
        Whether U (*, m, m) and Vh (*, n, n) are square, or have k = min(m, n) columns and rows.
    driver
        For CUDA tensors: ``"gesvdj"`` (Jacobi's method), ``"gesvd"`` (QR iteration) or
        ``"gesvda"`` (approximate; for batches of tall and narrow matrices). By default ``gesvdj``,
        and ``gesvd`` where that does not converge.
    out
        Three tensors to store the results in.

    Returns
    -------
    return_types.linalg_svd
        ``U``, ``S`` (*, k), real and descending, and ``Vh``.

    Raises
    ------
    LinAlgError
        The iteration did not converge; most often there is a NaN.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.linalg.svd(torch.eye(2, device="cuda")).S.tolist()
    [1.0, 1.0]
    """
    matrices.check_matrix("linalg.svd", A)
    matrices.check_float("linalg.svd", A)
    _check_driver(A, driver)
    stored = _store(decompose(A, "A" if full_matrices else "S", driver), out)
    return return_types.linalg_svd(*stored)


def _check_driver(a: Tensor, driver: str | None) -> None:
    if driver is None:
        return
    if a.device.type == "cpu":
        raise RuntimeError("torch.linalg.svd: the argument `driver` is only supported on CUDA")
    if driver not in {"gesvd", "gesvdj", "gesvda"}:
        raise RuntimeError(
            f"torch.linalg.svd: unknown svd driver {driver}: expected gesvd, gesvdj or gesvda"
        )


def svdvals(A: Tensor, *, driver: str | None = None, out: Tensor | None = None) -> Tensor:
    """Compute singular values only, descending; parameters as for `svd`."""
    matrices.check_matrix("linalg.svdvals", A)
    matrices.check_float("linalg.svdvals", A)
    _check_driver(A, driver)
    return store_out(decompose(A, "N", driver)[1], out)


def _eigh(name: str, a: Tensor, uplo: str, vectors: bool) -> tuple[Tensor, Tensor]:
    matrices.check_square(name, a)
    matrices.check_float(name, a)
    if uplo.upper() not in {"L", "U"}:
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {uplo}")
    vectors = vectors or gradients_wanted(a)
    values, columns, info = _hermitian(a, upper=uplo.upper() == "U", vectors=vectors)
    matrices.raise_failures(name, info, _NO_EIGENVALUES)
    return values, columns


@with_gradient(gradients.eigh, constant=(2,))
def _hermitian(a: Tensor, *, upper: bool, vectors: bool) -> tuple[Tensor, Tensor, Tensor]:
    packed, info = matrices.columns_of(a), matrices.new_info(a)
    values = new_like(a, a.shape[:-1], matrices.real_dtype(a.dtype))
    if packed.numel():
        with matrices.call_on(a) as call:
            matrices.solver_of(a).eigh(
                call,
                a.dtype.name,
                a.shape[-1],
                matrices.batch_of(a),
                packed.data_ptr(),
                values.data_ptr(),
                info.data_ptr(),
                upper,
                vectors,
            )
            call.tell("eigh", (packed,), (packed, values, info))
    return values, packed.mT, info


def eigh(A: Tensor, UPLO: str = "L", *, out: Any = None) -> return_types.linalg_eigh:
    """Find eigenvalues and eigenvectors of Hermitian matrices (``syevd``). Waits for the device.

    Parameters
    ----------
    A
        (*, n, n), float32, float64, complex64 or complex128.
    UPLO
        Which triangle is read, ``"L"`` or ``"U"``.
    out
        Two tensors to store the results in.

    Returns
    -------
    return_types.linalg_eigh
        ``eigenvalues`` (*, n), real and ascending, and ``eigenvectors`` in columns.

    Raises
    ------
    LinAlgError
        The iteration did not converge.
    """
    stored = _store(_eigh("linalg.eigh", A, UPLO, True), out)
    return return_types.linalg_eigh(*stored)


def eigvalsh(A: Tensor, UPLO: str = "L", *, out: Tensor | None = None) -> Tensor:
    """Find eigenvalues of Hermitian matrices; parameters as for `eigh`."""
    return store_out(_eigh("linalg.eigvalsh", A, UPLO, False)[0], out)


def _eig(name: str, a: Tensor, vectors: bool) -> tuple[Tensor, Tensor]:
    matrices.check_square(name, a)
    matrices.check_float(name, a)
    values, columns, info = _general(a, name=name, vectors=vectors or gradients_wanted(a))
    matrices.raise_failures(name, info, _NO_EIGENVALUES)
    return values, columns


@with_gradient(gradients.eig, constant=(2,))
def _general(a: Tensor, *, name: str, vectors: bool) -> tuple[Tensor, Tensor, Tensor]:
    if a.numel() and not OPS["isfinite"](a).all().item():
        raise RuntimeError(f"torch.{name}: input tensor should not contain infs or NaNs.")
    of = matrices.complex_dtype(a.dtype)
    packed, info = matrices.columns_of(a.to(of)), matrices.new_info(a)
    values = new_like(a, a.shape[:-1], of)
    columns = new_like(a, a.shape if vectors else (0,), of)
    if packed.numel():
        with matrices.call_on(a) as call:
            matrices.solver_of(a).eig(
                call,
                of.name,
                a.shape[-1],
                matrices.batch_of(a),
                packed.data_ptr(),
                values.data_ptr(),
                columns.data_ptr() if vectors else 0,
                info.data_ptr(),
            )
            call.tell("eig", (packed,), (values, columns, info))
    return values, columns.mT if vectors else columns, info


def eig(A: Tensor, *, out: Any = None) -> return_types.linalg_eig:
    """Find eigenvalues and right eigenvectors of square matrices (``geev``). Waits for the device.

    Parameters
    ----------
    A
        (*, n, n), float32, float64, complex64 or complex128.
    out
        Two tensors to store the results in.

    Returns
    -------
    return_types.linalg_eig
        ``eigenvalues`` (*, n) and ``eigenvectors`` (*, n, n) in columns, always complex, in no
        particular order.

    Raises
    ------
    RuntimeError
        There is a NaN or an infinity.
    """
    stored = _store(_eig("linalg.eig", A, True), out)
    return return_types.linalg_eig(*stored)


def eigvals(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Find eigenvalues of square matrices; parameters as for `eig`."""
    return store_out(_eig("linalg.eigvals", A, False)[0], out)
