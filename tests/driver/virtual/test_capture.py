# SPDX-License-Identifier: Apache-2.0
"""Stream capture and graphs: what is captured, what is refused, what a launch does."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driver.virtual.device_memory import status_of
from flambeau.driver.errors import AcceleratorError
from flambeau.driver.virtual import _calls as calls
from flambeau.driver.virtual import _graph_calls as graphs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from driver.virtual.device_memory import Bench, Buffer

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
MEMCPY, MEMSET, HOST, WAIT_EVENT, EVENT_RECORD = 1, 2, 3, 6, 7


def captured(stream: int, work: Callable[[], object]) -> int:
    graphs.stream_begin_capture(stream)
    work()
    return graphs.stream_end_capture(stream)


def shape(graph: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Types of the nodes and edges by the nodes' places."""
    nodes = graphs.graph_nodes(graph)
    edges = [(nodes.index(a), nodes.index(b)) for a, b in graphs.graph_edges(graph)]
    return [graphs.graph_node_type(node) for node in nodes], sorted(edges)


def in_thread(call: Callable[[], int]) -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture
def buffer(bench: Bench) -> Buffer:
    buffer = bench.buffer()
    buffer.fill(0, 0)
    calls.ctx_synchronize()
    return buffer


def test_captured_work_runs_when_it_is_launched(
    bench: Bench, buffer: Buffer, schedule: str
) -> None:
    stream, other = bench.stream(), bench.stream()
    graph = captured(stream, lambda: buffer.fill(7, stream))
    calls.ctx_synchronize()
    assert buffer.peek() == b"\0" * 64
    exec_ = graphs.graph_instantiate(graph)
    graphs.graph_destroy(graph)
    for launching in (stream, other, 0):
        buffer.fill(1, launching)
        graphs.graph_launch(exec_, launching)
        calls.stream_synchronize(launching)
        assert buffer.peek() == b"\7" * 64
    graphs.graph_exec_destroy(exec_)
    assert status_of(graphs.graph_launch, exec_, stream) == 1


def test_work_of_a_stream_is_a_chain(bench: Bench, buffer: Buffer) -> None:
    stream, target, pinned = bench.stream(), bench.buffer(), bench.pinned()

    def work() -> None:
        buffer.fill(1, stream)
        buffer.copy_to(target, stream)
        target.store(pinned, stream)

    graph = captured(stream, work)
    assert shape(graph) == ([MEMSET, MEMCPY, MEMCPY], [(0, 1), (1, 2)])


def test_pinned_memory_is_read_at_each_launch(bench: Bench, buffer: Buffer, schedule: str) -> None:
    stream, source = bench.stream(), bench.pinned().set(1)
    exec_ = graphs.graph_instantiate(captured(stream, lambda: buffer.load(source, stream)))
    for value in (2, 3):
        source.set(value)
        graphs.graph_launch(exec_, stream)
        calls.stream_synchronize(stream)
        assert buffer.peek() == bytes([value]) * 64


def test_forks_and_joins_are_edges(bench: Bench, buffer: Buffer) -> None:
    stream, side = bench.stream(), bench.stream()
    fork, join, other = bench.event(), bench.event(), bench.buffer()

    def work() -> None:
        buffer.fill(1, stream)
        calls.event_record(fork, stream)
        calls.stream_wait_event(side, fork)
        other.fill(2, side)
        buffer.fill(3, stream)
        calls.event_record(join, side)
        calls.stream_wait_event(stream, join)
        buffer.copy_to(other, stream)

    graph = captured(stream, work)
    assert shape(graph)[1] == [(0, 1), (0, 2), (1, 3), (2, 3)]
    assert not calls.stream_is_capturing(side)


def test_launches_of_one_graph_do_not_overlap(bench: Bench, buffer: Buffer, schedule: str) -> None:
    first, second, log = bench.stream(), bench.stream(), list[int]()
    exec_ = graphs.graph_instantiate(captured(first, lambda: calls.spin(1000, first)))
    graphs.graph_launch(exec_, first)
    calls.launch_host_function(first, lambda: log.append(1))
    graphs.graph_launch(exec_, second)
    calls.launch_host_function(second, lambda: log.append(2))
    start, end = bench.event(), bench.event()
    calls.event_record(start, first)
    calls.event_record(end, second)
    calls.ctx_synchronize()
    assert sorted(log) == [1, 2]
    assert calls.event_elapsed_time(start, end) > 0


def test_a_launch_keeps_the_order_of_streams(bench: Bench, buffer: Buffer, schedule: str) -> None:
    stream, target = bench.stream(), bench.buffer()
    exec_ = graphs.graph_instantiate(captured(stream, lambda: buffer.copy_to(target, stream)))
    buffer.fill(5, stream)
    graphs.graph_launch(exec_, stream)
    buffer.fill(6, stream)
    calls.stream_synchronize(stream)
    assert target.peek() == b"\5" * 64


def test_external_events_are_nodes(bench: Bench, buffer: Buffer, schedule: str) -> None:
    stream, start, end = bench.stream(), bench.event(), bench.event()

    def work() -> None:
        graphs.event_record_with_flags(start, stream, 1)
        buffer.fill(1, stream)
        graphs.event_record_with_flags(end, stream, 1)
        calls.stream_wait_event(stream, end, 1)

    graph = captured(stream, work)
    assert shape(graph)[0] == [EVENT_RECORD, MEMSET, EVENT_RECORD, WAIT_EVENT]
    assert graphs.graph_node_event(graphs.graph_nodes(graph)[2]) == end
    assert status_of(calls.event_elapsed_time, start, end) == 400
    exec_ = graphs.graph_instantiate(graph)
    graphs.graph_launch(exec_, stream)
    calls.event_synchronize(end)
    assert buffer.peek() == b"\1" * 64
    assert calls.event_elapsed_time(start, end) > 0


def test_events_of_a_capture_mean_nothing_after_it(bench: Bench, buffer: Buffer) -> None:
    stream, event = bench.stream(), bench.event()
    graph = captured(stream, lambda: calls.event_record(event, stream))
    assert graphs.graph_nodes(graph) == []
    assert status_of(calls.event_query, event) == 1
    assert status_of(calls.event_synchronize, event) == 1
    assert status_of(calls.stream_wait_event, stream, event) == 1
    calls.event_record(event, stream)
    calls.event_synchronize(event)


def test_host_functions_are_nodes(bench: Bench) -> None:
    stream = bench.stream()
    graph = captured(stream, lambda: calls.launch_host_function(stream, lambda: None))
    assert shape(graph)[0] == [HOST]


UNSAFE: dict[str, Callable[[int, int], object]] = {
    "query": lambda stream, event: calls.stream_query(stream),
    "synchronize": lambda stream, event: calls.stream_synchronize(stream),
    "event query": lambda stream, event: calls.event_query(event),
    "event synchronize": lambda stream, event: calls.event_synchronize(event),
    "device synchronize": lambda stream, event: calls.ctx_synchronize(),
    "allocation": lambda stream, event: calls.mem_alloc(64),
    "host allocation": lambda stream, event: calls.mem_host_alloc(64),
}


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL])
def test_unsafe_calls_end_a_capture(bench: Bench, buffer: Buffer, name: str, mode: int) -> None:
    stream, other, event = bench.stream(), bench.stream(), bench.event()
    calls.event_record(event, other)
    graphs.stream_begin_capture(stream, mode)
    buffer.fill(1, stream)
    assert status_of(lambda: UNSAFE[name](other, event)) == 900
    assert graphs.stream_capture_info(stream)[0] == 2
    assert status_of(buffer.fill, 2, stream) == 901
    assert status_of(graphs.stream_end_capture, stream) == 901
    assert not calls.stream_is_capturing(stream)
    calls.ctx_synchronize()
    assert graphs.graph_nodes(captured(stream, lambda: buffer.fill(1, stream)))


@pytest.mark.parametrize("name", ["query", "event query", "allocation"])
def test_modes_and_other_threads(bench: Bench, buffer: Buffer, name: str) -> None:
    stream, other, event = bench.stream(), bench.stream(), bench.event()
    context = bench.contexts[0]

    def elsewhere() -> int:
        calls.ctx_set_current(context)
        return status_of(lambda: UNSAFE[name](other, event))

    for mode, status in ((GLOBAL, 900), (THREAD_LOCAL, 0), (RELAXED, 0)):
        graphs.stream_begin_capture(stream, mode)
        assert in_thread(elsewhere) == status
        assert status_of(graphs.stream_end_capture, stream) == (901 if status else 0)


def test_a_relaxed_thread_may_do_more(bench: Bench, buffer: Buffer) -> None:
    stream, event = bench.stream(), bench.event()
    assert calls.exchange_capture_mode(RELAXED) == GLOBAL
    try:
        graphs.stream_begin_capture(stream)
        calls.event_query(event)
        calls.mem_free(calls.mem_alloc(64))
        assert status_of(calls.stream_query, stream) == 900
        assert status_of(graphs.stream_end_capture, stream) == 901
    finally:
        assert calls.exchange_capture_mode(GLOBAL) == RELAXED


def test_the_first_offence_is_kept(bench: Bench, buffer: Buffer) -> None:
    stream, other = bench.stream(), bench.stream()
    graphs.stream_begin_capture(stream)
    assert status_of(calls.stream_query, other) == 900
    assert status_of(calls.ctx_synchronize) == 901
    with pytest.raises(AcceleratorError, match="cuStreamQuery") as caught:
        graphs.stream_end_capture(stream)
    assert caught.value.error_code == 901


def test_waiting_for_work_outside(bench: Bench, buffer: Buffer) -> None:
    stream, other, event = bench.stream(), bench.stream(), bench.event()
    calls.event_record(event, other)
    graphs.stream_begin_capture(stream)
    assert status_of(calls.stream_wait_event, stream, event) == 905
    assert status_of(graphs.stream_end_capture, stream) == 901


def test_asking_an_event_of_the_capture(bench: Bench, buffer: Buffer) -> None:
    stream, event = bench.stream(), bench.event()
    graphs.stream_begin_capture(stream, RELAXED)
    calls.event_record(event, stream)
    assert status_of(calls.event_query, event) == 907
    assert status_of(graphs.stream_end_capture, stream) == 901


def test_forks_that_are_not_joined(bench: Bench, buffer: Buffer) -> None:
    stream, side, event = bench.stream(), bench.stream(), bench.event()
    graphs.stream_begin_capture(stream)
    calls.event_record(event, stream)
    calls.stream_wait_event(side, event)
    buffer.fill(1, side)
    assert status_of(graphs.stream_end_capture, stream) == 904
    assert not calls.stream_is_capturing(stream)
    assert not calls.stream_is_capturing(side)


def test_the_default_stream_and_captures(bench: Bench, buffer: Buffer) -> None:
    assert status_of(graphs.stream_begin_capture, 0) == 900
    stream, blocking, event = bench.stream(), bench.stream(blocking=True), bench.event()
    graphs.stream_begin_capture(stream)
    buffer.fill(1, 0)
    calls.event_record(event, stream)
    assert status_of(calls.stream_wait_event, 0, event) == 906
    assert status_of(graphs.stream_end_capture, stream) == 901
    graphs.stream_begin_capture(blocking)
    assert status_of(calls.stream_is_capturing, 0) == 906
    assert graphs.stream_capture_info(blocking)[0] == 1
    assert status_of(buffer.fill, 1, 0) == 906
    assert status_of(graphs.stream_end_capture, blocking) == 901


def test_two_captures_do_not_merge(bench: Bench, buffer: Buffer) -> None:
    first, second, event = bench.stream(), bench.stream(), bench.event()
    graphs.stream_begin_capture(first)
    graphs.stream_begin_capture(second)
    calls.event_record(event, first)
    assert status_of(calls.stream_wait_event, second, event) == 902
    for stream in (first, second):
        assert status_of(graphs.stream_end_capture, stream) == 901


def test_beginning_and_ending_out_of_turn(bench: Bench, buffer: Buffer) -> None:
    stream, side, event = bench.stream(), bench.stream(), bench.event()
    assert status_of(graphs.stream_end_capture, stream) == 401
    graphs.stream_begin_capture(stream)
    assert status_of(graphs.stream_begin_capture, stream) == 401
    assert in_thread(lambda: status_of(graphs.stream_end_capture, stream)) == 908
    assert status_of(graphs.stream_end_capture, stream) == 401
    graphs.stream_begin_capture(stream)
    calls.event_record(event, stream)
    calls.stream_wait_event(side, event)
    assert status_of(graphs.stream_end_capture, side) == 903
    assert status_of(graphs.stream_end_capture, stream) == 901


def test_pageable_copies_are_refused(bench: Bench, buffer: Buffer) -> None:
    stream, host = bench.stream(), bytearray(64)
    address = ctypes.addressof((ctypes.c_char * 64).from_buffer(host))
    for copy in (
        lambda: calls.memcpy_htod_async(buffer.address, address, 64, stream),
        lambda: calls.memcpy_dtoh_async(address, buffer.address, 64, stream),
    ):
        graphs.stream_begin_capture(stream)
        assert status_of(copy) == 900
        assert status_of(graphs.stream_end_capture, stream) == 901


def test_unforked_work_is_not_captured(bench: Bench, buffer: Buffer) -> None:
    stream, other = bench.stream(), bench.stream()
    graph = captured(stream, lambda: buffer.fill(9, other))
    assert graphs.graph_nodes(graph) == []
    calls.stream_synchronize(other)
    assert buffer.peek() == b"\t" * 64


def test_ids_count_graphs_and_executables_together(bench: Bench, buffer: Buffer) -> None:
    stream = bench.stream()
    graph = captured(stream, lambda: buffer.fill(1, stream))
    first, second = (graphs.graph_exec_id(graphs.graph_instantiate(graph)) for _ in range(2))
    own = graphs.graph_id(graph)
    assert (first, second) == (own + 1, own + 2)
    assert graphs.graph_node_tools_id(graphs.graph_nodes(graph)[0]) == own << 32


def test_capture_info_tells_the_frontier(bench: Bench, buffer: Buffer) -> None:
    stream = bench.stream()
    assert graphs.stream_capture_info(stream)[0] == 0
    graphs.stream_begin_capture(stream)
    buffer.fill(1, stream)
    status, _, graph, frontier = graphs.stream_capture_info(stream)
    assert status == 1
    assert frontier == graphs.graph_nodes(graph)
    assert graphs.stream_end_capture(stream) == graph


def test_dot_names_nodes_and_edges(bench: Bench, buffer: Buffer, tmp_path: Path) -> None:
    stream, target = bench.stream(), bench.buffer()

    def work() -> None:
        buffer.fill(1, stream)
        buffer.copy_to(target, stream)

    graph = captured(stream, work)
    graphs.graph_debug_dot(graph, str(tmp_path / "g.dot"))
    text = (tmp_path / "g.dot").read_text()
    name = f"graph_{graphs.graph_id(graph)}_node_"
    assert text.startswith("digraph dot {")
    assert f'"{name}0" -> "{name}1"' in text
    assert status_of(graphs.graph_debug_dot, graph, str(tmp_path / "none" / "g.dot")) == 1


def test_a_destroyed_stream_ends_its_capture(bench: Bench, buffer: Buffer) -> None:
    stream = calls.stream_create()
    graphs.stream_begin_capture(stream)
    calls.stream_destroy(stream)
    calls.ctx_synchronize()


def test_a_launch_takes_as_long_as_its_longest_path(bench: Bench) -> None:
    stream, side, fork, join = bench.stream(), bench.stream(), bench.event(), bench.event()
    start, end = bench.event(), bench.event()

    def work() -> None:
        calls.event_record(fork, stream)
        calls.stream_wait_event(side, fork)
        calls.spin(10**6, side)
        calls.spin(2 * 10**6, stream)
        calls.event_record(join, side)
        calls.stream_wait_event(stream, join)

    exec_ = graphs.graph_instantiate(captured(stream, work))
    calls.event_record(start, stream)
    graphs.graph_launch(exec_, stream)
    calls.event_record(end, stream)
    calls.spin(2 * 10**6, stream)
    alone = bench.event()
    calls.event_record(alone, stream)
    calls.ctx_synchronize()
    together = calls.event_elapsed_time(start, end)
    assert together == pytest.approx(calls.event_elapsed_time(end, alone), rel=0.02)


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[int, int]]:
    """(stream, v): fill the stream's buffer with v, or copy another stream's if v is negative."""
    values = st.tuples(st.integers(0, 2), st.integers(-2, 100))
    return draw(st.lists(values, min_size=1, max_size=12))


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(program=steps())
def test_replays_keep_every_order_of_the_capture(
    bench: Bench, schedule: str, program: list[tuple[int, int]]
) -> None:
    streams = [bench.stream() for _ in range(3)]
    buffers = [bench.buffer() for _ in range(3)]
    event, expected = bench.event(), [0, 0, 0]

    def wait(waiting: int, other: int) -> None:
        calls.event_record(event, streams[other])
        calls.stream_wait_event(streams[waiting], event)

    def work() -> None:
        for index in (0, 1, 2):
            buffers[index].fill(0, streams[0])
        for index in (1, 2):
            wait(index, 0)
        for index, value in program:
            if value >= 0:
                buffers[index].fill(value, streams[index])
                expected[index] = value
                continue
            other = (index - value) % 3
            wait(index, other)  # it reads what the other wrote,
            buffers[other].copy_to(buffers[index], streams[index])
            wait(other, index)  # which must not write again before that
            expected[index] = expected[other]
        for index in (1, 2):
            wait(0, index)

    exec_ = graphs.graph_instantiate(captured(streams[0], work))
    for _ in range(2):
        graphs.graph_launch(exec_, streams[1])
        calls.stream_synchronize(streams[1])
        assert [buffer.peek()[0] for buffer in buffers] == expected
