# SPDX-License-Identifier: Apache-2.0
"""Sorting, the k largest, medians and unique values along a dimension."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from flambeau.ops import radix, return_types
from flambeau.ops.codegen import cuda_type
from flambeau.ops.common import (
    THREADS,
    kernel,
    launch_linear,
    new_like,
    store_out,
    wrap_dim,
)
from flambeau.ops.registry import OPS, public
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

_CHUNK = 1024  # SORT_CHUNK of sort.cuh
_TOP_CHUNK = 4096  # TOP_CHUNK of topk.cuh
_ROW_WORK = 1 << 14  # elements that make a launch for each row worth it
_FEW = 64  # up to so many of a row are chosen one by one
_INT32, _INT64 = (_dtype.dtypes[name] for name in ("int32", "int64"))


@functools.cache
def _sort_source(code: int, descending: bool) -> str:
    key = cuda_type(code)
    order = "true" if descending else "false"
    return f"""#include "sort.cuh"
typedef {key} Key;
FLAMBEAU_KERNEL({THREADS}) chunks(Key *keys_out, int32 *positions_out, const Key *in, int64 n,
                                  int32 chunks_per_row, int32 width) {{
  FLAMBEAU_GRID_WAIT();
  sort_chunks<Key, {order}>(keys_out, positions_out, in, n, chunks_per_row, width);
}}
FLAMBEAU_KERNEL({THREADS}) merge(Key *keys_out, int32 *positions_out, const Key *keys,
                                 const int32 *positions, int64 n, int64 width, int64 total) {{
  FLAMBEAU_GRID_WAIT();
  merge_runs<Key, {order}>(keys_out, positions_out, keys, positions, n, width, total);
}}
"""


def _sort_rows(rows: Tensor, descending: bool) -> tuple[Tensor, Tensor]:
    """Sort the last dimension of a contiguous CUDA tensor; positions are int32."""
    n, total = rows.shape[-1], rows.numel()
    if n >= 1 << 31:
        raise RuntimeError(
            "The dimension being sorted can not have more than INT_MAX elements, got "
            f"{n}: sort parts of it and merge them"
        )
    keys, positions = new_like(rows, rows.shape), new_like(rows, rows.shape, _INT32)
    if total == 0:
        return keys, positions
    source, device = _sort_source(rows.dtype.code, descending), rows.get_device()
    chunks = (n + _CHUNK - 1) // _CHUNK
    width = _CHUNK if chunks > 1 else max(2, 1 << (n - 1).bit_length())
    sort_chunks = kernel(source, "chunks", "PPRqii", device)
    threads = min(THREADS, max(32, width // 2))
    grid = (total // n) * chunks
    sort_chunks(device, (grid, 1, 1), (threads, 1, 1), 0, keys, positions, rows, n, chunks, width)
    if chunks > 1:
        merge = kernel(source, "merge", "PPRRqqq", device)
        spare = new_like(rows, rows.shape), new_like(rows, rows.shape, _INT32)
        width = _CHUNK
        while width < n:
            launch_linear(merge, device, total, *spare, keys, positions, n, width, total)
            (keys, positions), spare = spare, (keys, positions)
            width *= 2
    return keys, positions


def _sorted(input: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor]:
    dim = wrap_dim(dim, input.ndim)
    if input.dtype.category == 3:
        raise NotImplementedError("Sort does not support complex dtypes: they have no order")
    if input.ndim == 0:
        return input.clone(), OPS["_copy"](0, out=new_like(input, (), _INT64))
    if input.device.type == "cpu":
        from flambeau.ops import host_reductions

        return host_reductions.sort(input, dim, descending)
    rows = input.movedim(dim, -1).contiguous()
    n = rows.shape[-1]
    if radix.LEAST_OF_A_BLOCK <= n <= radix.MOST_OF_A_BLOCK:
        keys, indices = new_like(rows, rows.shape), new_like(rows, rows.shape, _INT64)
        if rows.numel():
            radix.sort_rows(rows, descending, keys, indices)
    elif radix.LEAST <= n <= radix.MOST and rows.numel() // n <= max(4, n // _ROW_WORK):
        keys, indices = new_like(rows, rows.shape), new_like(rows, rows.shape, _INT64)
        whole = [part.reshape(-1, n) for part in (rows, keys, indices)]
        for row, sorted_row, places in zip(*whole, strict=True):
            radix.sort_row(row, descending, sorted_row, places)
    else:
        keys, positions = _sort_rows(rows, descending)
        indices = positions.to(_INT64)
    keys, indices = keys.movedim(-1, dim), indices.movedim(-1, dim)
    if input.is_contiguous():  # and so are the results, along whichever dimension
        return keys.contiguous(), indices.contiguous()
    return keys, indices


@public()
def sort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = False,
    *,
    out: Any = None,
) -> return_types.sort:
    """Sort along a dimension.

    Parameters
    ----------
    input
        A tensor.
    dim
        The dimension, the last by default.
    descending
        Whether the largest come first.
    stable
        Accepted; the order of equal elements is always kept.
    out
        A pair of tensors to store values and indices in.

    Returns
    -------
    flambeau.return_types.sort
        ``values`` and ``indices``; NaN counts as the greatest.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.tensor([3, 1, 2]).sort().indices
    tensor([1, 2, 0])
    """
    values, indices = _sorted(input, dim, descending)
    if out is not None:
        values, indices = store_out(values, out[0]), store_out(indices, out[1])
    return return_types.sort(values, indices)


@public()
def argsort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Find the order that sorts a dimension; parameters as for `sort`."""
    return store_out(_sorted(input, dim, descending)[1], out)


@public()
def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sort along the first dimension."""
    return store_out(_sorted(input, 0, False)[0], out)


@functools.cache
def _top_source(code: int, largest: bool) -> str:
    return f"""#include "topk.cuh"
typedef {cuda_type(code)} Key;
FLAMBEAU_KERNEL({THREADS}) top(Key *values, int64 *indices, const Key *in, const int64 *names,
                               int64 n, int32 chunks, int32 k) {{
  FLAMBEAU_GRID_WAIT();
  top_of_chunks<Key, {"true" if largest else "false"}>(values, indices, in, names, n, chunks, k);
}}
"""


def _top_rows(rows: Tensor, names: Tensor | None, k: int, largest: bool) -> tuple[Tensor, Tensor]:
    """The first k of each row of a contiguous CUDA matrix; `names` are the elements' indices."""
    count, n = rows.shape
    chunks = -(-n // _TOP_CHUNK)
    values = new_like(rows, (count, chunks * k))
    indices = new_like(rows, (count, chunks * k), _INT64)
    device = rows.get_device()
    made = kernel(_top_source(rows.dtype.code, largest), "top", "PPRRqii", device)
    given = rows.new_empty(0, dtype=_INT64) if names is None else names
    grid = (count * chunks, 1, 1)
    made(device, grid, (THREADS, 1, 1), 0, values, indices, rows, given, n, chunks, k)
    return (values, indices) if chunks == 1 else _top_rows(values, indices, k, largest)


@public()
def topk(
    input: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    out: Any = None,
) -> return_types.topk:
    """Find the k largest or smallest elements along a dimension.

    Parameters
    ----------
    input
        A tensor.
    k
        How many, at most the size of the dimension.
    dim
        The dimension, the last by default.
    largest
        False for the smallest.
    sorted
        Accepted; the result is always sorted.
    out
        A pair of tensors to store values and indices in.

    Returns
    -------
    flambeau.return_types.topk
        ``values`` and ``indices``; NaN counts as the greatest, of equal elements the first are
        taken.

    Raises
    ------
    RuntimeError
        `k` is out of range.
    """
    dim = wrap_dim(dim, input.ndim)
    size = input.shape[dim] if input.ndim else 1
    if not 0 <= k <= size:
        raise RuntimeError(f"selected index k out of range: got k={k} for {size} elements")
    if input.is_cuda and input.ndim and 0 < k <= _FEW and input.dtype.category < 3:
        rows = input.movedim(dim, -1).contiguous()
        if rows.numel() and size < 1 << 31:
            found = _top_rows(rows.reshape(-1, size), None, k, largest)
            shape = (*rows.shape[:-1], k)
            values, indices = (part.reshape(shape).movedim(-1, dim).contiguous() for part in found)
            if out is not None:
                values, indices = store_out(values, out[0]), store_out(indices, out[1])
            return return_types.topk(values, indices)
    values, indices = _sorted(input, dim, largest)
    if input.ndim:
        values = values.narrow(dim, 0, k).contiguous()
        indices = indices.narrow(dim, 0, k).contiguous()
    elif k == 0:
        values, indices = values.reshape(1)[:0], indices.reshape(1)[:0]
    if out is not None:
        values, indices = store_out(values, out[0]), store_out(indices, out[1])
    return return_types.topk(values, indices)


@public()
def kthvalue(
    input: Tensor, k: int, dim: int = -1, keepdim: bool = False, *, out: Any = None
) -> return_types.kthvalue:
    """Find the k-th smallest element along a dimension, counting from 1."""
    dim = wrap_dim(dim, input.ndim)
    size = input.shape[dim] if input.ndim else 1
    if not 1 <= k <= size:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {dim}")
    values, indices = _sorted(input, dim, False)
    return return_types.kthvalue(*_stored(_pick(values, indices, dim, k - 1, keepdim), out))


def _stored(pair: tuple[Tensor, Tensor], out: Any) -> tuple[Tensor, Tensor]:
    return pair if out is None else (store_out(pair[0], out[0]), store_out(pair[1], out[1]))


def _pick(
    values: Tensor, indices: Tensor, dim: int, at: int, keepdim: bool
) -> tuple[Tensor, Tensor]:
    if values.ndim == 0:
        return values, indices
    if keepdim:
        return values.narrow(dim, at, 1).contiguous(), indices.narrow(dim, at, 1).contiguous()
    return values.select(dim, at).contiguous(), indices.select(dim, at).contiguous()


@public()
def median(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """Find the median, the lower one of an even number of elements.

    Parameters
    ----------
    input
        A tensor. A row with a NaN has the median NaN.
    dim
        The dimension; left out, the median of all elements is returned as a tensor.
    keepdim
        Whether the dimension stays with size 1.
    out
        With a dimension, a pair of tensors to store values and indices in.

    Returns
    -------
    Tensor or flambeau.return_types.median
        With a dimension ``values`` and ``indices``.
    """
    if input.dtype.category == 0:
        found = median(input.to(_dtype.dtypes["uint8"]), dim, keepdim)
        if dim is None:
            return found.to(input.dtype)
        return return_types.median(*_stored((found.values.to(input.dtype), found.indices), out))
    if dim is None:
        flat = input.reshape(-1)
        if flat.numel() == 0:
            return OPS["_copy"](float("nan"), out=new_like(input, ()))
        return median(flat, 0).values
    dim = wrap_dim(dim, input.ndim)
    if input.ndim and input.shape[dim] == 0:
        raise IndexError(f"median(): Expected reduction dim {dim} to have non-zero size.")
    values, indices = _sorted(input, dim, False)
    middle = ((input.shape[dim] if input.ndim else 1) - 1) // 2
    found, where = _pick(values, indices, dim, middle, keepdim)
    if input.dtype.category == 2:  # a NaN is the answer, the first one's place its index
        isnan = OPS["isnan"](input).to(_dtype.dtypes["uint8"])
        broken, first = isnan.max(dim, keepdim)
        found = OPS["_where"](broken, float("nan"), found)
        where = OPS["_where"](broken, first, where)
    return return_types.median(*_stored((found, where), out))


@public()
def nanmedian(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None
) -> Any:
    """Find the median of what is not NaN; parameters as for `median`."""
    if input.dtype.category != 2:
        return median(input, dim, keepdim, out=out)
    if dim is None:
        return nanmedian(input.reshape(-1), 0).values if input.numel() else median(input)
    dim = wrap_dim(dim, input.ndim)
    values, indices = _sorted(input, dim, False)
    if input.ndim == 0:
        return return_types.nanmedian(values, indices)
    # NaN sorts last, so the numbers are a row's beginning.
    present = OPS["isnan"](input).logical_not().sum(dim, keepdim=True)
    middle = ((present - 1).clamp(0) // 2).to(_INT64)
    found, where = values.gather(dim, middle), indices.gather(dim, middle)
    if not keepdim:
        found, where = found.squeeze(dim), where.squeeze(dim)
    return return_types.nanmedian(*_stored((found, where), out))


def _flags_of_new(values: Tensor) -> Tensor:
    """Where a sorted vector has another value than before."""
    flags = new_like(values, values.shape, _dtype.dtypes["bool"])
    if values.numel():
        flags[:1].fill_(True)
        OPS["ne"](values[1:], values[:-1], out=flags[1:])
    return flags


@public()
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Find the distinct elements of a tensor. Waits for the device.

    Parameters
    ----------
    input
        A tensor of any shape.
    sorted
        Accepted; the result is always sorted.
    return_inverse
        Also give, for each element, the position of its value.
    return_counts
        Also give how often each value occurs.
    dim
        Compare slices along this dimension instead of elements.

    Returns
    -------
    Tensor or tuple of Tensor
        Values, then what else was asked for.
    """
    if dim is not None:
        from flambeau.ops.counting import unique_slices

        return unique_slices(input, dim, return_inverse, return_counts)
    flat = input.reshape(-1)
    ordered, order = _sorted(flat, 0, False)
    flags = _flags_of_new(ordered)
    starts = flags.nonzero().reshape(-1)
    results = [ordered[starts]]
    if return_inverse:
        inverse = new_like(flat, flat.shape, _INT64)
        inverse.scatter_(0, order, flags.cumsum(0) - 1)
        results.append(inverse.reshape(input.shape))
    if return_counts:
        from flambeau.ops.shapes import cat

        end = OPS["_copy"](flat.numel(), out=new_like(flat, (1,), _INT64))
        bounds = cat([starts, end])
        results.append(bounds[1:] - bounds[:-1])
    return results[0] if len(results) == 1 else tuple(results)
