# SPDX-License-Identifier: Apache-2.0
"""Names for the kernels of graphs."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from flambeau.cuda import _graph_annotations

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

cuda = torch.cuda
notes = cuda.graph_annotations


@pytest.fixture(autouse=True)
def _node_ids() -> None:
    available = notes.is_available()
    if not available:
        pytest.skip(available.reason)


@pytest.fixture
def ones() -> Any:
    return torch.ones(8, device="cuda")


def of_graph(g: Any) -> list[dict[str, Any]]:
    """The annotations of a graph, in the order of its nodes."""
    found = notes.get_kernel_annotations()
    exec_id = g.get_graph_data()["exec_graph_id"]
    return [found[key][0] for key in sorted(found) if key >> 32 == exec_id]


def kept() -> Any:
    return cuda.CUDAGraph(keep_graph=True)


def test_each_graph_keeps_its_own(ones: Any) -> None:
    found, graphs = notes.get_kernel_annotations(), []
    before = len(found)
    for name in ("first", "second"):
        g = cuda.CUDAGraph()
        with cuda.graph(g, enable_annotations=True), notes.mark_kernels(name):
            ones.add_(1)
        graphs.append(g)
    assert sorted(v[0]["name"] for v in found.values())[before:] == ["first", "second"]
    graphs.pop()
    del g
    assert [v[0]["name"] for v in found.values()][before:] == ["first"]


def test_inner_scopes_win(ones: Any) -> None:
    g = kept()
    with cuda.graph(g, enable_annotations=True), notes.mark_kernels({"name": "o", "c": 1}):
        a = ones + 1
        with notes.mark_kernels("i"):
            b = a + 1
        _ = b + 1
    g.instantiate()
    outer = {"name": "o", "c": 1}
    assert of_graph(g) == [outer, {"name": "i", "c": 1}, outer]


def test_ids_follow_the_executable(ones: Any) -> None:
    found = notes.get_kernel_annotations()
    others = set(found)
    g = kept()
    with cuda.graph(g, enable_annotations=True), notes.mark_kernels("a"):
        _ = ones + 1
    seen = []
    for _ in range(2):
        g.instantiate()
        own = set(found) - others
        assert {key >> 32 for key in own} == {g.get_graph_data()["exec_graph_id"]}
        g.replay()
        assert set(found) - others == own
        seen.append(own)
    assert seen[0].isdisjoint(seen[1])
    g.reset()
    assert set(found) == others


def test_work_of_joined_streams_counts(ones: Any) -> None:
    g, side = kept(), cuda.Stream()
    with cuda.graph(g, enable_annotations=True):
        a = ones + 1
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            early = a * 2
        with notes.mark_kernels("scope"):
            with cuda.stream(side):
                late = early * 2
            b = a + 1
            cuda.current_stream().wait_stream(side)
        _ = b + late
    g.instantiate()
    assert of_graph(g) == [{"name": "scope"}] * 2


def test_outside_annotated_captures_nothing_happens(ones: Any) -> None:
    before = dict(notes.get_kernel_annotations())
    with notes.mark_kernels("eager"):
        _ = ones + 1
    with cuda.graph(cuda.CUDAGraph()), notes.mark_kernels("not enabled"):
        _ = ones + 1
    assert dict(notes.get_kernel_annotations()) == before


def test_drivers_without_node_ids(ones: Any, fault: Callable[..., None]) -> None:
    before = dict(notes.get_kernel_annotations())
    fault("cuGraphNodeGetToolsId", status=801, times=100)
    available = notes.is_available()
    assert not available
    assert "13.1" in available.reason
    g = kept()
    with cuda.graph(g, enable_annotations=True), notes.mark_kernels("a"):
        b = ones + 1
    g.replay()
    assert b[0].item() == 2
    assert dict(notes.get_kernel_annotations()) == before
    with pytest.raises(RuntimeError, match=r"13\.1"):
        g.get_graph_data()


@pytest.mark.parametrize("key", ["stream", "autograd_phase"])
def test_reserved_keys(key: str) -> None:
    with pytest.raises(ValueError, match="reserved"), notes.mark_kernels({key: 1}):
        pass


@pytest.mark.parametrize(
    "config",
    [{"colour": 1}, {"backend": "magic"}, {"backend": "edge_walk", "record_py_stacks": True}],
)
def test_bad_options(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"annotation_config|backend|record_py_stacks"):
        cuda.graph(cuda.CUDAGraph(), enable_annotations=True, annotation_config=config)


def test_the_mapping_is_read_only(ones: Any) -> None:
    with pytest.raises(TypeError):
        notes.get_kernel_annotations()[1] = []


def test_stacks_are_empty(tmp_path: Path) -> None:
    assert notes.get_kernel_py_stacks() == {}
    notes.dump_kernel_py_stacks(tmp_path / "s.gz")
    with gzip.open(tmp_path / "s.gz", "rt") as stored:
        assert json.load(stored) == {}


def test_clearing_is_deprecated(ones: Any) -> None:
    with pytest.warns(FutureWarning, match="deprecated"):
        notes.clear_kernel_annotations()
    assert dict(notes.get_kernel_annotations()) == {}


def test_groups_of_processes_have_lanes_of_their_own() -> None:
    from flambeau.cuda._graph_annotations import get_stream_for_pg

    first, second = get_stream_for_pg(("tensor", 0)), get_stream_for_pg("pipeline")
    assert first >= 1000
    assert second == first + 1
    assert get_stream_for_pg(("tensor", 0)) == first


def test_backward_of_marked_operations(gpu: Any) -> None:
    x = torch.ones(4, device="cuda", requires_grad=True)
    graph = torch.cuda.CUDAGraph()
    mark = torch.cuda.graph_annotations.mark_kernels
    with torch.cuda.graph(graph, enable_annotations=True):
        with mark({"name": "wave", "n": 1}):
            y = (x * 2).sin()
        with mark("unmarked backward", backward=False):
            z = y * 3
        with mark({"name": "around", "k": 2}):
            torch.autograd.grad(z, x, torch.ones(4, device="cuda"))
    found = [entry[0] for entry in torch.cuda.graph_annotations.get_kernel_annotations().values()]
    forward = [one for one in found if one == {"name": "wave", "n": 1}]
    backward = [one for one in found if one.get("autograd_phase") == "backward"]
    assert len(forward) == 2
    assert backward
    assert all((one["name"], one["n"], one["k"]) == ("wave", 1, 2) for one in backward)
    assert {"name": "around", "k": 2} in found


def test_marks_of_streams_name_a_lane(ones: Any) -> None:
    g = kept()
    lane = _graph_annotations.get_stream_for_pg("a group of these tests")
    with cuda.graph(g, enable_annotations=True), notes.mark_kernels("outer"):
        a = ones + 1
        with _graph_annotations.mark_stream(lane, {"name": "sum", "size": 4}):
            b = a + 1
        with _graph_annotations.mark_stream(7, "plain"):
            _ = b + 1
    g.instantiate()
    assert of_graph(g) == [
        {"name": "outer"},
        {"name": "sum", "size": 4, "stream": lane},
        {"name": "plain", "stream": 7},
    ]
    with (
        pytest.raises(ValueError, match="stream"),
        _graph_annotations.mark_stream(7, {"stream": 8}),
    ):
        pass
