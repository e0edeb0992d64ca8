# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from flambeau.runtime import _stream_state
from flambeau.runtime.happens_before import Order

A, B, C = (0, 1), (0, 2), (1, 3)


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> Order:
    monkeypatch.setattr(_stream_state, "waits_for_default", lambda stream, device: stream == 2)
    return Order()


def test_work_of_a_stream_is_in_order(order: Order) -> None:
    first = order.start(A)
    assert order.precedes(A, first, A)
    assert not order.precedes(A, first, C)


def test_events_carry_what_was_there_at_the_recording(order: Order) -> None:
    first = order.start(A)
    order.record(7, A)
    second = order.start(A)
    order.wait(C, 7)
    assert order.precedes(A, first, C)
    assert not order.precedes(A, second, C)
    order.finish_event(7)
    assert order.is_finished(A, first)
    assert not order.is_finished(A, second)
    order.forget_event(7)
    order.wait(B, 7)


def test_the_host_learns_what_a_stream_knew(order: Order) -> None:
    first = order.start(A)
    order.wait_queue(C, A)
    order.finish_queue(C)
    assert order.is_finished(A, first)


def test_a_device_is_all_its_streams(order: Order) -> None:
    numbers = {queue: order.start(queue) for queue in (A, C)}
    order.finish_device(0)
    assert order.is_finished(A, numbers[A])
    assert not order.is_finished(C, numbers[C])


def test_blocking_streams_and_the_default_stream_wait_for_each_other(order: Order) -> None:
    blocking, default = order.start(B), order.start((0, 0))
    assert order.precedes(B, blocking, (0, 0))
    again = order.start(B)
    assert order.precedes((0, 0), default, B)
    assert not order.precedes((0, 0), default, A)
    order.finish_queue((0, 0))
    assert order.is_finished(B, again)
