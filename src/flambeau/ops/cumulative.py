# SPDX-License-Identifier: Apache-2.0
"""Scans: sums, products and extremes of everything up to an element."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from flambeau.ops import determinism, return_types
from flambeau.ops.codegen import arithmetic_type, cuda_type, includes
from flambeau.ops.common import THREADS, kernel, new_like, store_out, wrap_dim
from flambeau.ops.promotion import category_of, get_default_dtype
from flambeau.ops.reductions import sum_code
from flambeau.ops.registry import inplace_method, public
from flambeau.runtime import _dtype
from flambeau.runtime._tensor import Tensor, empty

if TYPE_CHECKING:
    from flambeau.runtime._dtype import dtype

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"]

_INT64, _UINT8, _INT32 = (_dtype.dtypes[name] for name in ("int64", "uint8", "int32"))
_FUNCTORS = {
    "cumsum": "CumulativeSum",
    "cumprod": "CumulativeProduct",
    "logcumsumexp": "CumulativeLogSum",
    "cummax": "CumulativeMax",
    "cummin": "CumulativeMin",
}
_FEW_ROWS = 256  # fewer long ones do not fill a device, unless each is shared by blocks
_LONG_ROW = 1 << 15
_FEW_COLUMNS = 1 << 13
_BLOCKS = 3  # of a long row that shall fit on a multiprocessor
_SHORT_ROW = 512  # which a warp does


@functools.cache
def _scan_source(operation: str, in_code: int, out_code: int, variant: str) -> str:
    accumulator = (
        "int64"
        if category_of(out_code) < 2 and operation[3:] in {"sum", "prod"}
        else (arithmetic_type(out_code))
    )
    parameters, call = {
        "warps": ("int64 n, int64 rows", "scan_rows<Op, 32>(out, where, in, n, rows)"),
        "blocks": ("int64 n, int64 rows", "scan_rows<Op, SCAN_THREADS>(out, where, in, n, rows)"),
        "single": (
            "int64 n, uint32 *counter, uint32 *flags, Op::State *totals, Op::State *prefixes",
            "scan_single<Op>(out, where, in, n, counter, flags, totals, prefixes)",
        ),
        "columns": (
            "int64 n, int64 inner, int64 columns",
            "scan_columns<Op>(out, where, in, n, inner, columns)",
        ),
    }[variant]
    head = f"FLAMBEAU_KERNEL({THREADS})"
    if variant == "single":
        head = f"FLAMBEAU_KERNEL_BLOCKS({THREADS}, {_BLOCKS})"
    return f"""{includes("scan.cuh", in_code, out_code)}
typedef {cuda_type(in_code)} In;
typedef {cuda_type(out_code)} Out;
typedef {_FUNCTORS[operation]}<{accumulator}, In, Out> Op;
{head} scan(Out *out, int64 *where, const In *in, {parameters}) {{
  FLAMBEAU_GRID_WAIT();
  {call};
}}
"""


def _scan_single(source: str, out: Tensor, where: Tensor, row: Tensor, positions: bool) -> None:
    """Scan one long row with blocks that look back at each other's tiles."""
    device, n = row.get_device(), row.numel()
    widest = max(out.dtype.itemsize, row.dtype.itemsize)
    items = 8 if positions else min(32, 128 // widest)  # of a thread, as in scan_single
    tiles = -(-n // (THREADS * items))
    words = empty((tiles + 1,), dtype=_INT32, device=row.device).zero_()
    state_bytes = 16 if positions else max(8, out.dtype.itemsize)
    states = empty((2, tiles * state_bytes), dtype=_UINT8, device=row.device).zero_()
    made = kernel(source, "scan", "PPRqPPPP", device)
    made(
        device, (tiles, 1, 1), (THREADS, 1, 1), 0,
        out, where, row, n, words[:1], words[1:], states[0], states[1],
    )  # fmt: skip


def _scan_device(name: str, input: Tensor, dim: int, out: Tensor, where: Tensor | None) -> None:
    """Scan a contiguous CUDA tensor into contiguous results."""
    device = input.get_device()
    n = input.shape[dim] if input.ndim else 1
    inner = 1
    for size in input.shape[dim + 1 :]:
        inner *= size
    lines = input.numel() // n
    positions = out if where is None else where
    codes = input.dtype.code, out.dtype.code
    if inner > 1:
        source = _scan_source(name, *codes, "columns")
        made = kernel(source, "scan", "PPRqqq", device)
        threads = 64 if lines < _FEW_COLUMNS else THREADS
        grid = (-(-lines // threads), 1, 1)
        made(device, grid, (threads, 1, 1), 0, out, positions, input, n, inner, lines)
        return
    if n >= _LONG_ROW and lines < _FEW_ROWS and not determinism.fixed_order_wanted(out.dtype):
        source = _scan_source(name, *codes, "single")
        for k in range(lines):
            row, places, values = (t.reshape(lines, n)[k] for t in (out, positions, input))
            _scan_single(source, row, places, values, where is not None)
        return
    variant = "warps" if n <= _SHORT_ROW else "blocks"
    made = kernel(_scan_source(name, *codes, variant), "scan", "PPRqq", device)
    grid = (-(-lines // 8) if variant == "warps" else lines, 1, 1)
    made(device, grid, (THREADS, 1, 1), 0, out, positions, input, n, lines)


def _scan(
    name: str, input: Tensor, dim: int, of: dtype, positions: bool = False
) -> tuple[Tensor, Tensor | None]:
    dim = wrap_dim(dim, input.ndim)
    out = new_like(input, input.shape, of)
    where = new_like(input, input.shape, _INT64) if positions else None
    if input.numel() == 0:
        return out, where
    if input.device.type == "cpu":
        from flambeau.ops import host_reductions

        host_reductions.scan(name, input, dim, out, where)
        return out, where
    lines = input.numel() // (input.shape[dim] if input.ndim else 1)
    inner = 1 if dim >= input.ndim - 1 else lines
    if inner > 1 and lines < 1024 and input.shape[dim] >= 4096:
        # Too few columns to fill a device: as rows, of a transposed copy.
        rows, found = _scan(name, input.movedim(dim, -1).contiguous(), -1, of, positions)
        out.copy_(rows.movedim(-1, dim))
        return out, None if found is None else found.movedim(-1, dim).contiguous()
    _scan_device(name, input.contiguous(), dim, out, where)
    return out, where


@public()
def cumsum(
    input: Tensor, dim: int, *, dtype: dtype | None = None, out: Tensor | None = None
) -> Tensor:
    """Add up along a dimension, keeping every partial sum.

    Parameters
    ----------
    input
        A tensor.
    dim
        The dimension.
    dtype
        Convert to this dtype first; by default integers and bool are added up as int64.
    out
        Where to store the result.
    """
    of = dtype or _dtype.dtype_from_code(sum_code(input))
    return store_out(_scan("cumsum", input, dim, of)[0], out)


@public()
def cumprod(
    input: Tensor, dim: int, *, dtype: dtype | None = None, out: Tensor | None = None
) -> Tensor:
    """Multiply along a dimension, keeping every partial product; parameters as for `cumsum`."""
    of = dtype or _dtype.dtype_from_code(sum_code(input))
    return store_out(_scan("cumprod", input, dim, of)[0], out)


@public()
def logcumsumexp(input: Tensor, dim: int, *, out: Tensor | None = None) -> Tensor:
    """Compute the logarithms of cumulative sums of exponentials, without overflow."""
    of = input.dtype if input.dtype.category >= 2 else get_default_dtype()
    if of.category == 3:
        raise NotImplementedError(
            '"logcumsumexp" not implemented for complex tensors; use x.exp().cumsum(dim).log()'
        )
    return store_out(_scan("logcumsumexp", input, dim, of)[0], out)


def _extreme(name: str, input: Tensor, dim: int, out: Any) -> Any:
    if input.dtype.category == 3:
        raise NotImplementedError(
            f"\"{name}_cuda\" not implemented for '{_dtype.legacy_type_name(input.dtype)}': it has "
            "no order"
        )
    pair: Any = _scan(name, input, dim, input.dtype, positions=True)
    if out is not None:
        pair = tuple(store_out(part, into) for part, into in zip(pair, out, strict=True))
    return getattr(return_types, name)(*pair)


@public()
def cummax(input: Tensor, dim: int, *, out: Any = None) -> return_types.cummax:
    """Find the largest element so far along a dimension, and where it is.

    Parameters
    ----------
    input
        A tensor.
    dim
        The dimension.
    out
        A pair of tensors to store values and indices in.

    Returns
    -------
    flambeau.return_types.cummax
        ``values`` and int64 ``indices``: the last of equal ones; NaN is the largest.
    """
    found: return_types.cummax = _extreme("cummax", input, dim, out)
    return found


@public()
def cummin(input: Tensor, dim: int, *, out: Any = None) -> return_types.cummin:
    """Find the smallest element so far along a dimension, and where it is; as `cummax`."""
    found: return_types.cummin = _extreme("cummin", input, dim, out)
    return found


def _cumsum_(self: Tensor, dim: int, *, dtype: dtype | None = None) -> Tensor:
    """Replace this tensor by its cumulative sums and return it."""
    return self.copy_(_scan("cumsum", self, dim, dtype or self.dtype)[0])


def _cumprod_(self: Tensor, dim: int, *, dtype: dtype | None = None) -> Tensor:
    """Replace this tensor by its cumulative products and return it."""
    return self.copy_(_scan("cumprod", self, dim, dtype or self.dtype)[0])


inplace_method("cumsum_", _cumsum_)
inplace_method("cumprod_", _cumprod_)
