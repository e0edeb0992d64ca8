# SPDX-License-Identifier: Apache-2.0
"""Type promotion for all pairs of dtypes, against recorded facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch

FACTS = json.loads((Path(__file__).parents[1] / "data" / "promotion.json").read_text())
DTYPES = FACTS["dtypes"].split()
NUMBERS = {"bool": True, "int": 1, "float": 1.0, "complex": 1j}


def answer(call: Any) -> str:
    try:
        return call().name
    except RuntimeError as error:
        return "error" if "Promotion for" in str(error) else str(error)


@pytest.mark.parametrize("first", DTYPES)
def test_promote_types_of_all_pairs(first: str) -> None:
    found = [
        answer(lambda b=b: torch.promote_types(getattr(torch, first), getattr(torch, b)))
        for b in DTYPES
    ]
    assert found == FACTS["promote_types"][first].split()


@pytest.mark.parametrize("first", DTYPES)
def test_a_tensor_beats_one_without_dimensions(first: str) -> None:
    left = torch.empty(2, dtype=getattr(torch, first))
    found = [
        answer(lambda b=b: torch.result_type(left, torch.empty((), dtype=getattr(torch, b))))
        for b in DTYPES
    ]
    assert found == FACTS["zero_dim"][first].split()


@pytest.mark.parametrize("first", DTYPES)
def test_a_tensor_beats_numbers(first: str) -> None:
    left = torch.empty(2, dtype=getattr(torch, first))
    found = [
        answer(lambda n=n: torch.result_type(left, NUMBERS[n])) for n in FACTS["numbers"].split()
    ]
    assert found == FACTS["number"][first].split()


@pytest.mark.parametrize("first", DTYPES)
def test_can_cast_of_all_pairs(first: str) -> None:
    found = [torch.can_cast(getattr(torch, first), getattr(torch, b)) for b in DTYPES]
    assert "".join("01"[answer] for answer in found) == FACTS["can_cast"][first]
