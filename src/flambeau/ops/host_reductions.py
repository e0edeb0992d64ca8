# SPDX-License-Identifier: Apache-2.0
"""Reductions, scans and sorts of host tensors through NumPy."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from flambeau.ops import host

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flambeau.ops.reductions import Reduction
    from flambeau.runtime._tensor import Tensor


@functools.cache
def _compiled(text: str) -> Callable[..., Any]:
    scope = vars(sys.modules[__name__])
    return eval(f"lambda a, axes: {text}", scope)  # type: ignore[no-any-return]


def host_mean(a: host.Array, axes: tuple[int, ...]) -> host.Array:
    """The mean; NaN of nothing."""
    count = np.prod([a.shape[d] for d in axes])
    return np.asarray(np.sum(a, axes) / a.dtype.type(count))


def squares(a: host.Array, axes: tuple[int, ...]) -> host.Array:
    """The sum of squared distances from the mean."""
    if a.size == 0:
        return np.full([n for d, n in enumerate(a.shape) if d not in axes], 0, a.dtype)
    return np.asarray(np.sum((a - np.mean(a, axes, keepdims=True)) ** 2, axes))


def reduce(
    row: Reduction,
    input: Tensor,
    dims: Sequence[int],
    out: Tensor | None,
    where: Tensor | None,
) -> None:
    """Store the reduction of `dims` in `out`, and positions in `where`."""
    a = host.array(input)
    axes = tuple(dims)
    with np.errstate(all="ignore"):
        if out is not None and out.numel():
            code = out.dtype.code if row.wide else input.dtype.code
            values = host.convert(a, host.arithmetic_code(code))
            result = np.asarray(_compiled(row.numpy)(values, axes))
            target = host.array(out)
            target[...] = host.convert(result.reshape(target.shape), out.dtype.code)
        if where is not None and where.numel():
            target = host.array(where)
            target[...] = _positions(a, axes, row.functor == "Largest").reshape(target.shape)


def _positions(a: host.Array, axes: tuple[int, ...], largest: bool) -> host.Array:
    if a.dtype.kind == "V" or a.dtype.name == "bfloat16":
        a = a.astype(np.float32)
    kept = [d for d in range(a.ndim) if d not in axes]
    moved = a.transpose([*kept, *axes]).reshape([*(a.shape[d] for d in kept), -1])
    return np.asarray((np.argmax if largest else np.argmin)(moved, -1))


def scan(operation: str, input: Tensor, dim: int, out: Tensor, where: Tensor | None) -> None:
    """A cumulative operation along a dimension, with positions for the extremes."""
    code = out.dtype.code if where is None else input.dtype.code
    values = host.convert(host.array(input), host.arithmetic_code(code))
    rows = np.moveaxis(values, dim, -1) if values.ndim else values.reshape(1)
    with np.errstate(all="ignore"):
        if where is not None:
            result, positions = _running_extreme(rows, operation == "cummax")
            found = np.moveaxis(positions, -1, dim) if values.ndim else positions.reshape(())
            host.array(where)[...] = found
        elif operation == "logcumsumexp":
            result = np.logaddexp.accumulate(rows, axis=-1)
        else:
            result = getattr(np, operation)(rows, axis=-1, dtype=rows.dtype)
        placed = np.moveaxis(result, -1, dim) if values.ndim else result.reshape(())
        host.array(out)[...] = host.convert(np.ascontiguousarray(placed), out.dtype.code)


def _running_extreme(rows: host.Array, largest: bool) -> tuple[host.Array, host.Array]:
    """The extreme so far and the last position of it; a NaN stays."""
    size = rows.shape[-1]
    so_far = (np.maximum if largest else np.minimum).accumulate(rows, axis=-1)
    broken = np.isnan(rows) if rows.dtype.kind == "f" else np.zeros(rows.shape, bool)
    hit = broken | (rows == so_far)
    positions = np.maximum.accumulate(np.where(hit, np.arange(size), 0), axis=-1)
    return so_far, positions


def sort(input: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor]:
    """Sorted values and positions, stable; NaN counts as the greatest."""
    a = host.array(input)
    keys = a.astype(np.float32) if a.dtype.name == "bfloat16" else a
    if descending:  # a stable descending sort is the reverse of an ascending one of the reverse
        keys = np.flip(keys, dim)
    order = np.argsort(keys, axis=dim, kind="stable")
    if descending:
        order = np.flip(keys.shape[dim] - 1 - order, dim)
    values = np.take_along_axis(a, order, dim)
    return host.tensor_of(values, input.dtype.code), host.tensor_of(order.astype(np.int64))
