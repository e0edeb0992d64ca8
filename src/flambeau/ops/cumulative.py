# SPDX-License-Identifier: Apache-2.0
"""Scans: sums, products and extremes of everything up to an element."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from flambeau.ops import return_types
from flambeau.ops.codegen import cuda_type, includes
from flambeau.ops.common import THREADS, kernel, new_like, store_out, wrap_dim
from flambeau.ops.promotion import category_of, get_default_dtype
from flambeau.ops.reductions import sum_code
from flambeau.ops.registry import inplace_method, public
from flambeau.runtime import _dtype
from flambeau.runtime._tensor import Tensor, empty

if TYPE_CHECKING:
    from flambeau.runtime._dtype import dtype

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"]

_INT64, _FLOAT32 = _dtype.dtypes["int64"], _dtype.dtypes["float32"]
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
_BLOCKS = 5  # of a long row that shall fit on a multiprocessor
_GROUP = 256  # SCAN_GROUP of scan.cuh
_AHEAD = 600  # tiles added up before they are scanned: nearly as many as run at once, 10 MB
_SHORT_ROW = 512  # which a warp does


def _accumulator_code(operation: str, out_code: int) -> int:
    """The scalar type that results are kept in on the way."""
    if category_of(out_code) < 2 and operation in {"cumsum", "cumprod"}:
        return _INT64.code
    of = _dtype.dtype_from_code(out_code)
    return (_FLOAT32 if of.category == 2 and of.itemsize < 4 else of).code


@functools.cache
def _scan_source(operation: str, in_code: int, out_code: int, variant: str) -> str:
    accumulator = cuda_type(_accumulator_code(operation, out_code))
    parameters, call = {
        "warps": ("int64 n, int64 rows", "scan_rows<Op, 32>(out, where, in, n, rows)"),
        "blocks": ("int64 n, int64 rows", "scan_rows<Op, SCAN_THREADS>(out, where, in, n, rows)"),
        "single": (
            "int64 n, uint32 tiles, uint32 all_tiles, uint32 ahead, uint32 *counter, uint64 *words",
            "scan_single<Op>(out, where, in, n, tiles, all_tiles, ahead, counter, words)",
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


def _state_bytes(operation: str, out_code: int) -> int:
    """Bytes of an operation's state in scan.cuh."""
    if operation in {"cummax", "cummin"}:
        return 16
    return _dtype.dtype_from_code(_accumulator_code(operation, out_code)).itemsize


def _scan_single(
    name: str, source: str, out: Tensor, where: Tensor, rows: Tensor, n: int, lines: int
) -> None:
    """Scan long rows with blocks that look back at each other's tiles."""
    device, state_bytes = rows.get_device(), _state_bytes(name, out.dtype.code)
    tiles = -(-n // (THREADS * min(16, 64 // state_bytes)))
    places = tiles + tiles // _GROUP + 1  # of a row
    words = empty((1 + lines * places * state_bytes // 4,), dtype=_INT64, device=rows.device)
    words.zero_()
    made = kernel(source, "scan", "PPRqiiiPP", device)
    ahead = min(tiles * lines, _AHEAD)
    grid = (tiles * lines + ahead, 1, 1)
    made(
        device, grid, (THREADS, 1, 1), 0,
        out, where, rows, n, tiles, tiles * lines, ahead, words[:1], words[1:],
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
    if n >= _LONG_ROW and lines < _FEW_ROWS:
        source = _scan_source(name, *codes, "single")
        _scan_single(name, source, out, positions, input, n, lines)
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
