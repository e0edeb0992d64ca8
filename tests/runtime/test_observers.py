# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from typing import TYPE_CHECKING, get_args

import pytest

from flambeau.runtime import _allocator, _state, lazy_init, observers
from flambeau.runtime._event import Event
from flambeau.runtime._stream import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def seen() -> Iterator[list[tuple[object, ...]]]:
    """Every observed call, as (kind, arguments)."""
    lazy_init.lazy_init()
    _state.note_pending()
    calls: list[tuple[object, ...]] = []
    callbacks = {
        kind: lambda *arguments, kind=kind: calls.append((kind, *arguments))
        for kind in get_args(observers.Kind)
    }
    for kind, callback in callbacks.items():
        observers.register(kind, callback)
    yield calls
    for kind, callback in callbacks.items():
        observers.unregister(kind, callback)


def test_events(seen: list[tuple[object, ...]]) -> None:
    side = Stream()
    seen.clear()
    event = Event()
    event.record(side)
    handle = event.cuda_event
    event.wait()
    event.synchronize()
    side.synchronize()
    _state.synchronize()
    del event
    assert seen == [
        ("event_creation", handle),
        ("event_record", handle, side.cuda_stream, 0),
        ("event_wait", handle, 0, 0),
        ("event_synchronization", handle),
        ("stream_synchronization", side.cuda_stream, 0),
        ("device_synchronization", 0),
        ("event_deletion", handle),
    ]


def test_memory(seen: list[tuple[object, ...]]) -> None:
    block = _allocator.allocate(100, 0)
    address = block.address
    block.close()
    assert seen == [
        ("memory_allocation", address, 100, 0, 0),
        ("memory_deallocation", address),
    ]


def test_a_failing_observer_is_logged_and_the_next_is_called(
    seen: list[tuple[object, ...]], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(device: int) -> None:
        raise KeyError("broken")

    second: list[int] = []

    def count(device: int) -> None:
        second.append(device)

    observers.register("device_synchronization", fail)
    observers.register("device_synchronization", count)
    try:
        with caplog.at_level(logging.ERROR):
            _state.synchronize()
    finally:
        observers.unregister("device_synchronization", fail)
        observers.unregister("device_synchronization", count)
    assert second == [0]
    assert "an observer of device_synchronization failed" in caplog.text


def test_a_finding_reaches_the_caller_after_all_were_told(seen: list[tuple[object, ...]]) -> None:
    def find(device: int) -> None:
        raise observers.Finding("wrong")

    observers.register("device_synchronization", find)
    try:
        with pytest.raises(observers.Finding, match="wrong"):
            _state.synchronize()
    finally:
        observers.unregister("device_synchronization", find)
    assert ("device_synchronization", 0) in seen


def test_queries_that_find_work_done(seen: list[tuple[object, ...]]) -> None:
    side, event = Stream(), Event()
    event.record(side)
    event.synchronize()
    seen.clear()
    assert event.query()
    assert side.query()
    assert seen == [
        ("event_completion", event.cuda_event),
        ("stream_completion", side.cuda_stream, 0),
    ]


def test_unknown_kinds() -> None:
    with pytest.raises(ValueError, match="no kind of call is named 'nothing'"):
        observers.register("nothing", print)  # type: ignore[arg-type]
