# SPDX-License-Identifier: Apache-2.0
"""Choosing elements by a condition: nonzero positions and masks."""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any

from flambeau.ops.codegen import cuda_type, includes
from flambeau.ops.common import MAX_DIMS, MAX_OPERANDS, THREADS, broadcast_shapes, kernel, store_out
from flambeau.ops.registry import OPS, inplace_method, public
from flambeau.runtime import _dtype
from flambeau.runtime._tensor import Tensor, empty

if TYPE_CHECKING:
    from collections.abc import Sequence

_INT64, _BOOL = _dtype.dtypes["int64"], _dtype.dtypes["bool"]
_CHUNK = 256 * 8  # elements per block when selecting: SELECT_THREADS * SELECT_ITEMS


@functools.cache
def _select_source(code: int) -> str:
    element = cuda_type(code)
    return f"""{includes("index.cuh", code)}
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


@public()
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
        matrix = nonzero_positions(input if input.ndim else input.reshape(1), linear=False)
        return matrix.unbind(1)
    return store_out(nonzero_positions(input, linear=False), out)


def nonzero_positions(input: Tensor, linear: bool) -> Tensor:
    """Where a tensor is not zero: linear positions, or a row of indices for each."""
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
    kernel(source, "count", "PRq", device)(device, (chunks, 1, 1), block, 0, starts, flat, n)
    kernel(source, "scan", "Pq", device)(device, (1, 1, 1), block, 0, starts, chunks)
    total = int(starts[chunks].item())
    out = empty((total,) if linear else (total, input.ndim), dtype=_INT64, device=input.device)
    if out.numel():
        layout = _plain_layout(input.shape)
        kernel(source, "write", "PRRqiB", device)(
            device, (chunks, 1, 1), block, 0, out, starts, flat, n, int(linear), layout
        )
    return out


def _plain_layout(shape: Sequence[int]) -> bytes:
    """A layout with every dimension, none merged: for positions."""
    if len(shape) > MAX_DIMS:
        raise RuntimeError(f"nonzero handles at most {MAX_DIMS} dimensions, got {len(shape)}")
    rest = MAX_DIMS * (1 + MAX_OPERANDS) - len(shape)
    sizes = [*reversed(shape), *[0] * rest]
    return struct.pack(f"<ii{len(sizes)}q", len(shape), 0, *sizes)


def masked_fill_(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Set the elements where `mask` is true to a number and return this tensor."""
    if mask.dtype != _BOOL:
        raise RuntimeError(
            f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype!r}"
        )
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(
            "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)."
        )
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
    where_true = nonzero_positions(mask.expand(*shape).contiguous(), linear=True)
    chosen: Tensor = input.expand(*shape).reshape(-1)[where_true]
    return store_out(chosen, out)


def _masked_scatter_(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Store elements of `source`, in order, where `mask` is true; return this tensor."""
    if mask.dtype != _BOOL:
        raise RuntimeError(
            f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype!r}"
        )
    if source.dtype != self.dtype:
        raise RuntimeError(
            "masked_scatter: expected self and source to have same dtypes but got "
            f"{_dtype.legacy_type_name(self.dtype)} and {_dtype.legacy_type_name(source.dtype)}"
        )
    positions = nonzero_positions(mask.expand(*self.shape).contiguous(), linear=False)
    count = positions.shape[0]
    if source.numel() < count:
        raise RuntimeError(
            f"masked_scatter_: the mask takes {count} elements, source has {source.numel()}"
        )
    if count:
        self[tuple(positions.unbind(1))] = source.reshape(-1)[:count]
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
