# SPDX-License-Identifier: Apache-2.0
"""The legacy classes: ``torch.cuda.FloatTensor``, ``torch.FloatStorage`` and their like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.ops import legacy_types

if TYPE_CHECKING:
    from collections.abc import Iterator

TENSORS = {
    "BFloat16": "bfloat16", "Bool": "bool", "Byte": "uint8", "Char": "int8", "Double": "float64",
    "Float": "float32", "Half": "float16", "Int": "int32", "Long": "int64", "Short": "int16",
}  # fmt: skip
STORAGES = {**TENSORS, "ComplexDouble": "complex128", "ComplexFloat": "complex64"}

_warn_once = legacy_types._warn_once


@pytest.fixture(autouse=True)
def _advice_given() -> Iterator[None]:
    """Leave the advice against these classes to the test that looks for it."""
    legacy_types._warn_once = lambda message: None  # type: ignore[assignment]
    yield
    legacy_types._warn_once = _warn_once


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_by_dtype_and_device(name: str, gpu: Any) -> None:
    x = torch.ones(2, dtype=getattr(torch, TENSORS[name]))
    on_host, on_gpu = getattr(torch, f"{name}Tensor"), getattr(torch.cuda, f"{name}Tensor")
    assert isinstance(x, on_host)
    assert not isinstance(x, on_gpu)
    assert isinstance(x.to(gpu), on_gpu)
    assert not isinstance(x.to(gpu), on_host)
    assert not isinstance(1.0, on_host)
    for other in TENSORS:
        assert isinstance(x, getattr(torch, f"{other}Tensor")) == (other == name)
    assert x.type() == f"torch.{name}Tensor"
    assert x.to(gpu).type() == f"torch.cuda.{name}Tensor"
    assert torch.zeros(2).type(on_gpu).type() == f"torch.cuda.{name}Tensor"
    assert torch.zeros(2, device=gpu).type(f"torch.{name}Tensor").type() == f"torch.{name}Tensor"


def test_what_a_class_says() -> None:
    cls = torch.cuda.FloatTensor
    assert cls is torch.cuda.FloatTensor
    assert (cls.dtype, cls.is_cuda, cls.is_sparse) == (torch.float32, True, False)
    assert cls.layout is torch.strided
    assert cls.__name__ == "FloatTensor"
    assert cls.__module__ == "flambeau.cuda"


@pytest.mark.parametrize("cls", ["FloatTensor", "cuda.FloatTensor"])
def test_making_tensors(cls: str) -> None:
    where = torch.cuda if cls.startswith("cuda") else torch
    make = where.FloatTensor
    device = "cuda" if where is torch.cuda else "cpu"
    assert make().shape == (0,)
    assert make(2, 3).shape == (2, 3)
    assert make(4).shape == (4,)
    assert make(torch.Size([2, 1])).shape == (2, 1)
    assert make(torch.Size([])).shape == ()
    assert make([1, 2]).tolist() == [1, 2]
    assert make((1, 2)).tolist() == [1, 2]
    assert make(np.array([1.5], dtype=np.float32)).tolist() == [1.5]
    x = torch.ones(2, device=device)
    assert make(x).data_ptr() == x.data_ptr()
    assert make(x.storage()).data_ptr() == x.data_ptr()
    assert make(x.untyped_storage()).data_ptr() == x.data_ptr()
    for made in (make(2), make([1]), make(x)):
        assert isinstance(made, make)
        assert made.device.type == device


def test_the_device_can_be_named(gpus: Any) -> None:
    _, second = gpus(2)
    assert torch.cuda.FloatTensor([1.0], device=second).device == second


@pytest.mark.parametrize("name", STORAGES)
def test_storages_by_dtype_and_device(name: str, gpu: Any) -> None:
    stored = torch.zeros(3, dtype=getattr(torch, STORAGES[name])).storage()
    on_host, on_gpu = getattr(torch, f"{name}Storage"), getattr(torch.cuda, f"{name}Storage")
    assert isinstance(stored, on_host)
    assert isinstance(stored, torch.TypedStorage)
    assert not isinstance(stored, on_gpu)
    assert isinstance(stored.cuda(), on_gpu)
    assert stored.type() == f"torch.{name}Storage"
    assert stored.cuda().type() == f"torch.cuda.{name}Storage"
    assert issubclass(on_gpu, torch.TypedStorage)
    assert on_gpu.dtype is stored.dtype
    assert torch.is_storage(stored)


@pytest.mark.parametrize("where", ["host", "gpu"])
def test_making_storages(where: str) -> None:
    make = torch.FloatStorage if where == "host" else torch.cuda.FloatStorage
    assert len(make()) == 0
    assert len(make(3)) == 3
    made = make([1, 2, 3])
    assert made.tolist() == [1, 2, 3]
    assert isinstance(made, make)
    assert make(made).tolist() == [1, 2, 3]
    assert make(wrap_storage=made.untyped()).data_ptr() == made.data_ptr()
    with pytest.raises(RuntimeError, match="2 arguments"):
        make(1, 2)


@pytest.mark.parametrize(("order", "letter"), [("little", "<"), ("big", ">"), ("native", "=")])
@pytest.mark.parametrize("name", ["Byte", "Short", "Float", "Double", "ComplexFloat"])
def test_storages_from_bytes(order: str, letter: str, name: str) -> None:
    values = np.arange(1, 5).astype(np.dtype(STORAGES[name]).newbyteorder(letter))
    make = getattr(torch, f"{name}Storage")
    assert make.from_buffer(values.tobytes(), order).tolist() == values.tolist()
    part = make.from_buffer(values.tobytes(), order, count=1, offset=values.itemsize)
    assert part.tolist() == values[1:2].tolist()


def test_storages_from_bytes_refuse_other_orders() -> None:
    with pytest.raises(ValueError, match="byte_order"):
        torch.FloatStorage.from_buffer(b"abcd", "middle")


def test_sparse_classes_have_no_instances(gpu: Any) -> None:
    cls = torch.cuda.sparse.FloatTensor
    assert cls.is_sparse
    assert not isinstance(torch.ones(2, device=gpu), cls)
    with pytest.raises(NotImplementedError, match="no sparse tensors"):
        cls(2, 3)


@pytest.mark.parametrize("name", ["OddTensor", "ComplexFloatTensor", "UInt16Tensor", "OddStorage"])
@pytest.mark.parametrize("module", [torch, torch.cuda])
def test_names_that_are_none(name: str, module: Any) -> None:
    assert not hasattr(module, name)


def test_advice_is_given_once() -> None:
    warn = _warn_once
    warn.cache_clear()
    legacy_types._warn_once = warn
    with pytest.warns(UserWarning, match="no longer recommended"):
        torch.cuda.FloatTensor(2)
    with pytest.warns(UserWarning, match="TypedStorage is deprecated"):
        torch.FloatStorage(2)
    torch.cuda.FloatTensor(2)
    torch.FloatTensor(2)
    torch.cuda.FloatStorage(2)
