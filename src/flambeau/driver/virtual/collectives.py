# SPDX-License-Identifier: Apache-2.0
"""NCCL's collectives between virtual GPUs: the same calls, rings, answers and failures.

A communicator's ranks may be threads or processes. Each lays its input out in memory that the
others can map (a step on its stream), waits until all have, and computes what it receives (the
second step), adding up in the order of a ring. The machine sees to the waiting, see
``meeting.hpp``; time comes from the links of the device model. What travels over each link is
counted: `link_traffic`.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from flambeau.driver.errors import CollectiveError
from flambeau.driver.virtual import _calls, _machine
from flambeau.driver.virtual._collective_steps import (
    DATA_TYPES,
    KINDS,
    OPERATIONS,
    Call,
    Fault,
    bytes_over_link,
    compute,
    duration,
)
from flambeau.driver.virtual._rendezvous import Rendezvous, Table, join, join_locally, new_unique_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

__all__ = ["VirtualCollectives", "VirtualCommunicator", "link_traffic", "run_step"]

VERSION = (2, 28, 9)
"""The NCCL release whose behaviour is shown."""

_numbers = itertools.count(1)
_live: dict[int, VirtualCommunicator] = {}
_traffic: Counter[tuple[int, int]] = Counter()
_traffic_lock = threading.Lock()


def link_traffic() -> dict[tuple[int, int], int]:
    """Bytes that collectives of this process have sent from GPU to GPU, by physical indices."""
    with _traffic_lock:
        return dict(_traffic)


class VirtualCollectives:
    """The collectives of one virtual machine.

    Parameters
    ----------
    peer_bandwidths
        Of each device's link, in bytes per second, by ordinal.
    physical
        Each device's index before ``CUDA_VISIBLE_DEVICES``, by ordinal.
    """

    def __init__(self, peer_bandwidths: Sequence[float], physical: Sequence[int]) -> None:
        self._bandwidths = tuple(peer_bandwidths)
        self._physical = tuple(physical)

    def version(self) -> tuple[int, int, int]:
        """Major, minor and patch."""
        return VERSION

    def unique_id(self) -> bytes:
        """128 fresh bytes that name a communicator."""
        return new_unique_id()

    def join(
        self, ranks: int, unique_id: bytes, rank: int, device: int, timeout: float
    ) -> VirtualCommunicator:
        """Become a rank; returns when all have."""
        place = join(ranks, unique_id, rank, self._physical[device], timeout)
        return self._make(place, rank, device, timeout)

    def join_all(self, devices: Sequence[int], timeout: float) -> list[VirtualCommunicator]:
        """All ranks of a communicator at once, one on each device."""
        place = join_locally([self._physical[device] for device in devices])
        return [self._make(place, i, device, timeout) for i, device in enumerate(devices)]

    def group(self) -> AbstractContextManager[None]:
        """What begins inside may begin together; here it always may."""
        return nullcontext()

    def _make(
        self, place: Rendezvous, rank: int, device: int, timeout: float
    ) -> VirtualCommunicator:
        return VirtualCommunicator(place, rank, device, timeout, self._bandwidths[device])


class VirtualCommunicator:
    """One rank of a communicator.

    Parameters
    ----------
    place
        Where the ranks meet.
    rank, device
        Its number among them, and its GPU.
    timeout
        Seconds that it waits for another rank.
    bandwidth
        Of its link, in bytes per second.
    """

    def __init__(
        self, place: Rendezvous, rank: int, device: int, timeout: float, bandwidth: float
    ) -> None:
        self._place = place
        self._bandwidth = bandwidth
        self._timeout = timeout
        self.rank = rank
        self.ranks = place.table.ranks
        self.device = device
        self.sent_bytes = 0
        self._streams: set[int] = set()
        self._number = next(_numbers)
        _live[self._number] = self

    # -- the collectives; addresses, counts of elements, NCCL's numbers for types and operations

    def all_reduce(
        self, send: int, receive: int, count: int, dtype: int, op: int, stream: int
    ) -> None:
        """``ncclAllReduce``."""
        self._submit("AllReduce", (send, receive), count, (1, 1), dtype, stream, op=op)

    def reduce(
        self, send: int, receive: int, count: int, dtype: int, op: int, root: int, stream: int
    ) -> None:
        """``ncclReduce``; only the root's `receive` counts."""
        taken = int(self.rank == root)
        self._submit("Reduce", (send, receive), count, (1, taken), dtype, stream, op=op, root=root)

    def broadcast(
        self, send: int, receive: int, count: int, dtype: int, root: int, stream: int
    ) -> None:
        """``ncclBroadcast``; only the root's `send` counts."""
        laid = int(self.rank == root)
        self._submit("Broadcast", (send, receive), count, (laid, 1), dtype, stream, root=root)

    def all_gather(self, send: int, receive: int, count: int, dtype: int, stream: int) -> None:
        """``ncclAllGather``; `count` elements are sent."""
        self._submit("AllGather", (send, receive), count, (1, self.ranks), dtype, stream)

    def reduce_scatter(
        self, send: int, receive: int, count: int, dtype: int, op: int, stream: int
    ) -> None:
        """``ncclReduceScatter``; `count` elements are received."""
        self._submit("ReduceScatter", (send, receive), count, (self.ranks, 1), dtype, stream, op=op)

    def _submit(
        self,
        kind: str,
        addresses: tuple[int, int],
        count: int,
        shares: tuple[int, int],
        dtype: int,
        stream: int,
        *,
        op: int = 0,
        root: int = 0,
    ) -> None:
        if self._number not in _live:
            raise CollectiveError(f"rank {self.rank} of this communicator was destroyed or aborted")
        if self.failure() is not None:
            raise CollectiveError(f"this communicator cannot be used any more: {self.failure()}")
        size = count * DATA_TYPES[dtype].itemsize
        self._streams.add(stream)
        _machine.join_meeting(
            stream,
            _kernel_name(kind, op),
            self._number,
            self._place.table.address,
            self.ranks,
            self.rank,
            self._timeout,
            KINDS.index(kind),
            dtype,
            op,
            root,
            *addresses,
            count,
            size * shares[0],
            size * shares[1],
        )

    # -- the life of a communicator

    def failure(self) -> str | None:
        """Why this communicator has failed, or None."""
        return self._place.table.failure()

    def abort(self) -> None:
        """Give up; ranks that wait for this one fail at once."""
        self._place.table.break_off(self.rank, "it was aborted")
        self._leave()

    def destroy(self) -> None:
        """Leave, when what was submitted is done."""
        if self._number in _live and self.failure() is None:
            self._finish()
        self._place.table.leave(self.rank)
        self._leave()

    def _finish(self) -> None:
        """Wait for the streams that were used; a captured one has nothing to wait for."""
        before = _calls.ctx_get_current()
        _calls.ctx_set_current(_calls.primary_ctx_retain(self.device))
        try:
            for stream in self._streams:
                if not _calls.stream_is_capturing(stream):
                    _calls.stream_synchronize(stream)
        finally:
            _calls.primary_ctx_release(self.device)
            _calls.ctx_set_current(before)

    def _leave(self) -> None:
        if _live.pop(self._number, None) is not None:
            self._place.leave(self.rank)

    # -- the two steps, on the machine's thread

    def run(self, step: int, start: int, trouble: tuple[int, int], call: Call) -> float:
        """Lay out (0) or take (1); how long the collective took, in nanoseconds, after step 1."""
        table = self._place.table
        try:
            if trouble[0]:
                raise Fault(table.explain(trouble, KINDS[call.kind], step, self._timeout), trouble)
            if step == 0:
                self._place.lay_out(self.rank, call, start, self._bandwidth)
                return 0.0
            return self._take(start, call, table)
        except Fault as fault:
            table.break_off(self.rank, str(fault))
            raise

    def _take(self, start: int, call: Call, table: Table) -> float:
        others = [table.description(i) for i in range(self.ranks)]
        table.check_agreement(self.rank, call, others)
        compute(call, self.rank, self._place.staged(call, others), self.ranks)
        sent = bytes_over_link(call, self.rank, self.ranks)
        self.sent_bytes += sent
        if sent:
            link = others[self.rank].device, others[(self.rank + 1) % self.ranks].device
            with _traffic_lock:
                _traffic[link] += sent
        bandwidth = min(other.bandwidth for other in others)
        end = max(start, *(other.start for other in others)) + duration(call, self.ranks, bandwidth)
        return end - start


def _kernel_name(kind: str, op: int) -> str:
    reduces = kind not in {"Broadcast", "AllGather"}
    return f"ncclDevKernel_{kind}{'_' + OPERATIONS[op] if reduces else ''}_RING"


def run_step(
    number: int, step: int, start: int, trouble: tuple[int, int], values: tuple[Any, ...]
) -> float:
    """Do one step of a collective, for the machine."""
    communicator = _live.get(number)
    call = Call(*values)
    if communicator is None:
        raise Fault(f"{KINDS[call.kind]} ran on a communicator that was destroyed or aborted")
    return communicator.run(step, start, trouble, call)
