# SPDX-License-Identifier: Apache-2.0
"""Making tensors, and sharing memory with NumPy."""

from __future__ import annotations

import array as stdlib_array
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from ops.cases import DTYPES, array_of

DEVICES = pytest.mark.parametrize("device", ["cpu", "cuda"])


@DEVICES
@pytest.mark.parametrize("arguments", [
    (0,), (5,), (2, 10), (2, 10, 3), (10, 0, -3), (0, 1, 0.25), (1.5, 4), (0.0,), (1, 1),
])  # fmt: skip
def test_arange(arguments: tuple[float, ...], device: str) -> None:
    found = torch.arange(*arguments, device=device)
    expected = np.arange(*arguments)
    assert found.dtype == (torch.int64 if expected.dtype.kind == "i" else torch.float32)
    np.testing.assert_allclose(array_of(found), expected)


@DEVICES
@pytest.mark.parametrize("name", [name for name in DTYPES if name != "bool"])
def test_arange_dtypes(name: str, device: str) -> None:
    found = torch.arange(1, 100, dtype=getattr(torch, name), device=device)
    assert found.dtype.name == name
    assert found.tolist() == list(range(1, 100))


@DEVICES
def test_sequences(device: str) -> None:
    found = torch.linspace(-1, 1, 1001, dtype=torch.float64, device=device)
    np.testing.assert_allclose(array_of(found), np.linspace(-1, 1, 1001), atol=1e-15)
    assert found[-1].item() == 1.0
    assert torch.linspace(2, 5, 1, device=device).tolist() == [2.0]
    assert torch.linspace(0, 10, 4, dtype=torch.int32, device=device).tolist() == [0, 3, 6, 10]
    assert torch.logspace(0, 3, 4, device=device).tolist() == pytest.approx([1, 10, 100, 1000])
    assert torch.eye(2, 3, device=device).tolist() == [[1, 0, 0], [0, 1, 0]]
    out = torch.empty(0, dtype=torch.int32, device=device)
    assert torch.arange(3, out=out) is out
    assert out.tolist() == [0, 1, 2]


@DEVICES
@pytest.mark.parametrize("name", DTYPES)
def test_filled(name: str, device: str) -> None:
    of = getattr(torch, name)
    assert torch.zeros(2, 3, dtype=of, device=device).tolist() == [[0] * 3] * 2
    assert torch.ones((2,), dtype=of, device=device).tolist() == [1, 1]
    assert torch.full((300,), 1, dtype=of, device=device).sum().item() == 300
    like = torch.zeros(2, 3, dtype=of, device=device)
    for made in (torch.ones_like(like), like.new_ones(2, 3), torch.full_like(like, 1)):
        assert (made.dtype, made.device, made.shape) == (of, like.device, like.shape)
        assert made.tolist() == [[1] * 3] * 2


def test_fill_values_decide_the_dtype() -> None:
    assert torch.full((1,), True).dtype == torch.bool
    assert torch.full((1,), 3).dtype == torch.int64
    assert torch.full((1,), 3.0).dtype == torch.float32


@pytest.mark.parametrize(("data", "name", "expected"), [
    (3, "int64", 3), (2.5, "float32", 2.5), (True, "bool", True), ([], "float32", []),
    ([1, 2.5], "float32", [1.0, 2.5]), ([[1, 2], [3, 4]], "int64", [[1, 2], [3, 4]]),
    ((True, False), "bool", [True, False]), (np.float64(2), "float64", 2.0),
    (np.arange(3, dtype=np.int16), "int16", [0, 1, 2]), (range(3), "int64", [0, 1, 2]),
])  # fmt: skip
def test_from_data(data: Any, name: str, expected: Any, gpu: Any) -> None:
    for device in ("cpu", gpu):
        found = torch.tensor(data, device=device)
        assert found.dtype.name == name
        assert found.tolist() == expected


def test_from_data_copies_and_converts(gpu: Any) -> None:
    source = np.zeros(3, dtype=np.float32)
    made = torch.tensor(source)
    source[:] = 1
    assert made.tolist() == [0, 0, 0]
    x = torch.ones(2, device=gpu)
    assert torch.tensor(x).data_ptr() != x.data_ptr()
    assert torch.tensor([1.7, -1.7], dtype=torch.int32).tolist() == [1, -1]
    for bad, error, text in (
        ([[1, 2], [3]], ValueError, "expected sequence of length 2 at dim 1"),
        ([1, None], (RuntimeError, TypeError), "dtype"),
    ):
        with pytest.raises(error, match=text):
            torch.tensor(bad)
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.tensor([300], dtype=torch.uint8)


def test_numpy_shares_memory() -> None:
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    shared = torch.from_numpy(source)
    source[0, 0] = 10
    shared[1, 2] = 20
    assert shared[0, 0].item() == 10
    assert source[1, 2] == 20
    back = shared.t().numpy()
    back[0, 0] = 30
    assert source[0, 0] == 30
    assert torch.as_tensor(source).data_ptr() == shared.data_ptr()
    assert torch.as_tensor(source, dtype=torch.float64).data_ptr() != shared.data_ptr()
    strided = torch.from_numpy(source[:, ::2])
    assert strided.stride() == (3, 2)
    np.testing.assert_array_equal(np.asarray(torch.arange(3)), [0, 1, 2])
    with pytest.raises(ValueError, match="negative"):
        torch.from_numpy(source[::-1])
    with pytest.raises(TypeError, match=r"expected np\.ndarray"):
        torch.from_numpy([1])
    with pytest.raises(TypeError, match=r"can't convert np\.ndarray of type"):
        torch.from_numpy(np.array(["x"]))


def test_arrays_outlive_their_tensors() -> None:
    found = torch.arange(1000).numpy()
    torch.zeros(1000, dtype=torch.int64).fill_(7)
    np.testing.assert_array_equal(found, np.arange(1000))
    kept = torch.from_numpy(np.arange(1000) * 2)
    np.zeros(1000)
    assert kept[999].item() == 1998


def test_numpy_of_other_tensors(gpu: Any) -> None:
    with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy"):
        torch.ones(1, device=gpu).numpy()
    assert torch.ones(1, device=gpu).numpy(force=True).tolist() == [1.0]
    with pytest.raises(RuntimeError, match=r"Use tensor.detach\(\).numpy\(\)"):
        torch.ones(1, requires_grad=True).numpy()
    with pytest.raises(TypeError, match="unsupported ScalarType BFloat16"):
        torch.ones(1, dtype=torch.bfloat16).numpy()


def test_buffers() -> None:
    buffer = stdlib_array.array("i", [1, 2, 3])
    found = torch.frombuffer(buffer, dtype=torch.int32)
    buffer[0] = 9
    assert found.tolist() == [9, 2, 3]


def test_default_dtype() -> None:
    assert torch.get_default_dtype() == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.tensor(1.5).dtype == torch.float64
        assert torch.zeros(1).dtype == torch.float64
        assert (torch.ones(2, dtype=torch.int32) / 2).dtype == torch.float64
        assert (torch.ones(2, dtype=torch.int32) + 0.5).dtype == torch.float64
        assert torch.arange(0.0, 2).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert (torch.ones(2, dtype=torch.int32) / 2).dtype == torch.float32
    with pytest.raises(TypeError, match="only floating-point types are supported as the default"):
        torch.set_default_dtype(torch.int32)


_WRONG = [
    (lambda: torch.arange(0, 5, 0), RuntimeError, "step must be nonzero"),
    (lambda: torch.arange(0, 5, -1), RuntimeError, "inconsistent with step sign"),
    (lambda: torch.arange(0, float("inf")), RuntimeError, "unsupported range"),
    (lambda: torch.linspace(0, 1, -1), RuntimeError, "number of steps must be non-negative"),
    (lambda: torch.zeros(-1), RuntimeError, "negative dimension"),
    (lambda: torch.eye(-1), RuntimeError, "n must be greater or equal to 0"),
]


@pytest.mark.parametrize("case", _WRONG, ids=lambda case: case[2])
def test_wrong_arguments(case: Any) -> None:
    call, error, text = case
    with pytest.raises(error, match=text):
        call()


def test_legacy_classes(gpu: Any) -> None:
    made = torch.FloatTensor([1, 2])
    assert (made.dtype, made.tolist()) == (torch.float32, [1.0, 2.0])
    assert torch.LongTensor(2, 3).shape == (2, 3)
    assert torch.ByteTensor().shape == (0,)
    assert isinstance(made, torch.FloatTensor)
    assert not isinstance(made, torch.DoubleTensor)
    assert not isinstance(made.to(gpu), torch.FloatTensor)
    with pytest.raises(AttributeError):
        torch.NonsenseTensor  # noqa: B018


@DEVICES
def test_empty_memory_in_another_order_of_dimensions(device: str) -> None:
    for format, shape, strides in (
        (torch.channels_last, (2, 3, 4, 5), (60, 1, 15, 3)),
        (torch.channels_last_3d, (1, 2, 3, 4, 5), (120, 1, 40, 10, 2)),
        (torch.channels_last, (0, 2, 3, 4), (24, 1, 8, 2)),
    ):
        x = torch.empty(shape, device=device, memory_format=format)
        assert x.stride() == strides
        assert x.is_contiguous(memory_format=format)
        like = torch.empty_like(torch.empty(shape), device=device, memory_format=format)
        assert like.stride() == strides
    with pytest.raises(RuntimeError, match="required rank 4 tensor to use channels_last format"):
        torch.empty(2, 3, device=device, memory_format=torch.channels_last)


def test_pinned_memory_in_another_order_of_dimensions(gpu: Any) -> None:
    x = torch.empty(2, 3, 4, 5, pin_memory=True, memory_format=torch.channels_last)
    assert (x.is_pinned(), x.stride()) == (True, (60, 1, 15, 3))
