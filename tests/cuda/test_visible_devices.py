# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau.cuda import _visible_devices

UUIDS = [
    "GPU-9e2c0000-0000-0000-0000-000000000000",
    "GPU-9f770000-0000-0000-0000-000000000001",
    "GPU-12340000-0000-0000-0000-000000000002",
]


def resolve(value: str | None, count: int = 8) -> list[int]:
    return _visible_devices.resolve(value, count, lambda index: UUIDS[index])


@pytest.mark.parametrize(
    ("value", "listed"),
    [
        ("1gpu2,2ampere", [1, 2]),
        ("2, +3, -0, 5", [2, 3, 0, 5]),
        ("0, 1, 2, -1, 3", [0, 1, 2]),
        ("one,2", []),
        ("one", []),
        ("", []),
        ("-1", []),
        ("+", []),
        ("0,,1", [0]),
        ("0,1,0", []),
        ("3,3", []),
        ("٣", []),  # a digit, but not one of ours
        ("GPU-9e2c,GPU-77,1,GPU-12", ["GPU-9e2c", "GPU-77"]),
        ("GPU-9e2c, GPU-77", ["GPU-9e2c", "GPU-77"]),
        ("GPU-9e2c,GPU-9e2c", []),
        ("GPU-9e2c,MIG-77", ["GPU-9e2c"]),
        ("MIG-1,MIG-2,GPU-3", ["MIG-1", "MIG-2"]),
        ("0,GPU-9e2c", [0]),
    ],
)
def test_what_a_value_lists(value: str, listed: list[int] | list[str]) -> None:
    assert _visible_devices.parse(value) == listed


def test_an_unset_variable_lists_64_devices() -> None:
    assert _visible_devices.parse(None) == list(range(64))


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("0,3,1", [0]),  # the list ends at the first number that is no device
        ("3", []),
        (UUIDS[1], [1]),
        ("GPU-1,GPU-9e", [2, 0]),
        ("GPU-9,GPU-1", []),  # ambiguous
        ("GPU-1,GPU-9", [2]),
        ("GPU-1,GPU-abc,GPU-9e", [2]),  # unknown
        ("GPU-9e,GPU-9e2c", []),  # twice the same device
        ("MIG-9e", []),
    ],
)
def test_which_devices_a_value_shows(value: str | None, indices: list[int]) -> None:
    assert resolve(value, 3) == indices


def test_a_bare_prefix_matches_a_single_device() -> None:
    assert resolve("GPU-", 1) == [0]
    assert resolve("GPU-", 2) == []
    assert _visible_devices.is_bare_prefix("GPU-")
    assert not _visible_devices.is_bare_prefix("GPU-9")
    assert not _visible_devices.is_bare_prefix(None)


def test_uuids_are_asked_for_only_when_needed() -> None:
    def never(index: int) -> str:
        raise AssertionError(index)

    assert _visible_devices.resolve("1,0", 2, never) == [1, 0]


ENTRIES = st.one_of(
    st.integers(-3, 12).map(str),
    st.sampled_from(["", " 1", "+2", "-0", "1x", "x1", "GPU-9", "GPU-9e2c", "GPU-1", "MIG-1"]),
    st.text(max_size=4),
)


@given(st.lists(ENTRIES, max_size=8).map(",".join), st.integers(0, 3))
def test_what_is_shown_exists_and_is_shown_once(value: str, count: int) -> None:
    shown = resolve(value, count)
    assert len(set(shown)) == len(shown)
    assert all(0 <= index < count for index in shown)


@given(st.permutations(range(8)), st.integers(1, 8))
def test_numbers_are_taken_in_their_order(order: list[int], count: int) -> None:
    chosen = order[:count]
    assert resolve(",".join(map(str, chosen)), 8) == chosen


@given(st.lists(ENTRIES, max_size=6).map(",".join), ENTRIES)
def test_more_entries_never_show_other_devices_first(value: str, entry: str) -> None:
    before, after = resolve(value, 3), resolve(f"{value},{entry}", 3)
    assert after == [] or after[: len(before)] == before


@given(st.permutations(range(3)), st.integers(9, 40))
def test_uuids_mean_the_same_as_numbers(order: list[int], length: int) -> None:
    by_uuid = ",".join(UUIDS[index][:length] for index in order)
    assert resolve(by_uuid, 3) == resolve(",".join(map(str, order)), 3) == order
