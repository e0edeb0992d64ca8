# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import flambeau
from flambeau.runtime.sanitizer_footprint import Footprint, footprint_of

ITEM = 4


def bytes_of(footprint: Footprint) -> set[int]:
    return {begin + i for begin in footprint.runs() for i in range(footprint.run)}


@st.composite
def views(draw: st.DrawFn) -> tuple[Any, Any]:
    """A view of 120 elements and the same view of their numbers."""
    tensor, numbers = flambeau.zeros(120), np.arange(120)
    shape = draw(st.sampled_from([(120,), (10, 12), (4, 5, 6), (2, 3, 4, 5)]))
    tensor, numbers = tensor.reshape(shape), numbers.reshape(shape)
    slices = []
    for size in shape:
        start = draw(st.integers(0, size - 1))
        slices.append(slice(start, draw(st.integers(start + 1, size)), draw(st.integers(1, 4))))
    order = draw(st.permutations(range(len(shape))))
    return tensor[tuple(slices)].permute(*order), numbers[tuple(slices)].transpose(order)


@given(views())
def test_footprints_are_exact(view: tuple[Any, Any]) -> None:
    tensor, numbers = view
    footprint = footprint_of(tensor)
    assert footprint is not None
    base = tensor.untyped_storage().data_ptr()
    expected = {base + ITEM * int(n) + i for n in numbers.flat for i in range(ITEM)}
    assert bytes_of(footprint) == expected
    assert footprint.end == max(expected) + 1


@given(views(), views())
def test_overlap_is_exact(one: tuple[Any, Any], two: tuple[Any, Any]) -> None:
    first, second = footprint_of(one[0]), footprint_of(two[0])
    assert first is not None
    assert second is not None
    shift = one[0].untyped_storage().data_ptr() - two[0].untyped_storage().data_ptr()
    second = Footprint(second.begin + shift, second.run, second.dims)
    shared = not set(one[1].flat).isdisjoint(two[1].flat)
    assert first.overlaps(second) == second.overlaps(first) == shared
    if first.covers(second):
        assert bytes_of(second) <= bytes_of(first)


@given(st.data())
def test_rows_at_one_distance(data: st.DataObject) -> None:
    step = data.draw(st.integers(2, 9))

    def rows() -> Footprint:
        run = data.draw(st.integers(1, step - 1))
        return Footprint(
            data.draw(st.integers(0, 60)), run, ((data.draw(st.integers(2, 6)), step),)
        )

    one, two = rows(), rows()
    assert one.overlaps(two) == (not bytes_of(one).isdisjoint(bytes_of(two)))


def test_windows_that_overlap_themselves() -> None:
    windows = flambeau.zeros(20).unfold(0, 6, 2)
    footprint = footprint_of(windows)
    assert footprint is not None
    assert bytes_of(footprint) == set(range(footprint.begin, footprint.begin + 80))
    assert footprint_of(flambeau.zeros(3, 0)) is None
    assert footprint_of(flambeau.zeros(1).expand(5, 5)).run == ITEM
