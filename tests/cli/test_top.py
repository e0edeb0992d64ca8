# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os

import pytest

import flambeau as torch
from flambeau import cli, driver
from flambeau.cli import top
from support import needs_no_driver, run_script


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(["top", *arguments])
    assert ended.value.code in {0, None}


def test_json_has_every_gpu_of_the_machine(gpu, capsys):
    x = torch.empty(64 << 20, dtype=torch.uint8, device=gpu)
    x.fill_(1)
    torch.cuda.synchronize()
    run("--json")
    found = json.loads(capsys.readouterr().out)
    management = driver.current().management
    assert [f["uuid"] for f in found] == [
        management.uuid(i) for i in range(management.device_count())
    ]
    of = next(f for f in found if f["memory_total"] and f["memory_used"] >= 64 << 20)
    assert of["name"] == torch.cuda.get_device_name(gpu)
    assert of["memory_total"] == torch.cuda.get_device_properties(gpu).total_memory
    assert of["power"] > 0
    assert of["clock"] > 0
    assert 0 < of["temperature"] < 120
    assert 0 <= of["utilization"] <= 100


def test_own_process_and_its_command(gpu):
    torch.ones(4, device=gpu)
    processes = [p for f in top.figures() for p in f.processes if p["pid"] == os.getpid()]
    if not processes:
        pytest.skip("processes have other numbers outside of this container")
    assert "python" in processes[0]["command"] or "pytest" in processes[0]["command"]
    assert processes[0]["memory_used"] > 0


def test_once(gpu, capsys):
    run("--once")
    text = capsys.readouterr().out
    assert torch.cuda.get_device_name(gpu) in text
    assert "MHz" in text
    assert "°C" in text


def test_no_context_is_made():
    script = """
        from flambeau.cli import top
        from flambeau.runtime import _state
        assert len(top.figures()) >= 1
        assert not _state.has_context(0)
    """
    run_script(script)


@needs_no_driver
def test_without_a_gpu():
    script = "from flambeau import cli\ncli.main(['top', '--once'])"
    done = run_script(script, env={"FLAMBEAU_VIRTUAL": None}, check=False)
    assert done.returncode == 1
    assert "flambeau top: Found no NVIDIA driver" in done.stderr
    assert "doctor" in done.stderr


def test_figures_that_a_gpu_does_not_offer(gpu, monkeypatch, capsys):
    class Silent(type(driver.current().management)):
        def power_draw(self, index):
            raise RuntimeError("not for you")

        def processes(self, index):
            raise RuntimeError("nor these")

    monkeypatch.setattr(driver.current().management, "__class__", Silent)
    assert all(f.power is None and f.processes == [] for f in top.figures())
    run("--once")
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "NVIDIA" in line]
    assert rows
    assert all(row[-2] == "-" for row in rows)
