# SPDX-License-Identifier: Apache-2.0
"""Each driver call that the allocators make fails in turn; the books stay right."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from flambeau.driver import _table
from flambeau.driver.errors import AcceleratorError, OutOfMemoryError
from flambeau.runtime import _allocator, _allocator_settings, _state
from flambeau.runtime._stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Books

MIB = 1 << 20
INVALID_VALUE, OUT_OF_MEMORY = 1, 2

pytestmark = pytest.mark.usefixtures("on_books_device")


def use_device_memory(books: Books) -> None:
    """Segments of all kinds, uses on another stream, a retry, and all back to the driver."""
    side = Stream()
    held = [books.allocate(size) for size in (512, 3 * MIB, 12 * MIB, 1000)]
    held.append(books.allocate(2 * MIB, side.cuda_stream))
    held[1].record_stream(side.cuda_stream)
    held[3].record_stream(side.cuda_stream)
    held.pop(3).close()
    held.pop(1).close()
    held.append(books.allocate(3 * MIB))
    _allocator.set_memory_limit(books.device, 80 * MIB)
    held.pop(1).close()
    held.append(books.allocate(30 * MIB))  # after the free segment has gone back
    held.clear()
    _allocator.empty_cache()


def use_pinned_memory(books: Books) -> None:
    side = Stream()
    held = [_allocator.allocate_on_host(size, pin=True) for size in (1, 5000, 100_000)]
    held[1].record_stream(side.cuda_stream)
    held.pop(1).close()
    held.append(_allocator.allocate_on_host(5000, pin=True))
    held.clear()
    _allocator.empty_host_cache()


def clean_up(books: Books) -> None:
    _table.clear_faults()
    _allocator.set_memory_limit(books.device, None)
    gc.collect()
    _state.synchronize()
    _allocator.empty_cache()
    _allocator.empty_host_cache()


def calls_of(books: Books, use: Callable[[Books], None]) -> list[tuple[str, int]]:
    """The driver calls of a program: the entry, and which of its calls it is."""
    use(books)  # what happens once only
    clean_up(books)
    _table.start_trace()
    try:
        use(books)
    finally:
        made = [name for name, _ in _table.stop_trace()]
    clean_up(books)
    return [(name, made[: at + 1].count(name)) for at, name in enumerate(made)]


@pytest.fixture(params=["plain", "expandable", "registered"])
def use(request: pytest.FixtureRequest, books: Books) -> Iterator[Callable[[Books], None]]:
    if request.param == "registered":
        _allocator_settings.set_("pinned_use_cuda_host_register:True")
    _allocator_settings.set_(f"expandable_segments:{request.param == 'expandable'}")

    def program(books: Books) -> None:
        if request.param != "registered":
            use_device_memory(books)
        if request.param != "expandable":
            use_pinned_memory(books)

    yield program
    clean_up(books)
    _allocator_settings.set_("pinned_use_cuda_host_register:False")


@pytest.mark.filterwarnings("ignore:a pinned block was freed:RuntimeWarning")
@pytest.mark.parametrize(
    "status", [INVALID_VALUE, pytest.param(OUT_OF_MEMORY, marks=pytest.mark.slow)]
)
def test_every_call_fails_in_turn(books: Books, use: Callable[[Books], None], status: int) -> None:
    calls = calls_of(books, use)
    assert len({name for name, _ in calls}) > 5
    pinned = _allocator.host_memory_stats_raw()["active_requests"]["current"]
    raised = retired = 0
    for name, nth in calls:
        _table.inject(name, status=status, nth=nth)
        try:
            use(books)
        except (AcceleratorError, OutOfMemoryError):
            raised += 1
        books.check()
        clean_up(books)
        books.check()
        assert books.segments == [], (name, nth)
        assert books.current("allocation") == books.current("active") == 0, (name, nth)
        host = _allocator.host_memory_stats_raw()
        # Nobody can tell when a use ends that no event marks: a pinned block stays out for good.
        retired += name in {"cuEventCreate", "cuEventRecord"}
        assert pinned <= host["active_requests"]["current"] <= pinned + retired, (name, nth)
    assert raised  # some failures have a way around them, not all
    use(books)
