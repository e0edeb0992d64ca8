# SPDX-License-Identifier: Apache-2.0
"""The race check on the programs that the stream sanitizer is tested with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import flambeau as torch
from sanitizer_corpus import CLEAN, OF_THE_HOST, RACY, fresh_place

if TYPE_CHECKING:
    from sanitizer_corpus import Program

pytestmark = pytest.mark.unchecked("turns on the checks that it is about")


def races(program: Program) -> list[torch.virtual.CheckReport]:
    place = fresh_place()
    with torch.virtual.checks("race", mode="collect") as found:
        program(place)
    return found.reports


@pytest.mark.parametrize("name", sorted(RACY.keys() - OF_THE_HOST))
def test_races_are_found(name: str):
    assert races(RACY[name][0])


@pytest.mark.parametrize("name", CLEAN)
def test_nothing_is_found_where_nothing_is(name: str):
    assert races(CLEAN[name]) == []
