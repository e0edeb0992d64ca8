# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest

from flambeau import driver
from flambeau.runtime import (
    _allocator,
    _allocator_settings,
    _cuda_device,
    _state,
    _stream,
    lazy_init,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20


class Books:
    """The allocator of one device, as tests see it."""

    def __init__(self, device: int) -> None:
        self.device = device

    def allocate(self, nbytes: int, stream: int = 0) -> _allocator.Allocation:
        return _allocator.allocate(nbytes, self.device, stream)

    def current(self, name: str, pool: str = "all") -> int:
        return self.stats[name][pool]["current"]

    @property
    def stats(self) -> dict[str, Any]:
        return _allocator.memory_stats_raw(self.device)

    @property
    def segments(self) -> list[dict[str, Any]]:
        return [s for s in _allocator.memory_snapshot_raw() if s["device"] == self.device]

    @property
    def blocks(self) -> list[dict[str, Any]]:
        return [block for segment in self.segments for block in segment["blocks"]]

    def check(self) -> None:
        """Compare every counter that the snapshot can tell with the snapshot."""
        stats, segments = self.stats, self.segments
        for pool in ("small", "large"):
            inside = [s for s in segments if s["segment_type"] == pool]
            blocks = [b for s in inside for b in s["blocks"]]
            held = [b for b in blocks if b["state"] == "active_allocated"]
            active = [b for b in blocks if b["state"] != "inactive"]
            parts = [
                b for s in inside for b in s["blocks"]
                if b["state"] == "inactive" and len(s["blocks"]) > 1 and not s["is_expandable"]
            ]  # fmt: skip
            expected = {
                "segment": sum(not s["is_expandable"] for s in inside),
                "reserved_bytes": sum(s["total_size"] for s in inside),
                "allocation": len(held),
                "allocated_bytes": sum(b["size"] for b in held),
                "active": len(active),
                "active_bytes": sum(b["size"] for b in active),
                "requested_bytes": sum(b["requested_size"] for b in active),
                "inactive_split": len(parts),
                "inactive_split_bytes": sum(b["size"] for b in parts),
            }
            found = {name: stats[name][f"{pool}_pool"]["current"] for name in expected}
            assert found == expected
        for name, value in stats.items():
            if isinstance(value, dict) and "all" in value:
                for field in ("current", "allocated", "freed"):
                    parts_sum = value["large_pool"][field] + value["small_pool"][field]
                    assert value["all"][field] == parts_sum, (name, field)
                for stat in value.values():
                    assert stat["current"] == stat["allocated"] - stat["freed"]
                    assert stat["peak"] >= stat["current"]
        for segment in segments:
            address = segment["address"]
            for before, block in zip([None, *segment["blocks"]], segment["blocks"], strict=False):
                assert block["address"] == address
                assert block["size"] % 512 == 0
                address += block["size"]
                if before is not None:  # two free neighbours would have been merged
                    assert "active" in before["state"] or "active" in block["state"]
            assert address == segment["address"] + segment["total_size"]


@pytest.fixture
def books() -> Iterator[Books]:
    """The allocator of the last device, empty and with its counters at zero."""
    lazy_init.lazy_init()
    result = Books(_state.count_devices() - 1)
    gc.collect()
    _allocator.empty_cache()
    assert result.segments == [], "an earlier test left memory behind"
    # The sums that go with what is current must be in balance: the device is empty, so zero is.
    _allocator.reset_accumulated(result.device)
    _allocator.reset_peak(result.device)
    yield result
    _allocator.set_memory_limit(result.device, None)
    _allocator_settings.set_("expandable_segments:False,large_segment_size_mb:20")
    gc.collect()


@pytest.fixture
def on_books_device(books: Books) -> Iterator[int]:
    """The device of `books` is current."""
    before = _state.exchange_device(books.device)
    yield books.device
    _state.set_device(before)


@pytest.fixture
def paused() -> Iterator[None]:
    """Nothing runs on virtual GPUs unless something waits or asks for it."""
    current = driver.current()
    if current.name != "virtual":
        yield
        return
    from flambeau.driver.virtual import _machine

    _machine.set_progress(False)
    yield
    _machine.set_progress(True)


@pytest.fixture
def keep_busy(paused: None) -> Callable[[_stream.BaseStream], None]:
    """Give a stream work that takes a while."""

    def spin(stream: _stream.BaseStream) -> None:
        with _stream.stream(stream):
            for _ in range(50):
                _cuda_device.spin(4_000_000)

    return spin
