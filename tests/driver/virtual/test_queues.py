# SPDX-License-Identifier: Apache-2.0
"""Streams: what is ordered and what is not, under every policy."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import TYPE_CHECKING

import pytest

from driver.virtual.device_memory import status_of
from flambeau import virtual
from flambeau.driver.virtual import _calls as calls

if TYPE_CHECKING:
    from driver.virtual.device_memory import Bench, Buffer, Pinned

DEFAULT, LEGACY, PER_THREAD = 0, 1, 2


class Log:
    """In which order host functions ran."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def add(self, name: str, stream: int) -> None:
        calls.launch_host_function(stream, lambda: self.names.append(name))


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_stream_is_in_order(bench: Bench, log: Log, schedule: str) -> None:
    stream = bench.stream()
    for index in range(20):
        log.add(str(index), stream)
    calls.stream_synchronize(stream)
    assert log.names == [str(index) for index in range(20)]


def test_nothing_runs_before_somebody_waits(bench: Bench, log: Log, schedule: str) -> None:
    stream = bench.stream()
    log.add("work", stream)
    time.sleep(0.05)
    assert log.names == []
    calls.ctx_synchronize()
    assert log.names == ["work"]


def test_adversarial_runs_only_what_is_waited_for(bench: Bench, log: Log) -> None:
    first, second = bench.stream(), bench.stream()
    with virtual.schedule("adversarial"):
        log.add("first", first)
        log.add("second", second)
        calls.stream_synchronize(second)
        assert log.names == ["second"]
        calls.stream_synchronize(first)
    assert log.names == ["second", "first"]


def test_adversarial_runs_the_newest_first(bench: Bench, log: Log) -> None:
    streams = [bench.stream() for _ in range(3)]
    with virtual.schedule("adversarial"):
        for index, stream in enumerate(streams):
            log.add(str(index), stream)
        calls.ctx_synchronize()
    assert log.names == ["2", "1", "0"]


def test_fifo_runs_in_the_order_of_submission(bench: Bench, log: Log) -> None:
    streams = [bench.stream() for _ in range(3)]
    for index in range(9):
        log.add(str(index), streams[index % 3])
    calls.stream_synchronize(streams[2])
    assert log.names == [str(index) for index in range(9)]


def random_order(bench: Bench, seed: int) -> list[str]:
    log, streams = Log(), [bench.stream() for _ in range(4)]
    with virtual.schedule(f"random:{seed}"):
        for index in range(16):
            log.add(str(index), streams[index % 4])
        calls.ctx_synchronize()
    return log.names


def test_random_repeats_for_a_seed(bench: Bench) -> None:
    assert random_order(bench, 3) == random_order(bench, 3)
    assert len({tuple(random_order(bench, seed)) for seed in range(5)}) > 1


def test_an_event_orders_two_streams(bench: Bench, log: Log, schedule: str) -> None:
    producer, consumer, event = bench.stream(), bench.stream(), bench.event()
    log.add("produce", producer)
    calls.event_record(event, producer)
    calls.stream_wait_event(consumer, event)
    log.add("consume", consumer)
    calls.stream_synchronize(consumer)
    assert log.names == ["produce", "consume"]


def test_a_wait_is_for_the_record_before_it(bench: Bench, log: Log) -> None:
    producer, consumer, event = bench.stream(), bench.stream(), bench.event()
    with virtual.schedule("adversarial"):
        calls.event_record(event, producer)
        calls.stream_wait_event(consumer, event)
        log.add("late", producer)
        calls.event_record(event, producer)
        log.add("consume", consumer)
        calls.stream_synchronize(consumer)
    assert log.names == ["consume"]


def test_an_event_orders_two_devices(bench: Bench, log: Log, schedule: str) -> None:
    producer, event = bench.stream(), bench.event()
    bench.use(1)
    consumer = bench.stream()
    log.add("device 0", producer)
    calls.event_record(event, producer)
    calls.stream_wait_event(consumer, event)
    log.add("device 1", consumer)
    calls.stream_synchronize(consumer)
    assert log.names == ["device 0", "device 1"]


def test_the_default_stream_waits_for_blocking_streams(
    bench: Bench, log: Log, schedule: str
) -> None:
    blocking = bench.stream(blocking=True)
    log.add("blocking", blocking)
    log.add("default", DEFAULT)
    log.add("after", blocking)
    calls.stream_synchronize(blocking)
    assert log.names == ["blocking", "default", "after"]


def test_the_default_stream_ignores_non_blocking_streams(bench: Bench, log: Log) -> None:
    free = bench.stream()
    with virtual.schedule("adversarial"):
        log.add("free", free)
        log.add("default", DEFAULT)
        calls.stream_synchronize(DEFAULT)
        assert log.names == ["default"]
        log.add("later", DEFAULT)
        calls.stream_synchronize(free)
    assert log.names == ["default", "free"]


def test_two_blocking_streams_are_not_ordered(bench: Bench, log: Log) -> None:
    one, two = bench.stream(blocking=True), bench.stream(blocking=True)
    with virtual.schedule("adversarial"):
        log.add("one", one)
        log.add("two", two)
        calls.stream_synchronize(two)
    assert log.names == ["two"]


def test_an_event_on_the_default_stream_holds_blocking_streams(
    bench: Bench, log: Log, schedule: str
) -> None:
    blocking, event = bench.stream(blocking=True), bench.event()
    log.add("blocking", blocking)
    calls.event_record(event, DEFAULT)
    calls.event_synchronize(event)
    assert log.names == ["blocking"]


def test_the_legacy_handle_is_the_default_stream(bench: Bench, log: Log, schedule: str) -> None:
    log.add("null", DEFAULT)
    log.add("legacy", LEGACY)
    calls.stream_synchronize(LEGACY)
    assert log.names == ["null", "legacy"]


def test_the_per_thread_handle_is_refused(bench: Bench) -> None:
    with pytest.raises(RuntimeError, match="no per-thread default stream") as error:
        calls.stream_synchronize(PER_THREAD)
    assert error.value.error_code == 801  # type: ignore[attr-defined]


def test_a_destroyed_stream_finishes(bench: Bench, log: Log, schedule: str) -> None:
    stream = calls.stream_create()
    log.add("work", stream)
    calls.stream_destroy(stream)
    assert status_of(calls.stream_synchronize, stream) == 400
    calls.ctx_synchronize()
    assert log.names == ["work"]


def test_a_query_runs_one_piece_of_work(bench: Bench, log: Log, schedule: str) -> None:
    stream = bench.stream()
    for index in range(3):
        log.add(str(index), stream)
    for index in range(3):
        assert not calls.stream_query(stream)
        assert log.names == [str(i) for i in range(index + 1)]
    assert calls.stream_query(stream)


def test_a_query_answers_what_was_true_before(bench: Bench, schedule: str) -> None:
    stream, event = bench.stream(), bench.event()
    buffer = bench.buffer()
    buffer.fill(1, stream)
    calls.event_record(event, stream)
    assert not calls.event_query(event)
    assert buffer.peek() == b"\1" * 64
    assert calls.event_query(event)


def test_a_query_of_an_idle_stream_is_true(bench: Bench) -> None:
    assert calls.stream_query(bench.stream())
    assert calls.stream_query(DEFAULT)


def test_a_host_function_may_wait_for_the_thread_that_queries(bench: Bench) -> None:
    stream, release = bench.stream(), threading.Event()
    calls.launch_host_function(stream, lambda: release.wait(30))
    assert not calls.stream_query(stream)
    assert not calls.stream_query(stream)
    release.set()
    calls.stream_synchronize(stream)


def test_a_host_function_may_not_wait_for_the_device(bench: Bench) -> None:
    stream, answers = bench.stream(), []
    calls.launch_host_function(
        stream, lambda: answers.append(status_of(calls.stream_synchronize, stream))
    )
    calls.stream_synchronize(stream)
    assert answers == [800]


def test_a_host_function_runs_on_a_thread_of_its_own(bench: Bench) -> None:
    stream, names = bench.stream(), []
    calls.launch_host_function(stream, lambda: names.append(threading.get_ident()))
    calls.stream_synchronize(stream)
    assert names[0] != threading.get_ident()


def test_pageable_memory_is_read_at_the_call(bench: Bench, schedule: str) -> None:
    stream, buffer = bench.stream(), bench.buffer(4)
    source = ctypes.create_string_buffer(b"then", 4)
    calls.memcpy_htod_async(buffer.address, ctypes.addressof(source), 4, stream)
    source.raw = b"now!"
    calls.stream_synchronize(stream)
    assert buffer.peek() == b"then"


def test_pinned_memory_is_read_when_the_copy_runs(bench: Bench, schedule: str) -> None:
    stream, buffer, source = bench.stream(), bench.buffer(), bench.pinned().set(1)
    buffer.load(source, stream)
    source.set(2)
    calls.stream_synchronize(stream)
    assert buffer.peek() == b"\2" * 64


def test_a_copy_to_pageable_memory_is_done_at_once(bench: Bench, schedule: str) -> None:
    stream, buffer = bench.stream(), bench.buffer(4)
    buffer.fill(7, stream)
    target = ctypes.create_string_buffer(4)
    calls.memcpy_dtoh_async(ctypes.addressof(target), buffer.address, 4, stream)
    assert target.raw == b"\7" * 4


def test_a_copy_to_pinned_memory_is_not(bench: Bench, schedule: str) -> None:
    stream, buffer, target = bench.stream(), bench.buffer(), bench.pinned()
    buffer.fill(7, stream)
    buffer.store(target, stream)
    assert target.bytes == b"\0" * 64
    calls.stream_synchronize(stream)
    assert target.bytes == b"\7" * 64


def test_a_copy_between_devices(bench: Bench, schedule: str) -> None:
    here = bench.buffer()
    bench.use(1)
    there = bench.buffer()
    bench.use(0)
    stream = bench.stream()
    here.fill(5, stream)
    calls.memcpy_peer_async(
        there.address, bench.contexts[1], here.address, bench.contexts[0], 64, stream
    )
    calls.stream_synchronize(stream)
    assert there.peek() == b"\5" * 64


def test_fills_of_each_width(bench: Bench) -> None:
    buffer = bench.buffer(12)
    calls.memset_d8_async(buffer.address, 0x11, 4)
    calls.memset_d16_async(buffer.address + 4, 0x2233, 2)
    calls.memset_d32_async(buffer.address + 8, 0x44556677, 1)
    calls.ctx_synchronize()
    assert buffer.peek() == bytes.fromhex("11111111 33223322 77665544")


def test_misaligned_fills_are_refused(bench: Bench) -> None:
    buffer = bench.buffer(16)
    assert status_of(calls.memset_d16_async, buffer.address + 1, 0, 1) == 1
    assert status_of(calls.memset_d32_async, buffer.address + 2, 0, 1) == 1


def test_progress_without_calls(bench: Bench) -> None:
    stream, buffer, target = bench.stream(), bench.buffer(), bench.pinned()
    virtual.set_progress(True)
    buffer.fill(9, stream)
    buffer.store(target, stream)
    limit = time.monotonic() + 30
    while target.bytes != b"\x09" * 64:
        assert time.monotonic() < limit, "the work never started by itself"
        time.sleep(0.001)


def test_much_work_starts_by_itself(bench: Bench) -> None:
    stream, buffer = bench.stream(), bench.buffer()
    virtual.set_progress(True)
    limit = time.monotonic() + 30
    while buffer.peek() != b"\1" * 64:
        buffer.fill(1, stream)  # no pause of 20 ms, and nobody waits
        assert time.monotonic() < limit, "the work never started by itself"


def test_staging_is_bounded(bench: Bench) -> None:
    size = 100 << 20
    stream, buffer = bench.stream(), bench.buffer(size)
    source = ctypes.create_string_buffer(size)
    for value in range(1, 6):
        ctypes.memset(source, value, 8)
        calls.memcpy_htod_async(buffer.address, ctypes.addressof(source), size, stream)
    calls.stream_synchronize(stream)
    assert ctypes.string_at(buffer.address, 8) == b"\5" * 8


def test_what_is_ready_goes_by_the_streams_priorities(bench: Bench, log: Log) -> None:
    virtual.set_schedule("fifo")
    plain, high, higher = bench.stream(), bench.stream(priority=-1), bench.stream(priority=-3)
    for name, stream in (("a", plain), ("b", plain), ("c", high), ("d", higher), ("e", high)):
        log.add(name, stream)
    calls.ctx_synchronize()
    assert "".join(log.names) == "dceab"


def test_priorities_do_not_overtake_what_must_come_first(bench: Bench, log: Log) -> None:
    virtual.set_schedule("fifo")
    plain, high = bench.stream(), bench.stream(priority=-5)
    log.add("a", plain)
    event = calls.event_create(0)
    calls.event_record(event, plain)
    calls.stream_wait_event(high, event, 0)
    log.add("c", high)
    log.add("b", plain)
    calls.ctx_synchronize()
    assert log.names[0] == "a"
    assert log.names == ["a", "c", "b"]
    calls.event_destroy(event)


@pytest.mark.parametrize(("asked", "given"), [(0, 0), (-3, -3), (-5, -5), (-99, -5), (7, 0)])
def test_priorities_are_clamped(bench: Bench, asked: int, given: int) -> None:
    assert calls.ctx_stream_priority_range() == (0, -5)
    assert calls.stream_priority(bench.stream(priority=asked)) == given


def test_what_a_stream_says_of_itself(bench: Bench) -> None:
    free, blocking = bench.stream(), bench.stream(blocking=True)
    assert (calls.stream_flags(free), calls.stream_flags(blocking)) == (1, 0)
    assert calls.stream_context(free) == bench.contexts[0]
    assert calls.stream_is_capturing(free) == 0
    assert calls.exchange_capture_mode(2) == 0
    assert calls.exchange_capture_mode(0) == 2


def test_bad_handles(bench: Bench) -> None:
    assert status_of(calls.stream_synchronize, 0xDEAD0) == 400
    assert status_of(calls.stream_destroy, 0xDEAD0) == 400
    assert status_of(calls.event_record, 0xDEAD0, 0) == 400
    assert status_of(calls.stream_create, 2) == 1


def test_without_a_context(bench: Bench) -> None:
    calls.ctx_set_current(0)
    assert calls.ctx_get_current() == 0
    for call, args in (
        (calls.mem_alloc, (1,)),
        (calls.stream_create, ()),
        (calls.event_create, ()),
        (calls.ctx_synchronize, ()),
        (calls.stream_synchronize, (DEFAULT,)),
    ):
        assert status_of(call, *args) == 201
    bench.use(0)


def test_threads_with_streams_of_their_own(bench: Bench, schedule: str) -> None:
    failures: list[BaseException] = []

    def work(value: int, stream: int, buffer: Buffer, target: Pinned) -> None:
        try:
            bench.use(0)
            for turn in range(100):
                seen: list[int] = []
                buffer.fill((value + turn) % 256, stream)
                buffer.store(target, stream)
                calls.launch_host_function(stream, lambda seen=seen: seen.append(target.bytes[63]))
                if turn % 3:
                    calls.stream_synchronize(stream)
                else:
                    while not calls.stream_query(stream):
                        pass
                assert seen == [(value + turn) % 256]
        except BaseException as error:
            failures.append(error)
            raise

    threads = [
        threading.Thread(target=work, args=(n, bench.stream(), bench.buffer(), bench.pinned()))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_the_current_context_is_the_thread_s(bench: Bench) -> None:
    seen = []
    bench.use(1)
    thread = threading.Thread(target=lambda: seen.append(calls.ctx_get_current()))
    thread.start()
    thread.join()
    assert seen == [0]
    assert calls.ctx_get_device() == 1
