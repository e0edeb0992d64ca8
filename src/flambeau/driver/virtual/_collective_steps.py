# SPDX-License-Identifier: Apache-2.0
"""What a collective computes, how it goes round the ring, and how long that takes."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = [
    "DATA_TYPES",
    "KINDS",
    "OPERATIONS",
    "Call",
    "Fault",
    "bytes_over_link",
    "compute",
    "device_memory",
    "duration",
]

KINDS = ("AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter")
OPERATIONS = ("Sum", "Prod", "Max", "Min", "Avg")
DATA_TYPES: tuple[np.dtype[Any], ...] = tuple(
    np.dtype(kind)
    for kind in (
        np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32,
        np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
    )
)  # fmt: skip
"""By NCCL's numbers (``ncclDataType_t``)."""

START_NS = 4000.0
"""What a collective takes at least."""
HOP_NS = 1000.0
"""From one rank to the next, beside the time on the link."""


class Fault(Exception):  # noqa: N818 - the device's, for which it is the reason
    """A collective failed; `status` is what the device's context is lost with."""

    def __init__(self, text: str, trouble: tuple[int, int] = (0, 0)) -> None:
        super().__init__(text)
        self.status = 702 if trouble[0] == 3 else 719  # a launch that timed out, or failed
        self.text = text

    def __str__(self) -> str:
        return self.text


class Call(NamedTuple):
    """One rank's part of a collective, as the machine keeps it."""

    kind: int
    dtype: int
    op: int
    root: int
    send: int
    receive: int
    elements: int
    send_bytes: int
    receive_bytes: int

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return DATA_TYPES[self.dtype].itemsize


def device_memory(address: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Device memory as a flat array."""
    if count == 0:
        return np.empty(0, dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    found: NDArray[Any] = np.frombuffer(memoryview(memory), dtype)
    return found


# -- what is computed ------------------------------------------------------------------------------

_COMBINE: tuple[Callable[..., Any], ...] = (
    np.add,
    np.multiply,
    np.fmax,
    np.fmin,
    np.add,
)


def compute(call: Call, rank: int, staged: Sequence[NDArray[Any]], ranks: int) -> None:
    """Write what a rank receives; `staged` holds the ranks' inputs as bytes."""
    dtype = DATA_TYPES[call.dtype]
    inputs = [part.view(dtype) for part in staged]
    kind = KINDS[call.kind]
    out = device_memory(call.receive, call.receive_bytes // dtype.itemsize, dtype)
    if kind == "Broadcast":
        out[:] = inputs[call.root]
    elif kind == "AllGather":
        for i, part in enumerate(inputs):
            out[i * call.elements : (i + 1) * call.elements] = part
    elif kind == "ReduceScatter":
        own = slice(rank * call.elements, (rank + 1) * call.elements)
        out[:] = _combine([part[own] for part in inputs], rank, call.op)
    elif kind == "AllReduce" or rank == call.root:
        for i in range(ranks):
            chunk = _chunk(call.elements, i, ranks)
            out[chunk] = _combine([values[chunk] for values in inputs], i, call.op)


def _chunk(count: int, which: int, ranks: int) -> slice:
    """The elements that end their way round the ring at a rank."""
    return slice(which * count // ranks, (which + 1) * count // ranks)


def _combine(parts: Sequence[NDArray[Any]], last: int, op: int) -> NDArray[Any]:
    """Combine in the order of the ring, each step rounded to the type; the last is rank `last`."""
    ranks = len(parts)
    order = [parts[(last + 1 + i) % ranks] for i in range(ranks)]
    integers = parts[0].dtype.kind in "iu"
    with np.errstate(all="ignore"):
        if op == 4 and not integers:  # an average scales first, so that sums do not overflow
            factor = parts[0].dtype.type(1 / ranks)
            order = [part * factor for part in order]
        total = order[0].copy()
        for part in order[1:]:
            total = _COMBINE[op](total, part).astype(total.dtype, copy=False)
        if op == 4 and integers:
            total = _divide_towards_zero(total, ranks)
    return total


def _divide_towards_zero(values: NDArray[Any], divisor: int) -> NDArray[Any]:
    quotient = values // values.dtype.type(divisor)
    inexact = quotient * values.dtype.type(divisor) != values
    rounded: NDArray[Any] = (quotient + (inexact & (values < 0))).astype(values.dtype)
    return rounded


# -- how it travels --------------------------------------------------------------------------------


def bytes_over_link(call: Call, rank: int, ranks: int) -> int:
    """What a rank sends to the next in the ring."""
    kind, item = KINDS[call.kind], call.item
    after = (rank + 1) % ranks
    if ranks == 1:
        return 0
    if kind == "AllReduce":  # round once to add up, once more to tell all
        kept = [_chunk(call.elements, i, ranks) for i in (rank, after)]
        return item * (2 * call.elements - sum(int(part.stop - part.start) for part in kept))
    if kind in {"AllGather", "ReduceScatter"}:
        return item * call.elements * (ranks - 1)
    end = call.root if kind == "Reduce" else (call.root - 1) % ranks
    return 0 if rank == end else item * call.elements


def duration(call: Call, ranks: int, bandwidth: float) -> float:
    """Nanoseconds from the arrival of the last rank to the end."""
    hops = (ranks - 1) * (2 if KINDS[call.kind] == "AllReduce" else 1)
    busiest = max(bytes_over_link(call, rank, ranks) for rank in range(ranks))
    return START_NS + hops * HOP_NS + busiest / bandwidth * 1e9
