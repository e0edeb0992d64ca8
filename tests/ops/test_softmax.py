# SPDX-License-Identifier: Apache-2.0
"""Softmax and its logarithm against NumPy, on rows that take each kernel, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.ops import softmax as ops
from ops.cases import array_of, tensor_of

# A warp; a block with whole packs and without; too long to be held, unaligned too; columns.
SHAPES = [
    ((5, 100), 1),
    ((3, 1000), -1),
    ((2, 4096), 1),
    ((3, 1001), 1),
    ((2, 50257), 1),
    ((4, 7, 6), 1),
    ((4, 7, 6), 0),
    ((1, 3), 1),
]


def reference(x: np.ndarray[Any, Any], axis: int, log: bool) -> np.ndarray[Any, Any]:
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        shifted = wide - wide.max(axis, keepdims=True)
        result = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
        return np.asarray(result if log else np.exp(result))


def slope(
    g: np.ndarray[Any, Any], y: np.ndarray[Any, Any], axis: int, log: bool
) -> np.ndarray[Any, Any]:
    if log:
        return np.asarray(g - np.exp(y) * g.sum(axis, keepdims=True))
    return np.asarray(y * (g - (g * y).sum(axis, keepdims=True)))


@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_shapes(shape: tuple[int, ...], dim: int, log: bool, gpu: Any) -> None:
    random = np.random.default_rng(len(shape))
    x = random.normal(0, 3, shape).astype(np.float32)
    g = random.normal(0, 1, shape).astype(np.float32)
    expected = reference(x, dim, log)
    expected_slope = slope(g.astype(np.float64), expected, dim, log)
    for device in (gpu, "cpu"):
        y = ops.forward(tensor_of(x, device), dim, log)
        assert y.dtype == torch.float32
        np.testing.assert_allclose(array_of(y), expected, rtol=2e-5, atol=1e-6)
        found = ops.backward(tensor_of(g, device), y, dim, log)
        np.testing.assert_allclose(array_of(found), expected_slope, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(dtype: str, gpu: Any) -> None:
    of = getattr(torch, dtype)
    x = tensor_of(np.random.default_rng(0).normal(0, 2, (3, 40)), gpu).to(of)
    expected = reference(array_of(x), 1, False)
    tolerance = {"float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-14}[dtype]
    for tensor in (x, x.cpu()):
        y = tensor.softmax(1)
        assert y.dtype == of
        np.testing.assert_allclose(array_of(y), expected, rtol=tolerance)


def test_the_result_may_be_wider(gpu: Any) -> None:
    x = tensor_of(np.random.default_rng(0).normal(0, 2, (3, 40)), gpu).half()
    y = torch.softmax(x, 1, dtype=torch.float32)
    assert y.dtype == torch.float32
    np.testing.assert_allclose(array_of(y), reference(array_of(x), 1, False), rtol=1e-5)
    assert torch.softmax(torch.arange(3, device=gpu), 0, torch.float64).dtype == torch.float64
    with pytest.raises(NotImplementedError, match='"host_softmax" not implemented for'):
        torch.softmax(torch.arange(3, device=gpu), 0)


def test_infinities_and_nan(gpu: Any) -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[0, -inf, 0], [-inf, -inf, -inf], [1, nan, 2], [inf, 0, 0]], device=gpu)
    for wide in (x, torch.cat([x, torch.full((4, 40000), -inf, device=gpu)], 1)):
        y = array_of(wide.softmax(1))[:, :3]
        np.testing.assert_array_equal(y[0], [0.5, 0, 0.5])
        assert np.isnan(y[1:3]).all()
        assert np.isnan(y[3, 0])


def test_layouts_and_empty(gpu: Any) -> None:
    x = np.random.default_rng(1).normal(0, 1, (6, 5, 4)).astype(np.float32)
    moved = tensor_of(x, gpu).permute(2, 0, 1)
    np.testing.assert_allclose(
        array_of(moved.softmax(-1)), reference(x.transpose(2, 0, 1), -1, False), rtol=1e-5
    )
    assert torch.empty(0, 3, device=gpu).softmax(1).shape == (0, 3)
    assert torch.empty(3, 0, device=gpu).softmax(1).shape == (3, 0)
    assert torch.tensor(4.0, device=gpu).softmax(0).item() == 1
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.ones(2, device=gpu).softmax(1)
    out = torch.empty(0, device=gpu)
    assert torch.softmax(torch.zeros(2, device=gpu), 0, out=out) is out
    assert out.tolist() == [0.5, 0.5]


def test_rows_that_begin_between_packs(gpu: Any) -> None:
    """A view whose memory is not aligned, and rows too long to be held."""
    x = np.random.default_rng(2).normal(0, 1, (1, 70001)).astype(np.float32)
    view = tensor_of(x, gpu)[:, 1:]
    np.testing.assert_allclose(
        array_of(view.log_softmax(1)), reference(x[:, 1:], 1, True), rtol=1e-5, atol=1e-5
    )
