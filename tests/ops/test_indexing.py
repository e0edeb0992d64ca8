# SPDX-License-Identifier: Apache-2.0
"""Indexing with tensors against NumPy, on host and device alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from ops.cases import DTYPES, array_of, tensor_of, values
from support import run_script

DEVICES = pytest.mark.parametrize("device", ["cpu", "cuda"])
ARRAY = np.arange(120).reshape(4, 5, 6)
ROWS_ = np.array([2, 0, -1])
MASK = np.array([True, False, True, True])
INDICES: list[Any] = [
    ROWS_,
    (ROWS_,),
    (slice(None), ROWS_),
    (Ellipsis, ROWS_),
    (ROWS_, ROWS_),
    (ROWS_, slice(1, 3), ROWS_),
    (slice(None), ROWS_, ROWS_),
    (ROWS_[:, None], ROWS_),
    (1, ROWS_),
    (ROWS_, 1),
    (slice(None, None, 2), ROWS_, 3),
    (None, ROWS_),
    (ROWS_, None, slice(1)),
    (ROWS_, Ellipsis, 0),
    np.array([[0, 1], [3, 2]]),
    MASK,
    (MASK, slice(2)),
    (slice(1), np.array([True, False, True, False, True])),
    ARRAY % 7 == 0,
    ARRAY[..., 0] % 2 == 0,
    (MASK, np.array([0, 1, 2])),
    np.array([], dtype=np.int64),
    ARRAY < 0,
]


def _moved(index: Any, device: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_moved(part, device) for part in index)
    return tensor_of(index, device) if isinstance(index, np.ndarray) else index


@DEVICES
@pytest.mark.parametrize("index", INDICES, ids=lambda index: str(index).replace("\n", "")[:40])
def test_reading_and_writing(index: Any, device: str) -> None:
    x = tensor_of(ARRAY, device)
    expected = ARRAY[index]
    np.testing.assert_array_equal(array_of(x[_moved(index, device)]), expected)
    written, same = x.clone(), ARRAY.copy()
    written[_moved(index, device)] = 7
    same[index] = 7
    np.testing.assert_array_equal(array_of(written), same)
    fresh = np.arange(expected.size).reshape(expected.shape) * 1000
    written[_moved(index, device)] = tensor_of(fresh, device)
    same[index] = fresh
    np.testing.assert_array_equal(array_of(written), same)


@DEVICES
def test_views_are_indexed_in_place(device: str) -> None:
    x = tensor_of(ARRAY, device)
    x.permute(2, 0, 1)[torch.tensor([0, 5])] = -1
    same = ARRAY.copy()
    same.transpose(2, 0, 1)[[0, 5]] = -1
    np.testing.assert_array_equal(array_of(x), same)
    version = x._version
    x[[0]] = 1
    assert x._version > version


@DEVICES
def test_lists_and_host_indices(device: str) -> None:
    x = tensor_of(ARRAY, device)
    np.testing.assert_array_equal(array_of(x[[0, 2]]), ARRAY[[0, 2]])
    np.testing.assert_array_equal(array_of(x[torch.tensor([3])]), ARRAY[[3]])
    np.testing.assert_array_equal(array_of(x[[True, False, True, False]]), ARRAY[[0, 2]])
    np.testing.assert_array_equal(array_of(x[[]]), ARRAY[[]].reshape(0, 5, 6))
    assert x[torch.tensor(1, device=device)].shape == (5, 6)
    assert x[torch.tensor(True)].shape == (1, 4, 5, 6)


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes(name: str, gpu: Any) -> None:
    x = tensor_of(values(name, 50), gpu)
    index = torch.tensor([3, 1, 49], device=gpu)
    assert array_of(x[index]).tobytes() == array_of(x)[[3, 1, 49]].tobytes()
    x[index] = 1
    assert x[index].tolist() == [1, 1, 1]


@DEVICES
@pytest.mark.parametrize("name", ["int32", "int64"])
def test_along_a_dimension(name: str, device: str) -> None:
    x = tensor_of(ARRAY, device)
    index = np.random.default_rng(7).integers(0, 5, (4, 3, 6))
    found = x.gather(1, tensor_of(index.astype(name), device))
    np.testing.assert_array_equal(array_of(found), np.take_along_axis(ARRAY, index, 1))
    picked = x.index_select(2, tensor_of(np.array([5, 0, 0], dtype=name), device))
    np.testing.assert_array_equal(array_of(picked), ARRAY[:, :, [5, 0, 0]])
    places = np.broadcast_to(np.arange(5)[:, None], (4, 5, 6))
    index = np.random.default_rng(7).permuted(places, axis=1)[:, :3]
    put = torch.zeros_like(x).scatter_(1, tensor_of(index, device), x[:, :3])
    expected = np.zeros_like(ARRAY)
    np.put_along_axis(expected, index, ARRAY[:, :3], 1)
    np.testing.assert_array_equal(array_of(put), expected)


@pytest.mark.finds("race")
def test_where_indices_repeat_any_of_the_values_may_stay(gpu: torch.device) -> None:
    index = torch.tensor([0, 2, 0, 2, 0, 0], device=gpu)
    put = torch.zeros(3, device=gpu).scatter_(0, index, torch.arange(1.0, 7, device=gpu))
    assert put.tolist()[0] in {1, 3, 5, 6}
    assert put.tolist()[1:] in ([0, 2], [0, 4])


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "bool"])
def test_repeated_indices_accumulate(name: str, gpu: Any) -> None:
    of = getattr(torch, name)
    index = torch.tensor([0, 2, 0, 0, 2, 4], device=gpu)
    ones = torch.ones(6, dtype=of, device=gpu)
    expected = [3, 0, 2, 0, 1]
    zeros = torch.zeros(5, dtype=of, device=gpu)
    assert zeros.clone().scatter_add_(0, index, ones).tolist() == expected
    assert zeros.clone().index_add_(0, index, ones).tolist() == expected
    assert zeros.clone().index_put_((index,), ones, accumulate=True).tolist() == expected
    assert zeros.index_put((index,), ones, accumulate=True).tolist() == expected
    assert zeros.tolist() == [0] * 5


@DEVICES
@pytest.mark.parametrize("count", [0, 1, 7, 2048, 2049, 5000])
def test_nonzero(count: int, device: str) -> None:
    array = np.random.default_rng(count).random(count) < 0.3
    x = tensor_of(array, device)
    np.testing.assert_array_equal(array_of(x.nonzero()), np.argwhere(array))
    grid = np.random.default_rng(8).integers(0, 2, (5, 6, 7))
    np.testing.assert_array_equal(array_of(tensor_of(grid, device).nonzero()), np.argwhere(grid))
    parts = tensor_of(grid, device).nonzero(as_tuple=True)
    for part, expected in zip(parts, np.nonzero(grid), strict=True):
        np.testing.assert_array_equal(array_of(part), expected)


@DEVICES
def test_masks(device: str) -> None:
    x = tensor_of(ARRAY, device)
    mask = x % 3 == 0
    assert x.masked_select(mask).tolist() == ARRAY[ARRAY % 3 == 0].tolist()
    np.testing.assert_array_equal(
        array_of(x.masked_fill(mask, -1)), np.where(ARRAY % 3 == 0, -1, ARRAY)
    )
    np.testing.assert_array_equal(
        array_of(torch.where(mask, x, -x)), np.where(ARRAY % 3 == 0, ARRAY, -ARRAY)
    )
    filled = x.clone().masked_scatter_(mask, torch.arange(1000, device=device))
    same = ARRAY.copy()
    same[ARRAY % 3 == 0] = np.arange((ARRAY % 3 == 0).sum())
    np.testing.assert_array_equal(array_of(filled), same)
    with pytest.raises(RuntimeError, match="only supports boolean masks"):
        x.masked_fill_(x, 0)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_index_of_any_view(data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(3)))
    array = ARRAY.transpose(order)
    x = torch.arange(120, device="cuda").reshape(4, 5, 6).permute(*order)
    parts: list[Any] = []
    for size in array.shape[: data.draw(st.integers(1, 3))]:
        kind = data.draw(st.sampled_from(["slice", "int", "list", "column"]))
        if kind == "slice":
            parts.append(slice(data.draw(st.integers(0, size)), None, data.draw(st.integers(1, 3))))
        elif kind == "int":
            parts.append(data.draw(st.integers(-size, size - 1)))
        else:
            picked = data.draw(st.lists(st.integers(-size, size - 1), min_size=2, max_size=2))
            parts.append(np.array(picked).reshape(2, 1) if kind == "column" else np.array(picked))
    index = tuple(parts)
    # NumPy counts ints among the index arrays when it places their dimension; torch does not.
    if any(isinstance(p, int) for p in parts) and any(isinstance(p, np.ndarray) for p in parts):
        expected = array[tuple(slice(p, p + 1 or None) if isinstance(p, int) else p for p in parts)]
        found = x[
            tuple(
                slice(p, p + 1 or None) if isinstance(p, int) else _moved(p, "cuda") for p in parts
            )
        ]
    else:
        expected, found = array[index], x[_moved(index, "cuda")]
    np.testing.assert_array_equal(array_of(found), expected)


_WRONG = [
    (lambda x: x[[4]], IndexError, "index 4 is out of bounds for dimension 0 with size 4"),
    (lambda x: x[torch.tensor([0.5])], IndexError, "tensors used as indices must be long"),
    (lambda x: x[[0], [0], [0], [0]], IndexError, "too many indices for tensor of dimension 3"),
    (
        lambda x: x[torch.tensor([0, 1]), torch.tensor([0, 1, 2])],
        IndexError,
        "could not be broadcast together",
    ),
    (lambda x: x[torch.tensor([True])], IndexError, "The shape of the mask"),
    (lambda x: x.gather(1, torch.tensor([0])), RuntimeError, "same number of dimensions"),
    (
        lambda x: x.index_select(0, torch.tensor([0.0])),
        RuntimeError,
        "Expected dtype int32/int64 for index",
    ),
    (
        lambda x: x.__setitem__([0], torch.ones(7)),
        RuntimeError,
        "shape mismatch: value tensor of shape",
    ),
]


@pytest.mark.parametrize("case", _WRONG, ids=lambda case: case[2][:25])
def test_wrong_indices(case: Any) -> None:
    call, error, text = case
    with pytest.raises(error, match=text):
        call(torch.arange(120).reshape(4, 5, 6))


def test_a_bad_index_on_a_device_is_a_device_side_assertion() -> None:
    done = run_script("""
        x = torch.arange(4, device="cuda")
        try:
            x[torch.tensor([1, 9], device="cuda")].tolist()
        except torch.AcceleratorError as error:
            assert error.error_code == 710, error
            assert "device-side assert" in str(error)
            print("refused")
    """)
    assert done.lines == ["refused"]


@DEVICES
def test_put_at_positions(device: str) -> None:
    x = torch.zeros(2, 3, dtype=torch.int64, device=device)
    index = torch.tensor([4, 0, -1], device=device)
    source = torch.tensor([7, 8, 9], device=device)
    assert x.put(index, source).tolist() == [[8, 0, 0], [0, 7, 9]]
    assert x.t().put_(index, source) is not x
    assert x.tolist() == [[8, 0, 7], [0, 0, 9]]
    assert x.put_(index, source, accumulate=True).tolist() == [[16, 0, 7], [0, 7, 18]]
    with pytest.raises(RuntimeError, match="same number of elements"):
        x.put_(index, source[:2])
