# SPDX-License-Identifier: Apache-2.0
"""What a thread of a kernel costs, estimated from its text, for the machine's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx.syntax import Instruction, Vector

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.cfg import Graph

__all__ = ["estimate"]

LOOP_WEIGHT = 4  # turns that a loop is taken to make, where nothing is known
DEEPEST = 3  # loops inside each other that are told apart
_BITS = {"pred": 1, "f16x2": 32, "bf16x2": 32, "bf16": 16}
_FREE = frozenset({"mov", "cvta", "ret", "bra", "exit"})


def access_bytes(instruction: Instruction) -> int:
    """The bytes of global memory that an instruction touches."""
    if instruction.opcode not in {"ld", "st", "atom", "red"}:
        return 0
    others = {"shared", "local", "param", "const", "shared::cta"}
    if not others.isdisjoint(instruction.modifiers):
        return 0
    kind = instruction.type
    bits = _BITS.get(kind) or int(kind.lstrip("abcdefghijklmnopqrstuvwxyz") or 32)
    vectors = [o for o in instruction.operands if isinstance(o, Vector)]
    count = len(vectors[0].items) if vectors else 1
    return bits // 8 * count


def estimate(graph: Graph) -> tuple[float, float]:
    """Bytes of global memory and operations per thread.

    Parameters
    ----------
    graph
        The kernel's control flow. Blocks count once for each way through, loop bodies a few times.

    Returns
    -------
    tuple of float
        Bytes and operations.
    """
    total_bytes = operations = 0.0
    for block in graph.blocks:
        weight = LOOP_WEIGHT ** min(graph.depth(block.index), DEEPEST)
        for instruction in block.instructions:
            total_bytes += weight * access_bytes(instruction)
            operations += weight * (instruction.opcode not in _FREE)
    return total_bytes, max(operations, 1.0)
