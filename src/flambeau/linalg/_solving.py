# SPDX-License-Identifier: Apache-2.0
"""Systems of equations, inverses, determinants and least squares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.linalg import _gradients as gradients
from flambeau.linalg import _matrices as matrices
from flambeau.linalg import return_types
from flambeau.linalg._factorizations import _check_shapes, _store, factor, solve_factored
from flambeau.linalg._orthogonal import qr
from flambeau.linalg._spectral import _eigh, decompose
from flambeau.ops.common import new_like, store_out
from flambeau.ops.custom_gradient import gradients_wanted, with_gradient
from flambeau.ops.matmul import matmul
from flambeau.ops.registry import OPS
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = [
    "det",
    "inv",
    "inv_ex",
    "lstsq",
    "matrix_rank",
    "pinv",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
]

_SINGULAR = "The solver failed because the input matrix is singular."
_NOT_INVERTIBLE = (
    "The diagonal element {0} is zero, the inversion could not be completed because the input "
    "matrix is singular."
)


def _is_vectors(a: Tensor, b: Tensor) -> bool:
    """Whether right sides are vectors: one, or as many as there are matrices."""
    return b.ndim == 1 or (a.ndim - 1 == b.ndim and a.shape[:-1] == b.shape)


@with_gradient(gradients.solve, constant=(1,))
def _solution(a: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    packed, pivots, info = factor(a)
    wide, right = matrices.broadcast_batches(packed, right)
    pivots = pivots.expand(*right.shape[:-2], pivots.shape[-1]).contiguous()
    return solve_factored(wide, pivots, right), info


def _solve(a: Tensor, b: Tensor, left: bool, name: str) -> tuple[Tensor, Tensor]:
    matrices.check_square("linalg.solve", a)
    matrices.check_float("linalg.solve", a)
    matrices.check_pair("linalg.solve", a, b)
    vectors = _is_vectors(a, b)
    if vectors and not left:
        raise RuntimeError(
            "linalg.solve: Vector broadcasting of the left hand side is not supported for "
            "left=False. In this case linalg.solve is equivalent to B / A.squeeze(-1)"
        )
    right = b.unsqueeze(-1) if vectors else b
    matrices.check_matrix("linalg.solve", right, "B")
    if not left:
        a, right = a.mT, right.mT
    _check_shapes("linalg.solve", a, right)
    if gradients_wanted(a, right):
        a, right = matrices.broadcast_batches(a, right)
    solution, info = _solution(a, right)
    if not left:
        solution = solution.mT
    return (solution.squeeze(-1) if vectors else solution), info


def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Tensor | None = None) -> Tensor:
    """Solve ``A @ X = B`` for square matrices (``getrf``, ``getrs``). Waits for the device.

    Parameters
    ----------
    A
        (*, n, n), float32, float64, complex64 or complex128.
    B
        (*, n, k) of A's dtype, or vectors: (n), or (*, n) with exactly A's leading dimensions.
        Batches of matrices broadcast.
    left
        False solves ``X @ A = B``.
    out
        Where to store the result.

    Returns
    -------
    Tensor
        X, with B's shape.

    Raises
    ------
    LinAlgError
        A matrix is singular.

    Examples
    --------
    >>> import flambeau as torch
    >>> A = torch.tensor([[2.0, 0.0], [0.0, 4.0]], device="cuda")
    >>> torch.linalg.solve(A, torch.ones(2, device="cuda")).tolist()
    [0.5, 0.25]
    """
    solution, info = _solve(A, B, left, "linalg.solve")
    matrices.raise_failures("torch.linalg.solve", info, _SINGULAR)
    return store_out(solution, out)


def solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: Any = None
) -> return_types.linalg_solve_ex:
    """Solve as `solve` does, with a status for each matrix instead of an error.

    Returns
    -------
    return_types.linalg_solve_ex
        ``result``, and int32 ``info``: which diagonal element of U is zero, or 0.
    """
    solution, info = _solve(A, B, left, "linalg.solve_ex")
    if check_errors:
        matrices.raise_failures("torch.linalg.solve_ex", info, _SINGULAR)
    return return_types.linalg_solve_ex(*_store((solution, info), out))


def _inverse(a: Tensor, name: str) -> tuple[Tensor, Tensor]:
    matrices.check_square(name, a)
    matrices.check_float(name, a)
    return _inverted(a)


@with_gradient(gradients.inverse, constant=(1,))
def _inverted(a: Tensor) -> tuple[Tensor, Tensor]:
    packed, pivots, info = factor(a)
    return solve_factored(packed, pivots, matrices.identity(a, a.shape[-1], a.shape[:-2])), info


def inv(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Invert square matrices. Waits for the device.

    Parameters
    ----------
    A
        (*, n, n), float32, float64, complex64 or complex128.
    out
        Where to store the result.

    Raises
    ------
    LinAlgError
        A matrix is singular.
    """
    inverse, info = _inverse(A, "linalg.inv")
    matrices.raise_failures("linalg.inv", info, _NOT_INVERTIBLE)
    return store_out(inverse, out)


def inv_ex(A: Tensor, *, check_errors: bool = False, out: Any = None) -> return_types.linalg_inv_ex:
    """Invert square matrices, with a status for each instead of an error.

    Returns
    -------
    return_types.linalg_inv_ex
        ``inverse``, and int32 ``info``: which diagonal element of U is zero, or 0.
    """
    inverse, info = _inverse(A, "linalg.inv_ex")
    if check_errors:
        matrices.raise_failures("linalg.inv_ex", info, _NOT_INVERTIBLE)
    return return_types.linalg_inv_ex(*_store((inverse, info), out))


def _parity(pivots: Tensor) -> Tensor:
    """1 or -1 (float32): the sign of the exchanges of rows."""
    from flambeau.ops.sequences import arange

    own = arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype, device=pivots.device)
    odd = OPS["ne"](pivots, own).sum(-1) % 2
    sign: Tensor = (odd * -2 + 1).to(_dtype.dtypes["float32"])
    return sign


def det(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Compute determinants of square matrices (*, n, n), by LU.

    Parameters
    ----------
    A
        (*, n, n), float32, float64, complex64 or complex128; it may be singular.
    out
        Where to store the result, (*).
    """
    matrices.check_square("linalg.det", A)
    matrices.check_float("linalg.det", A)
    return store_out(_determinant(A), out)


@with_gradient(gradients.determinant)
def _determinant(a: Tensor) -> Tensor:
    packed, pivots, _ = factor(a)
    product: Tensor = packed.diagonal(dim1=-2, dim2=-1).prod(-1)
    return product * _parity(pivots).to(product.dtype)


def slogdet(A: Tensor, *, out: Any = None) -> return_types.linalg_slogdet:
    """Compute signs and logarithms of determinants, which do not overflow.

    Parameters
    ----------
    A
        (*, n, n), float32, float64, complex64 or complex128.
    out
        Two tensors to store the results in.

    Returns
    -------
    return_types.linalg_slogdet
        ``sign``, of absolute value 1, or 0 for a singular matrix, and ``logabsdet``, real.
    """
    matrices.check_square("linalg.slogdet", A)
    matrices.check_float("linalg.slogdet", A)
    return return_types.linalg_slogdet(*_store(_log_determinant(A), out))


@with_gradient(gradients.log_determinant)
def _log_determinant(a: Tensor) -> tuple[Tensor, Tensor]:
    packed, pivots, _ = factor(a)
    diagonal = packed.diagonal(dim1=-2, dim2=-1)
    sign = OPS["sgn"](diagonal).prod(-1) * _parity(pivots).to(a.dtype)
    return sign, OPS["log"](OPS["abs"](diagonal)).sum(-1)


def solve_triangular(
    A: Tensor,
    B: Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Solve ``A @ X = B`` with triangular matrices (``trsm``). Singular ones give infinities.

    Parameters
    ----------
    A
        (*, n, n), float32, float64, complex64 or complex128; the other triangle is not read.
    B
        (*, n, k) of A's dtype; batches broadcast.
    upper
        Which triangle.
    left
        False solves ``X @ A = B``.
    unitriangular
        The diagonal is not read and counts as ones.
    out
        Where to store the result.
    """
    matrices.check_square("linalg.solve_triangular", A)
    matrices.check_float("linalg.solve_triangular", A)
    matrices.check_matrix("linalg.solve_triangular", B, "B")
    matrices.check_pair("linalg.solve_triangular", A, B)
    if not left:
        solution = solve_triangular(A.mT, B.mT, upper=not upper, unitriangular=unitriangular)
        return store_out(solution.mT, out)
    _check_shapes("linalg.solve_triangular", A, B)
    A, B = matrices.broadcast_batches(A, B)
    return store_out(_triangular(A, B, upper=upper, unitriangular=unitriangular), out)


@with_gradient(gradients.triangular)
def _triangular(A: Tensor, B: Tensor, *, upper: bool, unitriangular: bool) -> Tensor:
    packed, solution = matrices.columns_of(A), matrices.columns_of(B)
    if solution.numel():
        with matrices.call_on(A) as call:
            matrices.solver_of(A).triangular_solve(
                call,
                A.dtype.name,
                B.shape[-2],
                B.shape[-1],
                matrices.batch_of(B),
                packed.data_ptr(),
                solution.data_ptr(),
                upper,
                "N",
                unitriangular,
            )
            call.tell("triangular_solve", (packed, solution), (solution,))
    return solution.mT


def _tolerance(name: str, a: Tensor, values: Tensor, atol: Any, rtol: Any) -> Any:
    """What counts as zero: the larger of `atol` and `rtol` times the greatest value."""
    from flambeau.runtime._tensor import Tensor as _Tensor
    from flambeau.runtime._tensor import finfo

    if rtol is None:
        given = atol is not None and (isinstance(atol, _Tensor) or atol > 0)
        rtol = 0.0 if given else max(a.shape[-2:]) * finfo(a.dtype).eps
    largest = (
        values.amax(-1, keepdim=True)
        if values.shape[-1]
        else new_like(values, (*values.shape[:-1], 1)).fill_(0)
    )
    relative = largest * (rtol.unsqueeze(-1) if isinstance(rtol, _Tensor) else rtol)
    if atol is None:
        return relative
    absolute = (
        atol.unsqueeze(-1)
        if isinstance(atol, _Tensor)
        else OPS["_copy"](float(atol), out=new_like(relative, relative.shape))
    )
    return OPS["maximum"](absolute, relative)


def matrix_rank(
    A: Tensor,
    tol: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """Count singular values that are not negligible. Waits for the device.

    Parameters
    ----------
    A
        (*, m, n), float32, float64, complex64 or complex128.
    tol
        Older name of `atol`, without a relative tolerance.
    hermitian
        Use eigenvalues' absolute values, which is quicker.
    atol, rtol
        Numbers or tensors (*). A value counts if it exceeds ``max(atol, rtol * largest)``; by
        default ``rtol = max(m, n) * eps`` unless `atol` is given.
    out
        Where to store the result, int64 (*).
    """
    matrices.check_matrix("torch.linalg.matrix_rank", A, "input")
    matrices.check_float("linalg.matrix_rank", A)
    if tol is not None:
        atol, rtol = tol, 0.0
    A = A.detach()
    values = _absolute_values(A, hermitian)
    limit = _tolerance("matrix_rank", A, values, atol, rtol)
    return store_out(OPS["gt"](values, limit).sum(-1), out)


def _absolute_values(a: Tensor, hermitian: bool) -> Tensor:
    if hermitian:
        return OPS["abs"](_eigh("linalg.eigvalsh", a, "L", False)[0])
    return decompose(a, "N")[1]


def pinv(
    A: Tensor,
    rcond: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """Compute Moore-Penrose inverses by singular values. Waits for the device.

    Parameters
    ----------
    A
        (*, m, n), float32, float64, complex64 or complex128.
    rcond
        Older name of `rtol`.
    hermitian
        Use eigenvalues, which is quicker.
    atol, rtol
        Which singular values count as zero, as in `matrix_rank`.
    out
        Where to store the result, (*, n, m).
    """
    if A.ndim < 2 or A.dtype.category < 2:
        raise RuntimeError(
            f"linalg.pinv({_dtype.legacy_type_name(A.dtype)}{{{list(A.shape)}}}): expected a "
            "tensor with 2 or more dimensions of float, double, cfloat or cdouble types"
        )
    matrices.check_float("linalg.pinv", A)
    if 0 in A.shape[-2:]:
        return store_out(new_like(A, (*A.shape[:-2], A.shape[-1], A.shape[-2])).fill_(0), out)
    rtol = rcond if rtol is None else rtol
    if hermitian:
        values, u = _eigh("linalg.eigh", A, "L", True)
        vh = matrices.adjoint(u)
    else:
        u, values, vh = decompose(A, "S")
    sizes = OPS["abs"](values)
    limit = _tolerance("pinv", A, sizes, atol, rtol)
    inverse = OPS["_where"](OPS["gt"](sizes, limit), OPS["reciprocal"](values), 0.0)
    scaled = matrices.adjoint(vh) * inverse.unsqueeze(-2).to(A.dtype)
    return store_out(matmul(scaled, matrices.adjoint(u)), out)


_DRIVERS = {"cpu": ("gels", "gelsy", "gelsd", "gelss"), "cuda": ("gels",)}


def lstsq(
    A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> return_types.linalg_lstsq:
    """Minimise the norm of ``A @ X - B``. Waits for the device.

    Parameters
    ----------
    A
        (*, m, n), float32, float64, complex64 or complex128.
    B
        (*, m, k) of A's dtype, or vectors (m) or (*, m).
    rcond
        On the host: singular values up to this times the largest count as zero; by default
        ``max(m, n) * eps``. Not used by ``"gels"``.
    driver
        CUDA tensors: ``"gels"`` (QR; A has full rank). Host tensors: ``"gels"``, or ``"gelsy"``
        (default), ``"gelsd"`` and ``"gelss"``, which use singular values.

    Returns
    -------
    return_types.linalg_lstsq
        ``solution`` (*, n, k); ``residuals`` (*, k), sums of squares, if m > n and the rank is
        full, else empty; ``rank`` (*) and ``singular_values`` (*, min(m, n)) where the driver
        computes them, else empty.
    """
    matrices.check_matrix("torch.linalg.lstsq", A, "input")
    matrices.check_float("torch.linalg.lstsq", A)
    matrices.check_pair("torch.linalg.lstsq", A, B)
    allowed = _DRIVERS[A.device.type]
    driver = driver or ("gelsy" if A.device.type == "cpu" else "gels")
    if driver not in allowed:
        raise RuntimeError(
            f"torch.linalg.lstsq: parameter `driver` should be one of ({', '.join(allowed)}) on "
            f"{A.device.type}, got {driver}"
        )
    vectors = B.ndim == 1 or (A.ndim - 1 == B.ndim and A.shape[:-1] == B.shape)
    right = B.unsqueeze(-1) if vectors else B
    if A.shape[-2] != right.shape[-2]:
        raise RuntimeError("torch.linalg.lstsq: input.size(-2) should match other.size(-2)")
    a, right = matrices.broadcast_batches(A, right)
    empty, rank = new_like(A, (0,)), new_like(A, (0,), _dtype.dtypes["int64"])
    values = new_like(A, (0,), matrices.real_dtype(A.dtype))
    if driver == "gels":
        solution = _least_squares_qr(a, right)
    else:
        rtol = rcond
        singular = decompose(a.detach(), "N")[1]
        solution = matmul(pinv(a, rtol=rtol), right)
        rank = OPS["gt"](singular, _tolerance("lstsq", a, singular, None, rtol)).sum(-1)
        if driver != "gelsy":
            values = singular
    residuals = empty
    m, n = a.shape[-2:]
    if m > n and driver != "gelsy" and bool((rank == n).all().item() if rank.numel() else True):
        difference = OPS["abs"](matmul(a, solution) - right)
        residuals = (difference * difference).sum(-2)
        residuals = residuals.squeeze(-1) if vectors else residuals
    solution = solution.squeeze(-1) if vectors else solution
    return return_types.linalg_lstsq(solution, residuals, rank, values)


def _least_squares_qr(a: Tensor, b: Tensor) -> Tensor:
    """The solution for full rank; of least norm if there are more unknowns than equations."""
    if a.shape[-2] >= a.shape[-1]:
        q, r = qr(a)
        return solve_triangular(r, matmul(matrices.adjoint(q), b), upper=True)
    q, r = qr(matrices.adjoint(a))
    return matmul(q, solve_triangular(matrices.adjoint(r), b, upper=False))
