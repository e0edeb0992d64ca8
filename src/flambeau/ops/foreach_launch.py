# SPDX-License-Identifier: Apache-2.0
"""Launches over lists of tensors: one kernel for as many of them as its parameters hold."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flambeau.ops.codegen import arithmetic_type, cuda_type
from flambeau.ops.common import kernel, new_like
from flambeau.runtime import _dtype, _tensor_lists

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """Whether the tensors can be done by one kernel: `_tensor_lists.same_kind`."""
    return _tensor_lists.same_kind(lists)


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
    for table, _, blocks in _tensor_lists.tables(capacity, CHUNK, lists, addresses, numbers):
        made(device, (blocks, 1, 1), (THREADS, 1, 1), 0, table, *shared)
    for k, tensors in enumerate(lists):
        if program.writes >> k & 1:
            _tensor_lists.mark_all_written(tensors)


def launch_norms(tensors: Sequence[Tensor], order: float) -> Tensor:
    """Norms of tensors without empty ones, for which `same_kind` holds, as one vector."""
    leading = tensors[0]
    device, code = leading.get_device(), leading.dtype.code
    wide = _dtype.dtypes["float64" if leading.dtype.name == "float64" else "float32"]
    capacity = _capacity(1, 0)
    tables = _tensor_lists.tables(capacity, CHUNK, [tensors], (), ())
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
