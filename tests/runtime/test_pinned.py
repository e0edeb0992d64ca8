# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import gc
from typing import TYPE_CHECKING, Any

import pytest

from flambeau.driver import _table
from flambeau.driver.errors import OutOfMemoryError
from flambeau.runtime import _allocator, lazy_init
from flambeau.runtime._stream import Stream, stream
from support import run_script

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def _empty() -> None:
    lazy_init.lazy_init()
    gc.collect()
    _allocator.empty_host_cache()
    assert current("active_requests") == 0, "an earlier test left pinned memory behind"


def stats() -> dict[str, Any]:
    return _allocator.host_memory_stats_raw()


def current(name: str) -> int:
    return stats()[name]["current"]


def pin(nbytes: int) -> _allocator.Allocation:
    return _allocator.allocate_on_host(nbytes, pin=True)


def test_sizes_are_powers_of_two_and_blocks_come_back() -> None:
    tiny, block = pin(1), pin(5000)
    assert current("allocated_bytes") == 8193
    assert current("allocations") == 2
    address = block.address
    block.close()
    assert current("active_bytes") == 1
    assert current("allocated_bytes") == 8193
    again = pin(4097)
    assert again.address == address
    other = pin(4096)
    assert other.address != address
    assert current("allocated_bytes") == 12289
    assert current("active_requests") == 3
    assert tiny.device == -1


def test_what_is_pinned() -> None:
    block, plain = pin(100), _allocator.allocate_on_host(100)
    assert _allocator.is_pinned(block.address)
    assert _allocator.is_pinned(block.address + 99)
    assert not _allocator.is_pinned(plain.address)
    assert not _allocator.is_pinned(0)
    assert pin(0).address == 0


def test_the_memory_is_there() -> None:
    for pinned in (False, True):
        block = _allocator.allocate_on_host(1000, pin=pinned)
        assert block.address % 64 == 0
        ctypes.memset(block.address, 7, 1000)
        assert ctypes.string_at(block.address, 1000) == b"\x07" * 1000


def test_a_block_in_use_is_not_recycled(keep_busy: Callable[[Stream], None]) -> None:
    side = Stream()
    block = pin(300)
    address = block.address
    with stream(side):
        block.record_stream(side.cuda_stream)
    keep_busy(side)
    block.close()
    assert current("active_requests") == 1
    assert pin(300).address != address
    side.synchronize()
    pin(1).close()
    assert current("active_requests") == 0
    found = {pin(300).address for _ in range(1)} | {address}
    assert address in found


def test_an_unfinished_use_does_not_hold_up_other_streams(
    keep_busy: Callable[[Stream], None],
) -> None:
    busy, idle = Stream(), Stream()
    first, second = pin(300), pin(3000)
    address = second.address
    first.record_stream(busy.cuda_stream)
    second.record_stream(idle.cuda_stream)
    keep_busy(busy)
    first.close()
    second.close()
    idle.synchronize()
    assert pin(3000).address == address
    busy.synchronize()


def test_the_cache_is_given_back_on_request() -> None:
    held, free = pin(100), pin(100)
    free.close()
    assert current("allocations") == 2
    before = stats()["num_host_free"]
    _allocator.empty_host_cache()
    assert current("allocations") == 1
    assert stats()["num_host_free"] == before + 1
    assert _allocator.is_pinned(held.address)


def test_timings_and_resets() -> None:
    _allocator.reset_accumulated_host()
    _allocator.reset_peak_host()
    block = pin(1 << 20)
    found = stats()
    assert found["host_alloc_time"]["count"] == 1
    assert found["host_alloc_time"]["min"] <= found["host_alloc_time"]["max"]
    assert found["num_host_alloc"] == 1
    block.close()
    assert stats()["active_bytes"] == {
        "current": 0, "peak": 1 << 20, "allocated": 1 << 20, "freed": 1 << 20,
    }  # fmt: skip
    _allocator.reset_peak_host()
    assert stats()["active_bytes"]["peak"] == 0


def test_a_refusing_driver() -> None:
    _table.inject("cuMemHostAlloc", status=2, times=2)
    try:
        with pytest.raises(OutOfMemoryError, match=r"4\.00 MiB of pinned host memory"):
            pin(1 << 22)
    finally:
        _table.clear_faults()
    assert current("active_requests") == 0
    assert pin(1 << 22).address


def test_too_much_host_memory() -> None:
    with pytest.raises(RuntimeError, match="you tried to allocate 18446744073709551615 bytes"):
        _allocator.allocate_on_host((1 << 64) - 1)


def test_pinning_initialises() -> None:
    run_script(
        """
        from flambeau.runtime import _allocator, _state
        assert _allocator.host_memory_stats_raw() == {}
        assert not _allocator.is_pinned(4096)
        plain = _allocator.allocate_on_host(10)
        assert not _state.is_initialized()
        block = _allocator.allocate_on_host(10, pin=True)
        assert _state.is_initialized()
        assert _allocator.is_pinned(block.address + 9)
        """,
        prelude="",
    )
