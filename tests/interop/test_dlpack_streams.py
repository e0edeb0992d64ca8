# SPDX-License-Identifier: Apache-2.0
"""What is ordered when a CUDA tensor travels by DLPack."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from flambeau.runtime import observers


@pytest.fixture
def waits(gpu: Any) -> Any:
    """The streams that were made to wait for an event, in order."""
    torch.cuda.init()
    seen: list[tuple[int, int]] = []
    torch.ones(1, device=gpu)

    def note(event: int, stream: int, device: int) -> None:
        seen.append((stream, device))

    observers.register("event_wait", note)
    yield seen
    observers.unregister("event_wait", note)


def test_no_order_is_needed_on_one_stream(gpu: Any, waits: Any) -> None:
    x = torch.ones(2, device=gpu)
    x.__dlpack__(stream=None)
    x.__dlpack__(stream=1)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x.__dlpack__(stream=side.cuda_stream)
    assert waits == []


def test_minus_one_orders_nothing(gpu: Any, waits: Any) -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.ones(2, device=gpu).__dlpack__(stream=-1)
    assert waits == []


@pytest.mark.parametrize("stream", [None, 1])
def test_the_default_stream_waits(gpu: Any, waits: Any, stream: int | None) -> None:
    x = torch.ones(2, device=gpu)
    with torch.cuda.stream(torch.cuda.Stream()):
        x.__dlpack__(stream=stream)
    assert waits == [(0, 0)]


def test_a_given_stream_waits(gpu: Any, waits: Any) -> None:
    side = torch.cuda.Stream()
    torch.ones(2, device=gpu).__dlpack__(stream=side.cuda_stream)
    assert waits == [(side.cuda_stream, 0)]


def test_the_stream_of_the_tensor_s_own_device_counts(gpus: Any, waits: Any) -> None:
    _, second = gpus(2)
    x = torch.ones(2, device=second)
    consumer = torch.cuda.Stream(second)
    producer = torch.cuda.Stream(second)
    with torch.cuda.stream(producer), torch.cuda.device(0):
        x.__dlpack__(stream=consumer.cuda_stream)
        assert torch.cuda.current_device() == 0
    assert waits == [(consumer.cuda_stream, 1)]


@pytest.mark.parametrize("stream", [0, -2])
def test_streams_that_the_standard_rules_out(gpu: Any, stream: int) -> None:
    with pytest.raises(BufferError, match="unsupported stream on CUDA"):
        torch.ones(2, device=gpu).__dlpack__(stream=stream)


@pytest.mark.parametrize("stream", ["1", 1.0, True])
def test_what_is_no_stream_number(gpu: Any, stream: Any) -> None:
    with pytest.raises(TypeError, match="stream must be"):
        torch.ones(2, device=gpu).__dlpack__(stream=stream)


def test_the_host_has_no_streams() -> None:
    with pytest.raises(BufferError, match="should be None on cpu"):
        torch.ones(2).__dlpack__(stream=1)
    torch.ones(2).__dlpack__(stream=-1)


def test_results_under_any_schedule(gpu: Any, schedule: str) -> None:
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(producer):
        x = torch.zeros(1000, device=gpu)
        for _ in range(5):
            x += 1
        capsule = x.__dlpack__(stream=consumer.cuda_stream, max_version=(1, 0))
    with torch.cuda.stream(consumer):
        y = torch.from_dlpack(capsule) * 2
    consumer.synchronize()
    assert y.cpu().unique().tolist() == [10.0]


def test_from_dlpack_orders_by_the_object(gpu: Any, schedule: str) -> None:
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()

    class Producer:
        def __dlpack_device__(self) -> tuple[int, int]:
            return x.__dlpack_device__()

        def __dlpack__(self, **arguments: Any) -> Any:
            with torch.cuda.stream(producer):
                return x.__dlpack__(**arguments)

    with torch.cuda.stream(producer):
        x = torch.zeros(1000, device=gpu)
        for _ in range(5):
            x += 1
    with torch.cuda.stream(consumer):
        y = torch.from_dlpack(Producer()) * 2
        assert y.cpu().unique().tolist() == [10.0]


def test_a_copy_to_the_host_is_complete(gpu: Any, schedule: str) -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.zeros(1000, device=gpu)
        for _ in range(5):
            x += 1
        y = torch.from_dlpack(x.__dlpack__(dl_device=(1, 0)))
    assert y.unique().tolist() == [5.0]


def test_a_capsule_in_a_capture(gpu: Any) -> None:
    x = torch.zeros(4, device=gpu)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        current = torch.cuda.current_stream().cuda_stream
        y = torch.from_dlpack(x.__dlpack__(stream=current))
        y += 1
    graph.replay()
    graph.replay()
    assert x.tolist() == [2, 2, 2, 2]
