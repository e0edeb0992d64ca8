# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from flambeau.driver.errors import AcceleratorError, OutOfMemoryError
from flambeau.runtime import _allocator
from flambeau.runtime._stream import Stream
from flambeau.runtime.out_of_memory import format_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Books

MIB = 1 << 20


def limit(books: Books, mebibytes: int) -> None:
    _allocator.set_memory_limit(books.device, mebibytes * MIB)


def test_the_limit_itself_is_allowed(books: Books) -> None:
    limit(books, 200)
    block = books.allocate(200 * MIB)
    block.close()
    with pytest.raises(OutOfMemoryError, match=r"Tried to allocate 202\.00 MiB"):
        books.allocate(200 * MIB + 1)
    assert books.stats["num_ooms"] == 1
    assert books.allocate(MIB).address  # the device stays usable
    books.check()


def test_a_retry_after_giving_the_cache_back(books: Books) -> None:
    limit(books, 200)
    books.allocate(100 * MIB).close()
    block = books.allocate(150 * MIB)
    stats = books.stats
    assert block.address
    assert stats["num_alloc_retries"] == 1
    assert stats["num_sync_all_streams"] == 1
    assert stats["num_device_free"] == 1
    assert stats["num_ooms"] == 0
    books.check()


@pytest.mark.usefixtures("on_books_device")
def test_a_retry_waits_for_pending_blocks(
    books: Books, keep_busy: Callable[[Stream], None]
) -> None:
    limit(books, 200)
    side = Stream()
    pending = books.allocate(120 * MIB)
    pending.record_stream(side.cuda_stream)
    keep_busy(side)
    pending.close()
    block = books.allocate(150 * MIB)
    assert block.address
    assert books.stats["num_alloc_retries"] == 1
    assert books.stats["num_sync_all_streams"] == 1
    books.check()


@pytest.mark.usefixtures("on_books_device")
def test_a_pending_part_of_a_used_segment_serves_after_the_flush(
    books: Books, keep_busy: Callable[[Stream], None]
) -> None:
    side = Stream()
    part, rest = books.allocate(5 * MIB), books.allocate(15 * MIB)
    part.record_stream(side.cuda_stream)
    limit(books, 20)
    address = part.address
    keep_busy(side)
    part.close()
    assert books.allocate(5 * MIB).address == address
    assert rest.nbytes == 15 * MIB
    assert books.stats["num_ooms"] == 0


def test_the_driver_refusing_is_retried_once(books: Books, fault: Callable[..., None]) -> None:
    fault("cuMemAlloc", status=2, times=1)
    assert books.allocate(MIB).address
    assert books.stats["num_alloc_retries"] == 1
    fault("cuMemAlloc", status=2, times=2)
    with pytest.raises(OutOfMemoryError):
        books.allocate(30 * MIB)
    assert books.stats["num_alloc_retries"] == 2
    assert books.stats["num_ooms"] == 1
    assert books.allocate(30 * MIB).address
    books.check()


def test_another_failure_is_raised_at_once(books: Books, fault: Callable[..., None]) -> None:
    fault("cuMemAlloc", status=719, times=1)
    with pytest.raises(AcceleratorError) as caught:
        books.allocate(MIB)
    assert caught.value.error_code == 719
    stats = books.stats
    assert (stats["num_alloc_retries"], stats["num_ooms"], stats["num_device_alloc"]) == (0, 0, 0)


def test_the_words_and_figures_of_the_error(books: Books) -> None:
    limit(books, 100)
    kept = [books.allocate(30 * MIB), books.allocate(2 * MIB)]
    with pytest.raises(OutOfMemoryError) as caught:
        books.allocate(101 * MIB)
    error = caught.value
    text = str(error)
    phrases = [
        "CUDA out of memory. Tried to allocate 102.00 MiB",
        f"GPU {books.device} has a total capacity of",
        "of which",
        "is free.",
        "100.00 MiB allowed;",
        "Of the allocated memory 32.00 MiB is allocated by PyTorch",
        "18.00 MiB is reserved by PyTorch but unallocated.",
    ]
    positions = [text.find(phrase) for phrase in phrases]
    assert -1 not in positions, text
    assert positions == sorted(positions)
    assert "101.00 MiB" in text
    assert error.device == books.device
    assert error.requested == 101 * MIB
    assert error.segment_size == 102 * MIB
    assert error.limit == 100 * MIB
    assert error.allocated == 32 * MIB
    assert error.reserved == 50 * MIB
    assert error.largest_free_block == 18 * MIB
    assert 0 < error.free <= error.total
    assert len(kept) == 2


def test_nothing_is_allowed(books: Books) -> None:
    limit(books, 0)
    with pytest.raises(OutOfMemoryError, match=r"Tried to allocate 2\.00 MiB.* 0 bytes allowed;"):
        books.allocate(1)


def test_sizes_beyond_reason(books: Books) -> None:
    with pytest.raises(OutOfMemoryError, match="Tried to allocate more than 1EB memory"):
        books.allocate(1 << 60)
    with pytest.raises(OutOfMemoryError, match=r"Tried to allocate 1073741824\.00 GiB"):
        books.allocate((1 << 60) - 1)
    books.allocate(1).close()  # with a cache to look into
    for size in (1 << 61, 1 << 63, (1 << 64) - 1):
        with pytest.raises(OutOfMemoryError, match="Tried to allocate more than 1EB memory"):
            books.allocate(size)


def test_a_device_that_is_not_there(books: Books) -> None:
    with pytest.raises(AcceleratorError, match="invalid device ordinal") as caught:
        _allocator.allocate(1, books.device + 1)
    assert caught.value.error_code == 101


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1024, "1024 bytes"),
        (1025, "1.00 KiB"),
        (1 << 20, "1024.00 KiB"),
        (102 << 20, "102.00 MiB"),
        (1 << 30, "1024.00 MiB"),
        (3 << 30, "3.00 GiB"),
    ],
)
def test_amounts(size: int, text: str) -> None:
    assert format_size(size) == text


def test_threads_share_the_cache(books: Books) -> None:
    limit(books, 400)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for i in range(300):
                held = [books.allocate(((seed + i) % 7 + 1) * 700_000) for _ in range(3)]
                if i % 50 == seed:
                    _allocator.empty_cache()
                held.clear()
        except BaseException as error:  # noqa: BLE001 - shown by the assertion
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    books.check()
    assert books.current("allocation") == 0
