# SPDX-License-Identifier: Apache-2.0
"""The engine of reductions: the table, the choice of kernel, and the host forms."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flambeau.ops.codegen import arithmetic_type, cuda_type
from flambeau.ops.common import THREADS, kernel, merged_dims, new_like, pack_layout, reduced_shape
from flambeau.ops.promotion import BOOL, FLOAT32, INT64, category_of
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._tensor import Tensor

__all__ = ["REDUCTIONS", "Reduction", "reduce"]

_FEW = 64  # so few elements per output are reduced by one thread
_BLOCKS = 1024  # enough to fill a device
_SLICE = 16 * THREADS  # elements worth a block of their own


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduction.

    Parameters
    ----------
    functor
        The class template of ``reduce.cuh``.
    numpy
        The host form: an expression of the array ``a`` and of ``axes``.
    wide
        Whether integers are accumulated as int64; else the input's own type is kept.
    positions
        Whether it yields positions beside values.
    """

    functor: str
    numpy: str
    wide: bool = True
    positions: bool = False


REDUCTIONS = {
    "sum": Reduction("Sum", "np.sum(a, axes)"),
    "nansum": Reduction("NanSum", "np.nansum(a, axes)"),
    "mean": Reduction("Mean", "host_mean(a, axes)"),
    "prod": Reduction("Product", "np.prod(a, axes)"),
    "all": Reduction("All", "np.all(a, axes)", wide=False),
    "any": Reduction("Any", "np.any(a, axes)", wide=False),
    "squares": Reduction("Moments", "squares(a, axes)"),
    "max": Reduction("Largest", "np.max(a, axes)", wide=False, positions=True),
    "min": Reduction("Smallest", "np.min(a, axes)", wide=False, positions=True),
}


def reduce(
    name: str,
    input: Tensor,
    dims: Sequence[int],
    keepdim: bool,
    out_code: int,
    *,
    values: bool = True,
    indices: bool = False,
) -> tuple[Tensor | None, Tensor | None]:
    """Reduce some dimensions of a tensor.

    Parameters
    ----------
    name
        A row of `REDUCTIONS`.
    input
        Any layout, host or CUDA.
    dims
        Dimensions to reduce, in order; positions count row-major over them.
    keepdim
        Whether reduced dimensions stay with size 1.
    out_code
        Scalar type of the values.
    values, indices
        Which results are wanted; the other is None.
    """
    row = REDUCTIONS[name]
    shape = reduced_shape(input.shape, dims, keepdim)
    out = new_like(input, shape, _dtype.dtype_from_code(out_code)) if values else None
    where = new_like(input, shape, _dtype.dtype_from_code(INT64)) if indices else None
    if input.device.type == "cpu":
        from flambeau.ops import host_reductions

        host_reductions.reduce(row, input, dims, out, where)
    else:
        _reduce_cuda(row, input, dims, out, where, out_code)
    return out, where


def _accumulator(row: Reduction, in_code: int, out_code: int) -> str:
    if row.functor in {"All", "Any"}:
        return "bool"
    if not row.wide:
        return arithmetic_type(in_code)
    return "int64" if category_of(out_code) < 2 else arithmetic_type(out_code)


@functools.cache
def _source(row: Reduction, in_code: int, out_code: int, variant: str) -> str:
    accumulator = _accumulator(row, in_code, out_code)
    lines = [
        '#include "reduce.cuh"',
        f"typedef {cuda_type(in_code)} In;",
        f"typedef {cuda_type(out_code)} Out;",
        f"typedef {row.functor}<{accumulator}, In, Out> Op;",
    ]
    body = {
        "per_thread": "(Out *out, int64 *where, const In *in, const ReduceShape shape) "
        "{ FLAMBEAU_GRID_WAIT(); reduce_per_thread<Op>(out, where, in, shape); }",
        "per_block": "(Out *out, int64 *where, const In *in, const ReduceShape shape, "
        "Op::State *partial) "
        "{ FLAMBEAU_GRID_WAIT(); reduce_per_block<Op>(out, where, in, shape, partial); }",
        "partials": "(Out *out, int64 *where, const Op::State *partial, int64 slices, int64 count) "
        "{ FLAMBEAU_GRID_WAIT(); reduce_partials<Op>(out, where, partial, slices, count); }",
    }[variant]
    return "\n".join([*lines, f"FLAMBEAU_KERNEL({THREADS}) kernel{body}", ""])


def _layouts(input: Tensor, dims: Sequence[int]) -> tuple[bytes, bytes, bool]:
    """Layouts of the kept and of the reduced dimensions; whether the innermost one is kept."""
    sizes, strides = list(input.shape), list(input.stride())
    kept = [d for d in range(input.ndim) if d not in dims]
    innermost = min(
        (d for d in range(input.ndim) if sizes[d] > 1), key=lambda d: strides[d], default=None
    )
    return (
        pack_layout([sizes[d] for d in kept], [strides[d] for d in kept]),
        pack_layout([sizes[d] for d in dims], [strides[d] for d in dims]),
        innermost is not None and innermost not in dims,
    )


def _slices(outputs: int, count: int) -> int:
    """Into how many blocks each output's elements are cut."""
    if count <= 2 * _SLICE or outputs >= _BLOCKS // 2:
        return 1
    return max(1, min(count // _SLICE, _BLOCKS // outputs))


def _reduce_cuda(
    row: Reduction,
    input: Tensor,
    dims: Sequence[int],
    out: Tensor | None,
    where: Tensor | None,
    out_code: int,
) -> None:
    outputs = (out if out is not None else where).numel()  # type: ignore[union-attr]
    if outputs == 0:
        return
    count = 1
    for d in dims:
        count *= input.shape[d]
    if input.ndim > 8 and len(merged_dims(input.shape, input.stride())[0]) > 8:
        input = input.contiguous()
    kept, reduced, column = _layouts(input, dims)
    device, in_code = input.device.index, input.dtype.code
    targets = (0 if out is None else out, 0 if where is None else where)
    if count <= _FEW or (column and outputs >= _BLOCKS):
        shape = kept + reduced + struct.pack("<3q", outputs, count, 1)
        made = kernel(_source(row, in_code, out_code, "per_thread"), "kernel", "PPPB", device)
        grid = (outputs + THREADS - 1) // THREADS
        made(device, (grid, 1, 1), (THREADS, 1, 1), 0, *targets, input, shape)
        return
    slices = _slices(outputs, count)
    shape = kept + reduced + struct.pack("<3q", outputs, count, slices)
    # A state is at most three words.
    partial = new_like(input, (3 * outputs * slices,), _dtype.dtype_from_code(INT64)) if slices > 1 else 0
    made = kernel(_source(row, in_code, out_code, "per_block"), "kernel", "PPPBP", device)
    made(device, (outputs * slices, 1, 1), (THREADS, 1, 1), 0, *targets, input, shape, partial)
    if slices > 1:
        made = kernel(_source(row, in_code, out_code, "partials"), "kernel", "PPPqq", device)
        made(device, (outputs, 1, 1), (THREADS, 1, 1), 0, *targets, partial, slices, count)


def sum_code(input: Tensor) -> int:
    """The scalar type of a sum: int64 for bool and integers."""
    return INT64 if category_of(input.dtype.code) < 2 else input.dtype.code


def truth_code(input: Tensor) -> int:
    """The scalar type of ``all`` and ``any``: bool, but uint8 for uint8."""
    return input.dtype.code if input.dtype.name == "uint8" else BOOL


def moments_code(input: Tensor) -> int:
    """The scalar type that sums of squares are kept in."""
    return input.dtype.code if input.dtype.itemsize == 8 else FLOAT32
