# SPDX-License-Identifier: Apache-2.0
"""Tensors to and from other libraries by DLPack; NumPy is the other one."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau.utils import dlpack
from interop.capsules import content_of, name_of

NUMPY_TYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
CODES = {
    "bool": (6, 8), "uint8": (1, 8), "int8": (0, 8), "int16": (0, 16), "int32": (0, 32),
    "int64": (0, 64), "uint16": (1, 16), "uint32": (1, 32), "uint64": (1, 64),
    "float16": (2, 16), "bfloat16": (4, 16), "float32": (2, 32), "float64": (2, 64),
    "complex32": (5, 32), "complex64": (5, 64), "complex128": (5, 128),
    "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMPY_TYPES)
def test_numpy_shares_memory_both_ways(name: str) -> None:
    x = torch.arange(6).reshape(2, 3).to(getattr(torch, name))
    array = np.from_dlpack(x)
    assert array.dtype == np.dtype(name)
    assert array.ctypes.data == x.data_ptr()
    np.testing.assert_array_equal(array, np.arange(6).reshape(2, 3).astype(name))

    y = torch.from_dlpack(array)
    assert y.dtype is x.dtype
    assert y.data_ptr() == x.data_ptr()
    assert y.shape == x.shape


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_each_dtype_survives_a_round_trip(name: str, device: str) -> None:
    dtype = getattr(torch, name)
    x = torch.empty(3, dtype=dtype, device=device)
    described = content_of(x.__dlpack__(stream=-1)).view.dtype
    assert (described.code, described.bits) == CODES[name]
    assert described.lanes == 1
    y = torch.from_dlpack(x)
    assert y.dtype is dtype
    assert y.device == x.device
    assert y.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_exotic_bits_are_those_of_ml_dtypes(name: str) -> None:
    x = torch.tensor([0.5, -1.5, 3.0]).to(getattr(torch, name))
    carrier = torch.int16 if name == "bfloat16" else torch.uint8
    bits = np.from_dlpack(torch.from_dlpack(x).view(carrier))
    expected = np.array([0.5, -1.5, 3.0]).astype(getattr(ml_dtypes, name))
    np.testing.assert_array_equal(bits.view(expected.dtype).astype(float), expected.astype(float))


@settings(deadline=None, max_examples=60)
@given(
    shape=st.lists(st.integers(0, 4), min_size=0, max_size=7),
    data=st.data(),
)
def test_any_layout(shape: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    base = np.arange(int(np.prod(shape))).reshape(shape)
    expected = base.transpose(order)
    if expected.ndim and data.draw(st.booleans()):
        expected = expected[:: data.draw(st.integers(1, 3))]
    x = torch.from_dlpack(expected)
    assert tuple(x.shape) == expected.shape
    np.testing.assert_array_equal(np.from_dlpack(x), expected)
    on_gpu = torch.from_dlpack(torch.from_dlpack(x.cuda()))
    np.testing.assert_array_equal(on_gpu.cpu().numpy(), expected)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_nothing_has_no_address(device: str, shape: tuple[int, ...]) -> None:
    x = torch.empty(shape, device=device)
    assert content_of(x.__dlpack__()).view.data is None
    y = torch.from_dlpack(x)
    assert y.shape == torch.Size(shape)
    assert y.device == x.device
    assert (y + 1).shape == torch.Size(shape)


def test_no_dimensions() -> None:
    x = torch.from_dlpack(torch.tensor(5.0, device="cuda"))
    assert x.shape == ()
    assert x.item() == 5.0
    assert np.from_dlpack(torch.tensor(5.0)).shape == ()


def test_a_size_of_one_has_stride_one() -> None:
    x = torch.empty(8, 1)[::4].t()
    assert x.stride() == (1, 4)
    view = content_of(torch.empty(4, 3)[:1].__dlpack__()).view
    assert view.strides[:2] == [1, 1]
    assert content_of(x.__dlpack__()).view.strides[:2] == [1, 4]


def test_a_view_begins_at_its_first_element() -> None:
    x = torch.arange(10)[3:8:2]
    view = content_of(x.__dlpack__()).view
    assert view.data + view.byte_offset == x.data_ptr()
    assert np.from_dlpack(x).tolist() == [3, 5, 7]


# -- versions and flags ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_version", "name"),
    [
        (None, b"dltensor"),
        ((0, 8), b"dltensor"),
        ((1, 0), b"dltensor_versioned"),
        ((1, 1), b"dltensor_versioned"),
        ((2, 0), b"dltensor_versioned"),
    ],
)
def test_the_capsule_is_the_newest_that_the_consumer_reads(max_version: Any, name: bytes) -> None:
    capsule = torch.ones(2).__dlpack__(max_version=max_version)
    assert name_of(capsule) == name
    if max_version is not None and max_version[0] >= 1:
        assert content_of(capsule).version.major == 1
        assert content_of(capsule).flags == 0
    assert torch.from_dlpack(capsule).tolist() == [1, 1]


def test_a_copy_says_so() -> None:
    x = torch.ones(2)
    capsule = x.__dlpack__(max_version=(1, 0), copy=True)
    assert content_of(capsule).flags == 2
    assert content_of(capsule).view.data != x.data_ptr()
    assert content_of(x.__dlpack__(max_version=(1, 0), copy=False)).flags == 0


def test_read_only_memory_stays_read_only() -> None:
    array = np.arange(3)
    array.flags.writeable = False
    x = torch.from_dlpack(array)
    assert x.tolist() == [0, 1, 2]
    assert content_of(x.__dlpack__(max_version=(1, 0))).flags == 1
    assert not np.from_dlpack(x).flags.writeable
    assert memoryview(x).readonly
    assert content_of(x.clone().__dlpack__(max_version=(1, 0))).flags == 0
    assert content_of(x[1:].__dlpack__(max_version=(1, 0))).flags == 1
    with pytest.raises(BufferError, match="read-only"):
        x.__dlpack__()


def test_host_tensors_start_no_driver() -> None:
    program = (
        "import numpy, flambeau as torch\n"
        "x = torch.from_dlpack(numpy.arange(3))\n"
        "assert numpy.from_dlpack(x).tolist() == [0, 1, 2]\n"
        "assert x.__dlpack_device__() == (1, 0)\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# -- devices ---------------------------------------------------------------------------------------


def test_devices(gpus: Any) -> None:
    assert torch.ones(2).__dlpack_device__() == (dlpack.DLDeviceType.kDLCPU, 0)
    for index, device in enumerate(gpus(2)):
        assert torch.ones(2, device=device).__dlpack_device__() == (2, index)


def test_pinned_memory_says_so(gpu: Any) -> None:
    x = torch.arange(3).pin_memory()
    assert x.__dlpack_device__() == (dlpack.DLDeviceType.kDLCUDAHost, 0)
    assert np.from_dlpack(x).tolist() == [0, 1, 2]
    y = torch.from_dlpack(x)
    assert y.is_pinned()
    assert y.device == torch.device("cpu")
    assert content_of(x.__dlpack__(dl_device=(1, 0), copy=False)).view.device.type == 1


def test_export_from_a_device_that_is_not_current(gpus: Any) -> None:
    _, second = gpus(2)
    x = torch.arange(4, device=second)
    assert torch.cuda.current_device() == 0
    y = torch.from_dlpack(x)
    assert y.device == second
    assert y.tolist() == [0, 1, 2, 3]
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("source", ["cpu", "cuda:0", "cuda:1"])
@pytest.mark.parametrize("target", ["cpu", "cuda:0", "cuda:1"])
@pytest.mark.parametrize("ours", [False, True])
def test_copies_between_devices(gpus: Any, source: str, target: str, ours: bool) -> None:
    gpus(2)
    x = torch.arange(4, device=source)
    if ours:
        y = torch.from_dlpack(x, device=target)
    else:
        place = torch.device(target)
        dl_device = (1, 0) if place.type == "cpu" else (2, place.index)
        capsule = x.__dlpack__(dl_device=dl_device, max_version=(1, 0))
        assert content_of(capsule).flags == (0 if source == target else 2)
        y = torch.from_dlpack(capsule)
    assert y.device == torch.device(target)
    assert y.tolist() == [0, 1, 2, 3]
    assert (y.data_ptr() == x.data_ptr()) == (source == target)


def test_a_copy_that_is_refused(gpu: Any) -> None:
    x = torch.ones(2, device=gpu)
    with pytest.raises(BufferError, match="without copying"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(x, device="cpu", copy=False)
    assert torch.from_dlpack(x, device=gpu, copy=False).data_ptr() == x.data_ptr()


def test_numpy_takes_a_cuda_tensor_by_a_copy(gpu: Any) -> None:
    assert np.from_dlpack(torch.arange(3, device=gpu), device="cpu").tolist() == [0, 1, 2]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_copy_asked_for(device: str) -> None:
    x = torch.arange(3, device=device)
    y = torch.from_dlpack(x, copy=True)
    y += 1
    assert x.tolist() == [0, 1, 2]
    assert y.tolist() == [1, 2, 3]


@pytest.mark.parametrize("dl_device", [(10, 0), (4, 1), (3, 0)])
def test_other_kinds_of_devices(dl_device: tuple[int, int]) -> None:
    with pytest.raises(BufferError, match="DLPack device"):
        torch.ones(2).__dlpack__(dl_device=dl_device)


# -- what is refused -------------------------------------------------------------------------------


def test_gradients_are_not_exported() -> None:
    with pytest.raises(BufferError, match=r"require gradient, use tensor\.detach"):
        torch.ones(2, requires_grad=True).__dlpack__()
    assert np.from_dlpack(torch.ones(2, requires_grad=True).detach()).tolist() == [1, 1]


def test_negative_strides() -> None:
    with pytest.raises(BufferError, match="negative strides"):
        torch.from_dlpack(np.arange(3)[::-1])


def test_what_is_no_producer() -> None:
    with pytest.raises(TypeError, match="list"):
        torch.from_dlpack([1, 2])
    with pytest.raises(ValueError, match="already a DLPack capsule"):
        torch.from_dlpack(torch.ones(2).__dlpack__(), copy=True)


def test_a_capsule_serves_once() -> None:
    capsule = dlpack.to_dlpack(torch.arange(3))
    assert dlpack.from_dlpack(capsule).tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="consumed only once"):
        dlpack.from_dlpack(capsule)


def test_the_names() -> None:
    assert torch.utils.dlpack.from_dlpack is torch.from_dlpack
    assert torch.to_dlpack is dlpack.to_dlpack
    assert copy.copy(dlpack.DLDeviceType(2)).name == "kDLCUDA"
