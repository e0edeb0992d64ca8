# SPDX-License-Identifier: Apache-2.0
"""Reductions over every kind of dimension against NumPy, on sizes that take each kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from ops.cases import CATEGORY, DTYPES, array_of, assert_close, tensor_of, values

# (shape, dims): one thread per output, one block, a block per slice with partial sums, columns.
SHAPES = [
    ((7,), None),
    ((5, 9), (0,)),
    ((5, 9), (1,)),
    ((3, 400), (1,)),
    ((300, 3), (0,)),
    ((2, 20_000), (1,)),
    ((40, 1100), (0,)),
    ((4, 5, 6), (0, 2)),
    ((4, 5, 6), None),
    ((), None),
]
NAMES = ("sum", "mean", "prod", "amax", "amin", "all", "any")
_NUMPY = {"amax": "max", "amin": "min"}


def _numpy(name: str, array: np.ndarray[Any, Any], dims: Any) -> np.ndarray[Any, Any]:
    function = getattr(np, _NUMPY.get(name, name))
    if name in {"sum", "prod"} and array.dtype.kind in "bui":
        return np.asarray(function(array, axis=dims, dtype=np.int64))
    return np.asarray(function(array, axis=dims))


def _input(name: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape))
    if CATEGORY[dtype] == 2:
        random = np.random.default_rng(count)
        small = random.uniform(0.9, 1.1, count) if name == "prod" else random.normal(0, 1, count)
        return small.astype(dtype).reshape(shape)
    return values(dtype, count, seed=count).reshape(shape)


@pytest.mark.parametrize("case", SHAPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_shapes(name: str, case: Any, gpu: Any) -> None:
    shape, dims = case
    array = _input(name, "float32", shape)
    if name == "prod":
        array = array ** (1 / 64)
    x = tensor_of(array, gpu)
    if name == "prod" and dims is not None and len(dims) > 1:
        return
    found = getattr(torch, name)(x, dims[0] if dims and len(dims) == 1 else dims)
    expected = _numpy(name, array.astype(np.float64), dims)
    assert_close(found, expected.astype(bool) if name in {"all", "any"} else expected, scale=30)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sum", "amax", "any"])
def test_dtypes(name: str, dtype: str, gpu: Any) -> None:
    if dtype == "bfloat16":
        array = _input(name, "float32", (4, 33))
        x = tensor_of(array, gpu).bfloat16()
        array = array_of(x)
    else:
        array = _input(name, dtype, (4, 33))
        x = tensor_of(array, gpu)
    for device_x in (x, x.cpu()):
        found = getattr(torch, name)(device_x, 1)
        with np.errstate(all="ignore"):
            expected = _numpy(name, array.astype(np.float64) if CATEGORY[dtype] == 2 else array, 1)
        if name == "any":
            assert found.dtype == (torch.uint8 if dtype == "uint8" else torch.bool)
        assert_close(found, expected, scale=4)


def test_half_is_accumulated_in_float(gpu: Any) -> None:
    for of in (torch.float16, torch.bfloat16):
        x = torch.ones(5000, dtype=of, device=gpu)
        assert x.sum().item() == (5000.0 if of == torch.float16 else 4992.0)
        assert x.mean().item() == 1.0
        assert torch.sum(x, dtype=torch.float32).item() == 5000.0


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("shape", [(3, 7), (3, 700), (2, 30_000), (900, 3)], ids=str)
def test_positions(shape: tuple[int, ...], device: str) -> None:
    array = np.random.default_rng(1).integers(0, 50, shape).astype(np.int32)  # many ties
    x = tensor_of(array, device)
    for dim in (0, 1):
        largest, smallest = x.max(dim), x.min(dim, keepdim=True)
        np.testing.assert_array_equal(array_of(largest.values), array.max(dim))
        np.testing.assert_array_equal(array_of(largest.indices), array.argmax(dim))
        np.testing.assert_array_equal(array_of(smallest.indices).squeeze(dim), array.argmin(dim))
        np.testing.assert_array_equal(array_of(x.argmax(dim)), array.argmax(dim))
    assert x.argmax().item() == array.argmax()
    assert x.t().argmin().item() == array.T.argmin()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nan_wins(device: str) -> None:
    x = torch.tensor([[1.0, np.nan, 3.0], [np.nan, np.nan, 1.0], [4.0, 5.0, 6.0]], device=device)
    assert x.argmax(1).tolist() == [1, 0, 2]
    assert x.argmin(1).tolist() == [1, 0, 0]
    assert torch.isnan(x.amax(1)).tolist() == [True, True, False]
    assert torch.isnan(x.min()).item()
    assert x.nansum(1).tolist() == [4.0, 1.0, 15.0]
    assert x.nanmean(1).tolist() == [2.0, 1.0, 5.0]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nothing_to_reduce(device: str) -> None:
    x = torch.zeros(2, 0, device=device)
    assert x.sum(1).tolist() == [0.0, 0.0]
    assert x.prod(1).tolist() == [1.0, 1.0]
    assert x.all(1).tolist() == [True, True]
    assert x.any(1).tolist() == [False, False]
    assert torch.isnan(x.mean(1)).tolist() == [True, True]
    assert x.sum(0).shape == (0,)
    assert x.amax(0).shape == (0,)
    with pytest.raises(
        IndexError, match=r"amax\(\): Expected reduction dim 1 to have non-zero size"
    ):
        x.amax(1)
    with pytest.raises(RuntimeError, match=r"max\(\): Expected reduction dim to be specified"):
        x.max()
    with pytest.raises(IndexError, match=r"argmax\(\): Expected reduction dim to be specified"):
        x.argmax()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_moments(device: str) -> None:
    array = np.random.default_rng(2).normal(1000, 1, (3, 5000)).astype(np.float32)
    x, wide = tensor_of(array, device), array.astype(np.float64)
    assert_close(x.var(1), wide.var(1, ddof=1), scale=1000)
    assert_close(x.std(1, unbiased=False), wide.std(1), scale=1000)
    assert_close(x.std(), np.asarray(wide.std(ddof=1)), scale=1000)
    assert_close(x.var(0, keepdim=True), wide.var(0, ddof=1, keepdims=True), scale=1000)
    spread, mean = torch.var_mean(x, 1, correction=0)
    assert_close(spread, wide.var(1), scale=1000)
    assert_close(mean, wide.mean(1), scale=10)
    assert torch.isnan(x[0, :1].var()).item()
    half = x.half()
    assert half.var(1).dtype == torch.float16


@pytest.mark.parametrize("order", [0, 1, 2, 3, float("inf"), float("-inf"), "fro"])
def test_norms(order: Any, gpu: Any) -> None:
    array = np.random.default_rng(3).normal(0, 2, (4, 50)).astype(np.float32)
    found = tensor_of(array, gpu).norm(order, dim=1)
    expected = np.linalg.norm(array.astype(np.float64), 2 if order == "fro" else order, axis=1)
    assert_close(found, expected, scale=10)


def test_logsumexp_does_not_overflow(gpu: Any) -> None:
    x = torch.tensor([[1000.0, 1000.0], [-np.inf, -np.inf]], device=gpu)
    assert x.logsumexp(1).tolist() == pytest.approx([1000 + np.log(2), -np.inf])


def test_strided_inputs(gpu: Any) -> None:
    base = torch.arange(720, device=gpu).reshape(6, 10, 12)
    array = array_of(base)
    for view, same in (
        (base.permute(2, 0, 1), array.transpose(2, 0, 1)),
        (base[::2, 1:, ::3], array[::2, 1:, ::3]),
        (base[0].expand(4, 10, 12), np.broadcast_to(array[0], (4, 10, 12))),
    ):
        for dims in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)):
            np.testing.assert_array_equal(array_of(view.sum(dims)), same.sum(dims))
            np.testing.assert_array_equal(array_of(view.amax(dims)), same.max(dims))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_dims_of_any_view(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    order = data.draw(st.permutations(range(len(shape))))
    dims = data.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1))
    keepdim = data.draw(st.booleans())
    array = np.arange(int(np.prod(shape))).reshape(shape).transpose(order)
    x = torch.arange(array.size, device="cuda").reshape(shape).permute(*order)
    np.testing.assert_array_equal(
        array_of(x.sum(tuple(dims), keepdim)), array.sum(tuple(dims), keepdims=keepdim)
    )


def test_arguments(gpu: Any) -> None:
    x = torch.ones(2, 3, device=gpu)
    with pytest.raises(
        IndexError, match=r"Dimension out of range \(expected to be in range of \[-2, 1\]"
    ):
        x.sum(2)
    with pytest.raises(RuntimeError, match="dim 0 appears multiple times"):
        x.sum((0, -2))
    with pytest.raises(RuntimeError, match=r"mean\(\): could not infer output dtype.*Got: Long"):
        x.long().mean()
    assert x.long().mean(dtype=torch.float64).item() == 1.0
    out = torch.empty(0, device=gpu)
    assert torch.sum(x, 0, out=out) is out
    assert out.tolist() == [2.0, 2.0, 2.0]
    assert torch.sum(x.bool()).dtype == torch.int64
    assert x.sum(()).item() == 6.0


def test_comparisons_of_whole_tensors(gpu: Any) -> None:
    x = torch.tensor([1.0, np.nan], device=gpu)
    assert not torch.equal(x, x)
    assert torch.equal(x[:1], x[:1].clone())
    assert not torch.equal(x, x[:1])
    assert torch.allclose(x, x, equal_nan=True)
    assert not torch.allclose(x, x)
    assert torch.isclose(x, x * (1 + 1e-6)).tolist() == [True, False]


def test_results_have_names(gpu: Any) -> None:
    found = torch.tensor([[1, 3], [5, 2]], device=gpu).max(0)
    values_, indices = found
    assert found.values is values_
    assert found[1] is indices
    assert isinstance(found, torch.return_types.max)
    assert repr(found).startswith(
        "torch.return_types.max(\nvalues=tensor([5, 3], device='cuda:0'),"
    )
