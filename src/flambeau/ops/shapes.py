# SPDX-License-Identifier: Apache-2.0
"""Joining, repeating and rearranging tensors, where a view is not enough."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from flambeau.ops.common import (
    broadcast_shapes,
    new_like,
    same_device,
    store_out,
    wrap_dim,
    wrap_dims,
)
from flambeau.ops.promotion import kind_of, promote_kinds
from flambeau.ops.registry import OPS, inplace_method, public
from flambeau.runtime import _dtype
from flambeau.runtime._tensor import Tensor, empty

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _sizes(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """``f(2, 3)`` or ``f((2, 3))``."""
    if len(sizes) == 1 and not isinstance(sizes[0], int):
        return tuple(sizes[0])
    return tuple(sizes)


def _is_legacy_empty(tensor: Tensor) -> bool:
    return tensor.ndim == 1 and tensor.shape[0] == 0


@public("concat", "concatenate", method=False)
def cat(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Join tensors along a dimension they have.

    Parameters
    ----------
    tensors
        Of one device; sizes agree in the other dimensions. Empty vectors are skipped.
    dim
        The dimension.
    out
        Where to store the result.

    Returns
    -------
    Tensor
        Of the common dtype.

    Raises
    ------
    RuntimeError
        Sizes do not agree, or there is no tensor.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cat([torch.tensor([1, 2]), torch.tensor([3])])
    tensor([1, 2, 3])
    """
    if isinstance(tensors, Tensor):
        raise TypeError(
            "cat(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor"
        )
    parts = list(tensors)
    if not parts:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    for position, part in enumerate(parts):
        if not isinstance(part, Tensor):
            raise TypeError(
                f"expected Tensor as element {position} in argument 0, but got "
                f"{type(part).__name__}"
            )
    same_device(*parts)
    code = promote_kinds(tuple(kind_of(part) for part in parts))
    kept = [part for part in parts if not _is_legacy_empty(part)] or parts[:1]
    first = kept[0]
    if first.ndim == 0:
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    dim = wrap_dim(dim, first.ndim)
    for position, part in enumerate(kept[1:], 1):
        _check_joined(first, part, dim, position)
    shape = list(first.shape)
    shape[dim] = 0
    for part in kept:
        shape[dim] += part.shape[dim]
    joined = empty(
        shape,
        dtype=_dtype.dtype_from_code(code),
        device=first.device,
        memory_format=_common_format(kept),
    )
    start = 0
    for part in kept:
        joined.narrow(dim, start, part.shape[dim]).copy_(part)
        start += part.shape[dim]
    return store_out(joined, out)


def _common_format(parts: Sequence[Tensor]) -> Any:
    """The channels-last format that all tensors have, or the plain one."""
    plain = _dtype.constants["contiguous_format"]
    name = {4: "channels_last", 5: "channels_last_3d"}.get(parts[0].ndim)
    if name is None:
        return plain
    form = _dtype.constants[name]
    fits = all(
        part.is_contiguous(memory_format=form) and not part.is_contiguous() for part in parts
    )
    return form if fits else plain


def _check_joined(first: Tensor, part: Tensor, dim: int, position: int) -> None:
    if part.ndim != first.ndim:
        raise RuntimeError(
            f"Tensors must have same number of dimensions: got {first.ndim} and {part.ndim}"
        )
    for d in range(first.ndim):
        if d != dim and part.shape[d] != first.shape[d]:
            raise RuntimeError(
                f"Sizes of tensors must match except in dimension {dim}. Expected size "
                f"{first.shape[d]} but got size {part.shape[d]} for tensor number {position} in "
                "the list."
            )


@public(method=False)
def stack(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Join tensors of one shape along a new dimension."""
    parts = list(tensors)
    if not parts:
        raise RuntimeError("stack expects a non-empty TensorList")
    for position, part in enumerate(parts):
        if part.shape != parts[0].shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(parts[0].shape)} at "
                f"entry 0 and {list(part.shape)} at entry {position}"
            )
    dim = wrap_dim(dim, parts[0].ndim + 1)
    return cat([part.unsqueeze(dim) for part in parts], dim, out=out)


def _each(view: Callable[[Tensor], Tensor], tensors: tuple[Any, ...]) -> Any:
    """One view of one tensor; a tuple of views of several, or of a list of them."""
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return view(tensors[0])
    return tuple(view(part) for part in (tensors[0] if len(tensors) == 1 else tensors))


@public(method=False)
def atleast_1d(*tensors: Any) -> Any:
    """View tensors without dimensions as vectors of one element: one tensor, or a tuple."""
    return _each(lambda x: x.reshape(1) if x.ndim == 0 else x, tensors)


@public(method=False)
def atleast_2d(*tensors: Any) -> Any:
    """View tensors with fewer dimensions as matrices of one row: one tensor, or a tuple."""
    return _each(lambda x: x if x.ndim >= 2 else x.reshape(1, -1), tensors)


@public(method=False)
def atleast_3d(*tensors: Any) -> Any:
    """View tensors with fewer dimensions as ones with three: one tensor, or a tuple."""
    return _each(lambda x: x if x.ndim >= 3 else atleast_2d(x).unsqueeze(-1), tensors)


def _some(name: str, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    if not len(tensors):
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return tensors


@public("row_stack", method=False)
def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Join tensors by rows."""
    return cat([atleast_2d(part) for part in _some("vstack", tensors)], 0, out=out)


@public(method=False)
def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Join tensors by columns, vectors end to end."""
    parts = [atleast_1d(part) for part in _some("hstack", tensors)]
    return cat(parts, 0 if parts[0].ndim == 1 else 1, out=out)


@public(method=False)
def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Join tensors along the third dimension."""
    return cat([atleast_3d(part) for part in _some("dstack", tensors)], 2, out=out)


@public(function=False)
def repeat(self: Tensor, *repeats: Any) -> Tensor:
    """Copy this tensor side by side.

    Parameters
    ----------
    repeats
        How often along each dimension; more of them than dimensions add leading ones.
    """
    counts = _sizes(repeats)
    if len(counts) < self.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            f"tensor: got {len(counts)} for {self.ndim}"
        )
    shape = (1,) * (len(counts) - self.ndim) + tuple(self.shape)
    result = new_like(self, [n * count for n, count in zip(shape, counts, strict=True)])
    if result.numel():
        # (count0, n0, count1, n1, …) is a view of the result that the source broadcasts to.
        pairs = [n for count, size in zip(counts, shape, strict=True) for n in (count, size)]
        source = [n for size in shape for n in (1, size)]
        result.view(*pairs).copy_(self.reshape(source))
    return result


@public()
def tile(input: Tensor, *dims: Any) -> Tensor:
    """Copy a tensor side by side; missing counts are 1."""
    counts = _sizes(dims)
    return repeat(input, (1,) * max(0, input.ndim - len(counts)) + counts)


@public()
def repeat_interleave(
    input: Tensor,
    repeats: int | Tensor | None = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Tensor:
    """Repeat every element.

    Parameters
    ----------
    input
        A tensor.
    repeats
        How often, for all or for each along `dim`; a tensor waits for the device. Left out,
        `input` says how often each of its positions is repeated.
    dim
        The dimension; left out, the tensor is flattened.
    output_size
        Accepted; it is computed.
    """
    if repeats is None:
        from flambeau.ops.sequences import arange

        input, repeats = arange(input.shape[0], device=input.device), input
    if dim is None:
        input, dim = input.reshape(-1), 0
    dim = wrap_dim(dim, input.ndim)
    size = input.shape[dim]
    if isinstance(repeats, Tensor) and repeats.numel() == 1:
        repeats = int(repeats.item())
    if isinstance(repeats, int):
        spread = input.unsqueeze(dim + 1)
        shape = [*input.shape[: dim + 1], repeats, *input.shape[dim + 1 :]]
        return (
            spread.expand(*shape)
            .contiguous()
            .reshape([*input.shape[:dim], size * repeats, *input.shape[dim + 1 :]])
        )
    if repeats.shape[0] != size:
        raise RuntimeError("repeats must have the same size as input along dim")
    counts = repeats.tolist()
    positions = [i for i, count in enumerate(counts) for _ in range(count)]
    from flambeau.ops.creation import tensor

    index = tensor(positions, dtype=_dtype.dtypes["int64"], device=input.device)
    repeated: Tensor = input.index_select(dim, index)
    return repeated


@public()
def flip(input: Tensor, *sizes: Any, dims: Any = ()) -> Tensor:
    """Reverse the order of elements along dimensions, in a copy.

    Parameters
    ----------
    input
        A tensor.
    sizes, dims
        ``flip(x, 0, 1)``, ``flip(x, (0, 1))`` or ``flip(x, dims=(0, 1))``.
    """
    from flambeau.ops.sequences import arange

    given = _sizes(sizes) or ((dims,) if isinstance(dims, int) else dims)
    wanted = wrap_dims(given, input.ndim) if given else ()
    result = input.clone()
    for d in wanted:
        order = arange(input.shape[d] - 1, -1, -1, device=input.device)
        result = result.index_select(d, order)
    return result


@public(function=False)
def __reversed__(self: Tensor) -> Tensor:  # noqa: N807
    """What ``reversed(tensor)`` gives: the first dimension the other way round."""
    return flip(self, 0) if self.ndim else self


@public()
def fliplr(input: Tensor) -> Tensor:
    """Reverse the columns."""
    if input.ndim < 2:
        raise RuntimeError(f"Input must be >= 2-d. fliplr() got {input.ndim} dimensions")
    return flip(input, 1)


@public()
def flipud(input: Tensor) -> Tensor:
    """Reverse the rows."""
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d. flipud() got a tensor without dimensions")
    return flip(input, 0)


@public()
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Turn by 90 degrees, `k` times, in the plane of two dimensions."""
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    a, b = (wrap_dim(d, input.ndim) for d in dims)
    if a == b:
        raise RuntimeError(
            f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}"
        )
    turned: Tensor = input
    if k % 4 == 1:
        turned = flip(input, b).transpose(a, b)
    elif k % 4 == 2:
        turned = flip(input, a, b)
    elif k % 4 == 3:
        turned = flip(input, a).transpose(a, b)
    return turned.clone()


@public()
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Shift elements along dimensions; what leaves at one end comes in at the other."""
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return roll(input.reshape(-1), shifts, 0).reshape(input.shape)
    amounts = [shifts] if isinstance(shifts, int) else list(shifts)
    where = [dims] if isinstance(dims, int) else list(dims)
    if len(amounts) != len(where):
        raise RuntimeError(
            f"shifts and dimensions must align. shifts: {len(amounts)}, dims:{len(where)}"
        )
    result = input
    for amount, dim in zip(amounts, where, strict=True):
        d = wrap_dim(dim, input.ndim)
        size = input.shape[d]
        at = (size - amount) % size if size else 0
        result = cat([result.narrow(d, at, size - at), result.narrow(d, 0, at)], d)
    return result.clone() if result is input else result


@public(method=False)
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """View tensors with the shape that they broadcast to."""
    parts = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors
    shape = broadcast_shapes(*(part.shape for part in parts))
    return tuple(part.expand(*shape) for part in parts)


@public(method=False)
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Make grids of coordinates from vectors.

    Parameters
    ----------
    tensors
        Vectors, or tensors without dimensions.
    indexing
        ``"ij"``: dimension k follows vector k; ``"xy"``: the first two are swapped.
    """
    if indexing not in {"ij", "xy"}:
        raise RuntimeError(
            f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}'
        )
    parts = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors
    if len({part.dtype for part in parts}) > 1:
        raise RuntimeError(
            "meshgrid expects all tensors to have the same dtype, got "
            + ", ".join(str(part.dtype) for part in parts)
        )
    vectors = [part.reshape(-1) for part in parts]
    swap = indexing == "xy" and len(vectors) >= 2
    if swap:
        vectors[:2] = vectors[1], vectors[0]
    shape = [vector.shape[0] for vector in vectors]
    grids = []
    for d, vector in enumerate(vectors):
        view = [1] * len(shape)
        view[d] = -1
        grids.append(vector.reshape(view).expand(*shape))
    if swap:
        grids[:2] = grids[1], grids[0]
    return tuple(grids)


def _triangle(input: Tensor, diagonal: int, lower: bool) -> Tensor:
    from flambeau.ops.sequences import arange
    from flambeau.ops.triangles import triangle as on_device

    if input.ndim < 2:
        raise RuntimeError("tril and triu: input tensor must have at least 2 dimensions")
    if input.is_cuda:
        return on_device(input, diagonal, lower)
    rows = arange(input.shape[-2], device=input.device).unsqueeze(1) + diagonal
    columns = arange(input.shape[-1], device=input.device)
    keep = columns <= rows if lower else columns >= rows
    triangle: Tensor = input.masked_fill(~keep, 0)
    return triangle


@public()
def tril(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Copy the lower triangle, up to a diagonal; the rest is 0."""
    return store_out(_triangle(input, diagonal, True), out)


@public()
def triu(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Copy the upper triangle, from a diagonal on; the rest is 0."""
    return store_out(_triangle(input, diagonal, False), out)


def _triangle_(self: Tensor, diagonal: int, lower: bool) -> Tensor:
    from flambeau.ops.triangles import triangle as on_device

    if self.is_cuda and self.ndim >= 2 and self.is_contiguous():
        return on_device(self, diagonal, lower, out=self)
    return self.copy_(_triangle(self, diagonal, lower))


def _tril_(self: Tensor, diagonal: int = 0) -> Tensor:
    """Set what is above a diagonal to 0 and return this tensor."""
    return _triangle_(self, diagonal, True)


def _triu_(self: Tensor, diagonal: int = 0) -> Tensor:
    """Set what is below a diagonal to 0 and return this tensor."""
    return _triangle_(self, diagonal, False)


inplace_method("tril_", _tril_)
inplace_method("triu_", _triu_)


@public()
def diag(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Make a matrix with a vector on a diagonal, or copy a matrix's diagonal."""
    if input.ndim == 2:
        return store_out(input.diagonal(diagonal).clone(), out)
    if input.ndim != 1:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    n = input.shape[0] + abs(diagonal)
    made = new_like(input, (n, n)).zero_()
    made.diagonal(diagonal).copy_(input)
    return store_out(made, out)


@public()
def trace(input: Tensor) -> Tensor:
    """Add up a matrix's diagonal."""
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    total: Tensor = input.diagonal().sum()
    return total


@public()
def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Split into views, as evenly as possible or at given positions."""
    if input.ndim == 0:
        raise RuntimeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    dim = wrap_dim(dim, input.ndim)
    size = input.shape[dim]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        count = indices_or_sections
        if count <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {count}")
        short, long = divmod(size, count)
        bounds = [k * short + min(k, long) for k in range(count + 1)]
    else:
        inner = [min(max(i + size if i < 0 else i, 0), size) for i in indices_or_sections]
        bounds = [0, *inner, size]
    return tuple(input.narrow(dim, min(a, size), max(0, b - a)) for a, b in pairwise(bounds))


@public(method=False)
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """List all combinations of the elements of vectors."""
    if len(tensors) == 1:
        return tensors[0]
    return stack([grid.reshape(-1) for grid in meshgrid(*tensors)], 1)


@public()
def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Subtract neighbours along a dimension, `n` times.

    Parameters
    ----------
    input
        A tensor of at least one dimension; of bools the result says where neighbours differ.
    n
        How many times, no less than 0.
    dim
        The dimension, which loses `n` elements.
    prepend, append
        What to join before and after `input` first.
    out
        Where to store the result.
    """
    if input.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if n and (prepend is not None or append is not None):
        input = cat([part for part in (prepend, input, append) if part is not None], dim)
    step = OPS["_sub" if input.dtype.category else "logical_xor"]
    for _ in range(n):
        size = input.shape[dim]
        if size == 0:
            break
        input = step(input.narrow(dim, 1, size - 1), input.narrow(dim, 0, size - 1))
    return store_out(input if n else input.clone(), out)
