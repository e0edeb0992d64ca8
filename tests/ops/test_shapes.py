# SPDX-License-Identifier: Apache-2.0
"""Joining and rearranging against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from ops.cases import array_of, tensor_of

A = np.arange(24).reshape(2, 3, 4)
B = np.arange(12).reshape(3, 4)

SAME: dict[str, tuple[Any, Any]] = {
    "cat 0": (lambda x: torch.cat([x, x[:1]]), lambda a: np.concatenate([a, a[:1]])),
    "cat -1": (lambda x: torch.cat([x, x], -1), lambda a: np.concatenate([a, a], -1)),
    "cat views": (
        lambda x: torch.cat([x.transpose(1, 2), x.transpose(1, 2)], 1),
        lambda a: np.concatenate([a.transpose(0, 2, 1)] * 2, 1),
    ),
    "stack": (lambda x: torch.stack([x, -x], 1), lambda a: np.stack([a, -a], 1)),
    "hstack": (lambda x: torch.hstack([x, x]), lambda a: np.hstack([a, a])),
    "vstack": (lambda x: torch.vstack([x[0], x[1]]), lambda a: np.vstack([a[0], a[1]])),
    "dstack": (lambda x: torch.dstack([x, x]), lambda a: np.dstack([a, a])),
    "repeat": (lambda x: x.repeat(2, 1, 2, 1), lambda a: np.tile(a, (2, 1, 2, 1))),
    "repeat view": (
        lambda x: x.permute(2, 0, 1).repeat(1, 2, 3),
        lambda a: np.tile(a.transpose(2, 0, 1), (1, 2, 3)),
    ),
    "repeat none": (lambda x: x.repeat(0, 1, 1), lambda a: np.tile(a, (0, 1, 1))),
    "tile": (lambda x: x.tile(2), lambda a: np.tile(a, 2)),
    "interleave": (lambda x: x.repeat_interleave(3, 1), lambda a: np.repeat(a, 3, 1)),
    "interleave flat": (lambda x: x.repeat_interleave(2), lambda a: np.repeat(a, 2)),
    "interleave counts": (
        lambda x: x.repeat_interleave(torch.tensor([1, 0, 2]), 1),
        lambda a: np.repeat(a, [1, 0, 2], 1),
    ),
    "flip": (lambda x: x.flip(0, 2), lambda a: np.flip(a, (0, 2))),
    "reversed": (reversed, lambda a: a[::-1]),
    "flip none": (lambda x: x.flip(()), lambda a: a),
    "rot90": (lambda x: x.rot90(1, (1, 2)), lambda a: np.rot90(a, 1, (1, 2))),
    "rot270": (lambda x: x.rot90(3, (0, 1)), lambda a: np.rot90(a, 3, (0, 1))),
    "roll": (lambda x: x.roll((1, -2), (1, 2)), lambda a: np.roll(a, (1, -2), (1, 2))),
    "roll flat": (lambda x: x.roll(5), lambda a: np.roll(a, 5)),
    "tril": (lambda x: x.tril(-1), lambda a: np.tril(a, -1)),
    "triu": (lambda x: x.triu(1), lambda a: np.triu(a, 1)),
    "diag": (lambda x: x[0].diag(1), lambda a: np.diag(a[0], 1)),
    "diag of": (lambda x: x[0, 0].diag(-1), lambda a: np.diag(a[0, 0], -1)),
    "trace": (lambda x: x[0].trace(), lambda a: np.asarray(np.trace(a[0]))),
    "diff": (lambda x: x.diff(2, 2), lambda a: np.diff(a, 2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", SAME)
def test_same_as_numpy(name: str, device: str) -> None:
    ours, theirs = SAME[name]
    found, expected = ours(tensor_of(A, device)), theirs(A)
    assert tuple(found.shape) == expected.shape
    np.testing.assert_array_equal(array_of(found), expected)


@pytest.mark.parametrize("indexing", ["ij", "xy"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_meshgrid(count: int, indexing: str) -> None:
    vectors = [np.arange(n + 2) for n in range(count)]
    found = torch.meshgrid(*(torch.tensor(v) for v in vectors), indexing=indexing)
    for grid, expected in zip(found, np.meshgrid(*vectors, indexing=indexing), strict=True):
        np.testing.assert_array_equal(array_of(grid), expected)


def test_tensor_split() -> None:
    x = torch.tensor(np.arange(10))
    for how in (3, 4, 12, [2, 5], [0, 20], [7, 3]):
        found = [part.tolist() for part in x.tensor_split(how)]
        assert found == [part.tolist() for part in np.array_split(np.arange(10), how)]


def test_joining_promotes_and_skips_empty_vectors(gpu: Any) -> None:
    x = torch.arange(2, device=gpu)
    found = torch.cat([x, torch.ones(1, device=gpu), torch.zeros(0, device=gpu)])
    assert (found.dtype, found.tolist()) == (torch.float32, [0.0, 1.0, 1.0])
    assert torch.cat([torch.ones(2, 2, device=gpu), torch.zeros(0, device=gpu)]).shape == (2, 2)
    out = torch.empty(0, dtype=torch.int64, device=gpu)
    assert torch.cat([x, x], out=out) is out


_WRONG = [
    (lambda x: torch.cat([]), "expected a non-empty list of Tensors"),
    (lambda x: torch.cat([x, x[:, :1]]), "Sizes of tensors must match except in dimension 0"),
    (lambda x: torch.cat([x, x[0]]), "Tensors must have same number of dimensions"),
    (lambda x: torch.stack([x, x[:1]]), "stack expects each tensor to be equal size"),
    (lambda x: x.repeat(2), "Number of dimensions of repeat dims can not be smaller"),
    (lambda x: torch.cat([x, x.cuda()]), "Expected all tensors to be on the same device"),
]


@pytest.mark.parametrize("case", _WRONG, ids=lambda case: case[1][:30])
def test_wrong_arguments(case: Any) -> None:
    call, text = case
    with pytest.raises((RuntimeError, ValueError), match=text):
        call(torch.ones(2, 3))
