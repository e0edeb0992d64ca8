# SPDX-License-Identifier: Apache-2.0
"""What is in the pages, without a browser."""

from __future__ import annotations

import gzip
import json
import re

import pytest

import flambeau as torch
from flambeau import pages
from flambeau.pages import graph as graph_page
from flambeau.pages import trace as trace_page


def data_of(page):
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
    return json.loads(found[1])


@pytest.mark.parametrize("kind", ["memory", "graph", "trace"])
def test_a_page_is_whole_and_asks_for_nothing(kind):
    page = pages.render(kind, "<Title>", {"x": "</script>"})
    assert "&lt;Title&gt;" in page
    assert page.count("</script>") == 2
    assert data_of(page)["x"] == "</script>"
    body = page.replace(json.dumps(data_of(page)), "")
    assert not re.search(r"https?://|@import|\bsrc=|\bhref=|import\(|fetch\(", body)
    assert "default-src 'none'" in page


def span(name, category="kernel", pid=0, tid=7, ts=0.0, dur=1.0, **args):
    return {"ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


class TestTrace:
    def test_totals_and_busy_time(self):
        data = {
            "traceEvents": [
                span("a", ts=0, dur=10),
                span("b", tid=13, ts=5, dur=10),
                span("a", ts=30, dur=2),
                span("op", "cpu_op", pid=9, tid=9, ts=0, dur=50),
            ]
        }
        found = {t.name: (t.count, t.time, t.longest) for t in trace_page.totals(data)}
        assert found == {"a": (2, 12, 10), "b": (1, 10, 10), "op": (1, 50, 50)}
        assert trace_page.busy(data) == {0: 17}
        assert trace_page.extent(data) == (0, 50)

    def test_spans_nest_and_devices_come_last(self):
        data = {
            "traceEvents": [
                span("kernel", ts=4),
                span("inner", "cuda_driver", pid=9, tid=9, ts=1, dur=2),
                span("outer", "cpu_op", pid=9, tid=9, ts=0, dur=5),
                span("next", "cpu_op", pid=9, tid=9, ts=5, dur=1),
            ]
        }
        host, device = data_of(trace_page.page(data, "T"))["tracks"]
        assert host["depth"] == [0, 1, 0]
        assert [device["device"], host["device"]] == [True, False]
        assert (host["header"], device["name"]) == ("process 9 (process 9)", "track 7")

    def test_what_profilers_write_is_read(self, tmp_path, gpu):
        with torch.profiler.profile() as prof:
            torch.ones(16, device=gpu).mul(2)
        for name in ("t.json", "t.json.gz"):
            prof.export_chrome_trace(str(tmp_path / name))
            data = trace_page.load(tmp_path / name)
            assert "mul_kernel" in data_of(trace_page.page(data, "T"))["names"]

    def test_other_files(self, tmp_path):
        path = tmp_path / "t.json"
        for text in ("hello", "{}", "3"):
            path.write_text(text)
            with pytest.raises(ValueError, match="no trace"):
                trace_page.load(path)
        path.write_text("[]")
        assert trace_page.load(path) == {"traceEvents": []}
        path.write_bytes(gzip.compress(b"[]"))
        assert trace_page.load(path) == {"traceEvents": []}


def graph(*nodes):
    return {
        "exec_graph_id": 3,
        "nodes": [
            {
                "node_type": "kernel",
                "tools_id": 3 << 32 | place,
                "graph_id": 3,
                "node_id": place,
                "kernel_name": name,
                "grid_dim": (1, 1, 1),
                "block_dim": (32, 1, 1),
                "shared_mem_bytes": 0,
                "dependencies": after,
            }
            for place, (name, after) in enumerate(nodes)
        ],
    }


class TestGraph:
    DIAMOND = graph(("a", []), ("b", [0]), ("c", [0]), ("d", [1, 2]))

    def test_lanes_are_chains(self):
        nodes = data_of(graph_page.page(self.DIAMOND, "G"))["nodes"]
        assert [n["lane"] for n in nodes] == [0, 0, 1, 0]
        twice = graph(("a", []), ("b", [0]), ("c", [0]), ("d", [1, 2]), ("e", [3]), ("f", [3]))
        nodes = data_of(graph_page.page(twice, "G"))["nodes"]
        assert [n["lane"] for n in nodes] == [0, 0, 1, 0, 0, 1]  # a lane whose work is done again

    def test_streams_of_annotations_are_lanes(self):
        notes = {3 << 32 | 1: {"stream": 5}, 3 << 32 | 3: [{"stream": 5, "name": "n"}]}
        nodes = data_of(graph_page.page(self.DIAMOND, "G", annotations=notes))["nodes"]
        assert nodes[1]["lane"] == nodes[3]["lane"]
        assert nodes[3]["annotation"] == "n"

    def test_the_critical_path_by_durations(self):
        durations = {3 << 32 | place: time for place, time in enumerate([1.0, 2.0, 7.0, 1.5])}
        data = data_of(graph_page.page(self.DIAMOND, "G", durations=durations))
        assert [n["critical"] for n in data["nodes"]] == [True, False, True, True]
        assert data["end"] == 9.5
        assert ["critical path", "9.500 µs"] in data["figures"]

    def test_a_circle_is_refused(self):
        with pytest.raises(ValueError, match="circle"):
            graph_page.page(graph(("a", [1]), ("b", [0])), "G")

    def test_of_a_captured_graph_with_a_trace(self, gpu, tmp_path):
        if not torch.cuda.graph_annotations.is_available():
            pytest.skip("this driver knows no ids of nodes")
        captured, x = torch.cuda.CUDAGraph(keep_graph=True), torch.ones(64, device=gpu)
        with torch.cuda.graph(captured, enable_annotations=True):
            with torch.cuda.graph_annotations.mark_kernels("scale"):
                y = x * 2
            z = y + 1
        with torch.profiler.profile() as prof:
            captured.replay()
        path = tmp_path / "t.json"
        prof.export_chrome_trace(str(path))
        described = json.loads(json.dumps(graph_page.describe(captured)))
        durations = graph_page.durations_of(trace_page.load(path))
        data = data_of(graph_page.page(described, "G", durations=durations))
        assert z.numel() == 64
        assert [n["annotation"] for n in data["nodes"]] == ["scale", ""]
        assert [n["name"] for n in data["nodes"]] == ["mul_kernel", "add_kernel"]
        assert data["timed"] is True
        assert data["end"] == pytest.approx(sum(durations.values()))
