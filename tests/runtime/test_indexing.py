# SPDX-License-Identifier: Apache-2.0
"""Basic indices, against NumPy; advanced ones reach the operation that is installed for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import flambeau as torch

PLACES = ("cpu", "cuda:0")


def pair(shape: tuple[int, ...], place: str = "cpu") -> tuple[torch.Tensor, np.ndarray]:
    array = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    return torch.arange(array.size).view(shape).to(place), array


@st.composite
def shaped_index(draw: st.DrawFn) -> tuple[tuple[int, ...], Any]:
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    parts: list[Any] = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        ends = st.none() | st.integers(-6, 6)
        kinds: list[st.SearchStrategy[Any]] = [
            st.builds(slice, ends, ends, st.none() | st.integers(1, 3))
        ]
        if size:
            kinds.append(st.integers(-size, size - 1))
        parts.append(draw(st.one_of(kinds)))
    for _ in range(draw(st.integers(0, 2))):
        parts.insert(draw(st.integers(0, len(parts))), None)
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), Ellipsis)
    index: Any = tuple(parts)
    return shape, index[0] if len(index) == 1 and draw(st.booleans()) else index


@given(shaped_index())
def test_reading_agrees_with_numpy(case: tuple[tuple[int, ...], Any]) -> None:
    shape, index = case
    tensor, array = pair(shape)
    try:
        true = np.asarray(array[index])
    except IndexError:  # an Ellipsis moved an int to a smaller dimension
        with pytest.raises(IndexError, match="out of bounds"):
            tensor[index]
        return
    found = tensor[index]
    assert tuple(found.shape) == true.shape
    assert found.tolist() == true.tolist()
    assert found._base is tensor._base


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=40)
@given(case=shaped_index(), data=st.data())
def test_writing_agrees_with_numpy(
    place: str, case: tuple[tuple[int, ...], Any], data: st.DataObject
) -> None:
    shape, index = case
    tensor, array = pair(shape, place)
    try:
        part = np.asarray(array[index])
    except IndexError:
        reject()
    value: Any
    if data.draw(st.booleans()):
        value = true = data.draw(st.integers(-9, 9))
    else:
        kept = part.shape[data.draw(st.integers(0, part.ndim)) :]
        true = np.arange(100, 100 + int(np.prod(kept))).reshape(kept)
        value = torch.tensor(true.tolist(), dtype=torch.int64).view(kept).to(place)
    array[index] = true
    tensor[index] = value
    assert tensor.tolist() == array.tolist()


@pytest.mark.parametrize("place", PLACES)
def test_assigning_converts_and_strips_leading_ones(place: str) -> None:
    tensor, _ = pair((2, 3), place)
    tensor[0] = torch.tensor([[[1.9, 2.9, 3.9]]])
    tensor[1, 1:] = torch.tensor(7.0, device=place)
    tensor[1, 0] = np.int64(5)
    assert tensor.tolist() == [[1, 2, 3], [5, 7, 7]]
    with pytest.raises(RuntimeError, match="must match the size"):
        tensor[0] = torch.zeros(2, dtype=torch.int64, device=place)
    with pytest.raises(TypeError, match="can't assign a list to a Long tensor"):
        tensor[0] = [1, 2, 3]


def test_bools_and_ellipses() -> None:
    tensor, array = pair((2, 3))
    for index in (True, False, (None, True), (..., 0), (0, ...), (Ellipsis,), ()):
        assert tensor[index].tolist() == array[index].tolist()
    assert tensor[..., ...].shape == (2, 3)
    tensor[False] = 9
    assert tensor.tolist() == array.tolist()


def test_integers_of_other_kinds() -> None:
    tensor, array = pair((4, 3))
    for one in (np.int32(1), torch.tensor(1), torch.tensor(1, dtype=torch.uint8), np.array(1)):
        assert tensor[one].tolist() == array[1].tolist()
        assert tensor[one]._base is tensor._base
        assert tensor[one:].tolist() == array[1:].tolist()


def test_errors() -> None:
    tensor, _ = pair((2, 3))
    for index, error, phrase in [
        (5, IndexError, "index 5 is out of bounds for dimension 0 with size 2"),
        ((0, -4), IndexError, "index -4 is out of bounds for dimension 1 with size 3"),
        ((0, 0, 0), IndexError, "too many indices for tensor of dimension 2"),
        ((slice(None),) * 3, IndexError, "too many indices"),
        (
            1.5,
            IndexError,
            r"only integers, slices \(`:`\), ellipsis .* are valid indices \(got float\)",
        ),
        ("a", IndexError, "valid indices"),
        (slice(None, None, -1), ValueError, "step must be greater than zero"),
        (slice(None, None, 0), ValueError, "slice step cannot be zero"),
    ]:
        with pytest.raises(error, match=phrase):
            tensor[index]
    with pytest.raises(IndexError, match="invalid index of a 0-dim tensor"):
        torch.tensor(1)[0]


def test_iterating() -> None:
    tensor, array = pair((3, 2))
    assert [row.tolist() for row in tensor] == array.tolist()
    assert [row.tolist() for row in reversed(tensor)] == array[::-1].tolist()
    with pytest.raises(TypeError, match="iteration over a 0-d tensor"):
        iter(torch.tensor(1))


def test_advanced_indices_reach_the_installed_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau.runtime import _tensor

    seen: list[Any] = []
    before = torch.Tensor.__getitem__
    tensor, _ = pair((2, 3))
    installed = _tensor.operator_of("getitem"), _tensor.operator_of("setitem")
    try:
        _tensor.install_operators(
            {
                "getitem": lambda t, index: seen.append((t, index)) or "read",
                "setitem": lambda t, index, value: seen.append((t, index, value)),
            }
        )
        mask = torch.tensor([True, False])
        assert tensor[mask] == "read"
        assert tensor[0, [1, 2]] == "read"
        tensor[[0]] = 5
        assert [entry[1] for entry in seen] == [mask, (0, [1, 2]), [0]]
        assert tensor[0].shape == (3,)
        assert before is torch.Tensor.__getitem__
    finally:
        _tensor.install_operators(dict(zip(("getitem", "setitem"), installed, strict=True)))
