# SPDX-License-Identifier: Apache-2.0
"""Rows of tables and the affine map against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.nn import functional as F  # noqa: N812
from flambeau.ops import embedding as ops
from ops.cases import array_of, tensor_of


@pytest.mark.parametrize("features", [64, 5])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_lookup_and_its_gradient(dtype: str, features: int, gpu: Any) -> None:
    random = np.random.default_rng(features)
    table = tensor_of(random.normal(0, 1, (11, features)).astype(np.float32), gpu)
    table = table.to(getattr(torch, dtype))
    numbers = random.integers(0, 11, (4, 9))
    numbers[numbers == 4] = 5
    g = tensor_of(random.normal(0, 1, (4, 9, features)).astype(np.float32), gpu).to(table.dtype)
    for frequency in (False, True):
        expected = np.zeros((11, features))
        np.add.at(expected, numbers, array_of(g).astype(np.float64))
        if frequency:
            expected /= np.maximum(np.bincount(numbers.reshape(-1), minlength=11), 1)[:, None]
        expected[3] = 0
        for device in (gpu, "cpu"):
            indices = tensor_of(numbers, device)
            found = ops.forward(table.to(device), indices)
            np.testing.assert_array_equal(array_of(found), array_of(table)[numbers])
            grad = ops.backward(g.to(device), indices, 11, 3, frequency)
            tolerance = 1e-5 if dtype == "float32" else 2e-2
            np.testing.assert_allclose(array_of(grad), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("features", [2_052, 1_301])
def test_rows_that_are_copied_in_pieces(features: int, gpu: Any) -> None:
    random = np.random.default_rng(features)
    table = random.normal(size=(7, features)).astype(np.float32)
    numbers = random.integers(0, 7, 13)
    found = ops.forward(tensor_of(table, gpu), tensor_of(numbers, gpu))
    np.testing.assert_array_equal(array_of(found), table[numbers])


def test_options(gpu: Any) -> None:
    table = torch.tensor([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]], device=gpu)
    found = F.embedding(torch.tensor([0, 1], device=gpu, dtype=torch.int32), table, max_norm=1.0)
    np.testing.assert_allclose(array_of(found), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-5)
    assert table[2].tolist() == [6, 8]  # was not looked up
    assert torch.embedding(table, torch.tensor(2, device=gpu)).tolist() == [6, 8]
    with pytest.raises(IndexError, match="index out of range in self"):
        F.embedding(torch.tensor([3]), table.cpu())
    with pytest.raises(RuntimeError, match="scalar types: Long, Int"):
        F.embedding(torch.tensor([1.0], device=gpu), table)
    with pytest.raises(AssertionError, match="Padding_idx must be within"):
        F.embedding(torch.tensor([0], device=gpu), table, padding_idx=3)
    with pytest.raises(NotImplementedError, match="sparse"):
        F.embedding(torch.tensor([0], device=gpu), table, sparse=True)


def test_linear(gpu: Any) -> None:
    random = np.random.default_rng(0)
    x, w, b, g = (random.normal(0, 1, s) for s in ((2, 3, 4), (5, 4), (5,), (2, 3, 5)))
    tx, tw, tb, tg = (tensor_of(a, gpu) for a in (x, w, b, g))
    np.testing.assert_allclose(array_of(F.linear(tx, tw, tb)), x @ w.T + b, rtol=1e-10)
    np.testing.assert_allclose(array_of(F.linear(tx, tw[0])), x @ w[0], rtol=1e-10)
    grads = ops.linear_backward(tg, tx, tw, (True, True, True))
    expected = (g @ w, np.einsum("bto,bti->oi", g, x), g.sum((0, 1)))
    for found, right in zip(grads, expected, strict=True):
        np.testing.assert_allclose(array_of(found), right, rtol=1e-10)
