# SPDX-License-Identifier: Apache-2.0
"""Sorting and scans against NumPy, on rows that fit a block and on longer ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from ops.cases import CATEGORY, DTYPES, array_of, assert_close, tensor_of, values

LENGTHS = (1, 2, 3, 31, 64, 100, 1023, 1024, 1025, 3000, 4097)


def _stable_order(array: np.ndarray[Any, Any], descending: bool) -> np.ndarray[Any, Any]:
    if not descending:
        return np.argsort(array, kind="stable")
    return (len(array) - 1 - np.argsort(array[::-1], kind="stable"))[::-1]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_lengths(length: int, descending: bool, gpu: Any) -> None:
    array = np.random.default_rng(length).integers(0, max(2, length // 3), length).astype(np.int32)
    found = tensor_of(array, gpu).sort(descending=descending)
    order = _stable_order(array, descending)
    np.testing.assert_array_equal(array_of(found.indices), order)
    np.testing.assert_array_equal(array_of(found.values), array[order])


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes(name: str, gpu: Any) -> None:
    x = tensor_of(values(name, 200), gpu)
    array = array_of(x)
    found = x.sort()
    assert found.values.dtype == x.dtype
    np.testing.assert_array_equal(array_of(found.values), np.sort(array))
    np.testing.assert_array_equal(array[array_of(found.indices)], array_of(found.values))


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_dimensions(dim: int, gpu: Any) -> None:
    array = np.random.default_rng(4).permutation(120).reshape(4, 5, 6)
    x = tensor_of(array, gpu)
    np.testing.assert_array_equal(array_of(x.sort(dim).values), np.sort(array, dim))
    np.testing.assert_array_equal(array_of(x.argsort(dim)), np.argsort(array, dim))
    top = x.topk(3, dim)
    expected = np.flip(np.sort(array, dim), dim).take(range(3), dim)
    np.testing.assert_array_equal(array_of(top.values), expected)
    np.testing.assert_array_equal(array_of(x.gather(dim, top.indices)), expected)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nan_is_the_greatest(device: str) -> None:
    x = torch.tensor([np.nan, 1.0, np.inf, -np.inf], device=device)
    assert x.sort().indices.tolist() == [3, 1, 2, 0]
    assert x.sort(descending=True).indices.tolist() == [0, 2, 1, 3]
    assert x.topk(2).indices.tolist() == [0, 2]
    assert x.topk(2, largest=False).values.tolist() == [-np.inf, 1.0]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_topk_of_long_rows(device: str) -> None:
    array = np.random.default_rng(5).permutation(5000).astype(np.float32).reshape(2, 2500)
    x = tensor_of(array, device)
    found = x.topk(7)
    np.testing.assert_array_equal(array_of(found.values), -np.sort(-array)[:, :7])
    assert x.topk(0).values.shape == (2, 0)
    with pytest.raises(RuntimeError, match="selected index k out of range"):
        x.topk(2501)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_empty_and_zero_dimensional(device: str) -> None:
    assert torch.zeros(0, device=device).sort().values.shape == (0,)
    assert torch.zeros(3, 0, device=device).sort().indices.shape == (3, 0)
    assert torch.zeros(0, 3, device=device).sort(0).indices.shape == (0, 3)
    scalar = torch.tensor(3, device=device).sort()
    assert (scalar.values.item(), scalar.indices.item()) == (3, 0)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_order_statistics(device: str) -> None:
    x = torch.tensor([[5, 1, 4, 2], [8, 8, 3, 9]], device=device)
    assert x.median(1).values.tolist() == [2, 8]
    assert x.median().item() == 4
    assert x.kthvalue(2).values.tolist() == [2, 8]
    assert torch.isnan(torch.tensor([1.0, np.nan, 2.0], device=device).median()).item()
    distinct, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    assert distinct.tolist() == [1, 2, 3, 4, 5, 8, 9]
    assert torch.equal(distinct[inverse], x)
    assert counts.tolist() == [1, 1, 1, 1, 1, 2, 1]


@pytest.mark.parametrize("length", [1, 5, 255, 256, 257, 1000])
def test_cumulative_sums(length: int, gpu: Any) -> None:
    array = np.random.default_rng(length).integers(-5, 6, (3, length)).astype(np.int32)
    x = tensor_of(array, gpu)
    np.testing.assert_array_equal(array_of(x.cumsum(1)), array.cumsum(1, dtype=np.int64))
    np.testing.assert_array_equal(array_of(x.t().cumsum(0)), array.T.cumsum(0, dtype=np.int64))
    assert x.cumsum(1).dtype == torch.int64


@pytest.mark.parametrize("name", [name for name in DTYPES if CATEGORY[name] == 2])
def test_cumulative_products(name: str, gpu: Any) -> None:
    array = np.random.default_rng(6).uniform(0.98, 1.02, 300).astype(np.float32)
    x = tensor_of(array, gpu).to(getattr(torch, name))
    expected = array_of(x).astype(np.float64).cumprod()
    assert x.cumprod(0).dtype == x.dtype
    assert_close(x.cumprod(0), expected, scale=20)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_medians_without_nan(device: str) -> None:
    x = torch.tensor([[np.nan, 4.0, 1.0, 3.0], [np.nan] * 4, [2.0, 9.0, 9.0, 1.0]], device=device)
    assert x.nanmedian(1).values.tolist()[::2] == [3.0, 2.0]
    assert torch.isnan(x.nanmedian(1).values).tolist() == [False, True, False]
    assert x.nanmedian(1).indices.tolist()[::2] == [3, 0]
    assert x.nanmedian().item() == 3.0
    assert torch.tensor([3, 1, 2], device=device).nanmedian().item() == 2
