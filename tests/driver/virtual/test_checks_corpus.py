# SPDX-License-Identifier: Apache-2.0
"""The race check on the programs that the stream sanitizer is tested with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import flambeau as torch
from sanitizer_corpus import CLEAN, RACY, fresh_place

if TYPE_CHECKING:
    from sanitizer_corpus import Program


# In these the host itself reads or writes pinned memory, which no check of the device can see.
OF_THE_HOST = {
    "the_result_is_read_too_early",
    "the_array_is_taken_too_early",
    "the_source_is_overwritten_too_early",
    "the_next_batch_comes_too_early",
    "the_wrong_stream_is_waited_for",
}


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
