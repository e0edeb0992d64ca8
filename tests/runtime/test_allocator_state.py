# SPDX-License-Identifier: Apache-2.0
"""Any sequence of calls leaves the books of the allocator in balance."""

from __future__ import annotations

import gc

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from flambeau.driver import _table
from flambeau.driver.errors import AcceleratorError, OutOfMemoryError
from flambeau.runtime import (
    _allocator,
    _allocator_history,
    _allocator_pools,
    _allocator_settings,
    _cuda_device,
    _state,
    lazy_init,
)
from flambeau.runtime._stream import Stream, stream

from .conftest import Books

MIB = 1 << 20
LIMIT = 120 * MIB
SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(1, MIB),
    st.integers(MIB + 1, 12 * MIB),
    st.sampled_from([MIB, MIB + 1, 10 * MIB - 512, 10 * MIB, 21 * MIB, 40 * MIB]),
)


class Allocator(RuleBasedStateMachine):
    held = Bundle("held")
    streams: list[Stream]

    def __init__(self) -> None:
        super().__init__()
        lazy_init.lazy_init()
        self.before = _state.exchange_device(_state.count_devices() - 1)
        self.books = Books(_state.current_device())
        self.streams = [Stream() for _ in range(3)]
        self.live: dict[int, tuple[_allocator.Allocation, int]] = {}
        self.creation: list[int] = []  # addresses of segments, oldest first
        self.entered: list[tuple[int, int]] = []  # pools, outermost first
        self.pools = [_allocator_pools.new_user_id() for _ in range(2)]
        for pool in self.pools:
            _allocator_pools.retain_pool(self.books.device, pool)
        _allocator.set_memory_limit(self.books.device, LIMIT)

    def _handle(self, index: int) -> int:
        return 0 if index == 0 else self.streams[index - 1].cuda_stream

    def _keep(self, block: _allocator.Allocation, nbytes: int) -> int:
        start, end = block.address, block.address + nbytes
        for other, size in self.live.values():
            assert end <= other.address or other.address + size <= start, "memory handed out twice"
        self.live[start] = (block, nbytes)
        return start

    def _best_fit(self, nbytes: int, handle: int) -> int | None:
        """Where the allocation has to be; None if a pending block or the driver may decide."""
        size = max(512, -(-nbytes // 512) * 512)
        kind = "small" if size <= MIB else "large"
        segments = {s["address"]: s for s in self.books.segments}
        if any(s["is_expandable"] for s in segments.values()):
            return None  # a block counts with what it could grow into
        self.creation = [address for address in self.creation if address in segments]
        self.creation += [address for address in segments if address not in self.creation]
        if any(b["state"] == "active_pending_free" for b in self.books.blocks):
            return None
        pool = self.entered[-1] if self.entered else (0, 0)
        fitting = [
            (block["size"], self.creation.index(segment["address"]), block["address"])
            for segment in segments.values()
            if segment["stream"] == handle and segment["segment_type"] == kind
            if segment["segment_pool_id"] == pool
            for block in segment["blocks"]
            if block["state"] == "inactive" and block["size"] >= size
        ]
        return min(fitting)[2] if fitting else None

    @rule(target=held, nbytes=SIZES, index=st.integers(0, 3))
    def allocate(self, nbytes: int, index: int) -> int:
        expected = self._best_fit(nbytes, self._handle(index))
        try:
            address = self._keep(self.books.allocate(nbytes, self._handle(index)), nbytes)
        except OutOfMemoryError:
            address = 0
        assert expected is None or address == expected
        return address

    @rule(target=held, nbytes=SIZES, status=st.sampled_from([2, 719]), times=st.integers(1, 2))
    def allocate_with_a_failing_driver(self, nbytes: int, status: int, times: int) -> int:
        for entry in ("cuMemAlloc", "cuMemCreate"):
            _table.inject(entry, status=status, times=times)
        try:
            return self._keep(self.books.allocate(nbytes), nbytes)
        except (OutOfMemoryError, AcceleratorError):
            return 0
        finally:
            _table.clear_faults()

    @rule(on=st.booleans())
    def switch_expandable_segments(self, on: bool) -> None:
        _allocator_settings.set_(f"expandable_segments:{on}")

    @rule(address=consumes(held))
    def free(self, address: int) -> None:
        if address:
            self.live.pop(address)[0].close()

    @rule(address=held, index=st.integers(0, 3))
    def record_stream(self, address: int, index: int) -> None:
        if address in self.live:
            self.live[address][0].record_stream(self._handle(index))

    @rule(index=st.integers(0, 2), count=st.integers(1, 4))
    def give_work(self, index: int, count: int) -> None:
        with stream(self.streams[index]):
            for _ in range(count):
                _cuda_device.spin(1000)

    @rule(address=consumes(held))
    def free_while_marks_fail(self, address: int) -> None:
        _table.inject("cuEventRecord", status=400, times=2)
        self.free(address)
        _table.clear_faults()

    @rule(index=st.integers(0, 1))
    def enter_a_pool(self, index: int) -> None:
        pool = self.pools[index]
        if pool not in self.entered:
            _allocator_pools.begin_for_this_thread(self.books.device, pool)
            self.entered.append(pool)

    @rule()
    def leave_a_pool(self) -> None:
        if self.entered:
            pool = self.entered.pop()
            _allocator_pools.end_for_this_thread(self.books.device, pool)
            assert _allocator_pools.drop_pool(self.books.device, pool)

    @rule(context=st.sampled_from(["state", "all"]), on=st.booleans())
    def record_history(self, context: str, on: bool) -> None:
        if on:
            _allocator_history.record(context, 50)
        else:
            _allocator_history.stop()

    @rule(index=st.integers(0, 2))
    def wait(self, index: int) -> None:
        self.streams[index].synchronize()

    @rule()
    def empty_cache(self) -> None:
        _allocator.empty_cache()
        for segment in self.books.segments:
            if segment["segment_pool_id"] != (0, 0):
                continue  # a pool that is alive keeps what it has
            page = 2 * MIB if segment["segment_type"] == "small" else 20 * MIB
            if segment["is_expandable"]:  # no whole page is free
                assert all(
                    block["state"] != "inactive" or block["size"] < 2 * page
                    for block in segment["blocks"]
                )
            assert any(block["state"] != "inactive" for block in segment["blocks"])

    @rule()
    def reset_peak(self) -> None:
        _allocator.reset_peak(self.books.device)

    @invariant()
    def books_are_in_balance(self) -> None:
        self.books.check()
        self._best_fit(1, 0)  # takes note of new segments
        assert self.books.current("allocation") == len(self.live)
        # The limit counts a plain segment where an expandable one may map a page more.
        assert self.books.current("reserved_bytes") <= LIMIT + 20 * MIB

    def teardown(self) -> None:
        while self.entered:
            self.leave_a_pool()
        self.live.clear()
        gc.collect()
        for pool in self.pools:
            assert _allocator_pools.pool_users(self.books.device, pool) == 1
            assert _allocator_pools.drop_pool(self.books.device, pool)
        _allocator_history.stop()
        _allocator_settings.set_("expandable_segments:False")
        _allocator.empty_cache()
        assert self.books.segments == []
        _allocator.set_memory_limit(self.books.device, None)
        _state.set_device(self.before)


@pytest.fixture(autouse=True)
def _empty(books: Books) -> None:
    """Start from an empty device."""


Allocator.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestAllocator = Allocator.TestCase


class LongAllocator(Allocator):
    """The same machine for 100,000 steps and more."""


LongAllocator.TestCase.settings = settings(max_examples=250, stateful_step_count=500, deadline=None)
TestLongAllocator = pytest.mark.timeout(3000)(pytest.mark.slow(LongAllocator.TestCase))
