# SPDX-License-Identifier: Apache-2.0
"""The table of functions that compiled consumers find on the type of tensors."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

import flambeau as torch
from interop.capsules import (
    SET_ERROR,
    DataType,
    Device,
    ManagedVersioned,
    Producer,
    View,
    delete,
    exchange_of,
)

EXCHANGE = exchange_of(torch.Tensor)


def prototype(device: tuple[int, int], dtype: tuple[int, int, int], *shape: int) -> View:
    view = View(device=Device(*device), dtype=DataType(*dtype), ndim=len(shape))
    view.sizes = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    view.shape = ctypes.cast(view.sizes, ctypes.POINTER(ctypes.c_int64))
    return view


def test_version_and_kin() -> None:
    assert (EXCHANGE.version.major, EXCHANGE.version.minor) == (1, 3)
    assert EXCHANGE.older is None
    for name in ("allocate", "from_object", "to_object", "view_of", "current_stream"):
        assert getattr(EXCHANGE, name), name

    class Mine(torch.Tensor):
        pass

    assert Mine.__dlpack_c_exchange_api__ is torch.Tensor.__dlpack_c_exchange_api__


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_borrowed_view(device: str) -> None:
    x = torch.arange(12, device=device).reshape(3, 4)[1:, ::2]
    view = View()
    assert EXCHANGE.view_of(x, ctypes.byref(view)) == 0
    assert view.data == x.data_ptr()
    assert view.ndim == 2
    assert view.shape[:2] == [2, 2]
    assert view.strides[:2] == [4, 2]
    assert (view.dtype.code, view.dtype.bits, view.dtype.lanes) == (0, 64, 1)
    assert (view.device.type, view.device.index) == ((1, 0) if device == "cpu" else (2, 0))


def test_an_empty_view() -> None:
    view = View()
    assert EXCHANGE.view_of(torch.empty(0, 2), ctypes.byref(view)) == 0
    assert view.data is None
    assert view.shape[:2] == [0, 2]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_to_and_fro(device: str) -> None:
    x = torch.arange(4, device=device)
    managed = ctypes.POINTER(ManagedVersioned)()
    assert EXCHANGE.from_object(x, ctypes.byref(managed)) == 0
    assert managed.contents.version.major == 1
    address = x.data_ptr()
    del x
    found = ctypes.c_void_p()
    assert EXCHANGE.to_object(managed, ctypes.byref(found)) == 0
    y = ctypes.cast(found, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(y))
    assert y.data_ptr() == address
    assert y.tolist() == [0, 1, 2, 3]


def test_a_foreign_tensor_becomes_ours() -> None:
    producer = Producer((2,))
    found = ctypes.c_void_p()
    producer.capsule()
    assert EXCHANGE.to_object(ctypes.byref(producer.content), ctypes.byref(found)) == 0
    y = ctypes.cast(found, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(y))
    assert y.tolist() == [0, 1]
    del y
    assert producer.deleted == 1


def test_errors_are_python_s() -> None:
    view = View()
    with pytest.raises(TypeError, match="Tensor"):
        EXCHANGE.view_of([1], ctypes.byref(view))
    with pytest.raises(BufferError, match="require gradient"):
        EXCHANGE.view_of(torch.ones(2, requires_grad=True), ctypes.byref(view))
    managed = ctypes.POINTER(ManagedVersioned)()
    with pytest.raises(BufferError, match="require gradient"):
        EXCHANGE.from_object(torch.ones(2, requires_grad=True), ctypes.byref(managed))
    assert not managed
    producer = Producer((2,), dtype=(2, 32, 2))
    found = ctypes.c_void_p()
    with pytest.raises(BufferError, match="lanes"):
        EXCHANGE.to_object(ctypes.byref(producer.content), ctypes.byref(found))
    assert producer.deleted == 0


@pytest.mark.parametrize("device", [(1, 0), (2, 0), (2, 1)])
def test_allocation(gpus: Any, device: tuple[int, int]) -> None:
    gpus(2)
    managed = ctypes.POINTER(ManagedVersioned)()

    @SET_ERROR
    def set_error(context: Any, kind: bytes, message: bytes) -> None:
        raise AssertionError(message)

    wanted = prototype(device, (4, 16, 1), 3, 5)
    torch.cuda.set_device(0)
    assert EXCHANGE.allocate(ctypes.byref(wanted), ctypes.byref(managed), None, set_error) == 0
    view = managed.contents.view
    assert (view.device.type, view.device.index) == device
    assert view.shape[:2] == [3, 5]
    assert view.strides[:2] == [5, 1]
    assert (view.dtype.code, view.dtype.bits) == (4, 16)
    assert torch.cuda.current_device() == 0
    delete(managed.contents)


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        (((2, 0), (2, 32, 3), 4), b"BufferError"),
        (((10, 0), (2, 32, 1), 4), b"BufferError"),
        (((2, 0), (2, 32, 1), 1 << 50), b"RuntimeError"),
    ],
)
def test_a_failed_allocation(gpu: Any, wanted: Any, kind: bytes) -> None:
    managed = ctypes.POINTER(ManagedVersioned)()
    seen: list[tuple[int, bytes, bytes]] = []

    @SET_ERROR
    def set_error(context: Any, kind: bytes, message: bytes) -> None:
        seen.append((context, kind, message))

    torch.cuda.init()
    view = prototype(*wanted)
    assert EXCHANGE.allocate(ctypes.byref(view), ctypes.byref(managed), 77, set_error) == -1
    assert not managed
    assert len(seen) == 1
    assert seen[0][:2] == (77, kind)
    assert seen[0][2]


def test_the_current_stream(gpus: Any) -> None:
    _, second = gpus(2)
    torch.cuda.init()
    found = ctypes.c_void_p()
    assert EXCHANGE.current_stream(2, 0, ctypes.byref(found)) == 0
    assert found.value is None
    side, other = torch.cuda.Stream(), torch.cuda.Stream(second)
    with torch.cuda.stream(side), torch.cuda.stream(other):
        for index, stream in enumerate((side, other)):
            assert EXCHANGE.current_stream(2, index, ctypes.byref(found)) == 0
            assert found.value == stream.cuda_stream
    assert EXCHANGE.current_stream(1, 0, ctypes.byref(found)) == 0
    assert found.value is None
    with pytest.raises(BufferError, match="there are"):
        EXCHANGE.current_stream(2, 60, ctypes.byref(found))
