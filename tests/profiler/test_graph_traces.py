# SPDX-License-Identifier: Apache-2.0
"""Graphs in traces: annotate in the capture, profile the replay, join by the nodes' ids."""

from __future__ import annotations

import gzip
import json

import pytest

import flambeau as torch
from flambeau.profiler import ProfilerActivity, profile


@pytest.fixture(autouse=True)
def _can_collect(gpu):
    if ProfilerActivity.CUDA not in torch.profiler.supported_activities():
        pytest.skip("CUPTI is not installed here")
    available = torch.cuda.graph_annotations.is_available()
    if not available:
        pytest.skip(available.reason)


def captured(x):
    marks = torch.cuda.graph_annotations.mark_kernels
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph, enable_annotations=True):
        with marks("attention"):
            y = x * 2
        with marks({"name": "mlp", "layer": 3}):
            z = y + 1
        w = z - 1
    return graph, w


def exported(prof, path, **options):
    prof.export_chrome_trace(str(path), **options)
    opened = gzip.open if path.name.endswith(".gz") else open
    with opened(path, "rt") as file:
        return json.load(file)


def graph_kernels(trace):
    return [e for e in trace["traceEvents"] if "graph node id" in e.get("args", {})]


@pytest.fixture
def replayed(gpu):
    graph, _ = captured(torch.ones(256, device=gpu))
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        graph.replay()
        torch.cuda.synchronize()
    return graph, prof


def test_annotations_reach_the_kernels_of_the_replay(replayed, tmp_path):
    _, prof = replayed
    annotations = torch.cuda.graph_annotations.get_kernel_annotations()
    trace = exported(prof, tmp_path / "t.json.gz", cuda_graph_annotations=annotations)
    kernels = graph_kernels(trace)
    assert [k["args"].get("name") for k in kernels] == ["attention", "mlp", None]
    assert kernels[1]["args"]["layer"] == "3"
    assert trace["cudaGraphInlineAnnotated"] is True
    for kernel in kernels[:2]:
        node = kernel["args"]["graph node id"]
        assert annotations[node][0]["name"] == kernel["args"]["name"]
        assert node >> 32 == kernel["args"]["graph id"]


def test_ids_are_those_of_the_graphs_data(replayed, tmp_path):
    graph, prof = replayed
    nodes = [n["tools_id"] for n in graph.get_graph_data()["nodes"]]
    trace = exported(prof, tmp_path / "t.json")
    assert [k["args"]["graph node id"] for k in graph_kernels(trace)] == nodes


def test_work_belongs_to_the_launch_of_the_graph(replayed, tmp_path):
    _, prof = replayed
    trace = exported(prof, tmp_path / "t.json")
    (launch,) = [e for e in trace["traceEvents"] if e["name"] == "cuGraphLaunch"]
    kernels = graph_kernels(trace)
    assert {k["args"]["correlation"] for k in kernels} == {launch["args"]["correlation"]}
    assert not any("External id" in k["args"] for k in kernels)
    flows = [e for e in trace["traceEvents"] if e.get("cat") == "ac2g"]
    assert [f["ph"] for f in flows if f["id"] == launch["args"]["correlation"]] == ["s", *"fff"]


def test_annotations_show_without_being_asked_for(replayed, tmp_path):
    trace = exported(replayed[1], tmp_path / "t.json")
    assert [k["args"].get("name") for k in graph_kernels(trace)] == ["attention", "mlp", None]


def test_annotations_outlive_their_graph_in_the_recording(replayed, tmp_path):
    graph, prof = replayed
    graph.reset()
    assert graph_kernels(exported(prof, tmp_path / "t.json"))[0]["args"]["name"] == "attention"


def test_none_on_request(replayed, tmp_path):
    trace = exported(replayed[1], tmp_path / "t.json", cuda_graph_annotations={})
    assert not any("name" in k["args"] for k in graph_kernels(trace))


def test_lanes(replayed, tmp_path):
    _, prof = replayed
    first, second, third = graph_kernels(exported(prof, tmp_path / "a.json"))
    stream = first["args"]["stream"]
    ids = [k["args"]["graph node id"] for k in (first, second, third)]
    given = {str(ids[0]): [{"name": "a", "n": 3, "stream": 60}], ids[1]: {"name": "b"}}
    trace = exported(
        prof,
        tmp_path / "b.json",
        cuda_graph_annotations=given,
        graph_lanes="all",
        default_stream=9,
    )
    first, second, third = graph_kernels(trace)
    assert (first["tid"], first["args"]["stream"]) == (60, 60)
    assert first["args"]["original_stream"] == stream
    assert first["args"]["n"] == "3"
    assert second["tid"] == third["tid"] == 9
    trace = exported(prof, tmp_path / "c.json", cuda_graph_annotations=given)
    first = graph_kernels(trace)[0]
    assert first["args"]["annotated_stream"] == "60"
    assert first["tid"] == stream


def test_bad_lanes(replayed, tmp_path):
    _, prof = replayed
    with pytest.raises(ValueError, match="'none' or 'all'"):
        prof.export_chrome_trace(str(tmp_path / "t"), graph_lanes="some")
    with pytest.raises(ValueError, match="needs cuda_graph_annotations"):
        prof.export_chrome_trace(str(tmp_path / "t"), graph_lanes="all")


def test_time_of_a_replay_is_counted(replayed):
    _, prof = replayed
    totals = {t.key: t for t in prof.key_averages()}
    kernels = sum(e.self_device_time_total for e in prof.events() if not e.of_cpu)
    assert totals["cuda::graph_replay"].device_time_total == pytest.approx(kernels)
