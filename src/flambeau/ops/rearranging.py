# SPDX-License-Identifier: Apache-2.0
"""More ways to split, join and embed tensors, and views that replace a tensor in place."""

from __future__ import annotations

import itertools
from functools import reduce
from typing import TYPE_CHECKING, Any

from flambeau.ops import common
from flambeau.ops.common import new_like, wrap_dim
from flambeau.ops.promotion import promote_types
from flambeau.ops.registry import METHODS, OPS, inplace_method, public
from flambeau.ops.shapes import cat, stack, tensor_split
from flambeau.runtime import _dtype
from flambeau.runtime._dtype import Size
from flambeau.runtime._tensor import Tensor, empty

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_INT64 = _dtype.dtypes["int64"]


# -- joining and splitting -------------------------------------------------------------------------


@public(method=False)
def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Join as columns: vectors become columns, matrices are joined along dimension 1."""
    columns = [part.reshape(part.numel(), 1) if part.ndim < 2 else part for part in tensors]
    return cat(columns, 1, out=out)


def _split_along(name: str, least: int, dim: Callable[[Tensor], int]) -> None:
    def call(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
        if input.ndim < least:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {least} dimension"
                f"{'s' if least > 1 else ''}, but got a tensor with {input.ndim} dimensions!"
            )
        along = dim(input)
        if isinstance(indices_or_sections, int):
            sections = indices_or_sections
            if sections <= 0 or input.shape[along] % sections:
                raise RuntimeError(
                    f"torch.{name} attempted to split along dimension {along}, but the size of the "
                    f"dimension {input.shape[along]} is not divisible by the split_size {sections}!"
                )
        return tensor_split(input, indices_or_sections, along)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""Split into equal views, or at given positions, as NumPy's ``{name}`` does.

    Parameters
    ----------
    input
        A tensor of at least {least} dimension(s).
    indices_or_sections
        How many parts, or where to cut.
    """
    public()(call)


_split_along("hsplit", 1, lambda t: 0 if t.ndim == 1 else 1)
_split_along("vsplit", 2, lambda t: 0)
_split_along("dsplit", 3, lambda t: 2)


@public()
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Split into views, as ``chunk`` does."""
    return tuple(input.chunk(chunks, dim))


@public()
def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Split into views, as ``split`` does."""
    return tuple(input.split(split_size, dim))


@public()
def unsafe_split_with_sizes(
    input: Tensor, split_sizes: Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Split into views of given sizes, as ``split_with_sizes`` does."""
    return tuple(input.split_with_sizes(split_sizes, dim))


@public(method=False)
def block_diag(*tensors: Tensor) -> Tensor:
    """Make a matrix with these matrices along its diagonal."""
    blocks = [part.reshape(1, -1) if part.ndim < 2 else part for part in tensors]
    for part in blocks:
        if part.ndim > 2:
            raise RuntimeError(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions, got {part.ndim}"
            )
    if not blocks:
        return empty((1, 0))
    rows = sum(part.shape[0] for part in blocks)
    columns = sum(part.shape[1] for part in blocks)
    of = reduce(promote_types, (part.dtype for part in blocks))
    made = new_like(blocks[0], (rows, columns), of).zero_()
    row = column = 0
    for part in blocks:
        made.narrow(0, row, part.shape[0]).narrow(1, column, part.shape[1]).copy_(part)
        row, column = row + part.shape[0], column + part.shape[1]
    return made


@public(method=False)
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """List the combinations of `r` elements of a vector, as rows."""
    if input.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.shape[0]), r))
    if not rows or r == 0:
        none: Tensor = input[:0]
        return none if r == 0 else none.unsqueeze(1).expand(0, r)
    from flambeau.ops.creation import tensor

    return stack([input[tensor(list(c), device=input.device)] for c in zip(*rows, strict=True)], 1)


# -- diagonals and copies --------------------------------------------------------------------------


@public()
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Make matrices with the last dimension of a tensor on a diagonal.

    Parameters
    ----------
    input
        (..., n).
    offset
        Which diagonal: 0 the main one, above it positive.
    dim1, dim2
        Where the two dimensions of the matrices go in the result.
    """
    ndim = input.ndim + 1
    first, second = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    size = input.shape[-1] + abs(offset)
    shape = list(input.shape[:-1])
    for d in sorted((first, second)):
        shape.insert(d, size)
    made = new_like(input, shape).zero_()
    made.diagonal(offset, first, second).copy_(input)
    return made


@public()
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """Make a matrix with all elements of a tensor on a diagonal."""
    from flambeau.ops.shapes import diag

    return diag(input.reshape(-1), offset)


@public()
def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """Copy a range of a dimension."""
    return input.narrow(dim, start, length).clone()


def _copy_of(name: str) -> None:
    plain = _dtype.constants["contiguous_format"]

    def call(input: Tensor, *arguments: Any, **named: Any) -> Any:
        made = (
            METHODS[name](input, *arguments, **named)
            if name in METHODS
            else getattr(input, name)(*arguments, **named)
        )
        if isinstance(made, Tensor):
            return made.clone(memory_format=plain)
        return tuple(part.clone(memory_format=plain) for part in made)

    call.__name__ = call.__qualname__ = f"{name}_copy"
    call.__doc__ = f"Copy what ``{name}`` would view."
    public(method=False)(call)


for _name in (
    "as_strided", "detach", "diagonal", "expand", "permute", "select", "split",
    "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view",
):  # fmt: skip
    _copy_of(_name)


@public()
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """Copy a tensor and store `src` at one index of a dimension."""
    made: Tensor = input.clone()
    made.select(dim, index).copy_(src)
    return made


@public()
def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """Copy a tensor and store `src` at a slice of a dimension."""
    made: Tensor = input.clone()
    where = (*[slice(None)] * wrap_dim(dim, input.ndim), slice(start, end, step))
    made[where].copy_(src)
    return made


@public()
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """Copy a tensor and store `src` on a diagonal."""
    made: Tensor = input.clone()
    made.diagonal(offset, dim1, dim2).copy_(src)
    return made


@public()
def as_strided_scatter(
    input: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    """Copy a tensor and store `src` at a strided view of it."""
    made: Tensor = input.clone()
    made.as_strided(size, stride, storage_offset).copy_(src)
    return made


def _fill_diagonal_(self: Tensor, fill_value: complex, wrap: bool = False) -> Tensor:
    """Set the main diagonal to a number and return this tensor."""
    if self.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if self.ndim > 2 and len(set(self.shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    count, step = min(self.shape), sum(self.stride())
    self.as_strided((count,), (step,), self.storage_offset()).fill_(fill_value)
    if wrap and self.ndim == 2 and self.shape[0] > self.shape[1] + 1:
        # Below a tall matrix's square the diagonal begins again, one row left out.
        for row in range(self.shape[1] + 1, self.shape[0], self.shape[1] + 1):
            _fill_diagonal_(self[row:], fill_value)
    return self


inplace_method("fill_diagonal_", _fill_diagonal_)


# -- broadcasting and shapes -----------------------------------------------------------------------


@public()
def broadcast_to(input: Tensor, shape: Sequence[int]) -> Tensor:
    """View a tensor with a shape that it broadcasts to."""
    return input.expand(shape)


@public(method=False)
def broadcast_shapes(*shapes: Any) -> Size:
    """Find the shape that several broadcast to; an int stands for a shape of one dimension."""
    return Size(
        common.broadcast_shapes(*((s,) if isinstance(s, int) else tuple(s) for s in shapes))
    )


@public(function=False)
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Add up dimensions until this tensor has a shape that broadcasts to its own."""
    shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    lead = self.ndim - len(shape)
    if lead < 0 or any(n not in (1, m) for n, m in zip(shape, self.shape[lead:], strict=True)):
        raise RuntimeError(f"size {list(shape)} is not expandable to size {list(self.shape)}.")
    dims = [*range(lead), *(lead + d for d, n in enumerate(shape) if n != self.shape[lead + d])]
    return self.sum(dims, keepdim=True).reshape(shape) if dims else self


@public()
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape."""
    return bool(input.shape == other.shape)


@public(function=False)
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether two tensors are the same view of one storage."""
    return bool(
        self.data_ptr() == tensor.data_ptr()
        and self.shape == tensor.shape
        and self.stride() == tensor.stride()
        and self.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
    )


def _resize_as_(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """Resize this tensor like another one and return it."""
    return self.resize_(the_template.shape)


inplace_method("resize_as_", _resize_as_)


def _view_in_place(name: str) -> None:
    def call(self: Tensor, *arguments: Any, **named: Any) -> Tensor:
        return self.set_(getattr(self, name)(*arguments, **named))

    call.__doc__ = f"Make this tensor what ``{name}`` views, and return it."
    inplace_method(f"{name}_", call)


for _name in (
    "squeeze", "unsqueeze", "t", "transpose", "swapaxes", "swapdims", "as_strided",
):  # fmt: skip
    _view_in_place(_name)


# -- made from numbers -----------------------------------------------------------------------------


def _triangle_indices(
    row: int, col: int, offset: int, lower: bool, dtype: Any, device: Any
) -> Tensor:
    from flambeau.ops.sequences import arange

    rows = arange(row, device=device).unsqueeze(1) + offset
    columns = arange(col, device=device)
    keep = columns <= rows if lower else columns >= rows
    found: Tensor = keep.nonzero().t().contiguous().to(dtype or _INT64)
    return found


@public(method=False)
def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: Any = None,
    device: Any = None,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """List rows and columns of a matrix's lower triangle, as a (2, n) tensor.

    Parameters
    ----------
    row, col
        The matrix's sizes.
    offset
        The last diagonal that counts: 0 the main one, above it positive.
    dtype, device, layout, pin_memory
        As for `zeros`; int64 by default.
    """
    return _triangle_indices(row, col, offset, True, dtype, device)


@public(method=False)
def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: Any = None,
    device: Any = None,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """List rows and columns of a matrix's upper triangle; parameters as for `tril_indices`."""
    return _triangle_indices(row, col, offset, False, dtype, device)


@public(method=False)
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Make the matrix of a vector's powers, the highest first unless `increasing`."""
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    count = x.shape[0] if N is None else N
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    columns = [OPS["_pow"](x, k) for k in range(count)]
    if not columns:
        return new_like(x, (x.shape[0], 0))
    made = stack(columns if increasing else columns[::-1], 1)
    return made if x.dtype.category >= 2 else made.to(_INT64)


@public(method=False)
def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> Tensor:
    """Make an uninitialised dense tensor whose dimensions lie in a given order in memory.

    Parameters
    ----------
    size
        The shape.
    physical_layout
        Dimensions from the outermost to the innermost.
    options
        dtype, device, pin_memory, requires_grad.
    """
    order = list(physical_layout)
    if sorted(order) != list(range(len(size))):
        raise RuntimeError(
            f"Duplicate or missing dimension in physical_layout {order} for {len(size)} dimensions"
        )
    made: Tensor = empty([size[d] for d in order], **options)
    return made.permute([order.index(d) for d in range(len(order))])


@public(function=False)
def new_empty_strided(
    self: Tensor, size: Sequence[int], stride: Sequence[int], **options: Any
) -> Tensor:
    """Make an uninitialised tensor with given strides; dtype and device are this one's."""
    from flambeau.runtime._tensor import empty_strided

    options.setdefault("dtype", self.dtype)
    options.setdefault("device", self.device)
    return empty_strided(size, stride, **options)


@public(method=False)
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Turn row-major positions into an index for each dimension of `shape`."""
    sizes = [shape] if isinstance(shape, int) else list(shape)
    parts: list[Tensor] = []
    rest = indices
    for size in reversed(sizes):
        parts.append(OPS["remainder"](rest, size))
        rest = OPS["floor_divide"](rest, size)
    return tuple(reversed(parts))
