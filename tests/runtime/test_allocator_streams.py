# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flambeau.runtime import _allocator, _state
from flambeau.runtime._stream import Stream, default_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Books

MIB = 1 << 20

pytestmark = pytest.mark.usefixtures("on_books_device")


def states(books: Books) -> list[str]:
    return [block["state"] for block in books.blocks]


def test_streams_share_no_blocks(books: Books) -> None:
    side = Stream()
    block = books.allocate(5 * MIB, side.cuda_stream)
    address = block.address
    block.close()
    other = books.allocate(5 * MIB)
    assert other.address != address
    assert books.current("segment") == 2
    assert books.allocate(5 * MIB, side.cuda_stream).address == address
    assert sorted(s["stream"] for s in books.segments) == sorted([0, side.cuda_stream])


def test_a_block_in_use_elsewhere_is_pending_when_freed(
    books: Books, keep_busy: Callable[[Stream], None]
) -> None:
    side = Stream()
    block = books.allocate(5 * MIB)
    address = block.address
    block.record_stream(side.cuda_stream)
    keep_busy(side)
    block.close()
    stats = books.stats
    assert stats["allocated_bytes"]["all"]["current"] == 0
    assert stats["active"]["all"]["current"] == 1
    assert stats["active_bytes"]["all"]["current"] == 5242880
    assert stats["requested_bytes"]["all"]["current"] == 5242880
    assert stats["inactive_split"]["all"]["current"] == 1
    assert stats["inactive_split_bytes"]["all"]["current"] == 15728640
    assert states(books) == ["active_pending_free", "inactive"]
    books.check()
    assert books.allocate(5 * MIB).address != address
    _state.synchronize()
    assert books.allocate(5 * MIB).address == address
    books.check()


def test_its_own_stream_is_no_other_use(books: Books, keep_busy: Callable[[Stream], None]) -> None:
    side = Stream()
    block = books.allocate(MIB, side.cuda_stream)
    block.record_stream(side.cuda_stream)
    keep_busy(side)
    block.close()
    assert states(books) == ["inactive"]
    plain = books.allocate(MIB)
    plain.record_stream(default_stream().cuda_stream, books.device)
    plain.record_stream(0)
    plain.close()
    assert "active_pending_free" not in states(books)
    _state.synchronize()


def test_every_stream_must_have_passed(books: Books, keep_busy: Callable[[Stream], None]) -> None:
    first, second = Stream(), Stream()
    block = books.allocate(MIB)
    block.record_stream(first.cuda_stream)
    block.record_stream(second.cuda_stream)
    block.record_stream(second.cuda_stream)
    keep_busy(second)
    block.close()
    first.synchronize()
    assert states(books)[0] == "active_pending_free"
    second.synchronize()
    books.allocate(512).close()
    assert states(books) == ["inactive"]
    books.check()


def test_emptying_the_cache_waits_for_pending_blocks(
    books: Books, keep_busy: Callable[[Stream], None]
) -> None:
    side = Stream()
    block = books.allocate(MIB)
    block.record_stream(side.cuda_stream)
    keep_busy(side)
    block.close()
    _allocator.empty_cache()
    assert side.query()
    assert books.segments == []
    books.check()


def test_a_pending_block_does_not_merge(books: Books, keep_busy: Callable[[Stream], None]) -> None:
    side = Stream()
    left, middle, right = (books.allocate(512) for _ in range(3))
    middle.record_stream(side.cuda_stream)
    keep_busy(side)
    middle.close()
    left.close()
    right.close()
    assert states(books) == ["inactive", "active_pending_free", "inactive"]
    books.check()
    _state.synchronize()
    assert states(books) == ["inactive", "active_pending_free", "inactive"]  # nobody has polled
    books.allocate(1).close()
    assert states(books) == ["inactive"]
    books.check()


def test_a_use_that_cannot_be_marked_waits_for_the_device(
    books: Books, fault: Callable[..., None]
) -> None:
    side = Stream()
    block = books.allocate(MIB)
    block.record_stream(side.cuda_stream)
    fault("cuEventRecord", status=400)
    block.close()
    assert states(books)[0] == "active_pending_free"
    books.check()
    _allocator.empty_cache()
    assert books.segments == []
    books.check()


def test_a_failing_query_is_raised_at_the_next_allocation(
    books: Books, keep_busy: Callable[[Stream], None], fault: Callable[..., None]
) -> None:
    side = Stream()
    block = books.allocate(MIB)
    block.record_stream(side.cuda_stream)
    keep_busy(side)
    block.close()
    fault("cuEventQuery", status=719)
    with pytest.raises(RuntimeError, match="unspecified launch failure"):
        books.allocate(MIB)
    books.check()
    _state.synchronize()


@pytest.mark.usefixtures("schedule")
def test_under_each_order_of_work(books: Books) -> None:
    streams = [Stream() for _ in range(4)]
    for round_ in range(20):
        held = [books.allocate(1000 * (1 + i), s.cuda_stream) for i, s in enumerate(streams)]
        for i in range(4):
            held[i].record_stream(streams[(i + round_) % 4].cuda_stream)
        held.clear()
    _state.synchronize()
    books.check()
    _allocator.empty_cache()
    assert books.segments == []
