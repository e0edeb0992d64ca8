# SPDX-License-Identifier: Apache-2.0
"""Barriers that are objects in shared memory: ``mbarrier``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx.addressing import ATOMIC, checked_pointer, space_of
from flambeau.driver.virtual.ptx.lowering import Lowering, lowers

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.syntax import Instruction

__all__ = ["arrive_after_copies"]

_SPACES = "shared shared::cta"
_ORDERS = "relaxed acquire release cta cluster"
# The operations of the executor's helper.
_INIT, _ARRIVE, _DROP, _EXPECT, _COMPLETE, _LOAD = range(6)


def operate(f: Lowering, i: Instruction, address: int, operation: int, count: str) -> str:
    """Apply an operation to the barrier that an operand names; what it was before, as i64."""
    if space_of(i) not in {"shared", "generic"}:
        i.unsupported("barriers lie in shared memory")
    pointer = checked_pointer(f, i.operands[address], space_of(i), 8, ATOMIC, i)
    f.unit.declare("fl_mbarrier", "declare i64 {}(ptr, i32, i32) nounwind")
    return f.call("i64", "fl_mbarrier", f"ptr {pointer}", f"i32 {operation}", f"i32 {count}")


def arrive(f: Lowering, i: Instruction, address: int, count: str, operation: int = _ARRIVE) -> str:
    """Arrive at a barrier; its state before."""
    return operate(f, i, address, operation, count)


@lowers(
    "mbarrier",
    modifiers=f"init inval arrive arrive_drop test_wait try_wait parity pending_count noComplete "
    f"expect_tx complete_tx {_SPACES} {_ORDERS}",
    types="b64",
)
def mbarrier(f: Lowering, i: Instruction) -> None:
    """All forms of ``mbarrier``, by their first modifier."""
    what = i.modifiers[0]
    if what == "init":
        operate(f, i, 0, _INIT, f.read(i.operands[1], "i32"))
    elif what in {"expect_tx", "complete_tx"}:
        operation = _EXPECT if what == "expect_tx" else _COMPLETE
        operate(f, i, 0, operation, f.read(i.operands[1], "i32"))
    elif what in {"arrive", "arrive_drop"}:
        come(f, i)
    elif what in {"test_wait", "try_wait"}:
        wait(f, i)
    elif what == "pending_count":
        state = f.read(i.operands[1], "i64")
        f.write(i.operands[0], f.value(f"and i64 {state}, 1048575"), "i64")
    elif what != "inval":
        i.unsupported()


def come(f: Lowering, i: Instruction) -> None:
    """``mbarrier.arrive`` and ``arrive_drop``: the last to come opens the next phase."""
    count = f.read(i.operands[2], "i32") if len(i.operands) > 2 else "1"
    if "expect_tx" in i.modifiers:
        operate(f, i, 1, _EXPECT, count)
        count = "1"
    state = arrive(f, i, 1, count, _DROP if "arrive_drop" in i.modifiers else _ARRIVE)
    f.write(i.operands[0], state, "i64")


def wait(f: Lowering, i: Instruction) -> None:
    """``mbarrier.test_wait`` and ``try_wait``: whether a phase is over."""
    now = operate(f, i, 1, _LOAD, "0")
    phase = f.value(f"lshr i64 {now}, 61")
    if "parity" in i.modifiers:
        wanted = f.value(f"zext i32 {f.read(i.operands[2], 'i32')} to i64")
        phase = f.value(f"and i64 {phase}, 1")
    else:
        wanted = f.value(f"lshr i64 {f.read(i.operands[2], 'i64')}, 61")
    f.write(i.operands[0], f.value(f"icmp ne i64 {phase}, {wanted}"), "i1")


def arrive_after_copies(f: Lowering, i: Instruction) -> None:
    """``cp.async.mbarrier.arrive``: all copies are done when it runs, so that it comes at once.

    Without ``.noinc`` it also adds itself to those that the phase waits for, so nothing changes.
    """
    operation = _ARRIVE if "noinc" in i.modifiers else _LOAD
    operate(f, i, 0, operation, "1")
