# SPDX-License-Identifier: Apache-2.0
"""The engine of reductions: the table, the choice of kernel, and the host forms."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from flambeau.ops.codegen import arithmetic_type, cuda_type, includes
from flambeau.ops.common import THREADS, new_like, reduced_shape
from flambeau.ops.promotion import BOOL, FLOAT32, INT64, category_of
from flambeau.runtime import _dtype
from flambeau.runtime._reduce import ReductionOp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._tensor import Tensor

__all__ = ["ON_CUDA", "REDUCTIONS", "Reduction", "reduce"]


class Reduction(NamedTuple):
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
    "amax": Reduction("LargestValue", "np.max(a, axes)", wide=False),
    "amin": Reduction("SmallestValue", "np.min(a, axes)", wide=False),
    "max": Reduction("Largest", "np.max(a, axes)", wide=False, positions=True),
    "min": Reduction("Smallest", "np.min(a, axes)", wide=False, positions=True),
}


def reduce(
    name: str,
    input: Tensor,
    dims: Sequence[int] | None,
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
        Dimensions to reduce, in order, None for all; positions count row-major over them.
    keepdim
        Whether reduced dimensions stay with size 1.
    out_code
        Scalar type of the values.
    values, indices
        Which results are wanted; the other is None.
    """
    if input.is_cuda:
        return ON_CUDA[name](input, dims, keepdim, out_code, values=values, indices=indices)
    from flambeau.ops import host_reductions

    if dims is None:
        dims = range(input.ndim)
    shape = reduced_shape(input.shape, dims, keepdim)
    out = new_like(input, shape, _dtype.dtype_from_code(out_code)) if values else None
    where = new_like(input, shape, _dtype.dtype_from_code(INT64)) if indices else None
    host_reductions.reduce(REDUCTIONS[name], input, dims, out, where)
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
        includes("reduce.cuh", in_code, out_code),
        f"typedef {cuda_type(in_code)} In;",
        f"typedef {cuda_type(out_code)} Out;",
        f"typedef {row.functor}<{accumulator}, In, Out> Op;",
    ]
    body = {
        "partials": "(Out *out, int64 *where, const Op::State *partial, int64 slices, int64 count) "
        "{ FLAMBEAU_GRID_WAIT(); reduce_partials<Op>(out, where, partial, slices, count); }",
    }.get(
        variant,
        "(Out *out, int64 *where, const In *in, const ReduceShape shape, Op::State *partial) "
        f"{{ FLAMBEAU_GRID_WAIT(); reduce_{variant}<Op>(out, where, in, shape, partial); }}",
    )
    return "\n".join([*lines, f"FLAMBEAU_KERNEL({THREADS}) kernel{body}", ""])


def _compile(op: ReductionOp, device: int, in_code: int, out_code: int, variant: str) -> int:
    from flambeau.kernels.compile import get_function

    source = _source(REDUCTIONS[op.name], in_code, out_code, variant)
    return get_function(source, "kernel", device)


ON_CUDA = {
    name: ReductionOp(name, compile=_compile, positions=row.positions)
    for name, row in REDUCTIONS.items()
}


def sum_code(input: Tensor) -> int:
    """The scalar type of a sum: int64 for bool and integers."""
    of = input.dtype
    return INT64 if of.category < 2 else of.code


def truth_code(input: Tensor) -> int:
    """The scalar type of ``all`` and ``any``: bool, but uint8 for uint8."""
    return input.dtype.code if input.dtype.name == "uint8" else BOOL


def moments_code(input: Tensor) -> int:
    """The scalar type that sums of squares are kept in."""
    return input.dtype.code if input.dtype.itemsize == 8 else FLOAT32
