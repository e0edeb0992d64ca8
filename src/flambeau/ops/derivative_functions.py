# SPDX-License-Identifier: Apache-2.0
"""Gradients that take more than an expression; the tables in `derivatives` name them.

All are written in tensor operations, so that they can be differentiated themselves.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import flambeau
from flambeau.ops.common import wrap_dim, wrap_dims
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Shape = tuple[int, ...]


# -- shapes ---------------------------------------------------------------------------------------


def sum_to(grad: Tensor, shape: Sequence[int]) -> Tensor:
    """Add up the dimensions along which `shape` was broadcast."""
    lead = grad.ndim - len(shape)
    dims = list(range(lead))
    dims += [d + lead for d, size in enumerate(shape) if size == 1 and grad.shape[d + lead] != 1]
    if dims:
        grad = grad.sum(dims, keepdim=True)
    return grad.reshape(tuple(shape)) if lead else grad


def zeros_of(grad: Tensor, shape: Sequence[int]) -> Tensor:
    """Zeros of a shape, like a gradient."""
    return flambeau.zeros(tuple(shape), dtype=grad.dtype, device=grad.device)


def into(grad: Tensor, shape: Sequence[int], part: Callable[[Tensor], Tensor]) -> Tensor:
    """Zeros with the gradient stored in the part of them that it is the gradient of."""
    whole = zeros_of(grad, shape)
    part(whole).copy_(grad)
    return whole


def like_strided(grad: Tensor, sizes: Shape, strides: Shape) -> Tensor:
    """A copy of a gradient with the strides of what it belongs to."""
    made = flambeau.empty_strided(sizes, strides, dtype=grad.dtype, device=grad.device)
    return made.copy_(grad)


def strided_into(
    grad: Tensor, sizes: Shape, strides: Shape, offset: int, whole: Shape, whole_strides: Shape
) -> Tensor:
    """The gradient of a dense tensor from that of any view, adding where elements coincide."""
    spread = [d for d, step in enumerate(strides) if step == 0 and sizes[d] > 1]
    if spread:
        grad = grad.sum(spread, keepdim=True)
        sizes = tuple(1 if d in spread else size for d, size in enumerate(sizes))
    made = flambeau.empty_strided(whole, whole_strides, dtype=grad.dtype, device=grad.device)
    made.zero_()
    if _distinct(sizes, strides):
        made.as_strided(sizes, strides, offset).copy_(grad)
        return made
    count = prod(whole)
    places = flambeau.arange(count, device=grad.device).as_strided(sizes, strides, offset)
    flat = made.as_strided((count,), (1,))
    flat.index_add_(0, places.reshape(-1), grad.reshape(-1))
    return made


def _in_parts(sizes: Shape, strides: Shape) -> tuple[Shape, Shape]:
    """Sizes and strides of complex memory as that of pairs of real numbers."""
    return (*sizes, 2), (*(2 * step for step in strides), 1)


def part_of(whole: Tensor, sizes: Shape, strides: Shape, offset: int, parts: int) -> Tensor:
    """View a dense tensor's memory as one of its views has it, as complex numbers if `parts` is 2.

    `offset` and `strides` count the view's elements.
    """
    if whole.is_complex() == (parts == 2):
        return whole.as_strided(sizes, strides, offset)
    if whole.is_complex():
        return flambeau.view_as_real(whole).as_strided(sizes, strides, offset)
    return flambeau.view_as_complex(whole.as_strided(*_in_parts(sizes, strides), 2 * offset))


def part_into(
    grad: Tensor,
    sizes: Shape,
    strides: Shape,
    offset: int,
    whole: Shape,
    whole_strides: Shape,
    parts: int,
) -> Tensor:
    """Do `strided_into` for a tensor of complex numbers if `parts` is 2, whatever the view's."""
    if grad.is_complex() == (parts == 2):
        return strided_into(grad, sizes, strides, offset, whole, whole_strides)
    if parts == 2:
        pairs = strided_into(grad, sizes, strides, offset, *_in_parts(whole, whole_strides))
        return flambeau.view_as_complex(pairs)
    grad, (sizes, strides) = flambeau.view_as_real(grad), _in_parts(sizes, strides)
    return strided_into(grad, sizes, strides, 2 * offset, whole, whole_strides)


def unstrided(
    grad: Tensor, whole: Shape, whole_strides: Shape, start: int, strides: Any, offset: int | None
) -> Tensor:
    """The gradient of `Tensor.as_strided`."""
    strides = (strides,) if isinstance(strides, int) else tuple(strides)
    shift = 0 if offset is None else offset - start
    return strided_into(grad, tuple(grad.shape), strides, shift, tuple(whole), whole_strides)


def _distinct(sizes: Shape, strides: Shape) -> bool:
    """Whether no two elements of a view share memory, as far as strides in order show it."""
    reach = 0
    for step, size in sorted(zip(strides, sizes, strict=True)):
        if size > 1:
            if step <= reach:
                return False
            reach += step * (size - 1)
    return True


def expanded(grad: Tensor, shape: Shape, dim: Any, keepdim: bool) -> Tensor:
    """A reduction's gradient, repeated along the reduced dimensions."""
    if not keepdim and shape:
        for d in wrap_dims(dim, len(shape)):
            grad = grad.unsqueeze(d)
    return grad.expand(shape)


def count_of(shape: Shape, dim: Any) -> int:
    """How many elements a reduction puts into one."""
    return prod(shape[d] for d in wrap_dims(dim, len(shape))) if shape else 1


def as_complex(grad: Tensor) -> Tensor:
    """Pairs as complex numbers."""
    from flambeau.ops.complex_numbers import view_as_complex

    return view_as_complex(grad.contiguous())


def as_pairs(grad: Tensor) -> Tensor:
    """Complex numbers as pairs."""
    from flambeau.ops.complex_numbers import view_as_real

    return view_as_real(grad)


def permuted_back(grad: Tensor, dims: Any) -> Tensor:
    """Undo `Tensor.permute`."""
    order = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    back = [0] * len(order)
    for to, source in enumerate(order):
        back[source % len(order)] = to
    return grad.permute(back)


def split_back(grads: list[Tensor | None], shape: Shape, dim: int, sizes: Sequence[int]) -> Tensor:
    """Undo a split along a dimension into parts of these sizes."""
    known = next(grad for grad in grads if grad is not None)
    parts = []
    for grad, size in zip(grads, sizes, strict=True):
        empty = (*shape[:dim], size, *shape[dim + 1 :])
        parts.append(zeros_of(known, empty) if grad is None else grad)
    return flambeau.cat(parts, dim)


def split_sizes(count: int, size: int, parts: int) -> list[int]:
    """Sizes of `parts` parts of `size` each, the last being what is left."""
    return [max(0, min(size, count - k * size)) for k in range(parts)]


def unsplit(grads: list[Tensor | None], shape: Shape, split_size: Any, dim: int) -> Tensor:
    """Undo `Tensor.split`."""
    dim = wrap_dim(dim, len(shape))
    if isinstance(split_size, int):
        return split_back(grads, shape, dim, split_sizes(shape[dim], split_size, len(grads)))
    return split_back(grads, shape, dim, list(split_size))


def unchunk(grads: list[Tensor | None], shape: Shape, chunks: int, dim: int) -> Tensor:
    """Undo `Tensor.chunk`."""
    dim = wrap_dim(dim, len(shape))
    return split_back(
        grads, shape, dim, split_sizes(shape[dim], -(-shape[dim] // chunks), len(grads))
    )


def unbound(grads: list[Tensor | None], shape: Shape, dim: int) -> Tensor:
    """Undo `Tensor.unbind`."""
    dim = wrap_dim(dim, len(shape))
    known = next(grad for grad in grads if grad is not None)
    empty = zeros_of(known, (*shape[:dim], *shape[dim + 1 :]))
    return flambeau.stack([empty if grad is None else grad for grad in grads], dim)


def uncat(grad: Tensor, shapes: list[Shape], dim: int) -> list[Tensor]:
    """The parts of a gradient that belong to the tensors joined."""
    dim = wrap_dim(dim, grad.ndim)
    found, start = [], 0
    for shape in shapes:
        if len(shape) == 1 and shape[0] == 0 and grad.ndim != 1:  # an empty vector was left out
            found.append(zeros_of(grad, shape))
            continue
        found.append(grad.narrow(dim, start, shape[dim]))
        start += shape[dim]
    return found


def unrepeated(grad: Tensor, shape: Shape, repeats: Any) -> Tensor:
    """Undo `Tensor.repeat`."""
    counts = repeats[0] if len(repeats) == 1 and not isinstance(repeats[0], int) else repeats
    whole = (1,) * (len(counts) - len(shape)) + tuple(shape)
    pairs = [n for pair in zip(counts, whole, strict=True) for n in pair]
    if not pairs:
        return grad
    return grad.reshape(pairs).sum(list(range(0, len(pairs), 2))).reshape(shape)


def folded(grad: Tensor, shape: Shape, dimension: int, size: int, step: int) -> Tensor:
    """Add the windows of `Tensor.unfold` up again."""
    if not shape:
        return grad.reshape(())
    dim = wrap_dim(dimension, len(shape))
    made = zeros_of(grad, shape)
    windows = grad.movedim(-1, dim + 1).flatten(dim, dim + 1)
    starts = flambeau.arange(grad.shape[dim], device=grad.device).unsqueeze(1) * step
    places = (starts + flambeau.arange(size, device=grad.device)).reshape(-1)
    return made.index_add(dim, places, windows)


def _pair(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def unrolled(grad: Tensor, shifts: Any, dims: Any) -> Tensor:
    """Undo `roll`."""
    return grad.roll([-shift for shift in _pair(shifts)], dims if dims is None else _pair(dims))


# -- reductions -----------------------------------------------------------------------------------


def shared_among(grad: Tensor, input: Tensor, out: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """The gradient of an extreme value, divided evenly among the elements that have it."""
    shape = tuple(input.shape)
    hit = (input == expanded(out, shape, dim, keepdim)).to(grad.dtype)
    share = hit / (hit.sum(dim, keepdim=True) if dim is not None else hit.sum())
    return expanded(grad, shape, dim, keepdim) * share


def picked(grad: Tensor, shape: Shape, index: Tensor, dim: int, keepdim: bool) -> Tensor:
    """The gradient of values that were picked along a dimension by index."""
    if not shape:
        return grad.reshape(())
    if not keepdim:
        grad, index = grad.unsqueeze(dim), index.unsqueeze(dim)
    return zeros_of(grad, shape).scatter(dim, index, grad)


def extreme(
    grad: Tensor, input: Tensor, dim: Any, keepdim: bool, out0: Tensor, out1: Any, larger: bool
) -> Tensor:
    """The gradient of `max`, `min` and `median`: of all, along a dimension, or between tensors."""
    if isinstance(dim, Tensor):
        return between(grad, input, dim, larger)
    if out1 is None:
        return shared_among(grad, input, out0, None, False)
    return picked(grad, tuple(input.shape), out1, dim, keepdim)


def between(grad: Tensor, mine: Any, other: Any, larger: bool) -> Tensor:
    """The gradient of one operand of a maximum or minimum; equal ones have half of it each."""
    wins = (mine > other) if larger else (mine < other)
    return flambeau.where(wins, grad, flambeau.where(mine == other, grad / 2, 0))


def _freedom(shape: Shape, dim: Any, unbiased: Any, correction: Any) -> tuple[Any, float]:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 0 if unbiased is False else 1
    return dim, max(count_of(shape, dim) - correction, 0)


def variance(
    grad: Tensor, input: Tensor, dim: Any, unbiased: Any, keepdim: bool, correction: Any
) -> Tensor:
    """The gradient of `var`."""
    shape = tuple(input.shape)
    dim, freedom = _freedom(shape, dim, unbiased, correction)
    centred = input - (input.mean() if dim is None else input.mean(dim, keepdim=True))
    return expanded(grad, shape, dim, keepdim) * (
        centred * (2 / freedom if freedom else float("nan"))
    )


def deviation(
    grad: Tensor,
    input: Tensor,
    out: Tensor,
    dim: Any,
    unbiased: Any,
    keepdim: bool,
    correction: Any,
) -> Tensor:
    """The gradient of `std`; 0 where there is no spread."""
    inner = flambeau.where(out == 0, 0.0, grad / (2 * out))
    return variance(inner, input, dim, unbiased, keepdim, correction)


def product(grad: Tensor, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """The gradient of `prod`: for each element the product of all others."""
    shape = tuple(input.shape)
    if dim is None:
        return (grad * _others(input.reshape(-1), 0)).reshape(shape)
    return expanded(grad, shape, dim, keepdim) * _others(input, dim)


def _others(input: Tensor, dim: int) -> Tensor:
    if input.ndim == 0:
        return flambeau.ones_like(input)
    dim = wrap_dim(dim, input.ndim)
    one = flambeau.ones_like(input.narrow(dim, 0, min(1, input.shape[dim])))
    kept = max(input.shape[dim] - 1, 0)
    before = flambeau.cat([one, input.narrow(dim, 0, kept).cumprod(dim)], dim)
    turned = input.flip(dim)
    after = flambeau.cat([one, turned.narrow(dim, 0, kept).cumprod(dim)], dim).flip(dim)
    return before * after


def summed_from(grad: Tensor, dim: int) -> Tensor:
    """For each place the sum of the gradients from there on."""
    return grad.flip(dim).cumsum(dim).flip(dim) if grad.ndim else grad


def log_cumulative(grad: Tensor, input: Tensor, out: Tensor, dim: int) -> Tensor:
    """The gradient of `logcumsumexp`: sums from each place on, positive and negative ones apart."""
    if grad.ndim == 0:
        return grad
    if grad.is_complex():
        return input.exp() * summed_from(grad * (-out).exp(), dim)
    parts = []
    for part, wanted in ((grad, grad > 0), (-grad, grad < 0)):
        safe = flambeau.where(wanted, part, 1.0).log() - out
        logs = flambeau.where(wanted, safe, -float("inf"))
        sums = logs.flip(dim).logcumsumexp(dim).flip(dim) + input
        parts.append(flambeau.where(sums == -float("inf"), 0.0, sums.exp()))
    return parts[0] - parts[1]


def cumulative_product(grad: Tensor, input: Tensor, dim: int) -> Tensor:
    """The gradient of `cumprod`, right for zeros too: one product for each place."""
    if input.ndim == 0:
        return grad
    dim = wrap_dim(dim, input.ndim)
    size, parts = input.shape[dim], []
    for k in range(size):
        before = input.narrow(dim, 0, k).prod(dim, keepdim=True)
        one = flambeau.ones_like(before)
        tail = flambeau.cat([one, input.narrow(dim, k + 1, size - k - 1)], dim).cumprod(dim)
        parts.append((grad.narrow(dim, k, size - k) * tail).sum(dim, keepdim=True) * before)
    return flambeau.cat(parts, dim) if parts else flambeau.zeros_like(input)


def vector_norm(
    grad: Tensor, input: Tensor, out: Tensor, p: Any, dim: Any, keepdim: bool
) -> Tensor:
    """The gradient of `norm`; 0 where the norm is."""
    if p == "nuc":
        dims = wrap_dims(range(input.ndim) if dim is None else dim, input.ndim)
        grad = (
            grad
            if keepdim or not dims
            else grad.reshape([1 if d in dims else n for d, n in enumerate(input.shape)])
        )
        u, _, vh = flambeau.linalg.svd(input.movedim(dims, (-2, -1)), full_matrices=False)
        return grad * (u @ vh).movedim((-2, -1), dims)
    order = 2.0 if p in {None, "fro"} else float(p)
    if order == 0:
        return flambeau.zeros_like(input)
    if abs(order) == float("inf"):
        return shared_among(grad, input.abs(), out, dim, keepdim) * input.sgn()
    shape = tuple(input.shape)
    grad, out = expanded(grad, shape, dim, keepdim), expanded(out, shape, dim, keepdim)
    if order == 1:
        return grad * input.sgn()
    if order == 2:
        return flambeau.where(out == 0, 0.0, grad * (input / out))
    none = (out == 0) | (input == 0)  # 0 is the slope there that leaves everything finite
    length = flambeau.where(none, 1.0, input.abs())
    slope = input * length ** (order - 2) / flambeau.where(none, 1.0, out) ** (order - 1)
    return grad * flambeau.where(none, 0.0, slope)


# -- products -------------------------------------------------------------------------------------


def left_factor(grad: Tensor, right: Tensor, left: Tensor | None = None) -> Tensor:
    """The gradient of a in a @ b."""
    return grad @ right.mT


def right_factor(grad: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """The gradient of b in a @ b, with rows and columns stored as in b."""
    if right.ndim == 2 and right.stride(0) == 1 and right.stride(1) != 1:
        return (grad.mT @ left).mT
    return left.mT @ grad


def matmul(grad: Tensor, input: Tensor, other: Tensor, needs: tuple[bool, bool]) -> Any:
    """The gradients of both factors of `matmul`, with vectors and batches."""
    if input.ndim == 1 and other.ndim == 1:
        return grad * other, grad * input
    a = input.unsqueeze(0) if input.ndim == 1 else input
    b = other.unsqueeze(1) if other.ndim == 1 else other
    if input.ndim == 1:
        grad = grad.unsqueeze(-2)
    if other.ndim == 1:
        grad = grad.unsqueeze(-1)
    ga = gb = None
    if needs[0]:
        ga = sum_to(grad @ b.mT, a.shape)
        ga = ga.squeeze(0) if input.ndim == 1 else ga
    if needs[1]:
        if b.ndim == 2 and a.ndim > 2:
            tall = a.reshape(-1, a.shape[-1])
            gb = right_factor(grad.reshape(-1, grad.shape[-1]), tall, b)
        else:
            gb = sum_to(right_factor(grad, a, b), b.shape)
        gb = gb.squeeze(1) if other.ndim == 1 else gb
    return ga, gb


# -- indexing -------------------------------------------------------------------------------------


def is_basic(index: Any) -> bool:
    """Whether an index gives a view."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        part is None or part is Ellipsis or isinstance(part, (slice, int))
        or (isinstance(part, Tensor) and part.ndim == 0 and part.dtype.category == 1
            and not part.is_cuda)
        for part in parts
    )  # fmt: skip


def at_index(grad: Tensor, shape: Shape, index: Any) -> Tensor:
    """Zeros with a gradient stored, or added up, at an index."""
    if is_basic(index):
        return into(grad, shape, lambda whole: whole[index])
    return add_at(grad, tuple(shape), index)


def _add_at(grad: Tensor, shape: Shape, index: Any) -> Tensor:
    from flambeau.ops.indexing import put_at

    whole = zeros_of(grad, shape)
    put_at(whole, index, grad, "accumulate")
    return whole


def erased(grad: Tensor, index: Any) -> Tensor:
    """A gradient without what lies at an index, which was overwritten."""
    kept = grad.clone()
    kept[index] = 0
    return kept


def selected(grad: Tensor, shape: Shape, dim: int, index: Tensor) -> Tensor:
    """Undo `index_select`."""
    if not shape:
        return grad.reshape(())
    return zeros_of(grad, shape).index_add(dim, index, grad)


def unput(grad: Tensor, index: Tensor, shape: Shape) -> Tensor:
    """The gradient of what `put` stored."""
    taken: Tensor = grad.take(index)
    return taken.reshape(shape)


def scatter_reduced(
    grad: Tensor,
    input: Tensor,
    src: Tensor,
    out: Tensor,
    dim: int,
    index: Tensor,
    reduce: str,
    include_self: bool,
) -> tuple[Tensor, Tensor]:
    """The gradients of the target and the source of `scatter_reduce`."""
    if input.ndim == 0:
        input, src, out, index, grad = (t.reshape(1) for t in (input, src, out, index, grad))
        pair = scatter_reduced(grad, input, src, out, 0, index, reduce, include_self)
        return pair[0].reshape(()), pair[1].reshape(())
    shape = tuple(src.shape)
    cut = tuple(slice(0, size) for size in index.shape)
    src = src if shape == tuple(index.shape) else src[cut]
    # Where the target itself takes part.
    self_counts = flambeau.ones_like(grad.real)
    if not include_self:
        self_counts = self_counts.scatter(dim, index, 0)
    form = _extreme_shares if reduce in {"amax", "amin"} else _sum_shares
    form = _product_shares if reduce == "prod" else form
    kept, given = form(grad, input, src, out, dim, index, reduce, self_counts)
    return kept, given if shape == tuple(index.shape) else into(given, shape, lambda w: w[cut])


def _sum_shares(
    grad: Tensor,
    input: Tensor,
    src: Tensor,
    out: Tensor,
    dim: int,
    index: Tensor,
    reduce: str,
    self_counts: Tensor,
) -> tuple[Tensor, Tensor]:
    if reduce == "mean":
        one = flambeau.ones(index.shape, dtype=self_counts.dtype, device=grad.device)
        grad = grad / self_counts.scatter_add(dim, index, one).clamp(min=1)
    return grad * self_counts, grad.gather(dim, index)


def _extreme_shares(
    grad: Tensor,
    input: Tensor,
    src: Tensor,
    out: Tensor,
    dim: int,
    index: Tensor,
    reduce: str,
    self_counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Elements that are the extreme one share its gradient evenly."""
    mine = (input == out).to(grad.dtype) * self_counts
    theirs = (src == out.gather(dim, index)).to(grad.dtype)
    grad = grad / mine.scatter_add(dim, index, theirs).clamp(min=1)
    return mine * grad, theirs * grad.gather(dim, index)


def _product_shares(
    grad: Tensor,
    input: Tensor,
    src: Tensor,
    out: Tensor,
    dim: int,
    index: Tensor,
    reduce: str,
    self_counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """The product of all other factors, which may be zero."""
    factor = flambeau.where(self_counts == 0, 1.0, input)
    none, their_none = factor == 0, src == 0
    zeros = none.to(grad.dtype).scatter_add(dim, index, their_none.to(grad.dtype))
    safe, their_safe = flambeau.where(none, 1.0, factor), flambeau.where(their_none, 1.0, src)
    rest = grad * safe.scatter_reduce(dim, index, their_safe, "prod")

    def others(values: Tensor, zero: Tensor, count: Tensor, rest: Tensor) -> Tensor:
        alone = flambeau.where(count == 1, rest, 0.0)
        return flambeau.where(zero, alone, flambeau.where(count == 0, rest / values, 0.0))

    kept = others(safe, none, zeros, rest) * self_counts
    return kept, others(their_safe, their_none, zeros.gather(dim, index), rest.gather(dim, index))


def index_reduced(
    grad: Tensor,
    input: Tensor,
    source: Tensor,
    out: Tensor,
    dim: int,
    index: Tensor,
    reduce: str,
    include_self: bool,
) -> tuple[Tensor, Tensor]:
    """The gradients of the target and the source of `index_reduce`."""
    from flambeau.ops.combining import along

    spread = along(input, wrap_dim(dim, input.ndim), index) if input.ndim else index.reshape(1)
    return scatter_reduced(grad, input, source, out, dim, spread, reduce, include_self)


def unscattered(grad: Tensor, mask: Tensor, shape: Shape) -> Tensor:
    """The gradient of the elements that `masked_scatter_` took."""
    taken = grad.masked_select(mask.expand(grad.shape))
    rest = zeros_of(grad, (prod(shape) - taken.numel(),))
    return flambeau.cat([taken, rest]).reshape(shape)


def placed(indices: Sequence[Any]) -> tuple[Any, ...]:
    """The index that `index_put` means."""
    return tuple(slice(None) if part is None else part for part in indices)


def slices_at(dim: int, index: Tensor, ndim: int) -> tuple[Any, ...]:
    """The index of `index_copy` and its kin."""
    return (*[slice(None)] * wrap_dim(dim, max(ndim, 1)), index.reshape(-1))


def _make_add_at() -> Callable[..., Tensor]:
    from flambeau.runtime._recording import Rule, with_rule

    rule = Rule(
        "add_at", ("grad", "shape", "index"), {}, [("grad", lambda grad, index: grad[index])]
    )
    return with_rule(_add_at, rule)


add_at = _make_add_at()
