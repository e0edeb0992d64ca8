# SPDX-License-Identifier: Apache-2.0
"""What machine is asked for, and which of its devices a process sees."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau.driver.virtual import _machine, config
from flambeau.driver.virtual.models import MODELS

UUIDS = [_machine.device_uuid("Virtual NVIDIA H200", index) for index in range(4)]


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("", "h200", 1),
        ("h200", "h200", 1),
        ("H200:2", "h200", 2),
        (":4", "h200", 4),
        ("3", "h200", 3),
        (" l4 : 8 ", "l4", 8),
        ("a100:64", "a100", 64),
    ],
)
def test_plans(text: str, name: str, count: int) -> None:
    assert config.parse_plan(text).models == (MODELS[name],) * count


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("v100", "no device model 'v100'; there are a10, a100, b200"),
        ("h200:", "after its colon"),
        ("h200:x", "not a number of devices"),
        ("h200:-1", "not a number of devices"),
        ("h200:0", "1 to 64 devices, not 0"),
        ("65", "1 to 64 devices, not 65"),
    ],
)
def test_bad_plans(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        config.parse_plan(text)


@given(st.sampled_from(sorted(MODELS)), st.integers(1, 64))
def test_every_model_and_count(name: str, count: int) -> None:
    assert config.parse_plan(f"{name}:{count}").models == (MODELS[name],) * count


@pytest.mark.parametrize("text", ["fifo", "adversarial", "random:0", "random:18446744073709551615"])
def test_schedules(text: str) -> None:
    assert str(config.parse_schedule(text.upper())) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lifo", "no schedule policy 'lifo'; there are fifo, random:SEED, adversarial"),
        ("", "there are fifo"),
        ("random", "needs a seed"),
        ("random:x", "needs a seed"),
        ("random:18446744073709551616", "needs a seed"),
        ("fifo:1", "no schedule policy"),
    ],
)
def test_bad_schedules(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        config.parse_schedule(text)


def test_models_are_complete() -> None:
    assert {"h200", "h100", "a100", "b200", "l4", "l40s", "a10", "t4"} <= set(MODELS)
    for model in MODELS.values():
        assert "Virtual" in model.name
        assert model.threads_per_multiprocessor in {1024, 1536, 2048}
        assert model.shared_per_block_optin <= model.shared_per_multiprocessor


def test_impossible_models() -> None:
    with pytest.raises(ValueError, match="leaves nothing"):
        dataclasses.replace(MODELS["h200"], memory_bytes=1 << 20)
    with pytest.raises(ValueError, match="multiprocessors must be above 0"):
        dataclasses.replace(MODELS["h200"], multiprocessors=0)


@pytest.mark.parametrize(
    ("variable", "visible"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("0,1", [0, 1]),
        ("3, +1, -0", [3, 1, 0]),
        ("1gpu2,2ampere", [1, 2]),
        ("0, 1, 2, -1, 3", [0, 1, 2]),
        ("one,2", []),
        ("2,1,2", []),
        ("0,4,1", [0]),
        ("NoDevFiles", []),
        (UUIDS[2], [2]),
        (f"{UUIDS[2]},{UUIDS[0]}", [2, 0]),
        (UUIDS[1][:12], [1]),
        (f"{UUIDS[1]},0", [1]),
        (f"{UUIDS[1]},{UUIDS[1]}", []),
        (f"{UUIDS[1]},GPU-zzz,{UUIDS[0]}", [1]),
        ("GPU-", []),
        ("MIG-GPU-1", []),
    ],
)
def test_visible_devices(variable: str | None, visible: list[int]) -> None:
    assert _machine.visible_devices(variable, UUIDS) == visible


@given(st.text(alphabet="0123,GPU- +abc", max_size=30))
def test_visible_devices_are_distinct_and_exist(variable: str) -> None:
    visible = _machine.visible_devices(variable, UUIDS)
    assert len(set(visible)) == len(visible)
    assert set(visible) <= {0, 1, 2, 3}


@given(st.permutations(range(4)))
def test_any_order_by_number_and_by_uuid(order: list[int]) -> None:
    assert _machine.visible_devices(",".join(map(str, order)), UUIDS) == order
    assert _machine.visible_devices(",".join(UUIDS[i] for i in order), UUIDS) == order
