# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import pickle

import pytest

import flambeau as torch
from flambeau import cli
from flambeau.pages import graph as graph_page


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(["graph", "view", *map(str, arguments)])
    return ended.value.code


@pytest.fixture
def captured(gpu):
    if not torch.cuda.graph_annotations.is_available():
        pytest.skip("this driver knows no ids of nodes")
    graph, x = torch.cuda.CUDAGraph(keep_graph=True), torch.ones(64, device=gpu)
    with torch.cuda.graph(graph, enable_annotations=True):
        with torch.cuda.graph_annotations.mark_kernels("scale"):
            y = x * 2
        z = y + 1
    graph.instantiate()
    yield graph
    del z


def test_of_exported_data(captured, tmp_path, capsys):
    path = tmp_path / "g.pickle"
    torch.cuda.graphs.export_graph_data(path)(captured)
    assert run(path) in {0, None}
    page = tmp_path / "g.html"
    assert capsys.readouterr().out.strip() == str(page)
    assert page.read_text().startswith("<!doctype html>")


def test_of_json_with_a_trace_and_annotations(captured, tmp_path):
    path, trace, notes = tmp_path / "g.json", tmp_path / "t.json", tmp_path / "n.json"
    path.write_text(json.dumps(graph_page.describe(captured)))
    with torch.profiler.profile() as prof:
        captured.replay()
    prof.export_chrome_trace(str(trace))
    run(path, "--trace", trace, "-o", tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    assert '"timed":true' in text
    assert '"annotation":"scale"' in text
    nodes = captured.get_graph_data()["nodes"]
    notes.write_text(json.dumps({str(nodes[1]["tools_id"]): {"name": "shift"}}))
    run(path, "--annotations", notes, "-o", tmp_path / "b.html")
    assert '"annotation":"shift"' in (tmp_path / "b.html").read_text()


def test_a_trace_of_something_else(captured, tmp_path):
    path, trace = tmp_path / "g.json", tmp_path / "t.json"
    path.write_text(json.dumps(graph_page.describe(captured)))
    trace.write_text('{"traceEvents": []}')
    assert "has no work of graph" in str(run(path, "--trace", trace))


def test_unreadable_files(tmp_path):
    path = tmp_path / "g"
    path.write_bytes(pickle.dumps({"nodes": print}))
    assert "plain containers only" in str(run(path))
    path.write_text("{}")
    assert "no graph" in str(run(path))
