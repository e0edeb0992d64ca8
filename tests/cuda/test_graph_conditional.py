# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from flambeau.runtime import _state

if TYPE_CHECKING:
    from collections.abc import Callable


def on(gpu: torch.device, value: bool) -> torch.Tensor:
    return torch.full((), value, dtype=torch.bool, device=gpu)


@pytest.fixture
def graph(gpu: torch.device) -> torch.cuda.CUDAGraph:
    return torch.cuda.CUDAGraph(keep_graph=True)


def test_an_if_body_runs_as_the_replay_finds_the_tensor(
    gpu: torch.device, graph: torch.cuda.CUDAGraph, schedule: str
) -> None:
    wanted, x = on(gpu, False), torch.zeros(100, device=gpu)
    with torch.cuda.graph(graph):
        x += 1
        graph.begin_capture_to_if_node(wanted)
        x *= 10
        graph.end_capture_to_conditional_node()
        x += 2
    graph.instantiate()
    assert x.tolist() == [0.0] * 100  # capturing runs nothing
    graph.replay()
    assert x.tolist() == [3.0] * 100
    wanted.fill_(True)
    graph.replay()
    assert x.tolist() == [42.0] * 100


def test_a_while_body_runs_until_captured_work_says_stop(
    gpu: torch.device, graph: torch.cuda.CUDAGraph, schedule: str
) -> None:
    x, steps = torch.ones(1, device=gpu), torch.zeros(1, device=gpu)
    going = on(gpu, True)
    with torch.cuda.graph(graph):
        going.copy_((x < 100).squeeze())
        graph.begin_capture_to_while_node(going)
        x *= 2
        steps += 1
        going.copy_((x < 100).squeeze())
        graph.set_conditional_handle_for_current_node(going)
        graph.end_capture_to_conditional_node()
    graph.instantiate()
    graph.replay()
    assert (x.item(), steps.item()) == (128, 7)
    graph.replay()  # does not hold at all
    assert (x.item(), steps.item()) == (128, 7)
    x.fill_(50)
    graph.replay()
    assert (x.item(), steps.item()) == (100, 8)


def test_bodies_nest(gpu: torch.device, graph: torch.cuda.CUDAGraph) -> None:
    outer, inner, x = on(gpu, True), on(gpu, True), torch.zeros(1, device=gpu)
    with torch.cuda.graph(graph):
        streams = [torch.cuda.current_stream()]
        graph.begin_capture_to_if_node(outer)
        x += 1
        streams.append(torch.cuda.current_stream())
        graph.begin_capture_to_if_node(inner)
        x += 10
        streams.append(torch.cuda.current_stream())
        graph.end_capture_to_conditional_node()
        assert torch.cuda.current_stream() == streams[1]
        x += 100
        graph.end_capture_to_conditional_node()
        assert torch.cuda.current_stream() == streams[0]
    assert len({s.cuda_stream for s in streams}) == 3
    graph.instantiate()
    for first, second, added in ((True, True, 111), (True, False, 101), (False, True, 0)):
        x.zero_(), outer.fill_(first), inner.fill_(second)
        graph.replay()
        assert x.item() == added


def test_a_body_takes_its_memory_from_the_graphs_pool(
    gpu: torch.device, graph: torch.cuda.CUDAGraph
) -> None:
    wanted, x = on(gpu, True), torch.full((1000,), 3.0, device=gpu)
    with torch.cuda.graph(graph):
        graph.begin_capture_to_if_node(wanted)
        y = (x + 1) * (x + 2)
        assert torch.cuda.CUDAGraph.get_currently_capturing_graph() is graph
        graph.end_capture_to_conditional_node()
    graph.instantiate()
    pool = [s for s in torch.cuda.memory_snapshot() if s["segment_pool_id"] == graph.pool()]
    assert any(s["address"] <= y.data_ptr() < s["address"] + s["total_size"] for s in pool)
    x.fill_(0)
    graph.replay()
    assert y.tolist() == [2.0] * 1000


def test_matrix_products_and_copies_in_bodies(
    gpu: torch.device, graph: torch.cuda.CUDAGraph
) -> None:
    wanted = on(gpu, True)
    a, b = torch.full((4, 4), 2.0, device=gpu), torch.zeros(4, 4, device=gpu)
    torch.mm(a, a)
    with torch.cuda.graph(graph):
        graph.begin_capture_to_if_node(wanted)
        b.copy_(a)
        c = torch.mm(a, b)
        graph.end_capture_to_conditional_node()
    graph.instantiate()
    graph.replay()
    assert c.tolist() == [[16.0] * 4] * 4


def test_the_node_is_told(gpu: torch.device, graph: torch.cuda.CUDAGraph, tmp_path: Any) -> None:
    x = torch.zeros(1, device=gpu)
    with torch.cuda.graph(graph):
        graph.begin_capture_to_if_node(on(gpu, True))
        x += 1
        graph.end_capture_to_conditional_node()
    graph.debug_dump(tmp_path / "graph.dot")
    assert "CONDITIONAL" in (tmp_path / "graph.dot").read_text().upper()


MISUSES: dict[str, tuple[Callable[[Any, Any], object], type[Exception], str]] = {
    "a tensor on the host": (
        lambda g, gpu: g.begin_capture_to_if_node(torch.tensor(True)),
        ValueError,
        "a bool tensor of one element on cuda:0",
    ),
    "a tensor of numbers": (
        lambda g, gpu: g.begin_capture_to_if_node(torch.ones(1, device=gpu)),
        ValueError,
        "got 1 elements of torch.float32",
    ),
    "several elements": (
        lambda g, gpu: g.begin_capture_to_while_node(torch.ones(2, dtype=torch.bool, device=gpu)),
        ValueError,
        "got 2 elements",
    ),
    "an end without a beginning": (
        lambda g, gpu: g.end_capture_to_conditional_node(),
        RuntimeError,
        "must be preceded by begin_capture_to_if_node",
    ),
    "a condition outside a body": (
        lambda g, gpu: g.set_conditional_handle_for_current_node(torch.empty(1)),
        RuntimeError,
        "belongs into the body",
    ),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_in_a_capture(gpu: torch.device, graph: torch.cuda.CUDAGraph, name: str) -> None:
    act, kind, words = MISUSES[name]
    x = torch.zeros(1, device=gpu)
    with torch.cuda.graph(graph):
        with pytest.raises(kind, match=words):
            act(graph, gpu)
        x += 1
    graph.instantiate()
    graph.replay()
    assert x.item() == 1  # the capture was not harmed


def test_without_a_capture(gpu: torch.device, graph: torch.cuda.CUDAGraph) -> None:
    with pytest.raises(RuntimeError, match=r"capture_begin\(\) must be called before"):
        graph.begin_capture_to_if_node(on(gpu, True))


def test_random_numbers_are_refused(gpu: torch.device, graph: torch.cuda.CUDAGraph) -> None:
    with torch.cuda.graph(graph):
        graph.begin_capture_to_if_node(on(gpu, True))
        with pytest.raises(RuntimeError, match="cannot be drawn in the body"):
            torch.rand(3, device=gpu)
        graph.end_capture_to_conditional_node()
        torch.rand(3, device=gpu)


def test_a_capture_cannot_end_in_a_body(gpu: torch.device, graph: torch.cuda.CUDAGraph) -> None:
    before = torch.cuda.current_stream()
    with (
        pytest.raises(RuntimeError, match="cannot end in the body"),
        torch.cuda.graph(graph),
    ):
        graph.begin_capture_to_if_node(on(gpu, True))
    graph.reset()
    torch.cuda.set_stream(before)
    assert _state.captures_under_way() == 0
    assert (torch.ones(2, device=gpu) + 1).tolist() == [2.0, 2.0]
    second = torch.cuda.CUDAGraph()
    x = torch.zeros(1, device=gpu)
    with torch.cuda.graph(second):
        x += 1
    second.replay()
    assert x.item() == 1


@pytest.mark.parametrize("entry", ["cuGraphBeginBody", "cuStreamGetCaptureInfo"])
def test_a_body_that_cannot_begin(
    gpu: torch.device, graph: torch.cuda.CUDAGraph, fault: Callable[..., None], entry: str
) -> None:
    wanted, x = on(gpu, True), torch.zeros(1, device=gpu)
    with torch.cuda.graph(graph):
        x += 1
        outer = torch.cuda.current_stream()
        fault(entry, 999, nth=2 if entry == "cuStreamGetCaptureInfo" else 1)
        with pytest.raises(torch.cuda.AcceleratorError) as caught:
            graph.begin_capture_to_if_node(wanted)
        assert caught.value.error_code == 999
        assert torch.cuda.current_stream() == outer
        graph.begin_capture_to_if_node(wanted)  # all streams of bodies are free
        x += 10
        graph.end_capture_to_conditional_node()
    graph.instantiate()
    graph.replay()
    assert x.item() == 11
    assert not any(torch.cuda.Stream().is_capturing() for _ in range(32))
