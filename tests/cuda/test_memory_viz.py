# SPDX-License-Identifier: Apache-2.0
"""Pictures of snapshots."""

from __future__ import annotations

import io
import json
import pickle
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flambeau as torch
from flambeau.cuda import _memory_flamegraph, _memory_pages, _memory_viz

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
m = torch.cuda.memory
FRAMES = [
    {"name": "inner", "filename": "a.py", "line": 3},
    {"name": "outer", "filename": "b.py", "line": 4},
]


def block(address: int, size: int, state: str, requested: int, frames: list[Any]) -> dict[str, Any]:
    return {
        "address": address, "size": size, "requested_size": requested, "state": state,
        "frames": frames,
    }  # fmt: skip


def segment(address: int, blocks: list[dict[str, Any]], stream: int = 0) -> dict[str, Any]:
    return {
        "device": 0, "address": address, "total_size": sum(b["size"] for b in blocks),
        "stream": stream, "segment_type": "large", "blocks": blocks, "frames": [],
    }  # fmt: skip


SEGMENT = segment(
    4096,
    [
        block(4096, 1024, "active_allocated", 1000, FRAMES),
        block(5120, 512, "active_pending_free", 512, []),
        block(5632, 512, "inactive", 77, []),
    ],
    stream=7,
)


def folded(call: Any, *snapshots: Any) -> list[str]:
    text: str = call(*snapshots, format_flamegraph=lambda lines: lines)
    return text.splitlines()


def test_the_lines_of_a_flame_graph() -> None:
    expected = [
        "active_allocated;b.py:4:outer;a.py:3:inner 1000",
        "active_allocated;<gaps>;b.py:4:outer;a.py:3:inner 24",
        "active_pending_free;<non-python> 512",
        "inactive 512",
    ]
    assert folded(_memory_viz.memory, [SEGMENT]) == [f"stream_7;{line}" for line in expected]
    with_segment = [f"stream_7;seg_4096;{line}" for line in expected]
    assert folded(_memory_viz.segments, {"segments": [SEGMENT]}) == with_segment


def test_what_two_snapshots_do_not_share() -> None:
    lost = segment(1 << 20, [block(1 << 20, 512, "inactive", 0, [])])
    gained = segment(1 << 21, [block(1 << 21, 1024, "inactive", 0, [])])
    found = folded(_memory_viz.compare, [SEGMENT, lost], {"segments": [SEGMENT, gained]})
    assert found == [
        f"only_before;stream_0;seg_{1 << 20};inactive 512",
        f"only_after;stream_0;seg_{1 << 21};inactive 1024",
    ]
    assert folded(_memory_viz.compare, [SEGMENT], [SEGMENT]) == []


def test_the_image_is_sound_and_shows_all() -> None:
    svg = _memory_viz.segments([SEGMENT])
    root = ET.fromstring(svg)
    titles = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "all (2.00 KiB, 100.00%)" in titles
    assert "a.py:3:inner (1000 bytes, 48.83%)" in titles
    assert "http://" not in svg.replace("http://www.w3.org/2000/svg", "")
    assert ET.fromstring(_memory_viz.format_flamegraph("")) is not None
    with pytest.raises(ValueError, match="number of bytes"):
        _memory_viz.format_flamegraph("a;b")


names = st.text(alphabet="abc<>&'\"", min_size=1, max_size=5)


@given(st.lists(st.tuples(st.lists(names, min_size=1, max_size=5), st.integers(0, 1 << 40))))
def test_boxes_hold_what_lies_on_them(stacks: list[tuple[list[str], int]]) -> None:
    lines = "\n".join(f"{';'.join(stack)} {size}" for stack, size in stacks)
    root = _memory_flamegraph.parse(lines)
    assert root.size == sum(size for _, size in stacks)
    open_ = [root]
    while open_:
        frame = open_.pop()
        assert sum(child.size for child in frame.children.values()) <= frame.size
        open_ += frame.children.values()
    ET.fromstring(_memory_flamegraph.draw(lines))


def test_another_program_may_draw(tmp_path: Path) -> None:
    script = tmp_path / "draw"
    script.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:], sys.stdin.read())\n")
    script.chmod(0o755)
    assert _memory_viz.format_flamegraph("a 1", str(script)) == "['--countname', 'bytes'] a 1\n"


def test_how_full_segments_are() -> None:
    large = segment(
        1 << 30,
        [
            block(0, 40 * MIB, "active_allocated", 40 * MIB - 5 * MIB, []),
            block(0, 10 * MIB, "active_allocated", 10 * MIB, []),
            block(0, 10 * MIB, "active_allocated", 10 * MIB, []),
            block(0, 5 * MIB, "active_allocated", 5 * MIB, []),
            block(0, 35 * MIB, "inactive", 0, []),
        ],
    )
    lines = _memory_viz.segsum([SEGMENT, large]).splitlines()
    assert lines[0] == "segments: 2"
    assert "[aa*2 ]" in lines
    assert "(12.5% internal)" in lines[3]


def test_the_history_as_text() -> None:
    torch.cuda.init()
    m._record_memory_history(max_entries=1000)
    try:
        x = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
        del x
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(1 << 41, dtype=torch.uint8, device="cuda")
        snapshot = m._snapshot()
    finally:
        m._record_memory_history(None)
    text = _memory_viz.trace(snapshot)
    assert re.search(r"block_0 = alloc\(30\.00 MiB\)  # 0x[0-9a-f]+, stream 0\n", text)
    assert "free_completed(block_0)  # 30.00 MiB\n" in text
    assert "raise OutOfMemoryError  # 2048.00 GiB requested" in text
    with pytest.raises(KeyError):
        _memory_viz.trace(snapshot["segments"])


# --- pages --------------------------------------------------------------------------------------


def entry(action: str, address: int, size: int) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0}


TRACE = [
    entry("segment_alloc", 0, 4096),
    entry("alloc", 0, 512),
    entry("alloc", 512, 1024),
    entry("free_completed", 0, 512),
    entry("free_completed", 9999, 100),
    entry("alloc", 0, 500),
]


def test_lives_begin_and_end() -> None:
    present = [segment(0, [
        block(0, 512, "active_allocated", 500, []),
        block(512, 1024, "active_allocated", 1024, FRAMES),
        block(1536, 512, "active_allocated", 512, FRAMES),
    ])]  # fmt: skip
    lives = _memory_pages.lives_of(TRACE, present, of_segments=False)
    assert [(life.address, life.size, life.start, life.end, life.whole) for life in lives] == [
        (9999, 100, 0, 4, True),
        (1536, 512, 0, 6, False),
        (0, 512, 1, 3, True),
        (512, 1024, 2, 6, False),
        (0, 500, 5, 6, False),
    ]
    (whole,) = _memory_pages.lives_of(TRACE, present, of_segments=True)
    assert (whole.address, whole.size, whole.start, whole.end) == (0, 4096, 0, 6)


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


def lives(columns: dict[str, Any]) -> list[tuple[int, ...]]:
    return list(
        zip(*(columns[name] for name in ("addr", "size", "start", "end", "freed")), strict=True)
    )


def test_a_page_has_lives_entries_and_sites() -> None:
    snapshot = {"segments": [], "device_traces": [[], [{**e, "frames": FRAMES} for e in TRACE]]}
    page = _memory_viz.trace_plot(snapshot)
    data = data_of(page)
    assert "Memory of device 1" in page
    assert not re.search(r"(src|href)=|https?:", page)
    (device,) = data["devices"]
    assert (device["name"], device["length"]) == ("device 1", 6)
    assert lives(device["blocks"]) == [
        (9999, 100, 0, 4, 1),
        (0, 512, 1, 3, 1),
        (512, 1024, 2, 6, 0),
        (0, 500, 5, 6, 0),
    ]
    assert lives(device["segments"]) == [(0, 4096, 0, 6, 0)]
    assert [data["actions"][n] for n in device["trace"]["action"]] == [e["action"] for e in TRACE]
    assert device["sites"] == ["<non-python>", "a.py:3 inner\nb.py:4 outer"]
    living = data_of(_memory_viz.trace_plot(snapshot, filter_freed=True))["devices"][0]
    assert living["blocks"]["size"] == [1024, 500]
    assert data_of(_memory_viz.trace_plot(snapshot, 1, plot_segments=True))["ofSegments"] is True
    with pytest.raises(ValueError, match="no device 2"):
        _memory_viz.trace_plot(snapshot, 2)


def test_the_page_of_segments_starts_there() -> None:
    snapshot = {"segments": [], "device_traces": [TRACE]}
    data = data_of(_memory_viz.segment_plot(snapshot))
    assert data["start"] == "segments"
    assert lives(data["devices"][0]["segments"]) == [(0, 4096, 0, 6, 0)]


def test_names_cannot_break_out_of_a_page() -> None:
    frames = [{"name": "</script><script>alert(1)", "filename": "x", "line": 1}]
    nasty = [{**entry("alloc", 0, 512), "frames": frames}]
    page = _memory_viz.trace_plot({"segments": [], "device_traces": [nasty]})
    assert page.count("<script") == 2
    assert "</script><script>alert" in data_of(page)["devices"][0]["sites"][0]


def test_the_page_of_a_profile() -> None:
    with torch.profiler.profile(profile_memory=True) as prof:
        x = torch.ones(1 << 18, device="cuda").mul(2)
    (device,) = data_of(_memory_viz.profile_plot(prof))["devices"]
    assert x.numel() == 1 << 18
    assert device["blocks"]["size"] == [1 << 20, 1 << 20]
    assert "aten::mul" in device["sites"]
    with pytest.raises(ValueError, match="profile_memory"):
        _memory_viz.profile_plot(torch.profiler.profile())


# --- the command --------------------------------------------------------------------------------


@pytest.fixture
def dumped(tmp_path: Path) -> Path:
    torch.cuda.init()
    path = tmp_path / "snapshot.pickle"
    m._record_memory_history(max_entries=1000)
    try:
        x = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
        m._dump_snapshot(str(path))
    finally:
        m._record_memory_history(None)
    del x
    return path


def test_every_verb(dumped: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = tmp_path / "picture"
    for verb in ("segments", "memory", "trace_plot", "segment_plot"):
        _memory_viz.main([verb, str(dumped), "-o", str(output)])
        assert output.read_text().startswith("<!doctype html>" if "plot" in verb
                                             else "<svg")  # fmt: skip
    _memory_viz.main(["compare", str(dumped), str(dumped), "-o", str(output)])
    assert output.read_text().startswith("<svg")
    _memory_viz.main(["stats", str(dumped)])
    assert "internal" in capsys.readouterr().out
    _memory_viz.main(["trace", str(dumped)])
    assert "alloc(30.00 MiB)" in capsys.readouterr().out
    with pytest.warns(DeprecationWarning, match="-d is deprecated"):
        _memory_viz.main(["trace_plot", str(dumped), "-d", "0", "-s", "-f", "-o", str(output)])
    _memory_viz.main([])
    assert capsys.readouterr().out == ""


def test_as_a_program(dumped: Path) -> None:
    command = [sys.executable, "-m", "flambeau.cuda._memory_viz"]
    done = subprocess.run(
        [*command, "trace", "-"], input=dumped.read_bytes(), capture_output=True, check=True
    )
    assert b"alloc(30.00 MiB)" in done.stdout
    silent = subprocess.run(command, capture_output=True, check=True)
    assert silent.stdout == b""


def test_pictures_from_a_running_program(tmp_path: Path) -> None:
    x = torch.empty(1000, device="cuda")
    for save in (m._save_segment_usage, m._save_memory_usage):
        path = tmp_path / "picture.svg"
        save(str(path))
        assert ET.fromstring(path.read_text()) is not None
    m._save_memory_usage(str(path), {"segments": [SEGMENT]})
    assert "a.py:3:inner" in path.read_text()
    assert x.numel() == 1000


def test_nothing_in_a_file_is_run() -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return print, ("run",)

    with pytest.raises(pickle.UnpicklingError, match="plain containers"):
        _memory_viz.load(io.BytesIO(pickle.dumps({"segments": Evil()})))
