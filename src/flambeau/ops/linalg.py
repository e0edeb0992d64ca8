# SPDX-License-Identifier: Apache-2.0
"""Names of linear algebra outside ``torch.linalg``: mostly older ones, and tensor methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.ops.registry import public

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.linalg import return_types
    from flambeau.runtime._tensor import Tensor

# Everything is in flambeau.linalg, which is loaded when one of these is first called.


def _linalg() -> Any:
    from flambeau import linalg

    return linalg


@public()
def inverse(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Invert square matrices; see `flambeau.linalg.inv`."""
    inverted: Tensor = _linalg().inv(input, out=out)
    return inverted


@public()
def det(input: Tensor) -> Tensor:
    """Compute determinants; see `flambeau.linalg.det`."""
    found: Tensor = _linalg().det(input)
    return found


@public()
def slogdet(input: Tensor) -> return_types.linalg_slogdet:
    """Compute signs and logarithms of determinants; see `flambeau.linalg.slogdet`."""
    found: return_types.linalg_slogdet = _linalg().slogdet(input)
    return found


@public()
def logdet(input: Tensor) -> Tensor:
    """Compute logarithms of determinants: -inf where one is 0, NaN where it is negative."""
    sign, logarithm = _linalg().slogdet(input)
    if input.is_complex():
        complex_: Tensor = (sign.log() + logarithm).to(input.dtype)
        return complex_
    negative: Tensor = logarithm.masked_fill(sign < 0, float("nan"))
    return negative


@public()
def cholesky(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Factor positive-definite matrices; see `flambeau.linalg.cholesky`."""
    factors: Tensor = _linalg().cholesky(input, upper=upper, out=out)
    return factors


@public()
def cholesky_solve(
    input: Tensor, input2: Tensor, upper: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Solve ``A @ X = input`` with the result of `cholesky`.

    Parameters
    ----------
    input
        (*, n, k).
    input2
        Factors (*, n, n); batches broadcast.
    upper
        Whether they are upper triangles.
    out
        Where to store the result.
    """
    from flambeau.linalg._matrices import adjoint
    from flambeau.ops.common import store_out

    lower = adjoint(input2) if upper else input2
    half = _linalg().solve_triangular(lower, input, upper=False)
    return store_out(_linalg().solve_triangular(adjoint(lower), half, upper=True), out)


@public()
def cholesky_inverse(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Invert positive-definite matrices that `cholesky` has factored."""
    from flambeau.linalg._matrices import identity

    unit = identity(input, input.shape[-1], input.shape[:-2])
    return cholesky_solve(unit, input, upper, out=out)


@public()
def qr(input: Tensor, some: bool = True, *, out: Any = None) -> Any:
    """Factor into ``Q @ R``: `flambeau.linalg.qr`, reduced if `some`, else complete."""
    return _linalg().qr(input, "reduced" if some else "complete", out=out)


@public()
def svd(input: Tensor, some: bool = True, compute_uv: bool = True, *, out: Any = None) -> Any:
    """Decompose into ``U @ diag(S) @ V.mH``; `flambeau.linalg.svd` gives V's adjoint instead.

    Parameters
    ----------
    input
        (*, m, n).
    some
        Whether U and V have only min(m, n) columns.
    compute_uv
        False leaves U and V filled with zeros.
    out
        Three tensors to store the results in.
    """
    from flambeau.linalg import return_types as types
    from flambeau.linalg._factorizations import _store
    from flambeau.linalg._matrices import adjoint
    from flambeau.ops.common import new_like

    if compute_uv:
        u, s, vh = _linalg().svd(input, not some)
        return types.svd(*_store((u, s, adjoint(vh)), out))
    m, n = input.shape[-2:]
    batch = input.shape[:-2]
    u, v = (new_like(input, (*batch, size, size)).fill_(0) for size in (m, n))
    return types.svd(*_store((u, _linalg().svdvals(input), v), out))


@public()
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """Compute pseudo-inverses; see `flambeau.linalg.pinv`."""
    inverted: Tensor = _linalg().pinv(input, rcond)
    return inverted


@public()
def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Multiply square matrices with themselves; see `flambeau.linalg.matrix_power`."""
    power: Tensor = _linalg().matrix_power(input, n, out=out)
    return power


@public()
def matrix_exp(input: Tensor) -> Tensor:
    """Compute exponentials of square matrices; see `flambeau.linalg.matrix_exp`."""
    found: Tensor = _linalg().matrix_exp(input)
    return found


@public()
def lu(input: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """Factor into packed triangles: `flambeau.linalg.lu_factor`, with `get_infos` its ``_ex``."""
    from flambeau.linalg._factorizations import _store

    found = _linalg().lu_factor_ex(input, pivot=pivot, check_errors=not get_infos)
    return _store(tuple(found) if get_infos else tuple(found)[:2], out)


@public()
def lu_solve(
    input: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """Solve with packed triangles; see `flambeau.linalg.lu_solve`."""
    solution: Tensor = _linalg().lu_solve(LU_data, LU_pivots, input, out=out)
    return solution


@public(method=False)
def lu_unpack(
    LU_data: Tensor,
    LU_pivots: Tensor,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
    *,
    out: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Turn what `flambeau.linalg.lu_factor` returns into ``P``, ``L`` and ``U``.

    Parameters
    ----------
    LU_data, LU_pivots
        Packed triangles and row exchanges.
    unpack_data, unpack_pivots
        Whether L and U, and whether P, are wanted; else they are empty.
    out
        Three tensors to store the results in.
    """
    from flambeau.linalg._factorizations import _store, permutation_matrix, unpack
    from flambeau.ops.common import new_like

    empty = new_like(LU_data, (0,))
    rows = permutation_matrix(LU_data, LU_pivots) if unpack_pivots else empty
    lower, upper = unpack(LU_data) if unpack_data else (empty, empty)
    stored: tuple[Tensor, Tensor, Tensor] = _store((rows, lower, upper), out)
    return stored


@public()
def triangular_solve(
    b: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
    *,
    out: Any = None,
) -> Any:
    """Solve with triangular matrices; see `flambeau.linalg.solve_triangular`.

    Returns
    -------
    torch.return_types.triangular_solve
        ``solution`` and ``cloned_coefficient``, a copy of A.
    """
    from flambeau.linalg import return_types as types
    from flambeau.linalg._factorizations import _store

    given, side = (A.mT, not upper) if transpose else (A, upper)
    solution = _linalg().solve_triangular(given, b, upper=side, unitriangular=unitriangular)
    return types.triangular_solve(*_store((solution, A.clone()), out))


@public()
def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """Multiply Householder reflectors; see `flambeau.linalg.householder_product`."""
    product: Tensor = _linalg().householder_product(input, input2)
    return product


@public()
def geqrf(input: Tensor, *, out: Any = None) -> Any:
    """Factor as LAPACK does: R and Householder vectors in one matrix, and their factors.

    Returns
    -------
    torch.return_types.geqrf
        ``a`` (*, m, n) and ``tau`` (*, min(m, n)).
    """
    from flambeau.linalg import _orthogonal
    from flambeau.linalg import return_types as types
    from flambeau.linalg._factorizations import _store

    packed, tau = _orthogonal.householder(input)
    return types.geqrf(*_store((packed.mT, tau), out))


@public(method=False)
def nuclear_norm(
    input: Tensor,
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Add up the singular values of matrices."""
    found: Tensor = _linalg().matrix_norm(input, "nuc", dim, keepdim, out=out)
    return found


@public(method=False)
def frobenius_norm(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """Compute the root of the sum of squares."""
    found: Tensor = _linalg().vector_norm(input, 2, dim, keepdim, out=out)
    return found
