# SPDX-License-Identifier: Apache-2.0
"""Products beyond matrices times matrices: vectors, tensors, subscripts, distances."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from flambeau.ops.common import new_like, store_out, wrap_dim
from flambeau.ops.complex_numbers import conj
from flambeau.ops.matmul import addmm, baddbmm, bmm, dot, matmul, mm, mv, outer
from flambeau.ops.moments import norm
from flambeau.ops.registry import FUNCTIONS, OPS, inplace_method, public
from flambeau.ops.shapes import cat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._tensor import Tensor


def _blended(input: Tensor, product: Tensor, beta: complex, alpha: complex) -> Tensor:
    """``beta * input + alpha * product``; `input` is not read if `beta` is 0."""
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    return OPS["_add"](scaled, input if beta == 1 else input * beta)


@public()
def addmv(
    input: Tensor,
    mat: Tensor,
    vec: Tensor,
    *,
    beta: complex = 1,
    alpha: complex = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Compute ``beta * input + alpha * mat @ vec``.

    Parameters
    ----------
    input
        Broadcasts to (n); not read if `beta` is 0.
    mat, vec
        (n, m) and (m).
    beta, alpha
        Factors.
    out
        Where to store the result.
    """
    return store_out(_blended(input, mv(mat, vec), beta, alpha), out)


@public()
def addbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: complex = 1,
    alpha: complex = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Compute ``beta * input + alpha * sum(batch1 @ batch2)`` over the batch."""
    if batch1.ndim != 3 or batch2.ndim != 3 or batch1.shape[0] != batch2.shape[0]:
        raise RuntimeError("batch1 and batch2 must be 3D tensors with one batch size")
    batch, rows, inner = batch1.shape
    # The batch is one more summed dimension: a single product.
    left = batch1.permute(1, 0, 2).reshape(rows, batch * inner)
    product = mm(left, batch2.reshape(batch * inner, batch2.shape[2]))
    return store_out(_blended(input, product, beta, alpha), out)


@public()
def addr(
    input: Tensor,
    vec1: Tensor,
    vec2: Tensor,
    *,
    beta: complex = 1,
    alpha: complex = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Compute ``beta * input + alpha * outer(vec1, vec2)``."""
    return store_out(_blended(input, outer(vec1, vec2), beta, alpha), out)


def _in_place(name: str, form: Any) -> None:
    def call(
        self: Tensor, a: Tensor, b: Tensor, *, beta: complex = 1, alpha: complex = 1
    ) -> Tensor:
        return self.copy_(form(self, a, b, beta=beta, alpha=alpha))

    call.__doc__ = f"Compute `{form.__name__}` with this tensor as input, in place."
    inplace_method(name, call)


for _form in (addmm, baddbmm, addmv, addbmm, addr):
    _in_place(f"{_form.__name__}_", _form)


@public()
def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply the conjugate of one vector by another."""
    return dot(conj(input), other, out=out)


@public()
def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply over the last dimensions of both."""
    if input.ndim == 0 or other.ndim == 0:
        return OPS["mul"](input, other, out=out)
    return store_out(tensordot(input, other, ([-1], [-1])), out)


@public(method=False)
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Tensor | None = None) -> Tensor:
    """Multiply and add up over several dimensions.

    Parameters
    ----------
    a, b
        Tensors.
    dims
        How many of the last of `a` and first of `b`, or a pair of lists of dimensions.
    out
        Where to store the result.
    """
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        dims_a, dims_b = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        pair = [
            [d] if isinstance(d, int) else list(d) for d in getattr(dims, "tolist", lambda: dims)()
        ]
        dims_a = [wrap_dim(d, a.ndim) for d in pair[0]]
        dims_b = [wrap_dim(d, b.ndim) for d in pair[1]]
    for d, e in zip(dims_a, dims_b, strict=True):
        if a.shape[d] == 1:  # one is as good as its sum
            b = b.sum(e, keepdim=True, dtype=b.dtype)
        elif b.shape[e] == 1:
            a = a.sum(d, keepdim=True, dtype=a.dtype)
        if a.shape[d] != b.shape[e]:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a.shape[d]} in dim {d} "
                f"and second has size {b.shape[e]} in dim {e}"
            )
    kept_a = [d for d in range(a.ndim) if d not in dims_a]
    kept_b = [d for d in range(b.ndim) if d not in dims_b]
    length = prod(a.shape[d] for d in dims_a)
    left = a.permute(*kept_a, *dims_a).reshape(prod(a.shape[d] for d in kept_a), length)
    right = b.permute(*dims_b, *kept_b).reshape(length, prod(b.shape[d] for d in kept_b))
    shape = [a.shape[d] for d in kept_a] + [b.shape[d] for d in kept_b]
    return store_out(mm(left, right).reshape(shape), out)


@public()
def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Multiply every element of one tensor with a whole other one (Kronecker's product)."""
    ndim = max(input.ndim, other.ndim)
    a = input.reshape([1] * (ndim - input.ndim) + list(input.shape))
    b = other.reshape([1] * (ndim - other.ndim) + list(other.shape))
    left = a.reshape([n for size in a.shape for n in (size, 1)])
    right = b.reshape([n for size in b.shape for n in (1, size)])
    shape = [m * n for m, n in zip(a.shape, b.shape, strict=True)]
    return store_out(OPS["mul"](left, right).reshape(shape), out)


@public()
def cross(
    input: Tensor, other: Tensor, dim: int | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Compute the cross product of vectors of three elements along a dimension.

    Parameters
    ----------
    input, other
        Tensors that broadcast together.
    dim
        The dimension, the first of size 3 by default.
    out
        Where to store the result.
    """
    from flambeau.ops.shapes import broadcast_tensors

    a, b = broadcast_tensors(input, other)
    if dim is None:
        dim = next((d for d, size in enumerate(a.shape) if size == 3), -1)
        if dim < 0:
            raise RuntimeError("no dimension of size 3 in input")
    dim = wrap_dim(dim, a.ndim)
    if a.shape[dim] != 3:
        raise RuntimeError(f"inputs dimension {dim} must have length 3. Got {a.shape[dim]}")
    a0, a1, a2 = (a.narrow(dim, k, 1) for k in range(3))
    b0, b1, b2 = (b.narrow(dim, k, 1) for k in range(3))
    parts = [a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0]
    return store_out(cat(parts, dim), out)


@public(method=False)
def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """Multiply several matrices in the order that needs the fewest operations."""
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    sizes = [matrices[0].shape[0], *(matrix.shape[1] for matrix in matrices)]
    count = len(matrices)
    cost = [[0] * count for _ in range(count)]
    split = [[0] * count for _ in range(count)]
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i][j], split[i][j] = min(
                (cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )

    def product(i: int, j: int) -> Tensor:
        if i == j:
            return matrices[i]
        return mm(product(i, split[i][j]), product(split[i][j] + 1, j))

    return store_out(product(0, count - 1), out)


# -- distances -------------------------------------------------------------------------------------


@public(method=False)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """Compute the distances between all rows of one tensor and all of another.

    Parameters
    ----------
    x1, x2
        (..., n, m) and (..., k, m), floating-point.
    p
        The norm's order.
    compute_mode
        As torch names them; Euclidean distances of more than 25 rows are computed by a matrix
        product unless this forbids it.

    Returns
    -------
    Tensor
        (..., n, k).
    """
    modes = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist",
             "donot_use_mm_for_euclid_dist")  # fmt: skip
    mode = compute_mode or modes[0]
    if mode not in modes:
        raise ValueError(f"{mode} is not a valid value for compute_mode")
    for name, points in (("X1", x1), ("X2", x2)):
        if points.ndim < 2:
            raise RuntimeError(
                f"cdist only supports at least 2D tensors, {name} got: {points.ndim}D"
            )
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}"
        )
    large = x1.shape[-2] > 25 or x2.shape[-2] > 25
    if p == 2 and (mode == modes[1] or (mode == modes[0] and large)):
        squares1 = (x1 * x1).sum(-1, keepdim=True)
        squares2 = (x2 * x2).sum(-1, keepdim=True).transpose(-2, -1)
        product = matmul(x1, x2.transpose(-2, -1))
        return OPS["sqrt"]((squares1 + squares2 - product * 2).clamp_min(0))
    return norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


@public()
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """Compute the norm of the difference of two tensors."""
    return norm(input - other, p)


# -- subscripts ------------------------------------------------------------------------------------


def _parsed(equation: str, operands: Sequence[Tensor]) -> tuple[list[list[str]], list[str]]:
    """Labels of every operand and of the result; those of ``...`` are numbers."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise RuntimeError(
            "einsum(): the number of subscripts in the equation does not match the number of "
            f"operands: {len(terms)} for {len(operands)}"
        )
    labelled, widest = [], 0
    for term, operand in zip(terms, operands, strict=True):
        before, dots, after = term.partition("...")
        rest = operand.ndim - len(before) - len(after)
        if rest < 0 or (rest > 0 and not dots):
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({term}) does not match the "
                f"number of dimensions ({operand.ndim}) of an operand"
            )
        widest = max(widest, rest)
        labelled.append([*before, *(str(k) for k in range(-rest, 0)), *after])
    spread = [str(k) for k in range(-widest, 0)]
    if arrow:
        before, dots, after = right.partition("...")
        return labelled, [*before, *(spread if dots else []), *after]
    letters = [label for term in labelled for label in term if label.isalpha()]
    return labelled, [*spread, *(c for c in sorted(set(letters)) if letters.count(c) == 1)]


def _diagonals(operand: Tensor, labels: list[str]) -> tuple[Tensor, list[str]]:
    """Take diagonals where a label repeats."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if operand.shape[first] != operand.shape[second]:
                raise RuntimeError(
                    f"einsum(): subscript {label} is repeated for dimensions of different sizes"
                )
            operand = operand.diagonal(0, first, second)
            labels = [x for d, x in enumerate(labels) if d not in (first, second)] + [label]
    return operand, labels


def _aligned(operand: Tensor, labels: list[str], order: list[str]) -> Tensor:
    """The operand with a dimension for each label in order, of size 1 where it has none."""
    moved = operand.permute([labels.index(x) for x in order if x in labels])
    shape, at = [], 0
    for label in order:
        shape.append(moved.shape[at] if label in labels else 1)
        at += label in labels
    return moved.reshape(shape)


def _contract(
    a: Tensor, a_labels: list[str], b: Tensor, b_labels: list[str], kept: list[str]
) -> tuple[Tensor, list[str]]:
    """Multiply two operands and add up over what nobody needs any more, as a batched product."""
    for label in list(a_labels):  # what one alone has and is not kept goes first
        if label not in b_labels and label not in kept:
            a, a_labels = a.sum(a_labels.index(label)), [x for x in a_labels if x != label]
    for label in list(b_labels):
        if label not in a_labels and label not in kept:
            b, b_labels = b.sum(b_labels.index(label)), [x for x in b_labels if x != label]
    shared = [x for x in a_labels if x in b_labels]
    batch = [x for x in shared if x in kept]
    summed = [x for x in shared if x not in kept]
    left = [x for x in a_labels if x not in shared]
    right = [x for x in b_labels if x not in shared]
    size = {x: a.shape[d] for d, x in enumerate(a_labels)}
    for d, x in enumerate(b_labels):
        if size.get(x, 1) == 1:
            size[x] = b.shape[d]
        elif b.shape[d] not in (1, size[x]):
            raise RuntimeError(
                f"einsum(): operands do not broadcast: subscript {x} has sizes {size[x]} and "
                f"{b.shape[d]}"
            )
    order_a, order_b = batch + left + summed, batch + summed + right
    a = _aligned(a, a_labels, order_a).expand([size[x] for x in order_a])
    b = _aligned(b, b_labels, order_b).expand([size[x] for x in order_b])
    labels = batch + left + right
    shape = [size[x] for x in labels]
    if not summed:
        ones_a, ones_b = [1] * len(right), [1] * len(left)
        a = a.reshape([*a.shape, *ones_a])
        b = b.reshape([*b.shape[: len(batch)], *ones_b, *b.shape[len(batch) :]])
        return OPS["mul"](a, b), labels
    groups = [prod(size[x] for x in part) for part in (batch, left, summed, right)]
    if groups[2] == 0:  # nothing is added up, whatever the dtype
        return new_like(a, shape).zero_(), labels
    product = bmm(
        a.reshape(groups[0], groups[1], groups[2]), b.reshape(groups[0], groups[2], groups[3])
    )
    return product.reshape(shape), labels


@public(method=False)
def einsum(equation: str, *operands: Any) -> Tensor:
    """Multiply and add up by subscripts, as in ``einsum("ij,jk->ik", a, b)``.

    Parameters
    ----------
    equation
        Letters for the dimensions of every operand, separated by commas; after ``->`` those of the
        result, else those that occur once in order of the alphabet. ``...`` stands for leading
        dimensions that broadcast.
    operands
        Tensors, or one list of them. They are contracted from left to right by matrix products.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.einsum("i,i->", torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    tensor(11.)
    """
    parts: list[Tensor] = (
        list(operands[0]) if isinstance(operands[0], (list, tuple)) else list(operands)
    )
    terms, result = _parsed(equation, parts)
    for label in result:
        if result.count(label) > 1:
            raise RuntimeError(f"einsum(): output subscript {label} appears more than once")
        if not any(label in term for term in terms):
            raise RuntimeError(
                f"einsum(): output subscript {label} does not appear in the equation for any input"
            )
    whole, labels = _diagonals(parts[0], terms[0])
    for at in range(1, len(parts)):
        operand, own = _diagonals(parts[at], terms[at])
        later = [label for term in terms[at + 1 :] for label in term]
        whole, labels = _contract(whole, labels, operand, own, [*result, *later])
    for label in [x for x in labels if x not in result]:
        whole, labels = whole.sum(labels.index(label)), [x for x in labels if x != label]
    return whole.permute([labels.index(x) for x in result])


FUNCTIONS["ger"] = outer
