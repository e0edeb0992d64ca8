# SPDX-License-Identifier: Apache-2.0
"""Indexing with tensors, and everything that reads or writes at computed positions.

All of it comes down to three kernels over one int64 tensor of element offsets: read, write, add.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from flambeau.ops.codegen import cuda_type
from flambeau.ops.common import (
    THREADS,
    broadcast_shapes,
    kernel,
    launch_linear,
    new_like,
    pack_layout,
    same_device,
    store_out,
    wrap_dim,
)
from flambeau.ops.registry import OPS, inplace_method, public
from flambeau.runtime import _dtype
from flambeau.runtime._tensor import Tensor, empty

if TYPE_CHECKING:
    from collections.abc import Sequence

_INT64, _BOOL = _dtype.dtypes["int64"], _dtype.dtypes["bool"]
_CHUNK = 256 * 8  # elements per block when selecting: SELECT_THREADS * SELECT_ITEMS


# -- kernels ---------------------------------------------------------------------------------------


@functools.cache
def _access_source(action: str, code: int) -> str:
    element = cuda_type(code)
    first, second = ("", "const ") if action == "read" else ("const ", "")
    return f"""#include "index.cuh"
FLAMBEAU_KERNEL({THREADS}) access({first}{element} *values, {second}{element} *self,
                                  const int64 *offsets, int64 n, const Layout layout) {{
  FLAMBEAU_GRID_WAIT();
  index_{action}(values, self, offsets, n, layout);
}}
"""


@functools.cache
def _offset_source(code: int) -> str:
    return f"""#include "index.cuh"
FLAMBEAU_KERNEL({THREADS}) offset(int64 *offsets, const {cuda_type(code)} *index, int64 size,
                                  int64 stride, int32 accumulate, int64 n, const Layout layout) {{
  FLAMBEAU_GRID_WAIT();
  add_index(offsets, index, size, stride, accumulate, n, layout);
}}
"""


@functools.cache
def _select_source(code: int) -> str:
    element = cuda_type(code)
    return f"""#include "index.cuh"
FLAMBEAU_KERNEL({THREADS}) count(int64 *counts, const {element} *in, int64 n) {{
  FLAMBEAU_GRID_WAIT();
  nonzero_count(counts, in, n);
}}
FLAMBEAU_KERNEL({THREADS}) scan(int64 *counts, int64 chunks) {{
  FLAMBEAU_GRID_WAIT();
  nonzero_scan(counts, chunks);
}}
FLAMBEAU_KERNEL({THREADS}) write(int64 *out, const int64 *starts, const {element} *in, int64 n,
                                 int32 linear, const Layout layout) {{
  FLAMBEAU_GRID_WAIT();
  nonzero_write(out, starts, in, n, linear, layout);
}}
"""


def _access(
    action: str,
    values: Tensor,
    self: Tensor,
    rest: Sequence[int],
    offsets: Tensor,
    shape: Sequence[int],
) -> None:
    """Read, write or accumulate over `shape`: ``self`` at ``rest`` strides plus the offsets."""
    count = values.numel()
    if count == 0:
        return
    spread = offsets.expand(*shape)
    if self.device.type == "cpu":
        from flambeau.ops import host_indexing

        host_indexing.access(action, values, self, rest, spread)
        return
    device = self.get_device()
    layout = pack_layout(shape, values.stride(), rest, spread.stride())
    made = kernel(_access_source(action, self.dtype.code), "access", "PPPqB", device)
    launch_linear(made, device, count, values, self, offsets, count, layout)


def _offsets(self: Tensor, indices: Sequence[tuple[int, Tensor]]) -> Tensor:
    """Element offsets into `self` of index tensors for some of its dimensions, broadcast."""
    shape = _index_shape([index for _, index in indices])
    offsets = empty(shape, dtype=_INT64, device=self.device)
    if offsets.numel() == 0:
        return offsets
    for position, (dim, index) in enumerate(indices):
        size, stride = self.shape[dim], self.stride(dim)
        spread = index.expand(*shape)
        if self.device.type == "cpu":
            from flambeau.ops import host_indexing

            host_indexing.add_offsets(offsets, spread, dim, size, stride, position > 0)
            continue
        made = kernel(_offset_source(index.dtype.code), "offset", "PPqqiqB", self.get_device())
        layout = pack_layout(shape, offsets.stride(), spread.stride())
        count = offsets.numel()
        launch_linear(
            made, self.get_device(), count,
            offsets, index, size, stride, int(position > 0), count, layout,
        )  # fmt: skip
    return offsets


def _index_shape(indices: Sequence[Tensor]) -> tuple[int, ...]:
    try:
        return broadcast_shapes(*(index.shape for index in indices))
    except RuntimeError:
        shapes = ", ".join(str(list(index.shape)) for index in indices)
        raise IndexError(
            f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
        ) from None


@public(function=True)
def nonzero(input: Tensor, *, as_tuple: bool = False, out: Tensor | None = None) -> Any:
    """Find the elements that are not zero. Waits for the device.

    Parameters
    ----------
    input
        A tensor.
    as_tuple
        Return one vector per dimension, fit for indexing, instead of a matrix.
    out
        Where to store the matrix.

    Returns
    -------
    Tensor or tuple of Tensor
        int64 positions in row-major order: (number of elements, dimensions).
    """
    if as_tuple:
        matrix = _nonzero(input if input.ndim else input.reshape(1), linear=False)
        return matrix.unbind(1)
    return store_out(_nonzero(input, linear=False), out)


def _nonzero(input: Tensor, linear: bool) -> Tensor:
    if input.device.type == "cpu":
        from flambeau.ops import host_indexing

        return host_indexing.nonzero(input, linear)
    flat, device = input.contiguous(), input.get_device()
    n = flat.numel()
    if n == 0:
        return empty((0,) if linear else (0, input.ndim), dtype=_INT64, device=input.device)
    chunks = (n + _CHUNK - 1) // _CHUNK
    source = _select_source(input.dtype.code)
    starts = empty((chunks + 1,), dtype=_INT64, device=input.device)
    block = (THREADS, 1, 1)
    kernel(source, "count", "PPq", device)(device, (chunks, 1, 1), block, 0, starts, flat, n)
    kernel(source, "scan", "Pq", device)(device, (1, 1, 1), block, 0, starts, chunks)
    total = int(starts[chunks].item())
    out = empty((total,) if linear else (total, input.ndim), dtype=_INT64, device=input.device)
    if out.numel():
        layout = _plain_layout(input.shape)
        kernel(source, "write", "PPPqiB", device)(
            device, (chunks, 1, 1), block, 0, out, starts, flat, n, int(linear), layout
        )
    return out


def _plain_layout(shape: Sequence[int]) -> bytes:
    """A layout with every dimension, none merged: for positions."""
    import struct

    if len(shape) > 12:
        raise RuntimeError(f"nonzero handles at most 12 dimensions, got {len(shape)}")
    sizes = [*reversed(shape), *[0] * (12 - len(shape))]
    return struct.pack("<ii72q", len(shape), 0, *sizes, *[0] * 60)


# -- t[...] ----------------------------------------------------------------------------------------


def _as_index(part: Any, like: Tensor) -> Tensor:
    """A list, array or tensor as an index tensor on the right device."""
    if isinstance(part, Tensor):
        index = part
    else:
        from flambeau.ops.creation import tensor

        index = tensor(part, device=like.device) if len(part) else empty((0,), dtype=_INT64)
    if index.dtype.category > 1:
        raise IndexError(
            f"tensors used as indices must be long, int, byte or bool tensors, got {index.dtype!r}"
        )
    if index.device == like.device:
        return index
    if index.device.type != "cpu":
        raise RuntimeError(
            f"indices should be either on cpu or on the same device as the indexed tensor "
            f"({like.device}), got {index.device}"
        )
    return index.to(like.device)


def _is_tuple_like(index: Any) -> bool:
    """A short list that holds more than numbers is an index of several parts."""
    return (
        isinstance(index, list)
        and len(index) < 32
        and any(
            part is None or part is Ellipsis or isinstance(part, (Tensor, list, tuple, slice))
            for part in index
        )
    )


def _is_advanced(part: Any) -> bool:
    return isinstance(part, (Tensor, list)) or hasattr(part, "__array__") or isinstance(part, tuple)


def _parse(self: Tensor, index: Any) -> tuple[Tensor, list[Tensor | None]]:
    """Apply the basic parts as a view; per dimension of the view its index tensor or None."""
    parts = list(index) if isinstance(index, tuple) or _is_tuple_like(index) else [index]
    parts = [_as_index(part, self) if _is_advanced(part) else part for part in parts]
    used = 0
    for part in parts:
        if isinstance(part, Tensor):
            used += part.ndim if part.dtype.name in {"bool", "uint8"} else 1
        elif part is not None and part is not Ellipsis and not isinstance(part, bool):
            used += 1
    if used > self.ndim:
        raise IndexError(f"too many indices for tensor of dimension {self.ndim}")
    if not any(part is Ellipsis for part in parts):
        parts.append(Ellipsis)
    basic: list[Any] = []
    indices: list[Tensor | None] = []
    for part in parts:
        if part is Ellipsis:
            rest = self.ndim - used
            basic += [slice(None)] * rest
            indices += [None] * rest
        elif isinstance(part, Tensor):
            expanded = _expand_mask(part, self, basic)
            basic += [slice(None)] * (len(expanded) if part.ndim or part.dtype != _BOOL else 0)
            indices += expanded
        else:
            basic.append(part)
            if not isinstance(part, int) or isinstance(part, bool):
                indices.append(None)
    return self[tuple(basic)] if basic else self, indices


def _expand_mask(part: Tensor, self: Tensor, before: Sequence[Any]) -> list[Tensor | None]:
    """A mask becomes one index vector per dimension it covers."""
    if part.dtype.name not in {"bool", "uint8"}:
        return [part]
    at = sum(1 for b in before if b is not None and not isinstance(b, bool))
    for d, size in enumerate(part.shape):
        if size != self.shape[at + d]:
            raise IndexError(
                f"The shape of the mask {list(part.shape)} at index {d} does not match the shape "
                f"of the indexed tensor {list(self.shape)} at index {at + d}"
            )
    return list(_nonzero(part, linear=False).unbind(1))


def _placed(view: Tensor, indices: Sequence[Tensor | None]) -> tuple[int, list[int]]:
    """Where the index shape goes in the result; the dims that are not indexed, in order."""
    dims = [d for d, index in enumerate(indices) if index is not None]
    others = [d for d in range(view.ndim) if d not in dims]
    adjacent = dims == list(range(dims[0], dims[0] + len(dims)))
    return (dims[0] if adjacent else 0), others


class _Selection:
    """What an advanced index means: result shape, strides of the rest, offsets."""

    def __init__(self, view: Tensor, indices: Sequence[Tensor | None]) -> None:
        at, others = _placed(view, indices)
        pairs = [(d, index) for d, index in enumerate(indices) if index is not None]
        offsets = _offsets(view, pairs)
        before, after = others[:at], others[at:]
        shape = offsets.shape
        self.view = view
        self.shape = (
            *(view.shape[d] for d in before), *shape, *(view.shape[d] for d in after),
        )  # fmt: skip
        self.rest = (
            *(view.stride(d) for d in before), *[0] * len(shape), *(view.stride(d) for d in after),
        )  # fmt: skip
        self.offsets = offsets.reshape(*shape, *[1] * len(after)) if after else offsets


def _scalar_mask(self: Tensor, index: Any) -> Tensor | None:
    """A bool tensor without dimensions selects all or nothing."""
    if isinstance(index, Tensor) and index.ndim == 0 and index.dtype == _BOOL:
        return self.unsqueeze(0)[: 1 if index.item() else 0]
    return None


def getitem(self: Tensor, index: Any) -> Tensor:
    """``self[index]`` for an index with tensors, lists or masks."""
    if (chosen := _scalar_mask(self, index)) is not None:
        return chosen.clone()
    view, indices = _parse(self, index)
    chosen_by = _Selection(view, indices)
    values = new_like(self, chosen_by.shape)
    _access("read", values, view, chosen_by.rest, chosen_by.offsets, chosen_by.shape)
    return values


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """``self[index] = value`` for an index with tensors, lists or masks."""
    if (chosen := _scalar_mask(self, index)) is not None:
        chosen[...] = value
        return
    whole = isinstance(index, Tensor) and index.dtype == _BOOL and index.shape == self.shape
    if whole and (not isinstance(value, Tensor) or value.numel() == 1):
        masked_fill_(self, _as_index(index, self), value)
        return
    _put(self, index, value, "write")


def _put(self: Tensor, index: Any, value: Any, action: str) -> None:
    view, indices = _parse(self, index)
    chosen = _Selection(view, indices)
    if not isinstance(value, Tensor):
        from flambeau.ops.creation import tensor

        value = tensor(value, dtype=self.dtype, device=self.device)
    if value.dtype != self.dtype or value.device != self.device:
        value = value.to(device=self.device, dtype=self.dtype)
    while value.ndim > len(chosen.shape) and value.shape[0] == 1:
        value = value.squeeze(0)
    try:
        values = value.expand(*chosen.shape)
    except RuntimeError:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to "
            f"indexing result of shape {list(chosen.shape)}"
        ) from None
    _access(action, values, view, chosen.rest, chosen.offsets, chosen.shape)
    _note_written(self)


def _note_written(self: Tensor) -> None:
    """Count an in-place write that a kernel made outside elementwise dispatch."""
    self[:0].fill_(0) if self.ndim else self.reshape(1)[:0].fill_(0)


def _index_put_(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Store `values` at positions given by index tensors, or add them; return this tensor."""
    index = tuple(slice(None) if part is None else part for part in indices)
    _put(self, index, values, "accumulate" if accumulate else "write")
    return self


inplace_method("index_put_", _index_put_)


@public()
def index_put(
    input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Copy a tensor and store values at positions given by index tensors."""
    return _index_put_(input.clone(), indices, values, accumulate)


# -- along one dimension ---------------------------------------------------------------------------


def _check_index(name: str, index: Tensor, self: Tensor) -> Tensor:
    if index.dtype.name not in {"int64", "int32"}:
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index, got {index.dtype!r}")
    same_device(self, index)
    return index


@public()
def index_select(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Take slices of a dimension in a given order.

    Parameters
    ----------
    input
        A tensor.
    dim
        The dimension.
    index
        A vector of int32 or int64 positions.
    out
        Where to store the result.

    Raises
    ------
    IndexError
        `index` is no vector, or on the host a position is out of range. On a CUDA device that is
        a device-side assertion.
    """
    if index.ndim > 1:
        raise IndexError(
            f"index_select(): Index is supposed to be a vector, but got dim: {index.ndim}"
        )
    _check_index("index_select", index, input)
    if input.ndim == 0:
        return index_select(input.reshape(1), 0, index.reshape(-1)).reshape(())
    dim = wrap_dim(dim, input.ndim)
    at = [slice(None)] * dim
    return store_out(getitem(input, (*at, index.reshape(-1))), out)


def _along(self: Tensor, dim: int, index: Tensor) -> tuple[Tensor, list[int]]:
    """Offsets of `index` along a dimension, and the strides of the others."""
    offsets = _offsets(self, [(dim, index)])
    rest = [0 if d == dim else self.stride(d) for d in range(self.ndim)]
    return offsets, rest


def _fitted(name: str, self: Tensor, dim: int, index: Tensor) -> tuple[Tensor, Tensor, int]:
    _check_index(name, index, self)
    dim = wrap_dim(dim, self.ndim)
    if self.ndim == 0:
        self = self.reshape(1)
    if index.ndim == 0:
        index = index.reshape(1)
    if index.ndim != self.ndim and index.numel():
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    for d in range(self.ndim if index.numel() else 0):
        if d != dim and index.shape[d] > self.shape[d]:
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(index.shape)} to be "
                f"no larger than self {list(self.shape)} apart from dimension {dim}"
            )
    return self, index, dim


@public()
def gather(
    input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False, out: Tensor | None = None
) -> Tensor:
    """Take one element per index: ``out[i][j] = input[index[i][j]][j]`` for dimension 0.

    Parameters
    ----------
    input
        A tensor.
    dim
        The dimension that `index` counts in.
    index
        int64 positions, with as many dimensions as `input` and no larger in the others.
    sparse_grad
        Accepted and ignored.
    out
        Where to store the result.
    """
    shape = index.shape
    source, index, dim = _fitted("gather", input, dim, index)
    values = new_like(input, index.shape)
    if index.numel():
        offsets, rest = _along(source, dim, index)
        _access("read", values, source, rest, offsets, index.shape)
    return store_out(values.reshape(shape), out)


@public()
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Take one element per index along a dimension, other dimensions broadcasting."""
    if dim is None:
        return gather(input.reshape(-1), 0, indices.reshape(-1))
    dim = wrap_dim(dim, input.ndim)
    shape = list(broadcast_shapes(
        [1 if d == dim else n for d, n in enumerate(input.shape)],
        [1 if d == dim else n for d, n in enumerate(indices.shape)],
    ))  # fmt: skip
    whole = input.expand(*shape[:dim], input.shape[dim], *shape[dim + 1 :])
    return gather(whole, dim, indices.expand(*shape[:dim], indices.shape[dim], *shape[dim + 1 :]))


@public()
def take(input: Tensor, index: Tensor) -> Tensor:
    """Take elements by their row-major position."""
    return getitem(input.reshape(-1), index)


def _scatter(name: str, self: Tensor, dim: int, index: Tensor, src: Any, action: str) -> Tensor:
    target, index, dim = _fitted(name, self, dim, index)
    if index.numel() == 0:
        return self
    if isinstance(src, Tensor):
        same_device(self, src)
        if src.dtype != self.dtype:
            raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")
        source = src if src.ndim else src.reshape(1)
        values = source[tuple(slice(0, n) for n in index.shape)]
        if values.shape != index.shape:
            raise RuntimeError(
                f"{name}(): Expected index {list(index.shape)} to be no larger than src "
                f"{list(src.shape)}"
            )
    else:
        values = OPS["_copy"](src, out=new_like(self, ())).expand(*index.shape)
    offsets, rest = _along(target, dim, index)
    _access(action, values, target, rest, offsets, index.shape)
    _note_written(self)
    return self


def _scatter_(
    self: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | complex | None = None,
    *,
    value: complex | None = None,
    reduce: str | None = None,
) -> Tensor:
    """Store one element per index: ``self[index[i][j]][j] = src[i][j]`` for dimension 0.

    Parameters
    ----------
    dim
        The dimension that `index` counts in.
    index
        int64 positions; where two agree, one of the values is stored.
    src, value
        A tensor at least as large as `index`, or a number.
    reduce
        ``"add"`` to add instead of storing.
    """
    if reduce not in {None, "add"}:
        raise RuntimeError(f"reduce argument must be None or 'add' here, got {reduce!r}")
    action = "accumulate" if reduce else "write"
    return _scatter("scatter", self, dim, index, value if src is None else src, action)


def _scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Add one element per index; where indices agree, all are added."""
    return _scatter("scatter_add", self, dim, index, src, "accumulate")


inplace_method("scatter_", _scatter_)
inplace_method("scatter_add_", _scatter_add_)


@public()
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: complex | None = None
) -> Tensor:
    """Copy a tensor and store one element per index along a dimension."""
    return _scatter_(input.clone(), dim, index, src, value=value)


@public()
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Copy a tensor and add one element per index along a dimension."""
    return _scatter_add_(input.clone(), dim, index, src)


def _slices_at(self: Tensor, dim: int, index: Tensor) -> tuple[Any, ...]:
    dim = wrap_dim(dim, self.ndim)
    _check_index("index_add", index, self)
    return (*[slice(None)] * dim, index.reshape(-1))


def _index_add_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: complex = 1
) -> Tensor:
    """Add slices of `source` to the slices of this tensor that `index` names."""
    scaled = source if alpha == 1 else source * alpha
    _put(self, _slices_at(self, dim, index), scaled, "accumulate")
    return self


def _index_copy_(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Store slices of `source` as the slices of this tensor that `index` names."""
    _put(self, _slices_at(self, dim, index), source, "write")
    return self


def _index_fill_(self: Tensor, dim: int, index: Tensor, value: complex) -> Tensor:
    """Set the slices of this tensor that `index` names to a number."""
    _put(self, _slices_at(self, dim, index), value, "write")
    return self


inplace_method("index_add_", _index_add_)
inplace_method("index_copy_", _index_copy_)
inplace_method("index_fill_", _index_fill_)


@public()
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: complex = 1
) -> Tensor:
    """Copy a tensor and add slices to those that `index` names."""
    return _index_add_(input.clone(), dim, index, source, alpha=alpha)


@public()
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Copy a tensor and store slices as those that `index` names."""
    return _index_copy_(input.clone(), dim, index, source)


@public()
def index_fill(input: Tensor, dim: int, index: Tensor, value: complex) -> Tensor:
    """Copy a tensor and set the slices that `index` names to a number."""
    return _index_fill_(input.clone(), dim, index, value)


# -- masks -----------------------------------------------------------------------------------------


def masked_fill_(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Set the elements where `mask` is true to a number and return this tensor."""
    if mask.dtype != _BOOL:
        raise RuntimeError(
            f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype!r}"
        )
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise RuntimeError(
                "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.ndim} dimension(s)."
            )
        value = value.reshape(())
    return OPS["_masked_fill"].in_place(self, mask, value)


inplace_method("masked_fill_", masked_fill_)


@public()
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Copy a tensor and set the elements where `mask` is true to a number."""
    shape = broadcast_shapes(input.shape, mask.shape)
    copied = input.expand(*shape).contiguous() if tuple(input.shape) != shape else input
    return masked_fill_(copied.clone(), mask, value)


@public()
def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Take the elements where `mask` is true, in row-major order. Waits for the device."""
    if mask.dtype != _BOOL:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask, got {mask.dtype!r}")
    shape = broadcast_shapes(input.shape, mask.shape)
    where_true = _nonzero(mask.expand(*shape).contiguous(), linear=True)
    return store_out(getitem(input.expand(*shape).reshape(-1), where_true), out)


def _masked_scatter_(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Store elements of `source`, in order, where `mask` is true; return this tensor."""
    positions = _nonzero(mask.expand(*self.shape).contiguous(), linear=False)
    count = positions.shape[0]
    if source.numel() < count:
        raise RuntimeError(
            f"masked_scatter_: the mask takes {count} elements, source has {source.numel()}"
        )
    if count:
        _put(self, positions.unbind(1), source.reshape(-1)[:count], "write")
    return self


inplace_method("masked_scatter_", _masked_scatter_)


@public(method=False)
def where(
    condition: Tensor, input: Any = None, other: Any = None, *, out: Tensor | None = None
) -> Any:
    """Choose elements by a condition.

    Parameters
    ----------
    condition
        A bool tensor; where true `input` is taken, else `other`. Alone, its nonzero positions are
        returned, like ``nonzero(as_tuple=True)``.
    input, other
        Tensors that broadcast, or numbers.
    out
        Where to store the result.
    """
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    if condition.dtype.name not in {"bool", "uint8"}:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{_dtype.legacy_type_name(condition.dtype)}"
        )
    return OPS["_where"](condition, input, other, out=out)


def _where(self: Tensor, condition: Tensor, other: Any) -> Any:
    """Keep elements where `condition` is true, else take `other`."""
    return where(condition, self, other)


inplace_method("where", _where)
