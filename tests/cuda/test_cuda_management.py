# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import driver
from flambeau.cuda._management import management_index
from support import needs_two, run_script

FIGURES = [
    torch.cuda.utilization,
    torch.cuda.memory_usage,
    torch.cuda.device_memory_used,
    torch.cuda.temperature,
    torch.cuda.power_draw,
    torch.cuda.clock_rate,
]


@needs_two
@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.__name__)
def test_figures_are_plausible_numbers(figure: object) -> None:
    limits = {"utilization": 100, "memory_usage": 100, "temperature": 120, "clock_rate": 5000}
    for device in (None, 0, "cuda:1"):
        value = figure(device)
        assert isinstance(value, int)
        assert 0 <= value <= limits.get(figure.__name__, 1 << 60)
    with pytest.raises(ValueError, match="Expected a cuda device"):
        figure("cpu")


def test_memory_in_use_follows_allocations() -> None:
    before = torch.cuda.device_memory_used(0)
    x = torch.empty(64 << 20, dtype=torch.uint8, device="cuda:0")
    assert torch.cuda.device_memory_used(0) >= before
    assert torch.cuda.device_memory_used(0) >= x.nbytes


@needs_two
@pytest.mark.parametrize(
    ("value", "indices"), [(None, [0, 1]), ("1,0", [1, 0]), ("1", [1]), ("1,7,0", [1])]
)
def test_devices_are_mapped_through_the_variable(
    monkeypatch: pytest.MonkeyPatch, value: str | None, indices: list[int]
) -> None:
    if value is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert [management_index(ordinal) for ordinal in range(len(indices))] == indices
    with pytest.raises(RuntimeError, match="is not visible"):
        management_index(len(indices))


@needs_two
def test_uuids_are_mapped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    uuid = driver.current().management.uuid(1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuid)
    assert management_index(0) == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    with pytest.raises(RuntimeError, match="MIG"):
        management_index(0)


@needs_two
def test_nothing_visible_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(RuntimeError, match=r"device 0 is not visible.*0 of 2 devices"):
        torch.cuda.temperature(0)


def test_a_device_of_one_s_own_numbering_is_asked_about() -> None:
    run_script(
        """
        x = torch.empty(64 << 20, dtype=torch.uint8, device="cuda:0")
        from flambeau import driver
        used = [driver.current().management.used_bytes(index) for index in range(3)]
        assert used.index(max(used)) == 2, used
        assert torch.cuda.device_memory_used(0) == used[2]
        """,
        {"FLAMBEAU_VIRTUAL": "h200:3", "CUDA_VISIBLE_DEVICES": "2,0"},
    )


def test_processes_are_listed() -> None:
    x = torch.empty(1, device="cuda:0")
    lines = torch.cuda.list_gpu_processes(0).splitlines()
    assert lines[0] == "GPU:0"
    assert all(
        line == "no processes are running" or line.endswith("MB GPU memory") for line in lines[1:]
    )
    assert len(lines) >= 2
    del x
