# SPDX-License-Identifier: Apache-2.0
"""Attributes that Python code adds to tensors: kept in a dictionary that most tensors never get."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest

import flambeau as torch


class Named(torch.Tensor):
    kind = "named"


def test_attributes_come_and_go() -> None:
    x = torch.ones(2)
    with pytest.raises(AttributeError, match="note"):
        _ = x.note
    x.note = "kept"
    assert (x.note, vars(x), x.__dict__ is x.__dict__) == ("kept", {"note": "kept"}, True)
    del x.note
    assert vars(x) == {}
    x.__dict__ = {"other": 1}
    assert x.other == 1
    with pytest.raises(TypeError, match="dict"):
        x.__dict__ = 3
    assert vars(torch.ones(1)) == {}


def test_views_have_their_own() -> None:
    x = torch.ones(2)
    x.note = "of x"
    assert not hasattr(x[0], "note")


@pytest.mark.parametrize("through", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
def test_copies_keep_them(through: Any) -> None:
    x = torch.ones(2)
    x.note = [1, 2]
    assert through(x).note == [1, 2]
    assert vars(through(torch.ones(2))) == {}


def test_subclasses_share_the_slot() -> None:
    x = torch.ones(2).as_subclass(Named)
    x.note = 1
    assert (x.kind, x.note, vars(x)) == ("named", 1, {"note": 1})
    assert not hasattr(x + 1, "note")
    assert Named.__dictoffset__ == torch.Tensor.__dictoffset__ != 0


@pytest.mark.parametrize("kind", [torch.Tensor, Named])
def test_cycles_through_attributes_are_collected(kind: type[torch.Tensor]) -> None:
    x = torch.ones(2).as_subclass(kind)
    x.self = x
    x.friend = torch.ones(2)
    x.friend.back = x
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_what_an_attribute_holds_goes_with_the_tensor() -> None:
    class Held:
        pass

    x = torch.ones(2)
    x.held = Held()
    gone = weakref.ref(x.held)
    del x
    assert gone() is None


def test_many_tensors_come_from_a_clean_slate() -> None:
    for _ in range(200):  # more than the free list holds
        x = torch.ones(1)
        assert not vars(x)
        x.note = 1
        del x
    assert all(not hasattr(x, "note") for x in [torch.ones(1) for _ in range(200)])
