# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from conftest import REAL
from flambeau.cuda import GreenContext, green_contexts
from flambeau.cuda.green_contexts import SMPartition

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("gpu")

on_the_modelled_clock = pytest.mark.skipif(REAL, reason="asserts times of the device model")


def total() -> int:
    return torch.cuda.get_device_properties(0).multi_processor_count


def test_the_granted_count_is_told() -> None:
    asked = total() // 2
    context = GreenContext(num_sms=asked, device_id=0)
    assert asked <= context.sm_count <= total()
    assert context.requested_sm_count == asked
    assert context.sm_partition.sm_count == context.sm_count
    assert context.device_id == context.sm_partition.device_id == 0
    assert context.locality_domain_id is None
    assert f"sm_count={context.sm_count} (asked for {asked})" in repr(context)
    assert GreenContext.create(num_sms=total()).sm_count == total()


@pytest.mark.parametrize("count", [0, -1, 10**6])
def test_more_or_fewer_than_the_device_has(count: int) -> None:
    with pytest.raises(RuntimeError) as caught:
        GreenContext(num_sms=count, device_id=0)
    assert "Invalid number of SMs requested for green context" in str(caught.value)
    assert f"{count} (device has {total()} SMs)" in str(caught.value)


def test_arguments_that_do_not_go_together() -> None:
    whole = SMPartition.from_device(0)
    for arguments, kind, text in (
        ({}, RuntimeError, "needs num_sms, sm_partition or workqueue_scope"),
        ({"num_sms": 8, "sm_partition": whole}, ValueError, "both given"),
        ({"num_sms": 8, "workqueue_concurrency_limit": 2}, RuntimeError, "needs a workqueue_scope"),
        ({"workqueue_scope": "mine"}, ValueError, "'device_ctx' or 'balanced'"),
        ({"sm_partition": 8}, TypeError, "is an SMPartition"),
        ({"num_sms": 2.5}, TypeError, "integer"),
        ({"num_sms": 8, "device_id": "cpu"}, ValueError, "Expected a cuda device"),
        ({"num_sms": 8, "device_id": 99}, AssertionError, "Invalid device id"),
    ):
        with pytest.raises(kind, match=text):
            GreenContext(**arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="from_device and split"):
        SMPartition(3, 0)  # type: ignore[arg-type]


def test_work_runs_in_its_streams() -> None:
    context = GreenContext(num_sms=8, device_id=0)
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    torch.cuda.synchronize()
    stream = context.Stream()
    assert isinstance(stream, torch.cuda.ExternalStream)
    with torch.cuda.stream(stream):
        y = x * 2 + 1
    stream.synchronize()
    assert y.sum().item() == 1000 * 1000


def test_streams_are_handed_out_in_turn() -> None:
    context = GreenContext(num_sms=8, device_id=0)
    streams = [context.Stream() for _ in range(33)]
    assert len({stream.cuda_stream for stream in streams}) == 32
    assert streams[32] == streams[0]


def test_a_stream_keeps_its_context_alive() -> None:
    stream = GreenContext(num_sms=8, device_id=0).Stream()
    gc.collect()
    GreenContext(num_sms=8, device_id=0)  # frees contexts that nobody has any more
    with torch.cuda.stream(stream):
        x = torch.ones(10, device="cuda") + 1
    stream.synchronize()
    assert x.sum().item() == 20


def test_equal_groups_are_disjoint_and_leave_the_rest() -> None:
    whole = SMPartition.from_device(0)
    size = max(8, whole.coscheduled_sm_count)
    (a, b), rest = whole.split(num_sms=[size, size])
    assert a.sm_count == b.sm_count >= size
    assert rest is not None
    assert a.sm_count + b.sm_count + rest.sm_count == whole.sm_count == total()
    first, second = GreenContext.split(num_sms=[size, size], device_id=0)
    assert first.sm_count == a.sm_count == second.sm_count
    assert GreenContext(sm_partition=a).sm_count == a.sm_count


def test_unequal_groups_where_the_driver_has_them() -> None:
    from flambeau import driver

    whole = SMPartition.from_device(0)
    if not driver.current().green_contexts.supports("split"):
        with pytest.raises(RuntimeError, match=r"driver 13\.1"):
            whole.split(num_sms=[16, 8])
        return
    (a, b), rest = whole.split(num_sms=[16, 8])
    assert (a.sm_count, b.sm_count) == (16, 8)
    assert rest is not None
    (c, d), left = rest.split(num_sms=[8, 0], backfill=[False, True])
    assert c.sm_count == 8
    assert d.sm_count + 8 == rest.sm_count
    assert left is None


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"num_sms": [8, 8], "backfill": [True]}, ValueError, "same length"),
        ({"num_sms": []}, ValueError, "at least one group"),
        ({"num_sms": -8}, ValueError, "negative"),
        ({"num_sms": [0, 8], "backfill": True}, ValueError, "only the last"),
        ({"num_sms": [10**6]}, RuntimeError, "Invalid number of SMs"),
        ({"num_sms": 8, "locality_domain_ids": 3}, RuntimeError, "locality domain 3"),
        ({"num_sms": 1.5}, TypeError, "integer"),
    ],
)
def test_bad_splits(arguments: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        SMPartition.from_device(0).split(**arguments)


def test_work_queues_where_the_driver_has_them() -> None:
    from flambeau import driver

    if not driver.current().green_contexts.supports("workqueues"):
        with pytest.raises(RuntimeError, match=r"13\.1"):
            GreenContext(workqueue_scope="balanced", device_id=0)
        return
    most = GreenContext.max_workqueue_concurrency(0)
    assert most >= 1
    context = GreenContext(workqueue_scope="balanced", workqueue_concurrency_limit=1, device_id=0)
    assert context.sm_count == total()
    assert context.requested_sm_count is None
    with pytest.raises(RuntimeError, match=f"from 1 to {most}"):
        GreenContext(workqueue_scope="device_ctx", workqueue_concurrency_limit=most + 1)


def test_set_and_pop() -> None:
    context = GreenContext(num_sms=8, device_id=0)
    before = torch.cuda.current_stream()
    with pytest.warns(FutureWarning, match="set_context"):
        context.set_context()
    assert torch.cuda.current_stream() != before
    x = torch.ones(4, device="cuda") * 3
    with pytest.warns(FutureWarning), pytest.raises(RuntimeError, match="set already"):
        context.set_context()
    with pytest.warns(FutureWarning, match="pop_context"):
        context.pop_context()
    assert torch.cuda.current_stream() == before
    assert x.tolist() == [3.0] * 4
    with pytest.warns(FutureWarning), pytest.raises(RuntimeError, match="not set"):
        context.pop_context()


def test_a_green_stream_can_be_captured() -> None:
    stream = GreenContext(num_sms=8, device_id=0).Stream()
    x = torch.ones(8, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        y = x + 1
    graph.replay()
    torch.cuda.synchronize()
    assert y.tolist() == [2.0] * 8


def test_locality() -> None:
    assert green_contexts.get_num_locality_domains(0) >= 1
    assert green_contexts.is_localization_supported() == (
        green_contexts.get_num_locality_domains() > 1
    )


# -- time ------------------------------------------------------------------------------------------


def elapsed(streams: list[Any], work: Callable[[], object]) -> int:
    torch.cuda.synchronize()
    start = torch.virtual.clock()
    for stream in streams:
        with torch.cuda.stream(stream):
            work()
    torch.cuda.synchronize()
    return torch.virtual.clock() - start


@on_the_modelled_clock
def test_a_partition_takes_its_share_of_time_and_disjoint_ones_overlap() -> None:
    x = torch.ones(1 << 22, device="cuda")
    out = [torch.empty_like(x) for _ in range(2)]
    turn = iter(range(1000))

    def work() -> None:
        torch.add(x, 1, out=out[next(turn) % 2])

    a, b = GreenContext.split(num_sms=[64, 64], device_id=0)
    quarter, _ = SMPartition.from_device(0).split(num_sms=[32])
    small = GreenContext(sm_partition=quarter[0])
    whole = elapsed([torch.cuda.Stream()], work)
    half = elapsed([a.Stream()], work)
    assert half > 1.4 * whole  # the rest is overhead that does not shrink
    assert elapsed([small.Stream()], work) > 1.6 * half
    both = elapsed([a.Stream(), b.Stream()], work)
    assert both < 1.2 * half
    same = elapsed([a.Stream(), a.Stream()], work)
    assert same > 1.6 * half


@on_the_modelled_clock
def test_work_of_the_whole_device_waits_for_partitions_and_they_for_it() -> None:
    x = torch.ones(1 << 22, device="cuda")
    a, b = GreenContext.split(num_sms=[64, 64], device_id=0)
    plain = torch.cuda.Stream()
    one = elapsed([a.Stream()], lambda: x + 1)
    whole = elapsed([plain], lambda: x + 1)
    assert elapsed([a.Stream(), plain], lambda: x + 1) > 0.9 * (one + whole) - 10_000
    assert elapsed([plain, b.Stream()], lambda: x + 1) > 0.9 * (one + whole) - 10_000


@on_the_modelled_clock
def test_a_replayed_graph_keeps_to_the_partition_of_its_capture() -> None:
    x = torch.ones(1 << 22, device="cuda")
    times = []
    for stream in (torch.cuda.Stream(), GreenContext(num_sms=32, device_id=0).Stream()):
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            _ = x * 2
        times.append(elapsed([torch.cuda.Stream()], graph.replay))
    assert times[1] > 2 * times[0]


@pytest.mark.gpu
def test_kernels_on_disjoint_partitions_overlap_on_hardware() -> None:
    spin = torch.cuda._compile_kernel(
        """extern "C" __global__ void spin(int cycles) {
             const long long start = clock64();
             while (clock64() - start < cycles) {}
           }""",
        "spin",
    )
    parts = GreenContext.split(num_sms=[64, 64], device_id=0)
    properties = torch.cuda.get_device_properties(0)
    assert all(part.sm_count >= 64 for part in parts)
    assert sum(part.sm_count for part in parts) <= properties.multi_processor_count
    full = properties.max_threads_per_multi_processor // 1024 * parts[0].sm_count

    def seconds(*streams: Any) -> float:
        times = []
        for _ in range(4):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for stream in streams:
                spin(grid=(full, 1, 1), block=(1024, 1, 1), args=(8_000_000,), stream=stream)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        return min(times)

    one = seconds(parts[0].Stream())
    assert seconds(parts[0].Stream(), parts[1].Stream()) < 1.4 * one
    assert seconds(parts[0].Stream(), parts[0].Stream()) > 1.6 * one
