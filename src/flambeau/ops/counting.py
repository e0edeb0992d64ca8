# SPDX-License-Identifier: Apache-2.0
"""Counting and looking up: histograms, positions in sorted sequences, runs, the most frequent."""

from __future__ import annotations

import functools
from typing import Any

from flambeau.ops import return_types
from flambeau.ops.codegen import arithmetic_type, cuda_type
from flambeau.ops.common import THREADS, kernel, launch_linear, new_like, store_out, wrap_dim
from flambeau.ops.promotion import kind_of, promote_kinds
from flambeau.ops.registry import OPS, public
from flambeau.ops.shapes import cat
from flambeau.ops.sorting import sort
from flambeau.runtime import _dtype
from flambeau.runtime._tensor import Tensor

_INT64, _INT32, _BOOL = (_dtype.dtypes[name] for name in ("int64", "int32", "bool"))


# -- positions in sorted sequences -----------------------------------------------------------------


@functools.cache
def _search_source(code: int) -> str:
    return f"""#include "search.cuh"
typedef {cuda_type(code)} In;
FLAMBEAU_KERNEL({THREADS}) search(int64 *out, const In *sequence, const In *values,
                                  const int64 *sorter, int64 length, int64 per_row, int32 one_row,
                                  int32 right, int64 n) {{
  FLAMBEAU_GRID_WAIT();
  search_sorted<{arithmetic_type(code)}>(
      out, sequence, values, sorter, length, per_row, one_row, right, n);
}}
"""


def _right(right: bool, side: str | None) -> bool:
    if side not in {None, "left", "right"}:
        raise RuntimeError(
            "torch.searchsorted(): side can only be 'left' or 'right' but got " + repr(side)
        )
    if side == "left" and right:
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left "
            "while right was True"
        )
    return right or side == "right"


@public(method=False)
def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | complex,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Find where values would have to be inserted so that the sequences stay sorted.

    Parameters
    ----------
    sorted_sequence
        A vector, or rows (..., n), in ascending order.
    input
        Values to look up: any shape for a vector, else (..., m) with the same leading sizes.
    out_int32
        int32 positions instead of int64.
    right
        Behind equal elements instead of before them.
    side
        ``"left"`` or ``"right"`` in place of `right`.
    sorter
        int64 positions that sort `sorted_sequence`, where that is not in order itself.
    out
        Where to store the result.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.searchsorted(torch.tensor([1, 3, 5]), torch.tensor([3, 6]))
    tensor([1, 3])
    """
    behind = _right(right, side)
    if not isinstance(input, Tensor):
        from flambeau.ops.creation import tensor

        of = sorted_sequence.dtype if kind_of(input)[0] else None
        input = tensor(input, dtype=of, device=sorted_sequence.device)
    one_row = sorted_sequence.ndim == 1
    if not one_row and sorted_sequence.shape[:-1] != input.shape[:-1]:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
            f"dimensions of boundaries tensor and input value tensor must match, but we got "
            f"boundaries tensor {list(sorted_sequence.shape)} and input value tensor "
            f"{list(input.shape)}"
        )
    code = promote_kinds((kind_of(sorted_sequence), kind_of(input)))
    common = _dtype.dtype_from_code(code)
    result = new_like(input, input.shape, _INT64)
    if input.numel():
        _search(result, sorted_sequence.to(common), input.to(common), sorter, one_row, behind)
    return store_out(result.to(_INT32) if out_int32 else result, out)


def _search(
    out: Tensor, sequence: Tensor, values: Tensor, sorter: Tensor | None, one_row: bool, right: bool
) -> None:
    if out.device.type == "cpu":
        from flambeau.ops import host_counting

        host_counting.search(out, sequence, values, sorter, right)
        return
    device = out.get_device()
    made = kernel(_search_source(sequence.dtype.code), "search", "PRRRqqiiq", device)
    length = sequence.shape[-1]
    per_row = values.shape[-1] if values.ndim else 1
    order = (sequence.new_empty(0, dtype=_INT64) if sorter is None else sorter).contiguous()
    launch_linear(
        made, device, out.numel(), out, sequence.contiguous(), values.contiguous(), order, length,
        per_row, int(one_row), int(right), out.numel(),
    )  # fmt: skip


@public(method=False)
def bucketize(
    input: Tensor | complex,
    boundaries: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Find the bucket of every value; `boundaries` is a sorted vector. See `searchsorted`."""
    if boundaries.ndim != 1:
        raise RuntimeError(
            f"bucketize(): boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right, out=out)


@public(method=False)
def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Whether each element is among the test elements.

    Parameters
    ----------
    elements, test_elements
        Tensors; one of them may be a number.
    assume_unique
        Accepted; it makes no difference.
    invert
        Whether each is *not* among them.
    """
    if not isinstance(elements, Tensor):
        elements = test_elements.new_tensor(elements)
    if not isinstance(test_elements, Tensor):
        equal = OPS["eq"](elements, test_elements)
        return equal.logical_not() if invert else equal
    common = _dtype.dtype_from_code(promote_kinds((kind_of(elements), kind_of(test_elements))))
    test = test_elements.reshape(-1).to(common)
    if test.dtype.category == 2:
        test = test[OPS["isnan"](test).logical_not()]  # which equals nothing and has no place
    test = sort(test).values
    if test.numel() == 0:
        found = new_like(elements, elements.shape, _BOOL).fill_(False)
    else:
        sought = elements.to(common)
        at = searchsorted(test, sought).clamp_max(test.numel() - 1)
        found = OPS["eq"](test[at], sought)
    return found.logical_not() if invert else found


# -- histograms ------------------------------------------------------------------------------------


@public()
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Count how often each non-negative integer occurs. Waits for the device.

    Parameters
    ----------
    input
        A vector of integers.
    weights
        Add these up instead of counting.
    minlength
        The least number of counts.

    Returns
    -------
    Tensor
        int64 counts; sums in float64, of float32 weights in float32.
    """
    if input.ndim != 1 or input.dtype.category != 1:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if weights is not None and weights.shape != input.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    length = minlength
    if input.numel():
        extremes = [int(x) for x in (input.min().item(), input.max().item())]
        if extremes[0] < 0:
            raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
        length = max(minlength, extremes[1] + 1)
    if weights is None:
        ones = new_like(input, input.shape, _INT64).fill_(1)
    else:
        single = weights.dtype.name == "float32"
        ones = weights if single else weights.to(_dtype.dtypes["float64"])
    counts = new_like(ones, (length,)).zero_()
    total: Tensor = counts.scatter_add_(0, input.to(_INT64), ones)
    return total


def _range_of(input: Tensor, low: float, high: float) -> tuple[float, float]:
    if low == high and input.numel():
        low, high = float(input.min().item()), float(input.max().item())
    if low == high:
        low, high = low - 1, high + 1
    if not (abs(low) < float("inf") and abs(high) < float("inf")):
        raise RuntimeError(f"torch.histc: range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError("torch.histc: max must be larger than min")
    return low, high


@public()
def histc(
    input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Tensor | None = None
) -> Tensor:
    """Count elements in equal bins between two numbers, the ends included.

    Parameters
    ----------
    input
        A tensor.
    bins
        How many.
    min, max
        The range; where they are equal, that of the elements. Waits for the device then.
    out
        Where to store the result.

    Returns
    -------
    Tensor
        (bins) counts, in the tensor's dtype.
    """
    if bins <= 0:
        raise RuntimeError(f"torch.histc: bins must be > 0, but got {bins}")
    low, high = _range_of(input, float(min), float(max))
    wide = input.reshape(-1)
    if input.dtype.name != "float64":
        wide = wide.to(_dtype.dtypes["float64" if input.dtype.category < 2 else "float32"])
    inside = (wide >= low) & (wide <= high)
    place = ((wide - low) * bins / (high - low)).nan_to_num(0, 0, 0)
    place = place.to(_INT64).clamp(0, bins - 1)
    counts = new_like(input, (bins,), _INT64).zero_()
    counts.scatter_add_(0, place, inside.to(_INT64))
    return store_out(counts.to(input.dtype), out)


@public()
def histogram(
    input: Tensor,
    bins: int | Tensor,
    *,
    range: tuple[float, float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
    out: Any = None,
) -> return_types.histogram:
    """Count elements in bins.

    Parameters
    ----------
    input
        A floating-point tensor.
    bins
        How many equal ones, or their edges in ascending order.
    range
        The range of equal bins; by default that of the elements.
    weight
        Weights of the elements, of their shape.
    density
        Divide so that the integral is 1.
    out
        A pair of tensors to store counts and edges in.
    """
    if isinstance(bins, Tensor):
        edges = bins
    else:
        from flambeau.ops.sequences import linspace

        given = (0.0, 0.0) if range is None else (float(range[0]), float(range[1]))
        low, high = _range_of(input, *given)
        edges = linspace(low, high, bins + 1, dtype=input.dtype, device=input.device)
    count = edges.shape[0] - 1
    flat = input.reshape(-1)
    place = searchsorted(edges, flat, right=True) - 1
    place = place - (flat == edges[-1]).to(_INT64)  # the last edge belongs to the last bin
    inside = (place >= 0) & (place < count)
    if weight is None:
        amounts = inside.to(input.dtype)
    else:
        amounts = weight.reshape(-1).masked_fill(inside.logical_not(), 0)
    counts = new_like(amounts, (count,)).zero_()
    counts.scatter_add_(0, place.clamp(0, count - 1), amounts)
    if density:
        counts = counts / (counts.sum() * (edges[1:] - edges[:-1]))
    if out is not None:
        counts, edges = store_out(counts, out[0]), store_out(edges, out[1])
    return return_types.histogram(counts, edges)


# -- runs ------------------------------------------------------------------------------------------


def _starts_of_runs(rows: Tensor) -> Tensor:
    """Along dimension 0, where a slice differs from the one before."""
    flags = new_like(rows, (rows.shape[0],), _BOOL)
    if rows.shape[0]:
        flags[:1].fill_(True)
        changed = OPS["ne"](rows[1:], rows[:-1])
        flags[1:].copy_(changed.reshape(rows.shape[0] - 1, -1).any(1) if rows.ndim > 1 else changed)
    return flags


def _run_results(
    rows: Tensor, flags: Tensor, return_counts: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The slices that start runs, the run of every slice, and how long the runs are."""
    starts = flags.nonzero().reshape(-1)
    run = flags.cumsum(0) - 1
    counts = None
    if return_counts:
        end = new_like(starts, (1,)).fill_(rows.shape[0])
        bounds = cat([starts, end])
        counts = bounds[1:] - bounds[:-1]
    return rows.index_select(0, starts), run, counts


def _chosen(values: Tensor, inverse: Tensor, counts: Tensor | None, return_inverse: bool) -> Any:
    results = [
        values,
        *([inverse] if return_inverse else []),
        *([] if counts is None else [counts]),
    ]
    return results[0] if len(results) == 1 else tuple(results)


@public()
def unique_consecutive(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Keep the first of each run of equal elements, or of equal slices. Waits for the device.

    Parameters
    ----------
    input
        A tensor; without `dim` it is flattened.
    return_inverse
        Also give the run of every element.
    return_counts
        Also give how long the runs are.
    dim
        Compare slices along this dimension.
    """
    rows = input.reshape(-1) if dim is None else input.movedim(dim, 0).contiguous()
    values, run, counts = _run_results(rows, _starts_of_runs(rows), return_counts)
    if dim is not None:
        values = values.movedim(0, dim)
    return _chosen(values, run.reshape(input.shape) if dim is None else run, counts, return_inverse)


def unique_slices(input: Tensor, dim: int, return_inverse: bool, return_counts: bool) -> Any:
    """The distinct slices along a dimension, in lexicographic order."""
    if input.numel() == 0:
        dim = wrap_dim(dim, input.ndim)
        if input.shape[dim]:
            raise RuntimeError(
                "There are 0 sized dimensions, and they aren't selected, so unique cannot be "
                f"applied: {list(input.shape)} along dimension {dim}"
            )
        none = new_like(input, (0,), _INT64)
        return _chosen(input.clone(), none, none.clone(), return_inverse)
    rows = input.movedim(dim, 0).contiguous()
    flat = rows.reshape(rows.shape[0], -1)
    order: Tensor = sort(flat[:, -1] if flat.shape[1] else flat.sum(1), stable=True).indices
    for column in range(flat.shape[1] - 2, -1, -1):  # least significant first: sorts are stable
        order = order[sort(flat[order, column], stable=True).indices]
    values, run, counts = _run_results(rows[order], _starts_of_runs(flat[order]), return_counts)
    inverse = new_like(run, run.shape).scatter_(0, order, run)
    return _chosen(values.movedim(0, dim), inverse, counts, return_inverse)


@public()
def mode(
    input: Tensor, dim: int = -1, keepdim: bool = False, *, out: Any = None
) -> return_types.mode:
    """Find the most frequent element along a dimension, the smallest one of several.

    Parameters
    ----------
    input
        A tensor.
    dim
        The dimension, the last by default.
    keepdim
        Whether the dimension stays with size 1.
    out
        A pair of tensors to store values and indices in.

    Returns
    -------
    flambeau.return_types.mode
        ``values`` and ``indices``, the last position of the value.
    """
    dim = wrap_dim(dim, input.ndim)
    if input.ndim == 0:
        return return_types.mode(input.clone(), new_like(input, (), _INT64).zero_())
    if input.shape[dim] == 0:
        raise IndexError(f"mode(): Expected reduction dim {dim} to have non-zero size.")
    from flambeau.ops.cumulative import cummax
    from flambeau.ops.sequences import arange

    values, order = sort(input.movedim(dim, -1), stable=True)
    size = values.shape[-1]
    position = arange(size, device=input.device)
    fresh = new_like(values, values.shape, _BOOL).fill_(True)
    fresh[..., 1:].copy_(OPS["ne"](values[..., 1:], values[..., :-1]))
    start = cummax(OPS["mul"](position, fresh.to(_INT64)), -1).values
    at = (position - start).argmax(-1, keepdim=True)  # the end of the longest run, the first such
    found, where = values.gather(-1, at), order.gather(-1, at)
    pair = [part.movedim(-1, dim) if keepdim else part.squeeze(-1) for part in (found, where)]
    if out is not None:
        pair = [store_out(part, into) for part, into in zip(pair, out, strict=True)]
    return return_types.mode(*pair)
