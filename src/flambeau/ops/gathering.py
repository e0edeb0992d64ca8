# SPDX-License-Identifier: Apache-2.0
"""Reading, writing and adding at index tensors along one dimension."""

from __future__ import annotations

from typing import Any

from flambeau.ops.common import broadcast_shapes, new_like, same_device, store_out, wrap_dim
from flambeau.ops.indexing import Positions, access, getitem, note_written, positions_of, put_at
from flambeau.ops.registry import OPS, inplace_method, public
from flambeau.runtime import _dtype
from flambeau.runtime._dtype import legacy_type_name
from flambeau.runtime._tensor import Tensor

_INT64 = _dtype.dtypes["int64"]


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


def _along(self: Tensor, dim: int, index: Tensor) -> tuple[Positions, list[int]]:
    """Positions of `index` along a dimension, and the strides of the others."""
    positions = positions_of(self, [(dim, index)])
    rest = [0 if d == dim else self.stride(d) for d in range(self.ndim)]
    return positions, rest


def _fitted(name: str, self: Tensor, dim: int, index: Tensor) -> tuple[Tensor, Tensor, int]:
    if index.numel():  # the dtype of no positions does not matter
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
    if out is not None and out.dtype != input.dtype:
        raise RuntimeError(
            f"Expected out tensor to have dtype {input.dtype}, but got {out.dtype} instead"
        )
    shape = index.shape
    source, index, dim = _fitted("gather", input, dim, index)
    values = new_like(input, index.shape)
    if index.numel():
        positions, rest = _along(source, dim, index)
        access("read", values, source, rest, positions, index.shape)
    return store_out(values.reshape(shape), out)


@public()
def take_along_dim(
    input: Tensor, indices: Tensor, dim: int | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Take one element per index along a dimension, other dimensions broadcasting."""
    if dim is None:
        return gather(input.reshape(-1), 0, indices.reshape(-1), out=out)
    dim = wrap_dim(dim, input.ndim)
    shape = list(broadcast_shapes(
        [1 if d == dim else n for d, n in enumerate(input.shape)],
        [1 if d == dim else n for d, n in enumerate(indices.shape)],
    ))  # fmt: skip
    whole = input.expand(*shape[:dim], input.shape[dim], *shape[dim + 1 :])
    where = indices.expand(*shape[:dim], indices.shape[dim], *shape[dim + 1 :])
    return gather(whole, dim, where, out=out)


@public()
def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Take elements by their row-major position."""
    if index.dtype != _INT64:
        raise RuntimeError(
            f"take(): Expected a long tensor for index, but got {legacy_type_name(index.dtype)}"
        )
    return store_out(getitem(input.reshape(-1), index), out)


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
    positions, rest = _along(target, dim, index)
    access(action, values, target, rest, positions, index.shape)
    note_written(self)
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
        ``"add"`` or ``"multiply"`` instead of storing.
    """
    actions = {None: "write", "add": "accumulate", "multiply": "multiply"}
    if reduce not in actions:
        raise RuntimeError(f"reduce argument must be either add or multiply, got {reduce!r}")
    action = actions[reduce]
    return _scatter("scatter", self, dim, index, value if src is None else src, action)


def _scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Add one element per index; where indices agree, all are added."""
    return _scatter("scatter_add", self, dim, index, src, "accumulate")


inplace_method("scatter_", _scatter_)
inplace_method("scatter_add_", _scatter_add_)


@public()
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: complex | None = None,
    reduce: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Copy a tensor and store one element per index along a dimension."""
    made = _scatter_(input.clone(), dim, index, src, value=value, reduce=reduce)
    return store_out(made, out)


@public()
def scatter_add(
    input: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """Copy a tensor and add one element per index along a dimension."""
    return store_out(_scatter_add_(input.clone(), dim, index, src), out)


def _slices_at(self: Tensor, dim: int, index: Tensor) -> tuple[Any, ...]:
    dim = wrap_dim(dim, self.ndim)
    _check_index("index_add", index, self)
    return (*[slice(None)] * dim, index.reshape(-1))


def _index_add_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: complex = 1
) -> Tensor:
    """Add slices of `source` to the slices of this tensor that `index` names."""
    if self.ndim == 0:
        _index_add_(self.reshape(1), dim, index, source.reshape(-1), alpha=alpha)
        return self
    at = wrap_dim(dim, self.ndim)
    if source.ndim != self.ndim or any(
        n != m for d, (n, m) in enumerate(zip(self.shape, source.shape, strict=True)) if d != at
    ):
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {list(self.shape)} source.shape = {list(source.shape)}"
        )
    scaled = source if alpha == 1 else source * alpha
    put_at(self, _slices_at(self, dim, index), scaled, "accumulate")
    return self


def _index_copy_(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Store slices of `source` as the slices of this tensor that `index` names."""
    if self.ndim == 0:
        _index_copy_(self.reshape(1), dim, index, source.reshape(-1))
        return self
    put_at(self, _slices_at(self, dim, index), source, "write")
    return self


def _index_fill_(self: Tensor, dim: int, index: Tensor, value: complex) -> Tensor:
    """Set the slices of this tensor that `index` names to a number."""
    if self.ndim == 0:
        _index_fill_(self.reshape(1), dim, index, value)
        return self
    put_at(self, _slices_at(self, dim, index), value, "write")
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


def _put_(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Store elements of `source` at row-major positions, or add them; return this tensor."""
    _check_index("put_", index, self)
    if source.dtype != self.dtype:
        raise RuntimeError(
            "put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{legacy_type_name(self.dtype)} and source.dtype = {legacy_type_name(source.dtype)}"
        )
    if source.numel() != index.numel():
        raise RuntimeError(
            "put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {source.numel()}, index.numel() = {index.numel()}"
        )
    flat = self if self.is_contiguous() else self.contiguous()
    put_at(
        flat.view(-1),
        index.reshape(-1),
        source.reshape(-1),
        "accumulate" if accumulate else "write",
    )
    return self if flat is self else self.copy_(flat)


inplace_method("put_", _put_)


@public()
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Copy a tensor and store elements at row-major positions, or add them."""
    return _put_(input.clone(), index, source, accumulate)
