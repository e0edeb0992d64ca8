# SPDX-License-Identifier: Apache-2.0
"""The pages in a browser: they load nothing, draw, answer the pointer and stay quick."""

from __future__ import annotations

import random

import pytest

from flambeau import pages
from flambeau.cuda import _memory_pages
from flambeau.pages import graph as graph_page
from flambeau.pages import trace as trace_page
from pages import browser as chromium

pytestmark = pytest.mark.skipif(
    not (chromium.CHROMIUM and chromium.DRIVER), reason="Chromium and its driver are not here"
)
MIB = 1 << 20
BASE = 0x7F0000000000


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    opened = chromium.start(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.quit()


@pytest.fixture
def show(window, tmp_path):
    def opened(text):
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        page = chromium.Page(window, path)
        assert page.complaints() == []
        return page

    return opened


def frames(name, line=1):
    return [
        {"filename": f"/src/{name}.py", "line": line, "name": "forward"},
        {"filename": "/src/main.py", "line": 9, "name": "main"},
    ]


def entry(action, offset, size, stack):
    return {"action": action, "addr": BASE + offset, "size": size, "stream": 0, "time_us": 5,
            "frames": stack}  # fmt: skip


SMALL = {
    "segments": [],
    "device_traces": [
        [
            entry("segment_alloc", 0, 20 * MIB, frames("a")),
            entry("alloc", 0, 4 * MIB, frames("a")),
            entry("alloc", 4 * MIB, 8 * MIB, frames("b")),
            entry("alloc", 12 * MIB, 2 * MIB, frames("c")),
            entry("free_completed", 4 * MIB, 8 * MIB, frames("b")),
            entry("oom", 0, 64 * MIB, frames("a")),
        ]
    ],
}


class TestMemory:
    def test_figures_of_the_end(self, show):
        page = show(_memory_pages.page(SMALL, "Small"))
        assert page.text("peak") == "14.00 MiB"
        assert page.text("now") == "6.00 MiB"
        assert page.text("reserved") == "20.00 MiB"
        assert page.text("holes") == "14.00 MiB"
        assert page.text("hole") == "8.00 MiB"
        assert page.text("legend").startswith("b.py:1 forward8.00 MiBa.py:1 forward4.00 MiB")
        assert page.colours("timeline") > 8
        assert page.colours("segments") > 4

    def test_pointing_at_a_time_tells_what_is_held(self, show):
        page = show(_memory_pages.page(SMALL, "Small"))
        width = page.run("return document.getElementById('timeline').clientWidth") - 74 - 14
        page.mouse("timeline", "pointermove", 74 + width * 3.5 / 6, 200)
        tip = page.text("tip").splitlines()
        assert tip[0] == "entry 3, 0.000 µs: 14.00 MiB"
        assert tip[1:] == [
            "8.00 MiB  b.py:1 forward",
            "4.00 MiB  a.py:1 forward",
            "2.00 MiB  c.py:1 forward",
        ]

    def test_picking_a_moment_shows_the_segments_then(self, show):
        page = show(_memory_pages.page(SMALL, "Small"))
        width = page.run("return document.getElementById('timeline').clientWidth") - 74 - 14
        page.click("timeline", 74 + width * 2.5 / 6, 100)
        assert page.text("now") == "12.00 MiB"
        assert page.text("when") == "after entry 2"
        assert page.text("hole") == "8.00 MiB"
        assert page.text("detail").startswith("alloc 8.00 MiB at 0x7f0000400000\n/src/b.py:1")
        page.press("to-peak")
        assert page.text("now") == "14.00 MiB"

    def test_pointing_at_blocks_and_holes(self, show):
        page = show(_memory_pages.page(SMALL, "Small"))
        width = page.run("return document.getElementById('segments').clientWidth") - 240 - 14
        page.mouse("segments", "pointermove", 240 + width * 13 / 20, 12)
        assert page.text("tip").startswith("0x7f0000c00000, 2.00 MiB (2,097,152 bytes)")
        page.mouse("segments", "pointermove", 240 + width * 8 / 20, 12)
        assert page.text("tip") == "free; the largest hole of this segment is 8.00 MiB"

    def test_searching_narrows_the_trace_and_the_sites(self, show):
        page = show(_memory_pages.page(SMALL, "Small"))
        assert page.text("matching") == "6 entries"
        page.type("search", "b.py")
        assert page.text("matching") == "2 matching entries"
        assert page.text("legend").startswith("b.py:1 forward8.00 MiB")
        assert "2 other sites" in page.text("legend")
        page.type("search", "OOM")
        assert page.text("matching") == "1 matching entries"

    def test_zooming_in_and_out(self, show):
        trace = [SMALL["device_traces"][0][0]]
        trace += [entry("alloc", i * 512, 512, frames("a")) for i in range(1000)]
        page = show(_memory_pages.page({"segments": [], "device_traces": [trace]}, "Long"))
        page.mouse("timeline", "wheel", 500, 100, deltaY=-300)
        span = page.run("return view.to - view.from")
        assert 8 <= span < 700
        page.mouse("timeline", "dblclick", 500, 100)
        assert page.run("return [view.from, view.to]") == [0, 1001]

    def test_dark_and_light(self, show):
        page = show(_memory_pages.page(SMALL, "Small"))
        seen = set()
        for _ in range(2):
            seen.add(page.run("return getComputedStyle(document.body).backgroundColor"))
            page.press("theme")
        assert len(seen) == 2

    def test_a_hundred_thousand_entries_stay_smooth(self, show):
        draw = random.Random(1)
        stacks = [frames(f"m{i}", i) for i in range(40)]
        trace, live = [entry("segment_alloc", 0, 1 << 34, stacks[0])], []
        while len(trace) < 100_000:
            if not live or draw.random() < 0.55:
                live.append((len(trace) * 4096, 512 * draw.randrange(1, 8), draw.randrange(40)))
                offset, size, stack = live[-1]
                trace.append(entry("alloc", offset, size, stacks[stack]))
            else:
                offset, size, stack = live.pop(draw.randrange(len(live)))
                trace.append(entry("free_completed", offset, size, stacks[stack]))
        page = show(_memory_pages.page({"segments": [], "device_traces": [trace]}, "Many"))
        assert page.text("entries") == "100,000"
        assert page.draw_time() < 150
        page.run("view.from = 40000; view.to = 42000")
        assert page.draw_time() < 150
        rows = page.run("return document.querySelectorAll('#trace .row').length")
        assert rows < 60


class TestTrace:
    @staticmethod
    def span(category, name, pid, tid, ts, dur, **args):
        return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts,
                "dur": dur, "args": args}  # fmt: skip

    def test_tracks_tips_details_and_search(self, show):
        events = [
            self.span("cpu_op", "aten::mul", 77, 77, 0, 10, correlation=0),
            self.span("cuda_driver", "cuLaunchKernel", 77, 77, 2, 5, correlation=4),
            self.span("kernel", "mul_kernel", 0, 7, 20, 60, correlation=4, stream=7),
        ]
        page = show(trace_page.page({"traceEvents": events}, "T"))
        assert page.text("figure1") == "60.000 µs (75 %)"
        tracks = page.run("return tracks.map((t) => [t.name, t.rows, t.top])")
        assert [t[1] for t in tracks] == [2, 1]
        width = page.run("return document.getElementById('tracks').clientWidth") - 190 - 14
        x, y = 190 + width * 40 / 80, tracks[1][2] + 8
        page.mouse("tracks", "pointermove", x, y)
        assert page.text("tip").startswith("mul_kernel\n60.000 µs")
        page.click("tracks", x, y)
        assert "stream: 7" in page.text("detail")
        page.type("search", "launch")
        page.run(
            "document.getElementById('search')"
            ".dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))"
        )
        assert page.text("detail").startswith("mul_kernel") or page.text("detail").startswith(
            "cuLaunch"
        )
        assert page.colours("tracks") > 5

    def test_many_events_stay_smooth(self, show):
        events = [
            self.span("kernel", f"k{i % 9}", 0, 7 + i % 3, 3.0 * i, 2.0, correlation=i)
            for i in range(100_000)
        ]
        page = show(trace_page.page({"traceEvents": events}, "T"))
        assert page.draw_time() < 150
        page.run("view.from = 1000; view.to = 2000")
        assert page.draw_time() < 100


class TestGraph:
    @staticmethod
    def data():
        nodes = []
        for place, (kind, name, after) in enumerate(
            [
                ("kernel", "head", []),
                ("kernel", "left", [0]),
                ("kernel", "right", [0]),
                ("memcpy", None, [1, 2]),
            ]
        ):
            nodes.append(
                {
                    "index": place,
                    "node_type": kind,
                    "tools_id": 3 << 32 | place,
                    "graph_id": 3,
                    "node_id": place,
                    "kernel_name": name,
                    "grid_dim": (4, 1, 1),
                    "block_dim": (64, 1, 1),
                    "shared_mem_bytes": 0,
                    "dependencies": after,
                }
            )
        return {
            "exec_graph_id": 3,
            "nodes": nodes,
            "annotations": {str(3 << 32 | 1): {"name": "L"}},
        }

    def test_nodes_answer_and_their_kin_stay_bright(self, show):
        durations = {3 << 32 | i: t for i, t in enumerate([10.0, 5.0, 20.0, 5.0])}
        page = show(graph_page.page(self.data(), "G", durations=durations))
        assert page.text("figure4") == "35.000 µs"
        width = page.run("return document.getElementById('graph').clientWidth") - 118 - 16
        x = 118 + width * 12 / 35
        page.mouse("graph", "pointermove", x, 26 + 26)
        assert page.text("tip").splitlines()[0] in {"left", "right"}
        page.click("graph", x, 26 + 26)
        assert "waits for: head (0)" in page.text("detail")
        assert page.run("return [...kin].sort()") in ([0, 1, 3], [0, 2, 3])
        page.press("critical")
        assert page.run("return nodes.map((_, i) => isMatch(i))") == [True, False, True, True]
        page.type("search", "nothing like it")
        assert page.run("return nodes.some((_, i) => isMatch(i))") is False


def test_pages_may_load_nothing(show):
    page = show(
        pages.render(
            "graph", "Empty", {"nodes": [], "lanes": ["a"], "end": 1, "timed": False, "figures": []}
        )
    )
    refused = page.browser.execute_async_script(
        "const done = arguments[0];"
        "fetch('https://example.com/').then(() => done('loaded'), () => done('refused'))"
    )
    assert refused == "refused"
