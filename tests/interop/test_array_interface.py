# SPDX-License-Identifier: Apache-2.0
"""The CUDA array interface both ways."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch

TYPESTRS = {
    "bool": "|b1", "uint8": "|u1", "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8",
    "uint16": "<u2", "uint32": "<u4", "uint64": "<u8", "float16": "<f2", "bfloat16": "<V2",
    "float32": "<f4", "float64": "<f8", "complex64": "<c8", "complex128": "<c16",
}  # fmt: skip


class Foreign:
    """Another library's array over the memory of a tensor."""

    def __init__(self, x: Any, **changes: Any) -> None:
        self.memory = x
        self.__cuda_array_interface__ = {**x.__cuda_array_interface__, **changes}


@pytest.mark.parametrize("name", TYPESTRS)
def test_each_dtype(gpu: Any, name: str) -> None:
    x = torch.arange(4).to(getattr(torch, name)).to(gpu)
    interface = x.__cuda_array_interface__
    assert interface["typestr"] == TYPESTRS[name]
    assert interface["version"] == 3
    assert interface["shape"] == (4,)
    assert interface["data"] == (x.data_ptr(), False)
    assert interface["strides"] is None
    y = torch.as_tensor(Foreign(x))
    assert y.dtype is x.dtype
    assert y.device == x.device
    assert y.data_ptr() == x.data_ptr()


def test_strides_are_bytes(gpu: Any) -> None:
    x = torch.arange(24, device=gpu).reshape(4, 6)[1:, ::2].t()
    interface = x.__cuda_array_interface__
    assert interface["shape"] == (3, 3)
    assert interface["strides"] == (16, 48)
    assert torch.as_tensor(Foreign(x)).tolist() == x.tolist()


def test_nothing_has_no_address(gpu: Any) -> None:
    x = torch.empty(2, 0, device=gpu)
    assert x.__cuda_array_interface__["data"] == (0, False)
    y = torch.as_tensor(Foreign(x))
    assert y.shape == (2, 0)
    assert y.is_cuda


def test_the_stream_is_the_current_one_of_the_device(gpus: Any) -> None:
    first, second = gpus(2)
    x = torch.ones(2, device=second)
    side = torch.cuda.Stream(second)
    assert x.__cuda_array_interface__["stream"] == 1
    with torch.cuda.stream(side), torch.cuda.device(first):
        assert x.__cuda_array_interface__["stream"] == side.cuda_stream


def test_the_device_is_that_of_the_memory(gpus: Any) -> None:
    _, second = gpus(2)
    x = torch.arange(3, device=second)
    assert torch.cuda.current_device() == 0
    assert torch.as_tensor(Foreign(x)).device == second
    assert torch.as_tensor(Foreign(x), device="cuda:0").device == torch.device("cuda:0")
    assert torch.as_tensor(Foreign(x), device="cpu").tolist() == [0, 1, 2]


def test_what_copies_and_what_shares(gpu: Any) -> None:
    x = torch.arange(3, device=gpu)
    shared = torch.as_tensor(Foreign(x), device="cuda")
    copied = torch.tensor(Foreign(x))
    x += 1
    assert shared.tolist() == [1, 2, 3]
    assert copied.tolist() == [0, 1, 2]
    assert copied.device == gpu
    assert torch.tensor(Foreign(x), dtype=torch.float32, device="cpu").tolist() == [1.0, 2.0, 3.0]
    assert torch.asarray(Foreign(x), copy=False).data_ptr() == x.data_ptr()
    assert torch.asarray(Foreign(x), copy=True).data_ptr() != x.data_ptr()


def test_the_owner_lives_as_long_as_the_tensor(gpu: Any) -> None:
    before = torch.cuda.memory_allocated()
    y = torch.as_tensor(Foreign(torch.ones(1000, device=gpu)))[5:]
    used = torch.cuda.memory_allocated()
    assert used > before
    assert y.sum().item() == 995
    del y
    assert torch.cuda.memory_allocated() == before


def test_the_object_s_stream_comes_first(gpu: Any, schedule: str) -> None:
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(producer):
        x = torch.zeros(1000, device=gpu)
        for _ in range(5):
            x += 1
        array = Foreign(x)
    with torch.cuda.stream(consumer):
        y = torch.as_tensor(array) * 2
        assert y.cpu().unique().tolist() == [10.0]


def test_older_versions_name_no_stream(gpu: Any) -> None:
    x = torch.arange(3, device=gpu)
    array = Foreign(x, version=2)
    del array.__cuda_array_interface__["stream"], array.__cuda_array_interface__["strides"]
    assert torch.as_tensor(array).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"mask": object()}, TypeError, "mask"),
        ({"typestr": ">f4"}, TypeError, "byte order"),
        ({"typestr": "<f16"}, TypeError, "f16"),
        ({"strides": (-4,)}, ValueError, "negative strides"),
        ({"strides": (3,)}, ValueError, "multiples of the item size"),
        ({"data": (8, False)}, ValueError, "not CUDA memory"),
        ({"stream": 0}, ValueError, "stream 0"),
    ],
)
def test_what_is_refused(gpu: Any, changes: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        torch.as_tensor(Foreign(torch.ones(3, device=gpu), **changes))


def test_host_tensors_have_none(gpu: Any) -> None:
    assert not hasattr(torch.ones(2), "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="on non-CUDA tensor type"):
        _ = torch.ones(2).__cuda_array_interface__
    assert not hasattr(
        torch.empty(2, dtype=torch.float8_e5m2, device=gpu), "__cuda_array_interface__"
    )
    with pytest.raises(RuntimeError, match=r"requires grad.*detach"):
        _ = torch.ones(2, device=gpu, requires_grad=True).__cuda_array_interface__
