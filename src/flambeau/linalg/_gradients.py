# SPDX-License-Identifier: Apache-2.0
"""How gradients go back through factorizations and solutions.

Each function gets the gradients of the results, the arguments, the results and the options of the
function that it belongs to. Complex gradients are those of the conjugate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.linalg._matrices import adjoint, conj
from flambeau.ops.matmul import matmul

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._tensor import Tensor

    Grads = Sequence[Any]
    Tensors = Sequence[Tensor]
    Options = dict[str, Any]


def _diagonal(values: Tensor) -> Tensor:
    """Matrices with these diagonals."""
    from flambeau.ops.common import new_like

    n = values.shape[-1]
    unit = new_like(values, (n, n)).fill_(0)
    unit.diagonal().fill_(1)
    return values.unsqueeze(-1) * unit


def _differences(values: Tensor) -> Tensor:
    """``values[j] - values[i]`` at (i, j), and infinity on the diagonal."""
    from flambeau.ops.common import new_like

    n = values.shape[-1]
    far = new_like(values, (n, n)).fill_(0)
    far.diagonal().fill_(float("inf"))
    difference: Tensor = values.unsqueeze(-2) - values.unsqueeze(-1) + far
    return difference


def solve(grads: Grads, tensors: Tensors, results: Tensors, options: Options) -> Any:
    """Of ``X = A^-1 B``."""
    from flambeau.linalg import solve as solved

    a, x = tensors[0], results[0]
    of_b = solved(adjoint(a), grads[0])
    return -matmul(of_b, adjoint(x)), of_b


def inverse(grads: Grads, tensors: Tensors, results: Tensors, options: Options) -> Any:
    """Of ``X = A^-1``."""
    x = adjoint(results[0])
    return (-matmul(matmul(x, grads[0]), x),)


def determinant(grads: Grads, tensors: Tensors, results: Tensors, options: Options) -> Any:
    """Of the determinant; NaN where the matrix is singular."""
    from flambeau.linalg import inv_ex

    factor = grads[0] * conj(results[0])
    return (factor.unsqueeze(-1).unsqueeze(-1) * adjoint(inv_ex(tensors[0]).inverse),)


def log_determinant(grads: Grads, tensors: Tensors, results: Tensors, options: Options) -> Any:
    """Of the determinant's sign, which turns if it is complex, and its logarithm's real part."""
    from flambeau.linalg import inv_ex

    a = tensors[0]
    factor: Any = 0.0 if grads[1] is None else grads[1].to(a.dtype)
    if grads[0] is not None:
        turn = (conj(grads[0]) * results[0]).imag if a.is_complex() else grads[0] * 0
        factor = factor - turn * 1j if a.is_complex() else factor + turn
    return (factor.unsqueeze(-1).unsqueeze(-1) * adjoint(inv_ex(a).inverse),)


def cholesky(grads: Grads, tensors: Tensors, results: Tensors, options: Options) -> Any:
    """Of the lower factor."""
    from flambeau.linalg import solve_triangular

    if grads[0] is None:
        return (None,)
    lower = results[0]
    inner = matmul(adjoint(lower), grads[0]).tril()
    inner = inner - _diagonal(inner.diagonal(0, -2, -1)) / 2
    middle = solve_triangular(adjoint(lower), inner, upper=True)
    middle = solve_triangular(lower, middle, upper=False, left=False)
    return ((middle + adjoint(middle)) / 2,)


def triangular(grads: Grads, tensors: Tensors, results: Tensors, options: Options) -> Any:
    """Of ``X = A^-1 B`` with a triangular A."""
    from flambeau.linalg import solve_triangular

    a, x = tensors[0], results[0]
    upper, unit = options["upper"], options["unitriangular"]
    of_b = solve_triangular(adjoint(a), grads[0], upper=not upper, unitriangular=unit)
    of_a = -matmul(of_b, adjoint(x))
    skipped = int(unit)
    return (of_a.triu(skipped) if upper else of_a.tril(-skipped)), of_b


def qr(grads: Grads, tensors: Tensors, results: Tensors, options: Options) -> Any:
    """Of the reduced factors of matrices with at least as many rows as columns."""
    from flambeau.linalg import solve_triangular

    of_q, of_r = grads
    q, r = results
    inner: Any = 0.0
    if of_r is not None:
        inner = matmul(r, adjoint(of_r))
    if of_q is not None:
        inner = inner - matmul(adjoint(of_q), q)
    below = inner.tril(-1)
    middle = inner.diagonal(0, -2, -1)
    middle = middle.real.to(inner.dtype) if inner.is_complex() else middle
    symmetric = below + adjoint(below) + _diagonal(middle)
    whole = matmul(q, symmetric)
    if of_q is not None:
        whole = whole + of_q
    return (solve_triangular(adjoint(r), whole, upper=False, left=False),)


def singular_values(grads: Grads, tensors: Tensors, results: Tensors, options: Options) -> Any:
    """Of the singular values alone."""
    from flambeau.linalg import svd as decomposed

    u, _, vh = decomposed(tensors[0], False)
    return (matmul(u * grads[0].unsqueeze(-2).to(u.dtype), vh),)


def svd(grads: Grads, tensors: Tensors, results: Tensors, options: Options) -> Any:
    """Of the factors; singular values must differ, and vectors beyond them have no gradient."""
    of_u, of_s, of_vh = grads
    u, s, vh = results
    k = s.shape[-1]
    u, of_u = u[..., :k], None if of_u is None else of_u[..., :k]
    vh, of_vh = vh[..., :k, :], None if of_vh is None else of_vh[..., :k, :]
    squares = _differences(s * s)
    core: Any = 0.0 if of_s is None else _diagonal(of_s)
    rest: Any = 0.0
    phases: Any = None  # of pairs of complex vectors, which only turn together
    if of_vh is not None:
        turned = matmul(vh, adjoint(of_vh))
        core = core + s.unsqueeze(-1) * ((turned - adjoint(turned)) / squares)
        rest = rest + matmul(u, (of_vh - matmul(adjoint(turned), vh)) / s.unsqueeze(-1))
        phases = -turned.diagonal(0, -2, -1)
    if of_u is not None:
        turned = matmul(adjoint(u), of_u)
        core = core + (turned - adjoint(turned)) / squares * s.unsqueeze(-2)
        rest = rest + matmul((of_u - matmul(u, turned)) / s.unsqueeze(-2), vh)
        phases = turned.diagonal(0, -2, -1)
    if phases is not None and phases.is_complex():
        core = core + _diagonal(phases.imag / s) * 1j
    if not hasattr(core, "shape"):
        return (None,)
    return (matmul(matmul(u, core.to(u.dtype)), vh) + rest,)


def eig(grads: Grads, tensors: Tensors, results: Tensors, options: Options) -> Any:
    """Of eigenvalues, and of eigenvectors of length 1; eigenvalues must differ for those."""
    from flambeau.linalg import solve as solved

    of_values, of_vectors = grads[:2]
    values, vectors = results[:2]
    core: Any = 0.0 if of_values is None else _diagonal(of_values)
    if of_vectors is not None:
        turned = matmul(adjoint(vectors), of_vectors)
        lengths = turned.diagonal(0, -2, -1).real.unsqueeze(-2)
        turned = turned - matmul(adjoint(vectors), vectors) * lengths
        core = core + turned / conj(_differences(values))
    if not hasattr(core, "shape"):
        return (None,)
    return (solved(adjoint(vectors), matmul(core.to(vectors.dtype), adjoint(vectors))),)


def lu(grads: Grads, tensors: Tensors, results: Tensors, options: Options) -> Any:
    """Of the packed triangles of ``P @ L @ U``."""
    from flambeau.linalg import solve_triangular
    from flambeau.linalg._factorizations import permutation_matrix
    from flambeau.ops.shapes import cat

    packed, pivots = results[:2]
    m, n = packed.shape[-2:]
    k = min(m, n)
    grad, square = grads[0], packed[..., :k, :k]
    of_lower, of_upper = grad[..., :k, :k].tril(-1), grad[..., :k, :k].triu()
    below, right = packed[..., k:, :], packed[..., :, k:]
    of_below, of_right = grad[..., k:, :], grad[..., :, k:]
    low = matmul(adjoint(_unit_lower(square)), of_lower)
    up = matmul(of_upper, adjoint(square.triu()))
    if n > k:
        low = low - matmul(of_right, adjoint(right))
    if m > k:
        up = up - matmul(adjoint(below), of_below)
    core, lower = low.tril(-1) + up.triu(), adjoint(square)

    def over_lower(x: Tensor) -> Tensor:
        return solve_triangular(lower, x, upper=True, unitriangular=True)

    def over_upper(x: Tensor) -> Tensor:
        return solve_triangular(lower, x, upper=False, left=False)

    made = over_lower(over_upper(core))
    if n > k:
        made = cat((made, over_lower(of_right)), -1)
    if m > k:
        made = cat((made, over_upper(of_below)), -2)
    return (matmul(permutation_matrix(packed, pivots), made),)


def _unit_lower(packed: Tensor) -> Tensor:
    from flambeau.linalg._factorizations import unpack

    return unpack(packed)[0]


def lu_solution(grads: Grads, tensors: Tensors, results: Tensors, options: Options) -> Any:
    """Of the solution of a system whose factors are given."""
    from flambeau.linalg import lu_solve
    from flambeau.linalg._factorizations import permutation_matrix

    packed, pivots = tensors[0], tensors[2]
    turned = options["adjoint"]
    of_right = lu_solve(packed, pivots, grads[0], adjoint=not turned)
    order = permutation_matrix(packed, pivots).mT
    lower, upper = _unit_lower(packed), packed.triu()
    if turned:  # A^H X = B: what multiplies the factors changes places
        outer = matmul(matmul(order, results[0]), adjoint(of_right))
    else:
        outer = matmul(matmul(order, of_right), adjoint(results[0]))
    of_lower, of_upper = matmul(outer, adjoint(upper)), matmul(adjoint(lower), outer)
    return -(of_lower.tril(-1) + of_upper.triu()), of_right, None


def eigh(grads: Grads, tensors: Tensors, results: Tensors, options: Options) -> Any:
    """Of eigenvalues and eigenvectors of Hermitian matrices; for vectors, values must differ."""
    of_values, of_vectors = grads[:2]
    values, vectors = results[:2]
    core: Any = 0.0
    if of_vectors is not None:
        core = matmul(adjoint(vectors), of_vectors) / _differences(values)
    if of_values is not None:
        core = core + _diagonal(of_values)
    if not hasattr(core, "shape"):
        return (None,)
    return (matmul(matmul(vectors, core.to(vectors.dtype)), adjoint(vectors)),)
