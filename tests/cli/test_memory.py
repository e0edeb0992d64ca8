# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle
import re

import pytest

import flambeau as torch
from flambeau import cli
from flambeau.cli import memory
from flambeau.cuda import _memory_file

m = torch.cuda.memory


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(["memory", *map(str, arguments)])
    return ended.value.code


@pytest.fixture
def snapshots(gpu, tmp_path):
    """Two snapshots: 3 MiB, then 3 and 8 MiB more."""
    m._record_memory_history()
    try:
        first = torch.empty(3 << 20, dtype=torch.uint8, device=gpu)
        m._dump_snapshot(str(tmp_path / "before.pickle"))
        second = torch.empty(8 << 20, dtype=torch.uint8, device=gpu)
        m._dump_snapshot(str(tmp_path / "after.pickle"))
    finally:
        m._record_memory_history(None)
    del first, second
    return tmp_path / "before.pickle", tmp_path / "after.pickle"


def test_top(snapshots, capsys):
    assert run("top", snapshots[1], "-n", 1) in {0, None}
    text = capsys.readouterr().out
    assert "8.00 MiB" in text
    assert "test_memory.py" in text
    assert "more sites" in text


def test_diff(snapshots, capsys):
    before, after = snapshots
    run("diff", before, after)
    assert re.search(r"\+8\.00 MiB +0 bytes +8\.00 MiB", capsys.readouterr().out)
    run("diff", after, before)
    assert "-8.00 MiB" in capsys.readouterr().out
    run("diff", after, after)
    assert "the same" in capsys.readouterr().out


def test_timeline(snapshots, capsys):
    run("timeline", snapshots[1], "--width", 20, "--height", 4)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert "█" in lines[3]
    assert re.search(r"peak .* MiB after entry \d+, at the end", lines[4])


def test_timeline_needs_a_trace(tmp_path):
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}, 4))
    assert "no trace" in str(run("timeline", path))


def test_view(snapshots, tmp_path, capsys):
    run("view", snapshots[1])
    page = tmp_path / "after.pickle.html"
    assert capsys.readouterr().out.strip() == str(page)
    assert page.read_text().startswith("<!doctype html>")
    run("view", snapshots[1], "-o", tmp_path / "other.html")
    assert (tmp_path / "other.html").read_text() == page.read_text()


def test_convert_there_and_back(snapshots, tmp_path, capsys):
    lines, again = tmp_path / "s.jsonl.gz", tmp_path / "again.pickle"
    run("convert", snapshots[1], lines)
    run("convert", lines, again)
    was, now = (_memory_file.read(path) for path in (snapshots[1], again))
    assert now["segments"] == was["segments"]
    assert [len(t) for t in now["device_traces"]] == [len(t) for t in was["device_traces"]]
    assert again.read_bytes()[:2] == b"\x80\x04"
    assert "must end in" in str(run("convert", lines, tmp_path / "s.txt"))


def test_unreadable_files(tmp_path):
    path = tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps({"segments": print}))
    assert "plain containers only" in str(run("top", path))
    path.write_bytes(pickle.dumps([1, 2]))
    assert run("top", tmp_path / "missing") != 0
    path.write_bytes(pickle.dumps({"a": 1}))
    assert "no snapshot" in str(run("top", path))


def test_bars_follow_the_levels():
    assert list(memory._drawn([0, 4, 8, 0], 4, 1)) == ["     8 bytes │ ▄█ "]
