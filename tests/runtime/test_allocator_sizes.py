# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flambeau.runtime import _allocator

if TYPE_CHECKING:
    from .conftest import Books

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("request_", "allocated", "segment", "pool", "rest"),
    [
        (1, 512, 2 * MIB, "small", 2096640),
        (512, 512, 2 * MIB, "small", 2096640),
        (513, 1024, 2 * MIB, "small", 2096128),
        (1000, 1024, 2 * MIB, "small", 2096128),
        (MIB, MIB, 2 * MIB, "small", MIB),
        (MIB + 1, 1049088, 20 * MIB, "large", 19922432),
        (10 * MIB - 512, 10485248, 20 * MIB, "large", 10486272),
        (10 * MIB - 511, 10485760, 10 * MIB, "large", 0),
        (10 * MIB + 1, 10486272, 12 * MIB, "large", 2096640),
        (21 * MIB + 1, 23068672, 22 * MIB, "large", 0),
    ],
)
def test_sizes(
    books: Books, request_: int, allocated: int, segment: int, pool: str, rest: int
) -> None:
    block = books.allocate(request_)
    assert block.address % 512 == 0
    assert books.current("allocated_bytes") == allocated
    assert books.current("requested_bytes") == request_
    assert books.current("reserved_bytes", f"{pool}_pool") == segment
    assert books.current("reserved_bytes") == segment
    assert books.current("inactive_split_bytes") == rest
    assert books.current("inactive_split") == (1 if rest else 0)
    assert [s["segment_type"] for s in books.segments] == [pool]
    books.check()


def test_no_bytes_are_no_memory(books: Books) -> None:
    block = books.allocate(0)
    assert block.address == 0
    assert books.stats["allocation"]["all"]["allocated"] == 0
    assert books.segments == []
    assert _allocator.raw_alloc(0, books.device, 0) == 0


def test_small_blocks_are_packed(books: Books) -> None:
    blocks = [books.allocate(size) for size in (1, 1000, 512)]
    assert [b.address - blocks[0].address for b in blocks] == [0, 512, 1536]
    assert books.current("allocated_bytes") == 2048
    assert books.current("requested_bytes") == 1513
    assert books.current("segment") == 1
    books.check()


def test_a_large_rest_of_one_mebibyte_is_not_split_off(books: Books) -> None:
    blocks = [books.allocate(size * MIB) for size in (2, 3, 14)]
    assert books.current("allocated_bytes") == 20971520
    assert books.current("requested_bytes") == 19922944
    assert books.current("segment") == 1
    blocks.append(books.allocate(2 * MIB))
    assert books.current("segment") == 2
    books.check()


def test_freed_memory_is_handed_out_again_without_asking_the_driver(books: Books) -> None:
    address = books.allocate(3 * MIB).address
    before = books.stats["num_device_alloc"]
    for _ in range(3):
        assert books.allocate(3 * MIB).address == address
    assert books.stats["num_device_alloc"] == before == 1
    assert books.current("allocation") == 0
    assert books.current("reserved_bytes") == 20 * MIB


def test_neighbours_are_merged(books: Books) -> None:
    first, middle, last = (books.allocate(size) for size in (512, 1024, 512))
    address = middle.address
    middle.close()
    assert books.current("inactive_split") == 2
    books.check()
    assert books.allocate(600).address == address
    first.close()
    last.close()
    books.check()
    assert books.current("inactive_split") == 0
    assert [b["size"] for b in books.blocks] == [2 * MIB]


def test_the_example_of_the_counters(books: Books) -> None:
    big, tiny = books.allocate(5 * MIB), books.allocate(1)
    big.close()
    stats = books.stats
    assert stats["allocated_bytes"]["all"] == {
        "current": 512, "peak": 5243392, "allocated": 5243392, "freed": 5242880,
    }  # fmt: skip
    assert stats["reserved_bytes"]["all"]["current"] == 23068672
    assert stats["inactive_split"]["all"]["current"] == 1
    assert stats["inactive_split"]["all"]["peak"] == 2
    assert stats["inactive_split_bytes"]["all"]["peak"] == 17825280
    _allocator.reset_accumulated(books.device)
    _allocator.reset_peak(books.device)
    tiny.close()
    stats = books.stats["allocated_bytes"]["all"]
    assert (stats["freed"], stats["peak"]) == (512, 512)


def test_best_fit_takes_the_smallest_that_is_large_enough(books: Books) -> None:
    segments = {size: books.allocate(size * MIB) for size in (30, 24, 40)}
    addresses = {size: block.address for size, block in segments.items()}
    segments.clear()
    first = books.allocate(25 * MIB)
    assert first.address == addresses[30]
    assert books.current("inactive_split_bytes") == 5 * MIB
    second = books.allocate(24 * MIB - 5)
    assert second.address == addresses[24]
    third = books.allocate(39 * MIB)
    assert third.address == addresses[40]
    assert books.current("allocated_bytes") == (25 + 24 + 40) * MIB
    books.check()


@pytest.mark.parametrize("size", [MIB, 3 * MIB, 30 * MIB], ids=["1MiB", "3MiB", "30MiB"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_of_equal_segments_the_first_created_comes_back(
    books: Books, size: int, order: tuple[int, ...]
) -> None:
    fill = {MIB: 1, 3 * MIB: 5, 30 * MIB: 0}[size]  # blocks that fill the rest of a segment
    held = [[books.allocate(size) for _ in range(1 + fill)] for _ in range(3)]
    addresses = [blocks[0].address for blocks in held]
    for index in order:
        held[index].clear()
    assert books.allocate(size).address == addresses[0]
    books.check()


def test_in_a_segment_the_lowest_address_comes_back(books: Books) -> None:
    held = [books.allocate(4096) for _ in range(9)]
    addresses = [block.address for block in held]
    for index in (5, 1, 7, 3):
        held[index].close()
    again = [books.allocate(4096) for _ in range(4)]
    assert [b.address for b in again] == [addresses[i] for i in (1, 3, 5, 7)]


def test_only_wholly_free_segments_go_back(books: Books) -> None:
    live, other = books.allocate(2 * MIB), books.allocate(30 * MIB)
    other.close()
    _allocator.empty_cache()
    assert books.current("reserved_bytes") == 20 * MIB
    assert books.stats["num_device_free"] == 1
    live.close()
    _allocator.empty_cache()
    assert books.current("reserved_bytes") == 0
    assert books.segments == []
    books.check()


def test_memory_by_address(books: Books) -> None:
    address = _allocator.raw_alloc(1000, books.device, 0)
    assert books.current("allocated_bytes") == 1024
    block = books.allocate(100)
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        _allocator.raw_delete(block.address)  # a tensor's memory is not the caller's to delete
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        _allocator.raw_delete(address + 512)
    _allocator.raw_delete(address)
    with pytest.raises(RuntimeError, match=f"invalid device pointer: 0x{address:x}"):
        _allocator.raw_delete(address)
    _allocator.raw_delete(0)
    assert books.current("allocation") == 1


def test_devices_have_their_own_books(books: Books) -> None:
    before = _allocator.allocated_bytes(0) if books.device else None
    block = books.allocate(MIB)
    assert block.device == books.device
    assert _allocator.allocated_bytes(books.device) == MIB
    assert _allocator.max_allocated_bytes(books.device) == MIB
    assert _allocator.reserved_bytes(books.device) == 2 * MIB
    if before is not None:
        assert _allocator.allocated_bytes(0) == before
