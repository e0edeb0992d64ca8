# SPDX-License-Identifier: Apache-2.0
"""Triangles of matrices: one pass that does not read what it leaves out."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from flambeau.ops.common import THREADS, kernel, launch_linear, new_like
from flambeau.ops.rows import is_aligned

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = ["triangle"]

_WORDS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "Vector<uint64, 2>"}
_PACK_BYTES = 16
_INDEX_LIMIT = 2**31 - 1


@functools.cache
def _source(item: int, width: int, index: str) -> str:
    word = _WORDS[item]
    return f"""#include "triangle.cuh"
FLAMBEAU_KERNEL({THREADS}) triangle_of({word} *out, const {word} *in, int64 count, int64 rows,
                                       int64 columns, int64 diagonal, int32 lower) {{
  FLAMBEAU_GRID_WAIT();
  triangle<{word}, {width}, {index}>(out, in, count, rows, columns, diagonal, lower);
}}
"""


def triangle(input: Tensor, diagonal: int, lower: bool, out: Tensor | None = None) -> Tensor:
    """Copy the lower or upper triangles of CUDA matrices; the rest is 0.

    Parameters
    ----------
    input
        (*, rows, columns). Where the columns lie together in memory, as in a transpose, they do so
        in the result too.
    diagonal
        The last one that is kept, counted from the main diagonal upwards.
    lower
        Which triangle.
    out
        A contiguous tensor of this shape for the result, such as a contiguous `input` itself.
    """
    if not input.is_contiguous():
        if out is None and input.stride(-2) == 1 != input.stride(-1):
            return triangle(input.mT, -diagonal, not lower).mT
        input = input.contiguous()
    made = new_like(input, input.shape) if out is None else out
    rows, columns = input.shape[-2:]
    count = input.numel()
    item = input.dtype.itemsize
    fits = columns % max(1, _PACK_BYTES // item) == 0 and is_aligned(input, made)
    width = max(1, _PACK_BYTES // item) if fits else 1
    index = "uint32" if count + _PACK_BYTES * THREADS <= _INDEX_LIMIT else "int64"
    device = input.get_device()
    compiled = kernel(_source(item, width, index), "triangle_of", "PRqqqqi", device)
    reach = rows + columns  # a diagonal further out keeps as much
    offset = max(-reach, min(reach, diagonal))
    arguments = (made, input, count, rows, columns, offset, int(lower))
    launch_linear(compiled, device, -(-count // width), *arguments)
    if out is not None:
        out._mark_written()
    return made
