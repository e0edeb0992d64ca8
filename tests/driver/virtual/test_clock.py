# SPDX-License-Identifier: Apache-2.0
"""Modelled time: what it is made of, and that it is the same every time."""

from __future__ import annotations

from driver.virtual.scripts import run

PROGRAM = """
start()
n = 4 << 20
streams = [calls.stream_create() for _ in range(3)]
pinned = calls.mem_host_alloc(n)
buffers = [calls.mem_alloc(n) for _ in range(3)]
events = []
for i in range(6):
    stream = streams[i % 3]
    calls.memcpy_htod_async(buffers[i % 3], pinned, n, stream)
    calls.spin(100_000 * i, stream)
    calls.memset_d32_async(buffers[i % 3], i, n // 4, stream)
    events.append(calls.event_create())
    calls.event_record(events[-1], stream)
while not calls.event_query(events[0]):
    pass
calls.ctx_synchronize()
print(virtual.clock(), [calls.event_elapsed_time(events[0], e) for e in events])
"""


def test_it_repeats() -> None:
    assert len({run(PROGRAM).stdout for _ in range(3)}) == 1


def test_it_is_not_wall_time() -> None:
    run("""
        start()
        before = virtual.clock()
        time.sleep(0.1)
        assert virtual.clock() == before
        stream = calls.stream_create()
        calls.spin(1980 * 60_000_000, stream)        # a minute
        began = time.monotonic()
        calls.stream_synchronize(stream)
        assert time.monotonic() - began < 5
        assert 60e9 < virtual.clock() - before < 60.001e9
    """)


def test_calls_move_it() -> None:
    run("""
        start()
        before = virtual.clock()
        for _ in range(100):
            calls.stream_query(0)
        assert virtual.clock() == before + 100 * 1000
    """)


def elapsed(body: str, machine: str = "h200") -> float:
    script = f"""
        start()
        stream, begin, end = calls.stream_create(), calls.event_create(), calls.event_create()
        n = 1 << 27
        a, b = calls.mem_alloc(n), calls.mem_alloc(n)
        calls.event_record(begin, stream)
        {body}
        calls.event_record(end, stream)
        calls.event_synchronize(end)
        print(calls.event_elapsed_time(begin, end))
    """
    return float(run(script, machine=machine).stdout)


def test_a_copy_within_the_device_takes_its_bandwidth() -> None:
    took = elapsed("calls.memcpy_dtod_async(b, a, n, stream)")
    ideal = 2 * (1 << 27) / 4.8e12 * 1e3
    assert ideal < took < ideal + 0.01


def test_a_fill_takes_half_of_that() -> None:
    took = elapsed("calls.memset_d8_async(a, 0, n, stream)")
    ideal = (1 << 27) / 4.8e12 * 1e3
    assert ideal < took < ideal + 0.01


def test_a_spin_takes_its_cycles() -> None:
    assert 10 <= elapsed("calls.spin(19_800_000, stream)") < 10.01
    assert 10 <= elapsed("calls.spin(14_100_000, stream)", machine="a100") < 10.01


def test_pinned_copies_are_faster_than_pageable_ones() -> None:
    body = """
        size = 64 << 20
        source = {source}
        calls.memcpy_htod_async(a, source, size, stream)
    """
    pinned = elapsed(body.format(source="calls.mem_host_alloc(size)"))
    pageable = elapsed(
        body.format(source="ctypes.addressof((keep := ctypes.create_string_buffer(size)))")
    )
    assert (64 << 20) / 55e9 * 1e3 < pinned < 0.5 * pageable


def test_streams_overlap_and_engines_do_not() -> None:
    run("""
        start()
        size = 64 << 20
        streams = [calls.stream_create() for _ in range(2)]
        source, target = (calls.mem_host_alloc(size) for _ in range(2))
        a, b, c = (calls.mem_alloc(size) for _ in range(3))

        def total(first, second):
            calls.ctx_synchronize()
            before = virtual.clock()
            first(streams[0])
            second(streams[1])
            calls.ctx_synchronize()
            return virtual.clock() - before

        up = lambda s: calls.memcpy_htod_async(a, source, size, s)
        also_up = lambda s: calls.memcpy_htod_async(c, source, size, s)
        down = lambda s: calls.memcpy_dtoh_async(target, b, size, s)
        spin = lambda s: calls.spin(19_800_000, s)
        one_way = size / 55e9 * 1e9
        assert one_way < total(up, down) < 1.1 * one_way
        assert 2 * one_way < total(up, also_up) < 2.1 * one_way
        assert 10e6 < total(spin, spin) < 10.1e6
    """)


def test_waiting_moves_it_to_the_end_of_what_was_waited_for() -> None:
    run("""
        start()
        stream = calls.stream_create()
        calls.spin(1_980_000, stream)
        submitted = virtual.clock()
        event = calls.event_create()
        calls.event_record(event, stream)
        while not calls.event_query(event):
            pass
        assert virtual.clock() >= submitted + 1_000_000
    """)


def test_a_fresh_machine_starts_at_zero() -> None:
    run("""
        assert virtual.clock() == 0
        start()
        assert virtual.clock() > 0
        virtual.reset()
        assert virtual.clock() == 0
    """)


def test_a_part_of_a_graph_that_repeats_takes_its_time_each_time() -> None:
    run("""
        import flambeau as torch
        x = torch.ones(1 << 20, device="cuda")
        limit = torch.zeros(1, device="cuda")
        going = torch.ones((), dtype=torch.bool, device="cuda")
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            going.copy_((x[:1] < limit).squeeze())
            graph.begin_capture_to_while_node(going)
            x *= 2
            going.copy_((x[:1] < limit).squeeze())
            graph.set_conditional_handle_for_current_node(going)
            graph.end_capture_to_conditional_node()
        graph.instantiate()

        def took(times):
            x.fill_(1)
            limit.fill_(2.0 ** times)
            torch.cuda.synchronize()
            before = virtual.clock()
            graph.replay()
            torch.cuda.synchronize()
            assert x[0].item() == 2.0 ** times
            return virtual.clock() - before

        once, more = (took(n) - took(0) for n in (1, 11))
        assert 2 * (1 << 20) * 4 / 4.8e12 * 1e9 < once
        assert 10.9 * once < more < 11.1 * once, (once, more)
    """)
