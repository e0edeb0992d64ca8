# SPDX-License-Identifier: Apache-2.0
"""Streams of other libraries, by ``__cuda_stream__``, wherever a stream is taken."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import flambeau as torch
from flambeau.cuda import comm

SOURCE = 'extern "C" __global__ void fill(float *x, float v) { x[threadIdx.x] = v; }'


class Foreign:
    """Another library's stream."""

    def __init__(self, device: Any = None) -> None:
        self.stream = torch.cuda.Stream(device)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.stream.cuda_stream)


@pytest.fixture
def foreign(gpu: Any) -> Foreign:
    return Foreign(gpu)


def test_ours_has_it() -> None:
    side = torch.cuda.Stream()
    assert side.__cuda_stream__() == (0, side.cuda_stream)


def test_current_stream(foreign: Foreign) -> None:
    with torch.cuda.stream(foreign):
        assert torch.cuda.current_stream() == foreign.stream
    with torch.cuda.StreamContext(foreign):
        assert torch.cuda.current_stream() == foreign.stream
    torch.cuda.set_stream(foreign)
    assert torch.cuda.current_stream() == foreign.stream


def test_the_device_is_the_stream_s(gpus: Any) -> None:
    _, second = gpus(2)
    foreign = Foreign(second)
    with torch.cuda.stream(foreign):
        assert torch.cuda.current_device() == 1
        x = torch.ones(3, device="cuda")
    assert x.device == second
    assert torch.cuda.current_device() == 0


def test_events_and_waits(foreign: Foreign, gpu: Any, schedule: str) -> None:
    main = torch.cuda.current_stream()
    with torch.cuda.stream(foreign):
        x = torch.zeros(1000, device=gpu)
        x += 1
    event = torch.cuda.Event()
    event.record(foreign)
    event.wait(main)
    y = x * 2
    event.record(main)
    event.wait(foreign)
    with torch.cuda.stream(foreign):
        z = y * 2
    main.wait_stream(foreign)
    assert (z + 1).cpu().unique().tolist() == [5.0]


def test_a_generic_stream_waits_for_a_foreign_one(foreign: Foreign) -> None:
    torch.Stream("cuda").wait_stream(foreign)


def test_record_stream(foreign: Foreign, gpu: Any) -> None:
    x = torch.ones(1000, device=gpu)
    x.record_stream(foreign)


def test_compiled_kernels(foreign: Foreign, gpu: Any) -> None:
    kernel = torch.cuda._compile_kernel(SOURCE, "fill")
    x = torch.zeros(4, device=gpu)
    foreign.stream.wait_stream(torch.cuda.current_stream())
    kernel(grid=(1, 1, 1), block=(4, 1, 1), args=(x, 2.0), stream=foreign)
    foreign.stream.synchronize()
    assert x.tolist() == [2, 2, 2, 2]


def test_allocation_by_address(foreign: Foreign) -> None:
    address = torch.cuda.caching_allocator_alloc(512, stream=foreign)
    torch.cuda.caching_allocator_delete(address)


def test_collectives_over_devices(gpus: Any) -> None:
    devices = gpus(2)
    streams = [Foreign(device) for device in devices]
    parts = comm.scatter(torch.arange(4, device=devices[0]), [0, 1], streams=streams)
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3]]


def test_graphs_capture_on_it(foreign: Foreign, gpu: Any) -> None:
    x = torch.zeros(3, device=gpu)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=foreign):
        x += 1
    graph.replay()
    assert x.tolist() == [1, 1, 1]


def test_external_streams(foreign: Foreign, gpus: Any) -> None:
    made = torch.cuda.ExternalStream(foreign)
    assert made == foreign.stream
    assert made.device == foreign.stream.device
    _, second = gpus(2)
    assert torch.cuda.ExternalStream(Foreign(second)).device == second
    with pytest.raises(RuntimeError, match="belongs to cuda:0"):
        torch.cuda.ExternalStream(foreign, device=second)


def test_an_external_stream_keeps_the_object() -> None:
    foreign = Foreign()
    gone = weakref.ref(foreign)
    made = torch.cuda.ExternalStream(foreign)
    del foreign
    gc.collect()
    assert gone() is not None
    del made
    assert gone() is None


@pytest.mark.parametrize("handle", [0, 1])
def test_both_names_of_the_default_stream(gpu: Any, handle: int) -> None:
    class Default:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, handle)

    with torch.cuda.stream(Default()):
        assert torch.cuda.current_stream() == torch.cuda.default_stream()


@pytest.mark.parametrize("answer", [(1, 5), 7, (0,), None])
def test_what_is_no_answer(gpu: Any, answer: Any) -> None:
    class Odd:
        def __cuda_stream__(self) -> Any:
            return answer

    with pytest.raises(RuntimeError, match="__cuda_stream__"):
        torch.cuda.set_stream(Odd())


def test_a_description_instead_of_a_method(foreign: Foreign) -> None:
    class Old:
        __cuda_stream__ = foreign.__cuda_stream__()

    with torch.cuda.stream(Old()):
        assert torch.cuda.current_stream() == foreign.stream


@pytest.mark.parametrize("what", [7, "0", object()])
def test_what_is_no_stream(gpu: Any, what: Any) -> None:
    with pytest.raises(RuntimeError, match="object with __cuda_stream__"):
        torch.cuda.set_stream(what)
    with pytest.raises(RuntimeError, match="object with __cuda_stream__"):
        torch.cuda.Event().record(what)
