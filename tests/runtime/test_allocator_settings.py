# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flambeau.driver.errors import OutOfMemoryError
from flambeau.runtime import _allocator, _cuda_device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import Books

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _defaults(books: Books) -> Iterator[None]:
    yield
    _allocator.empty_cache()
    _allocator.configure()


@pytest.mark.parametrize(
    ("divisions", "request_", "allocated"),
    [
        (4, 1200, 1536),  # at most 512 * 4: to the next 512
        (4, 2049, 2560),
        (4, 5000, 5120),
        (4, MIB + 1, 1310720),
        (4, 9 * MIB + 1, 10485760),
        (4, 21 * MIB, 24 * MIB),
        (8, 4097, 4608),
        (8, 84 * MIB, 88 * MIB),
        (2, 400 * MIB, 512 * MIB),
        (2, 5 * MIB, 6 * MIB),
        (4, 4 * MIB, 4 * MIB),
        (1, 5000, 5120),
    ],
)
def test_rounding_up_to_parts_of_powers_of_two(
    books: Books, divisions: int, request_: int, allocated: int
) -> None:
    _allocator.configure(roundup_divisions=(divisions,) * 16)
    block = books.allocate(request_)
    assert books.current("allocated_bytes") == allocated
    assert block.nbytes == request_


def test_each_interval_has_its_own_divisions(books: Books) -> None:
    _allocator.configure(roundup_divisions=(0, 2, *(0,) * 14))
    held = [books.allocate(5000), books.allocate(2 * MIB + 1), books.allocate(5 * MIB)]
    assert books.current("allocated_bytes") == 5120 + 3 * MIB + 5 * MIB
    assert len(held) == 3


def test_large_blocks_are_kept_whole(books: Books) -> None:
    _allocator.configure(max_split_size=40 * MIB)
    block = books.allocate(40 * MIB)
    stats = books.stats
    assert stats["oversize_allocations"]["current"] == 1
    assert stats["oversize_segments"]["current"] == 1
    assert stats["max_split_size"] == -1  # what it was when CUDA was initialised
    address = block.address
    block.close()
    assert books.stats["oversize_allocations"]["current"] == 0
    small = books.allocate(30 * MIB)
    assert small.address != address
    small.close()
    assert books.allocate(40 * MIB).address == address


@pytest.mark.parametrize(
    ("cached", "request_", "reused"), [(50, 45, True), (60, 40, False), (60, 41, True)]
)
def test_a_large_block_serves_requests_of_nearly_its_size(
    books: Books, cached: int, request_: int, reused: bool
) -> None:
    _allocator.configure(max_split_size=40 * MIB)
    first = books.allocate(cached * MIB)
    address = first.address
    first.close()
    second = books.allocate(request_ * MIB)
    assert (second.address == address) is reused
    assert books.current("allocated_bytes") == (cached if reused else request_) * MIB


def test_large_blocks_go_before_the_whole_cache_does(books: Books) -> None:
    _allocator.configure(max_split_size=40 * MIB)
    _allocator.set_memory_limit(books.device, 200 * MIB)
    held = [books.allocate(size * MIB) for size in (50, 60, 70)]
    held.clear()
    block = books.allocate(100 * MIB)
    assert block.address
    assert sorted(s["total_size"] // MIB for s in books.segments) == [50, 100]
    assert books.stats["num_alloc_retries"] == 0
    books.check()


def cache_40_50_20(books: Books) -> None:
    held = [books.allocate(size * MIB) for size in (40, 50, 20)]
    held.clear()
    for _ in range(3):
        books.allocate(40 * MIB).close()


def test_idle_segments_are_collected_above_the_threshold(books: Books) -> None:
    _allocator.configure(garbage_threshold=0.5)
    _allocator.set_memory_limit(books.device, 200 * MIB)
    cache_40_50_20(books)
    block = books.allocate(60 * MIB)
    assert block.address
    assert sorted(s["total_size"] // MIB for s in books.segments) == [40, 60]
    assert books.stats["num_sync_all_streams"] == 0
    books.check()


def test_without_a_limit_nothing_is_collected(books: Books) -> None:
    _allocator.configure(garbage_threshold=0.5)
    with pytest.warns(UserWarning, match="garbage_collection_threshold does nothing"):
        cache_40_50_20(books)
    block = books.allocate(60 * MIB)
    assert block.address
    assert books.stats["num_device_free"] == 0


def test_a_share_beyond_which_requests_are_rejected(books: Books) -> None:
    total = _cuda_device.total_memory(books.device)
    _allocator.configure(reject_early=True, configured_fraction=100 * MIB / total)
    block = books.allocate(90 * MIB)
    block.close()
    with pytest.raises(OutOfMemoryError, match="preemptively rejected") as caught:
        books.allocate(101 * MIB)
    assert caught.value.refused_by == "rejection"
    assert caught.value.limit == 100 * MIB
    stats = books.stats
    assert stats["num_oom_rejections"] == 1
    assert (stats["num_ooms"], stats["num_alloc_retries"]) == (0, 0)
    assert books.current("reserved_bytes") == 90 * MIB  # nothing was flushed
    _allocator.set_memory_limit(books.device, 95 * MIB)
    with pytest.raises(OutOfMemoryError) as caught:
        books.allocate(101 * MIB)
    assert caught.value.refused_by == "limit"


def test_a_share_that_never_counts_is_warned_of_once(books: Books) -> None:
    _allocator.configure(reject_early=True, configured_fraction=0.5)
    _allocator.set_memory_limit(books.device, 100 * MIB)
    with pytest.warns(UserWarning, match="throw_on_cudamalloc_oom does nothing"):
        books.allocate(90 * MIB).close()
    books.allocate(20 * MIB).close()


def test_sizes_counted_as_large_stay_so_when_the_setting_changes(books: Books) -> None:
    _allocator.configure(max_split_size=40 * MIB)
    block = books.allocate(50 * MIB)
    _allocator.configure()
    block.close()
    _allocator.empty_cache()
    for name in ("oversize_allocations", "oversize_segments"):
        assert books.stats[name]["current"] == 0
