# SPDX-License-Identifier: Apache-2.0
"""Events: states, errors, order of times."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driver.virtual.device_memory import status_of
from flambeau.driver.virtual import _calls as calls

if TYPE_CHECKING:
    from driver.virtual.device_memory import Bench

UNTIMED, INTERPROCESS = 2, 4


def test_a_new_event_is_done(bench: Bench) -> None:
    event = bench.event()
    assert calls.event_query(event)
    calls.event_synchronize(event)
    calls.stream_wait_event(bench.stream(), event)


def test_an_event_with_nothing_before_it_is_done(bench: Bench, schedule: str) -> None:
    event = bench.event()
    calls.event_record(event, bench.stream())
    assert calls.event_query(event)


def test_recording_again_moves_it(bench: Bench, schedule: str) -> None:
    stream, event, buffer = bench.stream(), bench.event(), bench.buffer()
    calls.event_record(event, stream)
    buffer.fill(1, stream)
    calls.event_record(event, stream)
    assert not calls.event_query(event)
    calls.event_synchronize(event)
    assert buffer.peek() == b"\1" * 64


@pytest.mark.parametrize("flags", [8, 16, INTERPROCESS, INTERPROCESS | 1])
def test_flags_that_are_refused(bench: Bench, flags: int) -> None:
    assert status_of(calls.event_create, flags) == 1


def test_elapsed_time_of_untimed_or_unrecorded_events(bench: Bench) -> None:
    timed, other, untimed = bench.event(), bench.event(), bench.event(UNTIMED)
    calls.event_record(timed)
    calls.event_record(untimed)
    assert status_of(calls.event_elapsed_time, timed, untimed) == 400
    assert status_of(calls.event_elapsed_time, timed, other) == 400


def test_elapsed_time_of_unfinished_work(bench: Bench, schedule: str) -> None:
    stream, start, end = bench.stream(), bench.event(), bench.event()
    calls.event_record(start, stream)
    calls.spin(1_980_000, stream)
    calls.event_record(end, stream)
    assert status_of(calls.event_elapsed_time, start, end) == 600
    calls.event_synchronize(end)
    assert 1.0 <= calls.event_elapsed_time(start, end) < 1.01
    assert calls.event_elapsed_time(end, start) == -calls.event_elapsed_time(start, end)
    assert calls.event_elapsed_time(end, end) == 0.0


def test_events_stay_on_their_device(bench: Bench) -> None:
    event = bench.event()
    bench.use(1)
    assert status_of(calls.event_record, event, bench.stream()) == 400
    other = bench.event()
    calls.event_record(other)
    bench.use(0)
    calls.event_record(event)
    assert status_of(calls.event_elapsed_time, event, other) == 400


def test_a_destroyed_event_still_orders(bench: Bench, schedule: str) -> None:
    producer, consumer, buffer = bench.stream(), bench.stream(), bench.buffer()
    event = calls.event_create()
    buffer.fill(3, producer)
    calls.event_record(event, producer)
    calls.stream_wait_event(consumer, event)
    calls.event_destroy(event)
    calls.stream_synchronize(consumer)
    assert buffer.peek() == b"\3" * 64
    assert status_of(calls.event_query, event) == 400


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12))
def test_ordered_events_never_run_backwards(bench: Bench, steps: list[tuple[int, int]]) -> None:
    streams = [bench.stream() for _ in range(3)]
    before: list[int] = []
    for origin, target in steps:
        event = bench.event()
        calls.spin(1000 * (origin + 1), streams[origin])
        if before:
            calls.stream_wait_event(streams[origin], before[-1])
        calls.event_record(event, streams[origin])
        calls.stream_wait_event(streams[target], event)
        before.append(event)
    calls.ctx_synchronize()
    for earlier, later in itertools.pairwise(before):
        assert calls.event_elapsed_time(earlier, later) >= 0.0
