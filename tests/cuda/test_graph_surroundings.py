# SPDX-License-Identifier: Apache-2.0
"""Captures beside other libraries, over several devices, and with the host taking part."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from conftest import REAL

if TYPE_CHECKING:
    from collections.abc import Callable

cuda = torch.cuda


class Foreign:
    """A library of its own that captures a stream with the driver's calls."""

    def __init__(self) -> None:
        self.stream = cuda.Stream()
        self._handle = self.stream.cuda_stream
        self._ended = False
        self._begin()

    def _begin(self) -> None:
        if REAL:
            from cuda.bindings import driver

            (status,) = driver.cuStreamBeginCapture(self._handle, driver.CUstreamCaptureMode(0))
            assert int(status) == 0
        else:
            from flambeau.driver.virtual import _graph_calls

            _graph_calls.stream_begin_capture(self._handle, 0)

    def end(self) -> int:
        """End it; the driver's status. A second time it does nothing."""
        if self._ended:
            return 0
        self._ended = True
        if REAL:
            from cuda.bindings import driver

            status, graph = driver.cuStreamEndCapture(self._handle)
            if int(status) == 0:
                driver.cuGraphDestroy(graph)
            return int(status)
        from flambeau.driver.virtual import _graph_calls

        try:
            _graph_calls.graph_destroy(_graph_calls.stream_end_capture(self._handle))
        except cuda.AcceleratorError as error:
            return error.error_code
        return 0


@pytest.fixture
def foreign(gpu: torch.device) -> Any:
    torch.ones(8, device=gpu).add_(1)  # what is loaded and set up at first use is
    torch.rand(8, device=gpu)
    cuda.synchronize()
    made = Foreign()
    yield made
    made.end()  # if the test did not come to it, later ones could do nothing


def test_work_beside_another_librarys_capture(foreign: Foreign, gpu: torch.device) -> None:
    side = cuda.Stream()
    total = torch.zeros(8, device=gpu)
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        for _ in range(50):
            big = torch.rand(1 << 20, device=gpu)  # more memory from the driver
            other = cuda.Stream()
            if other == foreign.stream:
                other = cuda.Stream()
            other.wait_stream(side)
            big.record_stream(other)  # its return is polled for
            total.add_(1)
            del big
    assert foreign.end() == 0  # nothing of that broke it
    side.synchronize()
    assert total.tolist() == [50.0] * 8


@pytest.mark.parametrize("ask", [cuda.Stream.query, cuda.Stream.synchronize])
def test_a_query_beside_another_librarys_capture(
    foreign: Foreign, ask: Callable[[Any], Any]
) -> None:
    side = cuda.Stream()
    with pytest.raises(cuda.AcceleratorError, match="not permitted when stream is capturing") as e:
        ask(side)
    assert e.value.error_code == 900
    assert "ask(side)" in str(e.value)
    assert foreign.end() == 901  # as CUDA has it: the query broke the other library's capture
    assert side.query()
    assert (torch.ones(2, device="cuda") + 1).tolist() == [2, 2]


def test_a_capture_beside_another_librarys(foreign: Foreign, gpu: torch.device) -> None:
    """Both captures hold; each has its own work."""
    stream = cuda.Stream()
    if stream == foreign.stream:
        stream = cuda.Stream()
    x, g = torch.zeros(4, device=gpu), cuda.CUDAGraph()
    with cuda.stream(stream):
        g.capture_begin()
        x.add_(1)
        g.capture_end()
    assert foreign.end() == 0
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        g.replay()
    stream.synchronize()
    assert x.tolist() == [1.0] * 4


# --- several devices ------------------------------------------------------------------------------


def test_generators_of_two_devices_in_one_capture(gpus: Callable[[int], list[Any]]) -> None:
    first, second = gpus(2)
    generators = [torch.Generator(first), torch.Generator(second), torch.Generator(second)]
    for generator in generators:
        generator.manual_seed(3)
    home, away = cuda.Stream(first), cuda.Stream(second)
    kept = [torch.zeros(8, device=second) for _ in range(2)]
    cuda.synchronize(second)
    g = cuda.CUDAGraph()
    with cuda.graph(g, stream=home):
        drawn = torch.rand(8, device=first, generator=generators[0])
        away.wait_stream(home)
        with cuda.stream(away):
            for one, generator in zip(kept, generators[1:], strict=True):
                one.copy_(torch.rand(8, device=second, generator=generator))
                one.copy_(torch.rand(8, device=second, generator=generator))
        home.wait_stream(away)
    for seed in (5, 6):
        for shift, generator in enumerate(generators):
            generator.manual_seed(seed + shift)
        g.replay()
        cuda.synchronize(first)
        assert [generator.get_offset() for generator in generators] == [4, 8, 8]
        found = [drawn.tolist(), *(one.tolist() for one in kept)]
        for shift, generator in enumerate(generators):
            generator.manual_seed(seed + shift)
        wanted = [torch.rand(8, device=first, generator=generators[0]).tolist()]
        for generator in generators[1:]:
            torch.rand(8, device=second, generator=generator)
            wanted.append(torch.rand(8, device=second, generator=generator).tolist())
        assert found == wanted


def test_work_of_two_devices_in_one_capture(gpus: Callable[[int], list[Any]]) -> None:
    first, second = gpus(2)
    home, away = cuda.Stream(first), cuda.Stream(second)
    x = torch.arange(4.0, device=first)
    torch.ones(4, device=second)
    g = cuda.CUDAGraph()
    with cuda.graph(g, stream=home):
        doubled = x * 2
        away.wait_stream(home)
        with cuda.stream(away):
            there = doubled.to(second, non_blocking=True)
            back = (there + 1).to(first, non_blocking=True)
        home.wait_stream(away)
    x.fill_(4)
    g.replay()
    assert back.tolist() == [9.0] * 4


# --- the host takes part --------------------------------------------------------------------------


def test_host_functions_are_nodes(gpu: torch.device, schedule: str) -> None:
    from flambeau.runtime._host_function import launch_host_function

    seen: list[float] = []
    x, pinned = torch.zeros(1, device=gpu), torch.zeros(1).pin_memory()
    g = cuda.CUDAGraph(keep_graph=True)
    with cuda.graph(g):
        x.add_(1)
        pinned.copy_(x, non_blocking=True)
        launch_host_function(
            cuda.current_stream().cuda_stream, lambda: seen.append(float(pinned.numpy()[0]))
        )
        x.add_(10)
    g.instantiate()
    assert seen == []
    for _ in range(3):
        g.replay()
    cuda.synchronize()
    assert seen == [1.0, 12.0, 23.0]
    if cuda.graph_annotations.is_available():
        kinds = [node["node_type"] for node in g.get_graph_data()["nodes"]]
        assert kinds == ["kernel", "memcpy", "host", "kernel"]


def test_host_functions_live_as_long_as_they_may_be_called(gpu: torch.device) -> None:
    from flambeau.runtime._host_function import launch_host_function

    class Function:
        def __call__(self) -> None:
            seen.append(1)

    seen: list[int] = []
    function, g = Function(), cuda.CUDAGraph()
    known = weakref.ref(function)
    with cuda.graph(g):
        launch_host_function(cuda.current_stream().cuda_stream, function)
    del function
    for _ in range(2):
        g.replay()
    assert known() is not None
    del g  # while its replays may be under way
    gc.collect()
    cuda.synchronize()
    assert seen == [1, 1]
    with cuda.graph(cuda.CUDAGraph()):  # the next graph's end lets go of what is done
        torch.ones(1, device=gpu)
    assert known() is None


def test_a_graph_runs_on_any_stream_but_never_beside_itself(
    gpu: torch.device, schedule: str
) -> None:
    x, g = torch.zeros(1, device=gpu), cuda.CUDAGraph()
    with cuda.graph(g):
        for _ in range(4):
            x.add_(x).add_(1)
    streams = [cuda.Stream() for _ in range(3)]
    for stream in streams:
        stream.wait_stream(cuda.current_stream())
    for stream in streams * 2:
        with cuda.stream(stream):
            g.replay()
    cuda.synchronize()
    assert x.item() == 2.0 ** (4 * 6) - 1


def test_forks_are_branches_of_the_graph(gpu: torch.device) -> None:
    if not cuda.graph_annotations.is_available():
        pytest.skip("this driver knows no ids of nodes")
    x, side, g = torch.ones(4, device=gpu), cuda.Stream(), cuda.CUDAGraph(keep_graph=True)
    with cuda.graph(g):
        a = x + 1
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            b = a * 2
        c = a * 3
        cuda.current_stream().wait_stream(side)
        d = b + c
    g.instantiate()
    nodes = g.get_graph_data()["nodes"]
    assert [node["node_type"] for node in nodes] == ["kernel"] * 4
    first = next(node for node in nodes if not node["dependencies"])
    last = next(node for node in nodes if not node["dependents"])
    assert len(first["dependents"]) == len(last["dependencies"]) == 2
    edges = {(edge["from"], edge["to"]) for edge in g.get_graph_data()["edges"]}
    assert len(edges) == 4
    assert (first["index"], last["index"]) not in edges
    g.replay()
    assert d.tolist() == [10.0] * 4
