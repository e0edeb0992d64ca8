# SPDX-License-Identifier: Apache-2.0
"""Segments that grow: which pages are mapped, what the books say, when pages go back."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from flambeau import driver
from flambeau.driver import _table
from flambeau.driver.errors import AcceleratorError, OutOfMemoryError
from flambeau.runtime import (
    _allocator,
    _allocator_pools,
    _allocator_report,
    _allocator_settings,
)
from flambeau.runtime._stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Books

MIB = 1 << 20
REAL = os.environ.get("FLAMBEAU_TEST_DEVICE") == "real"

pytestmark = pytest.mark.usefixtures("on_books_device")


@pytest.fixture
def growing(books: Books) -> Iterator[Books]:
    """The allocator of the last device with expandable segments on."""
    _allocator_settings.set_("expandable_segments:True")
    yield books
    _allocator.empty_cache()
    assert books.segments == []


def shape(books: Books, kind: str = "large") -> list[list[tuple[int, str]]]:
    """The blocks of each segment, in MiB."""
    return [
        [(block["size"] / MIB, block["state"].split("_")[0]) for block in segment["blocks"]]
        for segment in books.segments
        if segment["segment_type"] == kind
    ]


def test_a_small_request_maps_one_page_of_2_mib(growing: Books) -> None:
    one = growing.allocate(1)
    assert growing.current("segment") == 0
    assert growing.current("reserved_bytes") == 2 * MIB
    assert growing.stats["num_device_alloc"] == 1
    assert growing.current("inactive_split") == 0
    assert [s["is_expandable"] for s in growing.segments] == [True]
    growing.check()
    two = growing.allocate(2 * MIB)
    assert growing.current("reserved_bytes") == 23068672
    growing.check()
    assert two.address % 512 == 0
    one.close()


def test_the_free_end_of_a_segment_grows(growing: Books) -> None:
    held = [growing.allocate(2 * MIB), growing.allocate(25 * MIB)]
    assert shape(growing) == [[(2, "active"), (25, "active"), (13, "inactive")]]
    assert growing.segments[-1]["total_size"] == 41943040
    assert growing.segments[-1]["blocks"][-1]["size"] == 13631488
    held.pop().close()
    held.append(growing.allocate(60 * MIB))
    assert shape(growing) == [[(2, "active"), (60, "active"), (18, "inactive")]]
    growing.check()


def test_no_page_lies_wholly_in_the_hole(growing: Books) -> None:
    held = [growing.allocate(size * MIB) for size in (30, 20, 20, 20, 20)]
    held.pop(2).close()
    reserved = growing.current("reserved_bytes")
    _allocator.empty_cache()
    assert growing.current("reserved_bytes") == reserved
    assert (20, "inactive") in shape(growing)[0]
    growing.check()


def test_whole_pages_of_a_hole_go_back_and_are_mapped_again(growing: Books) -> None:
    held = [growing.allocate(20 * MIB) for _ in range(5)]
    addresses = [one.address for one in held]
    held.pop(2).close()
    held.pop(1).close()
    _allocator.empty_cache()
    assert growing.current("reserved_bytes") == 60 * MIB
    assert shape(growing) == [[(20, "active")], [(20, "active"), (20, "active")]]
    growing.check()
    again = growing.allocate(40 * MIB)
    assert again.address == addresses[1]
    assert shape(growing) == [[(20, "active"), (40, "active"), (20, "active"), (20, "active")]]
    growing.check()


def test_growth_takes_the_lowest_addresses_that_fit(growing: Books) -> None:
    held = [growing.allocate(20 * MIB) for _ in range(6)]
    first, third = held[0].address, held[3].address
    for index in (4, 3, 1):
        held.pop(index).close()
    _allocator.empty_cache()
    small, large = growing.allocate(15 * MIB), growing.allocate(40 * MIB)
    assert small.address == first + 20 * MIB
    assert large.address == third
    growing.check()


def test_a_block_across_memory_that_is_free_and_addresses_that_are_not_mapped(
    growing: Books,
) -> None:
    held = [growing.allocate(10 * MIB) for _ in range(8)]  # two a page
    first = held[0].address
    for index in (6, 5, 4, 3, 2, 1):
        held.pop(index).close()
    _allocator.empty_cache()  # the middle pages go, half pages stay free on either side
    assert shape(growing) == [
        [(10, "active"), (10, "inactive")],
        [(10, "inactive"), (10, "active")],
    ]
    block = growing.allocate(60 * MIB)
    assert block.address == first + 10 * MIB
    assert shape(growing) == [[(10, "active"), (60, "active"), (10, "active")]]
    growing.check()


def test_what_new_pages_leave_joins_the_free_memory_behind(growing: Books) -> None:
    held = [growing.allocate(10 * MIB) for _ in range(8)]
    first = held[0].address
    for index in (5, 4, 3, 2):
        held.pop(index).close()
    held.append(growing.allocate(20 * MIB))  # where the first of the two pages was
    held.append(growing.allocate(12 * MIB))
    held.pop(2).close()  # the block behind the hole
    _allocator.empty_cache()
    growing.check()
    block = growing.allocate(15 * MIB)
    assert first <= block.address
    growing.check()
    block.close()


def test_a_hole_is_preferred_to_growing(growing: Books) -> None:
    held = [growing.allocate(size * MIB) for size in (20, 30, 5, 2)]
    hole = held[1].address
    held.pop(1).close()
    fits = growing.allocate(3 * MIB)
    assert fits.address == hole
    growing.check()


def test_remainders_of_512_bytes_are_split_off(growing: Books) -> None:
    block = growing.allocate(20 * MIB - 512)
    assert [b["size"] for b in growing.blocks] == [20 * MIB - 512, 512]
    block.close()


@pytest.mark.parametrize(("kind", "nbytes"), [("small", 1), ("large", 2 * MIB)])
def test_addresses_are_nine_eighths_of_the_device(growing: Books, kind: str, nbytes: int) -> None:
    page = 2 * MIB if kind == "small" else 20 * MIB
    _table.start_trace()
    block = growing.allocate(nbytes)
    assert ("cuMemAddressReserve", 0) in _table.stop_trace()
    assert growing.current("reserved_bytes") == page
    block.close()


def test_a_reserve_bounds_each_segment(growing: Books) -> None:
    _allocator_settings.set_("expandable_segments:True,expandable_segments_reserve:0.01")
    total = _allocator_report.memory_balance(growing.device).total
    with pytest.raises(OutOfMemoryError, match="expandable_segments_reserve"):
        growing.allocate(int(total * 0.02))
    _allocator_settings.set_("expandable_segments_reserve:1G")
    with pytest.raises(OutOfMemoryError, match="raise expandable_segments_reserve"):
        growing.allocate(1100 * MIB)
    assert growing.current("reserved_bytes") == 0
    held = [growing.allocate(900 * MIB) for _ in range(2)]
    assert len(growing.segments) == 2
    growing.check()
    held.clear()
    _allocator_settings.set_("expandable_segments_reserve:1.125")


def test_the_limit_counts_what_a_plain_segment_would_take(growing: Books) -> None:
    _allocator.set_memory_limit(growing.device, 100 * MIB)
    block = growing.allocate(90 * MIB)
    assert growing.current("reserved_bytes") == 100 * MIB
    with pytest.raises(OutOfMemoryError, match=r"Tried to allocate 12\.00 MiB"):
        growing.allocate(11 * MIB)
    growing.check()
    block.close()


@pytest.mark.parametrize("growing_", [False, True])
def test_the_advice_fits_the_kind_of_segment(growing: Books, growing_: bool) -> None:
    _allocator_settings.set_(f"expandable_segments:{growing_}")
    _allocator.set_memory_limit(growing.device, 80 * MIB)
    held = [growing.allocate(9 * MIB) for _ in range(8)]
    del held[::2]
    with pytest.raises(OutOfMemoryError, match="fragmented") as caught:
        growing.allocate(25 * MIB)
    expected = "whole pages" if growing_ else "expandable_segments:True"
    assert expected in str(caught.value).splitlines()[-1]
    assert caught.value.allocated == 36 * MIB
    assert caught.value.largest_free_block < 25 * MIB
    assert caught.value.split_remainders == caught.value.reserved - 36 * MIB
    held.clear()
    _allocator.empty_cache()


def test_pages_go_back_before_a_request_fails(growing: Books) -> None:
    _allocator.set_memory_limit(growing.device, 100 * MIB)
    side = Stream().cuda_stream
    growing.allocate(80 * MIB, side).close()
    block = growing.allocate(60 * MIB)
    assert growing.stats["num_alloc_retries"] == 1
    assert growing.current("reserved_bytes") == 60 * MIB
    growing.check()
    block.close()


def test_turned_off_requests_pass_over_what_can_grow(growing: Books) -> None:
    growing.allocate(20 * MIB).close()
    _allocator_settings.set_("expandable_segments:False")
    block = growing.allocate(20 * MIB)
    assert [s["is_expandable"] for s in growing.segments].count(False) == 1
    growing.check()
    _allocator_settings.set_("expandable_segments:True")
    block.close()
    again = growing.allocate(20 * MIB)
    assert len(growing.segments) == 2
    growing.check()
    again.close()


def test_streams_and_pools_grow_apart(growing: Books) -> None:
    pool = _allocator_pools.new_user_id()
    _allocator_pools.retain_pool(growing.device, pool)
    _allocator_pools.begin_for_this_thread(growing.device, pool)
    inside = growing.allocate(3 * MIB)
    _allocator_pools.end_for_this_thread(growing.device, pool)
    _allocator_pools.drop_pool(growing.device, pool)
    outside = growing.allocate(3 * MIB)
    beside = growing.allocate(3 * MIB, Stream().cuda_stream)
    assert len({s["address"] for s in growing.segments}) == 3
    assert {s["segment_pool_id"] for s in growing.segments} == {(0, 0), pool}
    assert all(s["is_expandable"] for s in growing.segments)
    inside.close()
    _allocator.empty_cache()
    assert len(growing.segments) == 3, "a live pool keeps its pages"
    _allocator_pools.drop_pool(growing.device, pool)
    _allocator.empty_cache()
    assert len(growing.segments) == 2
    outside.close()
    beside.close()


def test_pages_wait_for_the_work_on_them(
    growing: Books, keep_busy: Callable[[Stream], None]
) -> None:
    """Unmapping, unlike freeing, waits for nothing by itself: work would fault."""
    side = Stream()
    block = growing.allocate(20 * MIB, side.cuda_stream)
    keep_busy(side)
    block.close()
    _table.start_trace()
    _allocator.empty_cache()
    calls = [name for name, _ in _table.stop_trace()]
    assert calls.index("cuStreamSynchronize") < calls.index("cuMemUnmap")
    assert side.query()


@pytest.mark.parametrize(
    "entry", ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"]
)
@pytest.mark.parametrize("status", [2, 999])
def test_a_failure_while_growing_leaves_nothing_behind(
    growing: Books, entry: str, status: int
) -> None:
    held = growing.allocate(5 * MIB)
    side = Stream().cuda_stream
    expected = OutOfMemoryError if status == 2 else AcceleratorError
    for nth in (1, 2):
        if entry in {"cuMemAddressReserve", "cuMemSetAccess"} and nth > 1:
            continue
        free = _allocator_report.memory_balance(growing.device).free
        _table.inject(entry, status=status, nth=nth, times=10)
        with pytest.raises(expected):
            growing.allocate(60 * MIB, side)
        _table.clear_faults()
        growing.check()
        assert growing.current("reserved_bytes") == 20 * MIB
        if not REAL:  # others may use a real device at the same time
            assert _allocator_report.memory_balance(growing.device).free == free
    again = growing.allocate(60 * MIB, side)
    growing.check()
    again.close()
    held.close()


@pytest.mark.parametrize(
    "entry", ["cuMemUnmap", "cuMemRelease", "cuStreamSynchronize", "cuMemAddressFree"]
)
def test_a_failure_while_giving_back_loses_nothing(growing: Books, entry: str) -> None:
    free = _allocator_report.memory_balance(growing.device).free
    held = [growing.allocate(20 * MIB) for _ in range(5)]
    for index in (3, 1, 0):
        held.pop(index).close()
    _table.inject(entry, status=999)
    if entry == "cuMemAddressFree":
        held.clear()
        _allocator.empty_cache()
    else:
        with pytest.raises(AcceleratorError):
            _allocator.empty_cache()
    _table.clear_faults()
    growing.check()
    again = growing.allocate(60 * MIB)
    growing.check()
    again.close()
    held.clear()
    _allocator.empty_cache()
    assert growing.segments == []
    assert growing.current("reserved_bytes") == 0
    if not REAL:
        assert _allocator_report.memory_balance(growing.device).free == free


def test_claimed_blocks_come_back_when_growth_fails(growing: Books) -> None:
    held = [growing.allocate(20 * MIB) for _ in range(2)]
    held.pop().close()
    _table.inject("cuMemCreate", status=999)
    with pytest.raises(AcceleratorError):
        growing.allocate(50 * MIB)
    _table.clear_faults()
    assert shape(growing) == [[(20, "active"), (20, "inactive")]]
    growing.check()


def test_threads_grow_the_same_segment(growing: Books) -> None:
    failures: list[str] = []

    def work(seed: int) -> None:
        try:
            held = []
            for step in range(60):
                held.append(growing.allocate((1 + (seed * 7 + step * 13) % 30) * MIB))
                if step % 3:
                    held.pop(step % len(held)).close()
                if step % 20 == 19:
                    _allocator.empty_cache()
        except Exception as error:  # noqa: BLE001 - shown in the test's own thread
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    growing.check()
    assert growing.current("allocation") == 0


def test_the_driver_offers_virtual_memory() -> None:
    assert driver.current().supports("virtual_memory")


def test_a_class_of_streams_reserves_what_the_options_give_it(growing: Books) -> None:
    few, many = Stream(), Stream()
    _allocator_settings.set_(
        "expandable_segments:True,expandable_segments_reserve_by_class:[few:1G,none:2]"
    )
    try:
        _allocator_settings.attach_class(few.cuda_stream, "few")
        _allocator_settings.attach_class(many.cuda_stream, "of another name")
        with pytest.raises(OutOfMemoryError, match="expandable_segments_reserve"):
            growing.allocate(1100 * MIB, few.cuda_stream)
        held = [growing.allocate(900 * MIB, few.cuda_stream) for _ in range(2)]
        held.append(growing.allocate(1100 * MIB, many.cuda_stream))
        assert len(growing.segments) == 3  # the second 900 MiB found no room behind the first
        growing.check()
        _allocator_settings.attach_class(few.cuda_stream, None)
        held.append(growing.allocate(1100 * MIB, few.cuda_stream))
    finally:
        _allocator_settings.attach_class(few.cuda_stream, None)
        _allocator_settings.attach_class(many.cuda_stream, None)
        _allocator_settings.set_("expandable_segments_reserve_by_class:[]")
