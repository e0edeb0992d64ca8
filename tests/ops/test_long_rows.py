# SPDX-License-Identifier: Apache-2.0
"""Sorts, selections and scans of rows that take more than one block, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch


def numbers(dtype: str, count: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(count)
    values = (random.normal(size=count) * 40).astype(dtype)
    if dtype == "float32":
        values[:20], values[20:30], values[30:40] = np.nan, 0.0, -0.0
        values[40:43] = np.inf, -np.inf, -np.float32(np.nan)
    return random.permutation(values)


def stable_order(values: np.ndarray[Any, Any], descending: bool) -> np.ndarray[Any, Any]:
    """Positions in order, equal ones as they came, NaN as the greatest."""
    ranks = np.unique(values.astype(np.float64) + 0.0, return_inverse=True)[1]
    return np.argsort(-ranks if descending else ranks, kind="stable")


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_radix_sort(dtype: str, descending: bool, gpu: Any) -> None:
    values = numbers(dtype, 10_007)
    found, order = torch.from_numpy(values).to(gpu).sort(descending=descending)
    expected = stable_order(values, descending)
    np.testing.assert_array_equal(order.cpu().numpy(), expected)
    np.testing.assert_array_equal(found.cpu().numpy(), values[expected])


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [1, 64])
def test_topk_of_chunks(k: int, largest: bool, gpu: Any) -> None:
    values = numbers("float32", 2 * 9_001).reshape(2, 9_001)
    found, where = torch.from_numpy(values).to(gpu).topk(k, 1, largest)
    expected = np.stack([stable_order(row, largest)[:k] for row in values])
    np.testing.assert_array_equal(where.cpu().numpy(), expected)
    np.testing.assert_array_equal(found.cpu().numpy(), np.take_along_axis(values, expected, 1))


@pytest.mark.parametrize("dtype", ["float64", "int32"])
@pytest.mark.parametrize("count", [32, 5_000, 40_000])
def test_cumsum_of_a_vector(count: int, dtype: str, gpu: Any) -> None:
    values = np.random.default_rng(1).integers(-9, 9, count).astype(dtype)
    found = torch.from_numpy(values).to(gpu).cumsum(0)
    np.testing.assert_array_equal(found.cpu().numpy(), values.cumsum(dtype=found.dtype.name))


@pytest.mark.parametrize("shape", [(530_000,), (3, 33_001)])
def test_cummax_of_rows_that_blocks_share(shape: tuple[int, ...], gpu: Any) -> None:
    """The first has more tiles than a group; rows of the second begin at odd addresses."""
    values = np.random.default_rng(5).normal(size=shape).cumsum(-1).astype(np.int16)
    highest, where = torch.from_numpy(values).to(gpu).cummax(-1)
    expected = np.maximum.accumulate(values, -1)
    np.testing.assert_array_equal(highest.cpu().numpy(), expected)
    taken = np.take_along_axis(values, where.cpu().numpy(), -1)
    np.testing.assert_array_equal(taken, expected)


def test_sums_of_rows_that_blocks_share(gpu: Any) -> None:
    values = np.random.default_rng(6).integers(-9, 9, (3, 40_003)).astype(np.float32)
    x = torch.from_numpy(values).to(gpu)
    np.testing.assert_array_equal(x.cumsum(1).cpu().numpy(), values.cumsum(1))
    np.testing.assert_array_equal(x[1, 1:].cumsum(0).cpu().numpy(), values[1, 1:].cumsum())
    pairs = x[:2].to(torch.complex128) * 1j
    np.testing.assert_array_equal(pairs.cumsum(1).cpu().numpy().imag, values[:2].cumsum(1))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_scans_along_each_dimension(dim: int, gpu: Any) -> None:
    values = np.random.default_rng(2).integers(-9, 9, (3, 33, 700)).astype(np.float32)
    x = torch.from_numpy(values).to(gpu)
    np.testing.assert_array_equal(x.cumsum(dim).cpu().numpy(), values.cumsum(dim))
    highest, where = x.cummax(dim)
    np.testing.assert_array_equal(highest.cpu().numpy(), np.maximum.accumulate(values, dim))
    taken = np.take_along_axis(values, where.cpu().numpy(), dim)
    np.testing.assert_array_equal(taken, highest.cpu().numpy())


@pytest.mark.parametrize("shape", [(100, 70), (64, 64), (33, 129), (3, 70, 5, 40)])
def test_transposing_copies(shape: tuple[int, ...], gpu: Any) -> None:
    values = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    x = torch.from_numpy(values).to(gpu)
    order = tuple(reversed(range(len(shape))))
    moved = x.permute(order).contiguous()
    np.testing.assert_array_equal(moved.cpu().numpy(), values.transpose(order))


def test_broadcasts_along_both_dimensions(gpu: Any) -> None:
    random = np.random.default_rng(4)
    arrays = [random.normal(size=size).astype(np.float32) for size in ((30, 64), (64,), (30, 1))]
    matrix, row, column = (torch.from_numpy(array).to(gpu) for array in arrays)
    for view in (matrix, matrix[:, 4:36], matrix[:, 3:35], matrix[::2]):
        low = row[: view.shape[1]]
        host = view.cpu().numpy()
        np.testing.assert_array_equal((view + low).cpu().numpy(), host + low.cpu().numpy())
        high = column[: view.shape[0]]
        np.testing.assert_array_equal((view * high).cpu().numpy(), host * high.cpu().numpy())


@pytest.mark.gpu
@pytest.mark.slow
def test_more_elements_than_32_bits_count(gpu: Any) -> None:
    count = (1 << 31) + 4_099
    x = torch.ones(count, dtype=torch.int8, device=gpu)
    x[-1] = 3
    assert int(x.sum().item()) == count + 2
    assert int(x.argmax().item()) == count - 1
    assert int((x + x)[-1].item()) == 6
    assert int(x.cumsum(0, dtype=torch.int64)[-1].item()) == count + 2
    assert x[::2].contiguous().numel() == (count + 1) // 2
    assert x.nonzero().shape[0] == count
    assert int(x[torch.tensor([count - 1], device=gpu)].item()) == 3
