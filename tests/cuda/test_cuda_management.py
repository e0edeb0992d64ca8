# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

import flambeau as torch
from support import TWO_VIRTUAL, needs_two, run_script

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


NUMBERING = """
from flambeau.cuda._management import management_index
def refused(ordinal):
    try:
        management_index(ordinal)
    except RuntimeError as error:
        return str(error)
    raise AssertionError(ordinal)
"""


@pytest.mark.parametrize("initialised", [False, True])
@pytest.mark.parametrize(
    ("value", "indices"), [(None, [0, 1]), ("1,0", [1, 0]), ("1", [1]), ("1,7,0", [1])]
)
def test_devices_are_mapped_through_the_variable(
    value: str | None, indices: list[int], initialised: bool
) -> None:
    run_script(
        NUMBERING
        + f"""
if {initialised}:
    torch.cuda.init()
assert [management_index(ordinal) for ordinal in range({len(indices)})] == {indices}
for ordinal in (-1, {len(indices)}):
    text = refused(ordinal)
    assert f"device {{ordinal}} is not visible" in text
    assert "sees {len(indices)} of the machine's 2 devices" in text
assert torch.cuda.is_initialized() is {initialised}
""",
        {**TWO_VIRTUAL, "CUDA_VISIBLE_DEVICES": value},
    )


def test_uuids_are_mapped_too() -> None:
    run_script(
        NUMBERING
        + """
import os
from flambeau import driver
os.environ["CUDA_VISIBLE_DEVICES"] = driver.current().management.uuid(1)
assert management_index(0) == 1
os.environ["CUDA_VISIBLE_DEVICES"] = "MIG-1"
assert "MIG instance" in refused(0)
""",
        TWO_VIRTUAL,
    )


def test_after_initialisation_the_device_itself_tells() -> None:
    run_script(
        NUMBERING
        + """
import os
from flambeau import driver
torch.cuda.init()
os.environ["CUDA_VISIBLE_DEVICES"] = "1,0"
assert [management_index(ordinal) for ordinal in range(2)] == [0, 1]
management = driver.current().management
known = management.uuid
management.uuid = lambda index: known(1 - index)  # another order than the driver's
assert [management_index(ordinal) for ordinal in range(2)] == [1, 0]
management.uuid = lambda index: "GPU-of-a-whole"
assert "MIG instance" in refused(0)
""",
        TWO_VIRTUAL,
    )


def test_nothing_visible_is_said_plainly() -> None:
    run_script(
        NUMBERING + """assert "sees 0 of the machine's 2 devices" in refused(0)""",
        {**TWO_VIRTUAL, "CUDA_VISIBLE_DEVICES": ""},
    )


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
