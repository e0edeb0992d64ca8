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
    """Of the logarithm of the determinant's absolute value."""
    from flambeau.linalg import inv_ex

    if grads[1] is None:
        return (None,)
    a = tensors[0]
    factor = grads[1].to(a.dtype)
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
    symmetric = below + adjoint(below) + _diagonal(inner.diagonal(0, -2, -1))
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
    """Of the thin factors of real matrices; singular values must differ."""
    of_u, of_s, of_vh = grads
    u, s, vh = results
    squares = _differences(s * s)
    core: Any = 0.0 if of_s is None else _diagonal(of_s)
    rest: Any = 0.0
    if of_u is not None:
        turned = matmul(u.mT, of_u)
        core = core + (turned - turned.mT) / squares * s.unsqueeze(-2)
        rest = rest + matmul((of_u - matmul(u, turned)) / s.unsqueeze(-2), vh)
    if of_vh is not None:
        turned = matmul(vh, of_vh.mT)
        core = core + s.unsqueeze(-1) * ((turned - turned.mT) / squares)
        rest = rest + matmul(u, (of_vh - matmul(turned.mT, vh)) / s.unsqueeze(-1))
    return (matmul(matmul(u, core), vh) + rest,)


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
