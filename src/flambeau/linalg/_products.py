# SPDX-License-Identifier: Apache-2.0
"""Products of vectors and matrices."""

from __future__ import annotations

from math import ceil, inf, log2
from typing import TYPE_CHECKING

from flambeau.linalg import _matrices as matrices
from flambeau.linalg._solving import inv as _inv
from flambeau.linalg._solving import solve
from flambeau.ops.common import broadcast_shapes, new_like, same_device, store_out, wrap_dim
from flambeau.ops.matmul import matmul as _matmul
from flambeau.ops.registry import OPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._tensor import Tensor

__all__ = [
    "cross",
    "diagonal",
    "matmul",
    "matrix_exp",
    "matrix_power",
    "multi_dot",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
]


def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply matrices; the same as `flambeau.matmul`."""
    return _matmul(input, other, out=out)


def matrix_power(A: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Multiply square matrices with themselves, by repeated squaring.

    Parameters
    ----------
    A
        (*, m, m); for a negative `n` it must be invertible.
    n
        The power.
    out
        Where to store the result.

    Raises
    ------
    LinAlgError
        `n` is negative and a matrix singular.
    """
    matrices.check_square("linalg.matrix_power", A)
    if n < 0:
        A, n = _inv(A), -n
    if n == 0:
        made = matrices.identity(A, A.shape[-1], A.shape[:-2]).clone()
        return store_out(made.contiguous(), out)
    power: Tensor | None = None
    square = A
    while True:
        if n & 1:
            power = square if power is None else _matmul(power, square)
        n >>= 1
        if not n:
            break
        square = _matmul(square, square)
    assert power is not None
    return store_out(power.clone() if power is A else power, out)


# Numerator of the (13, 13) Pade approximation of exp, lowest power first, and how far it reaches.
_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
    129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0,
    960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_PADE_REACH = 5.371920351148152


def matrix_exp(A: Tensor) -> Tensor:
    """Compute exponentials of square matrices, by scaling and squaring. Waits for the device.

    Parameters
    ----------
    A
        (*, n, n), float32, float64, complex64 or complex128.

    Returns
    -------
    Tensor
        ``sum(A**k / k!)``, by a Pade approximation of order 13 (Higham, 2005).
    """
    matrices.check_square("linalg.matrix_exp", A)
    matrices.check_float("linalg.matrix_exp", A)
    if not A.numel():
        return A.clone()
    size = float(OPS["abs"](A.detach()).sum(-2).max().item())
    squarings = max(0, ceil(log2(size / _PADE_REACH))) if _PADE_REACH < size < inf else 0
    a = A * 2.0**-squarings
    unit = matrices.identity(A, A.shape[-1])
    square = _matmul(a, a)
    even, odd = unit * _PADE[0], unit * _PADE[1]
    power = square
    for k in range(2, 14, 2):
        even = even + power * _PADE[k]
        if k + 1 < len(_PADE):
            odd = odd + power * _PADE[k + 1]
        power = _matmul(power, square)
    odd = _matmul(a, odd)
    result = solve(even - odd, even + odd)
    for _ in range(squarings):
        result = _matmul(result, result)
    return result


def _cheapest(sizes: list[int]) -> list[list[int]]:
    """Where to split each part of a chain of products, by dynamic programming."""
    count = len(sizes) - 1
    cost = [[0] * count for _ in range(count)]
    split = [[0] * count for _ in range(count)]
    for length in range(1, count):
        for first in range(count - length):
            last = first + length
            choices = [
                (
                    cost[first][k]
                    + cost[k + 1][last]
                    + sizes[first] * sizes[k + 1] * sizes[last + 1],
                    k,
                )
                for k in range(first, last)
            ]
            cost[first][last], split[first][last] = min(choices)
    return split


def _check_chain(chain: list[Tensor]) -> None:
    for i, one in enumerate(chain):
        if one.ndim != 2:
            raise RuntimeError(
                f"multi_dot(): tensor {i} must be 2D but got {one.ndim}D; only the first and the "
                "last may be 1D"
            )
    for i in range(len(chain) - 1):
        if chain[i].shape[1] != chain[i + 1].shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(chain[i].shape)} and "
                f"{list(chain[i + 1].shape)} cannot be multiplied"
            )


def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Multiply a chain of matrices in the order that takes the fewest multiplications.

    Parameters
    ----------
    tensors
        At least two matrices; the first may be a row vector and the last a column vector.
    out
        Where to store the result.
    """
    chain = list(tensors)
    if len(chain) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(chain)}")
    same_device(*chain)
    row, column = chain[0].ndim == 1, chain[-1].ndim == 1
    if row:
        chain[0] = chain[0].unsqueeze(0)
    if column:
        chain[-1] = chain[-1].unsqueeze(-1)
    _check_chain(chain)
    split = _cheapest([chain[0].shape[0], *(one.shape[1] for one in chain)])

    def product(first: int, last: int) -> Tensor:
        if first == last:
            return chain[first]
        middle = split[first][last]
        return _matmul(product(first, middle), product(middle + 1, last))

    result = product(0, len(chain) - 1)
    if row:
        result = result.squeeze(0)
    if column:
        result = result.squeeze(-1)
    return store_out(result, out)


def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Compute cross products of vectors of three elements.

    Parameters
    ----------
    input, other
        Tensors of as many dimensions that broadcast, with 3 elements along `dim`.
    dim
        The dimension of a vector.
    out
        Where to store the result.
    """
    if input.ndim != other.ndim:
        raise RuntimeError(
            "linalg.cross: inputs must have the same number of dimensions, got "
            f"{input.ndim} and {other.ndim}"
        )
    dim = wrap_dim(dim, input.ndim)
    lengths = [t.shape[dim] if t.ndim else 1 for t in (input, other)]
    if lengths != [3, 3]:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim - input.ndim} must have length 3. Got "
            f"{lengths[0]} and {lengths[1]}"
        )
    shape = broadcast_shapes(input.shape, other.shape)
    a, b = input.expand(shape), other.expand(shape)
    parts = [
        OPS["mul"](a.select(dim, (i + 1) % 3), b.select(dim, (i + 2) % 3))
        - OPS["mul"](a.select(dim, (i + 2) % 3), b.select(dim, (i + 1) % 3))
        for i in range(3)
    ]
    from flambeau.ops.shapes import stack

    return store_out(stack(parts, dim), out)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Compute ``sum(conj(x) * y)`` along a dimension of tensors that broadcast."""
    product: Tensor = (matrices.conj(x) * y).sum(dim)
    return store_out(product, out)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Give a view of matrices' diagonals as the last dimension."""
    return A.diagonal(offset, dim1, dim2)


def vander(x: Tensor, N: int | None = None) -> Tensor:
    """Make Vandermonde matrices: column j is ``x**j``.

    Parameters
    ----------
    x
        (*, n).
    N
        How many columns, n by default.

    Returns
    -------
    Tensor
        (*, n, N).
    """
    if x.ndim == 0:
        raise RuntimeError("linalg.vander: x must be a vector or a batch of vectors, got a scalar")
    columns = x.shape[-1] if N is None else N
    if columns <= 1 and N is not None:
        raise RuntimeError(f"linalg.vander: N must be greater than 1, got {N}")
    made = new_like(x, (*x.shape, columns)).fill_(1)
    made[..., 1:] = x.unsqueeze(-1).expand(*x.shape, max(0, columns - 1))
    powers: Tensor = made.cumprod(-1)
    return powers


def tensorinv(A: Tensor, ind: int = 2, *, out: Tensor | None = None) -> Tensor:
    """Invert a tensor as the matrix that its first `ind` dimensions and the others make."""
    from math import prod

    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    first, last = A.shape[:ind], A.shape[ind:]
    if prod(first) != prod(last):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == "
            f"prod(self.shape[:ind]), but got {prod(last)} != {prod(first)}"
        )
    inverse = _inv(A.reshape(prod(first), prod(last)))
    return store_out(inverse.reshape(*last, *first), out)


def tensorsolve(
    A: Tensor, B: Tensor, dims: Sequence[int] | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Solve for X with ``tensordot(A, X) == B``, after moving `dims` of A to its end."""
    from math import prod

    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    rest = A.shape[B.ndim :]
    if prod(rest) != prod(B.shape):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {prod(rest)} != {prod(B.shape)}"
        )
    solution = solve(A.reshape(prod(B.shape), prod(rest)), B.reshape(-1))
    return store_out(solution.reshape(rest), out)
