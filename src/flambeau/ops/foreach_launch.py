# SPDX-License-Identifier: Apache-2.0
"""Launches over lists of tensors: one kernel for as many of them as its parameters hold."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flambeau.ops.codegen import arithmetic_type, cuda_type
from flambeau.ops.common import kernel, new_like
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flambeau.runtime._tensor import Tensor

__all__ = ["Program", "launch", "launch_norms", "same_kind"]

THREADS, CHUNK = 256, 4096  # as in foreach.cuh
_TABLE_BYTES = 3800  # of the 4,096 that a kernel takes
_MOST_TENSORS = 64
NORMS = {1.0: "AbsoluteSum", 2.0: "SquareSum", float("inf"): "GreatestAbsolute"}


@dataclass(frozen=True, slots=True)
class Program:
    """What one kernel does to the elements of groups of tensors.

    Parameters
    ----------
    body
        C++ statements on ``x[0]``, ``x[1]``, … of type ``A``.
    operands
        How many tensors of one size a group has.
    reads, writes
        Bits of the operands that are loaded and stored.
    setup
        Statements before, once per chunk, where ``t`` is the group: ``table.at[operands + k][t]``
        is address k and ``table.numbers[k][t]`` number k of the group.
    addresses, numbers
        How many of these a group has.
    parameters
        C++ declarations of what all groups share, with commas between.
    signature
        Its letters, as `Kernel` takes them.
    """

    body: str
    operands: int
    reads: int
    writes: int
    setup: str = ""
    addresses: int = 0
    numbers: int = 0
    parameters: str = ""
    signature: str = ""


def same_kind(*lists: Sequence[Tensor]) -> bool:
    """Whether the tensors can be done by one kernel.

    They must be on one CUDA device and of one floating-point dtype, and those of a group have the
    same sizes and strides and no gaps.
    """
    first = lists[0][0]
    device, of = first.get_device(), first.dtype
    if device < 0 or of.category != 2:
        return False
    for group in zip(*lists, strict=True):
        leading = group[0]
        if leading.get_device() != device or leading.dtype != of:
            return False
        contiguous = leading.is_contiguous()
        if not contiguous and not _dense(leading):
            return False
        for other in group[1:]:
            if other.get_device() != device or other.dtype != of or other.shape != leading.shape:
                return False
            if other.stride() != leading.stride() and not (contiguous and other.is_contiguous()):
                return False
    return True


def _dense(tensor: Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in any order."""
    step = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


@functools.cache
def _capacity(pointers: int, numbers: int) -> int:
    return min(_MOST_TENSORS, _TABLE_BYTES // (8 * pointers + 8 * max(1, numbers) + 12))


@functools.cache
def _source(program: Program, code: int, capacity: int) -> str:
    table = f"TensorTable<{capacity}, {program.operands}, {program.addresses}, {program.numbers}>"
    parameters = f", {program.parameters}" if program.parameters else ""
    return f"""#include "foreach.cuh"
typedef {cuda_type(code)} T;
typedef {arithmetic_type(code)} A;
FLAMBEAU_KERNEL({THREADS}) chunks(const {table} table{parameters}) {{
  FLAMBEAU_GRID_WAIT();
  for_each_chunk<T, {program.reads}, {program.writes}>(table, [&](int t) {{
    {program.setup}
    return [=](A (&x)[{program.operands}]) {{ {program.body} }};
  }});
}}
"""


def _tables(
    capacity: int,
    lists: Sequence[Sequence[Tensor]],
    addresses: Sequence[Sequence[int]],
    numbers: Sequence[Sequence[float]],
) -> Iterator[tuple[bytes, int, int]]:
    """Tables of at most `capacity` groups that are not empty, with their tensors and blocks."""
    sizes = [tensor.numel() for tensor in lists[0]]
    present = [k for k, size in enumerate(sizes) if size]
    blocks_before = tensors_before = 0
    for begin in range(0, len(present), capacity):
        chosen = present[begin : begin + capacity]
        pad = capacity - len(chosen)
        pointers: list[int] = []
        for tensors in lists:
            pointers += [*(tensors[k].data_ptr() for k in chosen), *[0] * pad]
        for given in addresses:
            pointers += [*(given[k] for k in chosen), *[0] * pad]
        values: list[float] = []
        for numbers_of in numbers or [[0.0] * len(sizes)]:
            values += [*(numbers_of[k] for k in chosen), *[0.0] * pad]
        first, blocks = [], 0
        for k in chosen:
            first.append(blocks)
            blocks += -(-sizes[k] // CHUNK)
        yield struct.pack(
            f"<{len(pointers)}Q{len(values)}d{capacity}q{capacity}i4i{4 * (capacity % 2)}x",
            *pointers, *values, *(sizes[k] for k in chosen), *[0] * pad, *first, *[0] * pad,
            len(chosen), blocks, blocks_before, tensors_before,
        ), len(chosen), blocks  # fmt: skip
        blocks_before += blocks
        tensors_before += len(chosen)


def launch(
    program: Program,
    lists: Sequence[Sequence[Tensor]],
    *shared: object,
    addresses: Sequence[Sequence[int]] = (),
    numbers: Sequence[Sequence[float]] = (),
) -> None:
    """Run a program over lists of tensors for which `same_kind` holds.

    Parameters
    ----------
    program
        What to do.
    lists
        One list for each operand.
    shared
        Arguments for the program's parameters.
    addresses, numbers
        One list for each address and each number of a group.
    """
    leading = lists[0][0]
    device = leading.get_device()
    capacity = _capacity(program.operands + program.addresses, program.numbers)
    source = _source(program, leading.dtype.code, capacity)
    made = kernel(source, "chunks", "B" + program.signature, device)
    for table, _, blocks in _tables(capacity, lists, addresses, numbers):
        made(device, (blocks, 1, 1), (THREADS, 1, 1), 0, table, *shared)
    for k, tensors in enumerate(lists):
        if program.writes >> k & 1:
            for tensor in tensors:
                tensor._mark_written()


def launch_norms(tensors: Sequence[Tensor], order: float) -> Tensor:
    """Norms of tensors without empty ones, for which `same_kind` holds, as one vector."""
    leading = tensors[0]
    device, code = leading.get_device(), leading.dtype.code
    wide = _dtype.dtypes["float64" if leading.dtype.name == "float64" else "float32"]
    capacity = _capacity(1, 0)
    tables = list(_tables(capacity, [tensors], (), ()))
    partial = new_like(leading, (sum(blocks for _, _, blocks in tables),), wide)
    out = new_like(leading, (len(tensors),))
    source = f"""#include "foreach.cuh"
typedef {cuda_type(code)} T;
typedef {cuda_type(wide.code)} A;
FLAMBEAU_KERNEL({THREADS}) chunks(const TensorTable<{capacity}, 1, 0, 0> table, A *partial) {{
  FLAMBEAU_GRID_WAIT();
  norm_of_chunks<{NORMS[order]}, T>(partial, table);
}}
FLAMBEAU_KERNEL({THREADS}) tensors(
    const TensorTable<{capacity}, 1, 0, 0> table, T *out, const A *partial) {{
  FLAMBEAU_GRID_WAIT();
  norm_of_tensors<{NORMS[order]}>(out, partial, table);
}}
"""
    chunks, joined = (
        kernel(source, name, signature, device)
        for name, signature in (("chunks", "BP"), ("tensors", "BPR"))
    )
    for table, _, blocks in tables:
        chunks(device, (blocks, 1, 1), (THREADS, 1, 1), 0, table, partial)
    for table, count, _ in tables:
        joined(device, (count, 1, 1), (THREADS, 1, 1), 0, table, out, partial)
    return out
