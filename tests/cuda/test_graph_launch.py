# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from flambeau.driver import _table
from flambeau.runtime import _launch
from support import run_script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def graph_launch(gpu: torch.device) -> Iterator[None]:
    torch.cuda.set_graph_launch(True)
    yield
    torch.cuda.set_graph_launch(False)


def calls_of(act: Callable[[], Any]) -> list[str]:
    _table.start_trace()
    act()
    wanted = ("cuLaunch", "cuGraph")
    return [name for name, _ in _table.stop_trace() if name.startswith(wanted)]


def test_a_kernel_is_captured_once_and_then_given_new_parameters(gpu: torch.device) -> None:
    a, b = torch.arange(10.0, device=gpu), torch.ones(10, device=gpu)
    a + b
    kept = _launch.graph_launches_kept()
    assert kept > 0
    for _ in range(3):
        assert calls_of(lambda: a + b) == ["cuGraphExecKernelNodeSetParams", "cuGraphLaunch"]
    results = [a + b, b + b, a[:3] + b[:3], (a + b) + b]
    assert [r.tolist() for r in results] == [
        [i + 1.0 for i in range(10)], [2.0] * 10, [1, 2, 3], [i + 2.0 for i in range(10)]
    ]  # fmt: skip
    assert _launch.graph_launches_kept() == kept


def test_grids_change_between_launches(gpu: torch.device) -> None:
    for n in (1, 100_000, 3):
        assert (torch.ones(n, device=gpu) + 1).sum().item() == 2 * n


def test_each_stream_has_its_own(gpu: torch.device, schedule: str) -> None:
    x = torch.zeros(1000, device=gpu)
    x += 1
    kept = _launch.graph_launches_kept()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            x += 1
    torch.cuda.current_stream().wait_stream(side)
    x += 1
    assert x.tolist() == [7.0] * 1000
    assert _launch.graph_launches_kept() == kept + 1


def test_captured_launches_are_plain(gpu: torch.device) -> None:
    a = torch.ones(4, device=gpu)
    a + a
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls = calls_of(lambda: a + a)
        b = a * 3
    assert [name for name in calls if "LaunchKernel" in name] != []
    assert "cuGraphLaunch" not in calls
    a.fill_(5)
    graph.replay()
    assert b.tolist() == [15.0] * 4


def test_off_gives_the_graphs_back(gpu: torch.device) -> None:
    a = torch.ones(4, device=gpu)
    a + a
    kept = _launch.graph_launches_kept()
    given_back = calls_of(lambda: torch.cuda.set_graph_launch(False))
    assert given_back.count("cuGraphExecDestroy") == given_back.count("cuGraphDestroy") == kept
    assert _launch.graph_launches_kept() == 0
    assert not torch.cuda.is_graph_launch_enabled()
    assert all("Graph" not in name for name in calls_of(lambda: a + a))


def test_a_capture_that_fails_leaves_nothing_behind(gpu: torch.device, fault: Any) -> None:
    a = torch.ones(4, device=gpu)
    _launch.set_graph_launch(False)
    for entry in (
        "cuStreamCreateWithPriority",
        "cuStreamBeginCapture",
        "cuStreamEndCapture",
        "cuGraphGetNodes",
        "cuGraphInstantiateWithFlags",
        "cuGraphExecKernelNodeSetParams",
        "cuGraphLaunch",
    ):
        _launch.set_graph_launch(True)
        _table.inject(entry, status=999, nth=1)
        with pytest.raises(torch.AcceleratorError, match="unknown error"):
            a + a
        _table.clear_faults()
        assert (a + a).tolist() == [2.0] * 4
        _launch.set_graph_launch(False)


def test_the_environment_enables_it() -> None:
    run_script(
        """
        assert torch.cuda.is_graph_launch_enabled()
        from flambeau.runtime import _launch
        assert (torch.ones(3, device="cuda") * 2).tolist() == [2, 2, 2]
        assert _launch.graph_launches_kept() > 0
        """,
        env={"FLAMBEAU_GRAPH_LAUNCH": "1"},
    )
