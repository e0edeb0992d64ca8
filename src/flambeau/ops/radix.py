# SPDX-License-Identifier: Apache-2.0
"""Sorting long rows on the device, one byte of the keys a pass."""

from __future__ import annotations

import functools

from flambeau.ops.codegen import cuda_type
from flambeau.ops.common import THREADS, kernel, new_like
from flambeau.runtime import _dtype
from flambeau.runtime._tensor import Tensor, empty

__all__ = ["LEAST", "LEAST_OF_A_BLOCK", "MOST", "MOST_OF_A_BLOCK", "sort_row", "sort_rows"]

LEAST, MOST = 1 << 13, 1 << 30  # lengths of rows that `sort_row` is for
LEAST_OF_A_BLOCK, MOST_OF_A_BLOCK = 257, 4096  # and those that `sort_rows` is for
_RADIX = 256  # RADIX of radix.cuh
_COUNTING_BLOCKS = 1056
_BLOCKS = 3  # that shall fit on a multiprocessor
_INT32, _INT64 = _dtype.dtypes["int32"], _dtype.dtypes["int64"]


@functools.cache
def _source(code: int, descending: bool) -> str:
    order = "true" if descending else "false"
    return f"""#include "radix.cuh"
typedef {cuda_type(code)} Key;
FLAMBEAU_KERNEL({THREADS}) count(uint32 *counts, const Key *in, int64 n) {{
  FLAMBEAU_GRID_WAIT();
  count_digits<Key, {order}>(counts, in, n);
}}
FLAMBEAU_KERNEL({THREADS}) starts(uint32 *counts) {{
  FLAMBEAU_GRID_WAIT();
  digit_starts(counts);
}}
FLAMBEAU_KERNEL_BLOCKS({THREADS}, {_BLOCKS})
pass(Key *keys_out, int32 *positions_out, int64 *indices, const Key *in, const int32 *positions,
     int64 n, int32 pass, const uint32 *starts, uint32 *counter, uint32 *published) {{
  FLAMBEAU_GRID_WAIT();
  radix_pass<Key, {order}>(keys_out, positions_out, indices, in, positions, n, pass, starts,
                           counter, published);
}}
"""


@functools.cache
def _rows_source(code: int, descending: bool, items: int) -> str:
    order = "true" if descending else "false"
    return f"""#include "radix.cuh"
typedef {cuda_type(code)} Key;
FLAMBEAU_KERNEL_BLOCKS({THREADS}, {_BLOCKS})
rows(Key *keys_out, int64 *indices, const Key *in, int32 n) {{
  FLAMBEAU_GRID_WAIT();
  radix_row<Key, {order}, {items}>(keys_out, indices, in, n);
}}
"""


def sort_rows(rows: Tensor, descending: bool, keys: Tensor, indices: Tensor) -> None:
    """Sort rows of at most `MOST_OF_A_BLOCK` elements, each by a block; otherwise as `sort_row`."""
    n = rows.shape[-1]
    items = 4 if n <= 4 * THREADS else 16
    source, device = _rows_source(rows.dtype.code, descending, items), rows.get_device()
    made = kernel(source, "rows", "PPRi", device)
    grid = (rows.numel() // n, 1, 1)
    made(device, grid, (THREADS, 1, 1), 0, keys, indices, rows, n)


def sort_row(
    row: Tensor, descending: bool, keys: Tensor, indices: Tensor, bits: int | None = None
) -> None:
    """Sort a contiguous CUDA vector of `LEAST` to `MOST` elements.

    Parameters
    ----------
    row
        The elements; left as they are.
    descending
        Whether the greatest come first; the order of equal ones is kept either way.
    keys, indices
        Where the sorted elements and their int64 positions go.
    bits
        How many low bits tell the elements apart; all of them by default.
    """
    n, device, itemsize = row.numel(), row.get_device(), row.dtype.itemsize
    passes = itemsize if bits is None else -(-bits // 8)
    source = _source(row.dtype.code, descending)
    tiles = -(-n // (THREADS * (12 if itemsize == 8 else 20)))  # radix_items of radix.cuh
    head = itemsize * (_RADIX + 1)  # digits of all bytes are counted
    state = empty((head + passes * _RADIX * tiles,), dtype=_INT32, device=row.device).zero_()
    counts, counters, published = state[:head], state[itemsize * _RADIX :], state[head:]
    grid, block = (min(tiles, _COUNTING_BLOCKS), 1, 1), (THREADS, 1, 1)
    kernel(source, "count", "PRq", device)(device, grid, block, 0, counts, row, n)
    kernel(source, "starts", "P", device)(device, (passes, 1, 1), block, 0, counts)
    move = kernel(source, "pass", "PPPRRqiRPP", device)
    nothing = empty((0,), dtype=_INT32, device=row.device)
    # Results alternate so that the last pass ends in `keys`.
    spare = new_like(row, row.shape) if passes > 1 else keys
    places = [new_like(row, row.shape, _INT32) for _ in range(min(2, passes - 1))]
    source_keys, source_positions = row, nothing
    for number in range(passes):
        last = number == passes - 1
        target = keys if (passes - number) % 2 else spare
        positions = nothing if last else places[number % len(places)]
        move(
            device, (tiles, 1, 1), block, 0,
            target, positions, indices if last else nothing, source_keys, source_positions, n,
            number, counts, counters[number:], published[number * tiles * _RADIX :],
        )  # fmt: skip
        source_keys, source_positions = target, positions
