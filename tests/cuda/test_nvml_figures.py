# SPDX-License-Identifier: Apache-2.0
"""Each figure is the one that it says, of the device that was asked about."""

from __future__ import annotations

import os

import pytest

import flambeau as torch
from flambeau import driver
from flambeau.driver.contract import ProcessInfo
from support import TWO_VIRTUAL, run_script

FIGURES = {
    "utilization": ("utilization", 10),
    "memory_usage": ("memory_utilization", 20),
    "temperature": ("temperature", 30),
    "power_draw": ("power_draw", 40_000),
    "clock_rate": ("clock_rate", 1_500),
    "device_memory_used": ("used_bytes", 60_000),
}


class Recording:
    """A management library whose figures tell which was read, and of which GPU."""

    def __init__(self, real):
        self._real = real
        self.processes_of = {}

    def device_count(self):
        return self._real.device_count()

    def uuid(self, index):
        return self._real.uuid(index)

    def processes(self, index):
        return self.processes_of.get(index, [])

    def __getattr__(self, name):
        base = dict(FIGURES.values())[name]
        return lambda index: base + index


@pytest.fixture
def management(gpu, monkeypatch):
    recording = Recording(driver.current().management)
    monkeypatch.setattr(driver.current(), "management", recording)
    return recording


@pytest.mark.parametrize("name", FIGURES)
def test_each_function_reads_its_own_figure(name, management):
    index = 0 if os.environ.get("CUDA_VISIBLE_DEVICES", "0").startswith("0") else None
    if index is None:
        pytest.skip("device 0 is another one here")
    assert getattr(torch.cuda, name)(0) == FIGURES[name][1]
    assert getattr(torch.cuda, name)() == FIGURES[name][1]
    assert getattr(torch.cuda, name)("cuda:0") == FIGURES[name][1]


@pytest.mark.parametrize("name", FIGURES)
def test_of_a_second_device(name, management, two_gpus):
    assert getattr(torch.cuda, name)(1) == FIGURES[name][1] + 1


def test_processes_are_listed_one_a_line(management):
    assert torch.cuda.list_gpu_processes(0).splitlines()[1] == "no processes are running"
    management.processes_of[0] = [ProcessInfo(4711, 3 << 20), ProcessInfo(12, 1 << 19)]
    head, *lines = torch.cuda.list_gpu_processes(0).splitlines()
    assert head == "GPU:0"
    assert lines == [
        "process       4711 uses        3.000 MB GPU memory",
        "process         12 uses        0.500 MB GPU memory",
    ]


def test_the_variable_turns_devices_around():
    script = """
        from flambeau import driver
        management = driver.current().management
        second = management.uuid(1)
        x = torch.ones(1 << 22, device="cuda:0")
        assert torch.cuda.get_device_properties(0).uuid == second or str(
            torch.cuda.get_device_properties(0).uuid) in second
        assert torch.cuda.device_memory_used(0) == management.used_bytes(1) > 16 << 20
        assert torch.cuda.device_memory_used(1) == management.used_bytes(0) == 0
        assert torch.cuda.list_gpu_processes(0).startswith("GPU:1")
    """
    run_script(script, env={**TWO_VIRTUAL, "CUDA_VISIBLE_DEVICES": "1,0"})


def test_uuids_in_the_variable():
    found = run_script(
        "from flambeau import driver\nprint(driver.current().management.uuid(1))", env=TWO_VIRTUAL
    )
    uuid = found.lines[-1]
    script = """
        assert torch.cuda.device_count() == 1
        assert torch.cuda.list_gpu_processes(0).startswith("GPU:1")
    """
    run_script(script, env={**TWO_VIRTUAL, "CUDA_VISIBLE_DEVICES": uuid[:12]})


def test_a_mig_instance_is_named_in_the_refusal():
    script = """
        try:
            torch.cuda.utilization(0)
        except RuntimeError as error:
            print(error)
    """
    env = {**TWO_VIRTUAL, "CUDA_VISIBLE_DEVICES": "MIG-6c1e"}
    text = run_script(script, env=env).stdout
    assert "MIG" in text
    assert "CUDA_VISIBLE_DEVICES" in text
