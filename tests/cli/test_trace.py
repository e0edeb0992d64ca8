# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from flambeau import cli


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(["trace", *map(str, arguments)])
    return ended.value.code


@pytest.fixture
def trace(tmp_path):
    def span(name, category, pid, ts, dur):
        return {
            "ph": "X",
            "name": name,
            "cat": category,
            "pid": pid,
            "tid": 7,
            "ts": ts,
            "dur": dur,
        }

    path = tmp_path / "t.json"
    events = [
        span("slow_kernel", "kernel", 0, 100, 300),
        span("fast_kernel", "kernel", 0, 400, 100),
        span("aten::mul", "cpu_op", 9, 0, 50),
        span("cuLaunchKernel", "cuda_driver", 9, 10, 20),
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_summary(trace, capsys):
    assert run("summary", trace, "-n", 1) in {0, None}
    text = capsys.readouterr().out
    assert "500.000us in all" in text
    assert "device 0 worked for 400.000us, 80.0 % of the time" in text
    assert "slow_kernel" in text
    assert "75.0 %" in text
    assert "fast_kernel" not in text
    assert "aten::mul" in text
    assert "cuLaunchKernel" in text


def test_view(trace, tmp_path, capsys):
    run("view", trace)
    assert capsys.readouterr().out.strip() == str(tmp_path / "t.html")
    assert "slow_kernel" in (tmp_path / "t.html").read_text()


def test_no_trace(tmp_path):
    path = tmp_path / "x"
    path.write_text("?")
    assert "no trace" in str(run("summary", path))
    assert run("view", tmp_path / "missing") != 0
