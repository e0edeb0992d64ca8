# SPDX-License-Identifier: Apache-2.0
"""How many threads do a row, and how much of it each of them holds: launches of ``row.cuh``."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from flambeau.ops.codegen import cuda_type
from flambeau.ops.common import THREADS, kernel

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = ["RowPlan", "is_aligned", "launch_rows", "plan_rows", "row_source"]

WARP = 32
_MOST_HELD = 32  # elements in the registers of a thread
_MOST_THREADS = 1024
_PACK_BYTES = 16


class RowPlan(NamedTuple):
    """Template arguments of a kernel over rows.

    Parameters
    ----------
    width
        Neighbours per load.
    held
        Packs that a thread holds; 0 where a row does not fit and is read once per pass.
    threads
        Threads per row.
    """

    width: int
    held: int
    threads: int

    @property
    def block(self) -> int:
        """Threads per block: eight rows done by warps, or one row."""
        return THREADS if self.threads == WARP else self.threads

    def blocks(self, rows: int) -> int:
        """Blocks that do one row per group."""
        per_block = self.block // self.threads
        return -(-rows // per_block)


def _power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


@functools.cache
def plan_rows(
    n: int,
    itemsize: int,
    *,
    aligned: bool = True,
    shifted: bool = True,
    most_held: int = _MOST_HELD,
) -> RowPlan:
    """Choose how rows of `n` elements are done.

    Parameters
    ----------
    n
        Elements per row.
    itemsize
        Bytes of the widest element type that is loaded or stored.
    aligned
        Whether all operands begin at a multiple of 16 bytes.
    shifted
        Whether a row may begin between packs; not so where vectors of `n` elements go with it.
    most_held
        How many elements a thread may hold, for kernels that hold several rows.
    """
    whole = _PACK_BYTES // itemsize if aligned else 1
    width = whole if n % whole == 0 else 1
    packs = -(-n // width)
    each = max(1, 16 // width)  # packs of a thread before more threads share a row
    if packs <= WARP * max(each, 2):
        return RowPlan(width, _power_of_two(-(-packs // WARP)), WARP)
    threads = min(_MOST_THREADS, max(128, _power_of_two(-(-packs // each))))
    held = _power_of_two(-(-packs // threads))
    if held * width <= most_held:
        return RowPlan(width, held, threads)
    return RowPlan(whole if shifted else width, 0, _MOST_THREADS)


def is_aligned(*tensors: Tensor | None) -> bool:
    """Whether all tensors begin at a multiple of 16 bytes."""
    return not any(t is not None and t.data_ptr() % _PACK_BYTES for t in tensors)


@functools.cache
def row_source(
    header: str,
    function: str,
    flags: str,
    plan: RowPlan,
    parameters: str,
    arguments: str,
    **types: int,
) -> str:
    """The source of a kernel that calls a function of a header for each row."""
    lines = [f'#include "{header}"']
    lines += [f"typedef {cuda_type(code)} {name};" for name, code in types.items()]
    template = ", ".join(filter(None, (flags, f"{plan.width}, {plan.held}, {plan.threads}")))
    lines += [
        f"FLAMBEAU_KERNEL({plan.block}) rows({parameters}) {{",
        "  FLAMBEAU_GRID_WAIT();",
        f"  {function}<{template}>({arguments});",
        "}",
        "",
    ]
    return "\n".join(lines)


def launch_rows(
    source: str, signature: str, plan: RowPlan, device: int, blocks: int, *arguments: object
) -> None:
    """Launch a kernel of `row_source`; None stands for a null pointer."""
    made = kernel(source, "rows", signature, device)
    given = [0 if a is None else a for a in arguments]
    made(device, (blocks, 1, 1), (plan.block, 1, 1), 0, *given)
