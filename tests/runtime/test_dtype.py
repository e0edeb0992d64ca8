# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import flambeau as torch
from flambeau.runtime import _dtype

NUMPY_NAMES = {name: name for name in _dtype.dtypes if hasattr(np, name)}
FLOATS = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}
INTS = ("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")
ALL = sorted({made.name for made in _dtype.dtypes.values()})


def named(name: str) -> torch.dtype:
    return getattr(torch, name)


@pytest.mark.parametrize("name", ALL)
def test_dtypes_print_their_public_name_and_are_singletons(name: str) -> None:
    made = named(name)
    assert repr(made) == f"torch.{name}"
    assert pickle.loads(pickle.dumps(made)) is made
    assert copy.deepcopy(made) is made


@pytest.mark.parametrize("name", sorted({*FLOATS, *INTS, "bool", "complex64", "complex128"}))
def test_dtypes_describe_themselves_as_numpy_does(name: str) -> None:
    made, same = named(name), np.dtype(FLOATS.get(name, name))
    assert made.itemsize == same.itemsize
    assert made.is_floating_point == (name in FLOATS)
    assert made.is_complex == (same.kind == "c")
    assert made.is_signed == (same.kind not in "bu")


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("float", "float32"),
        ("double", "float64"),
        ("half", "float16"),
        ("short", "int16"),
        ("int", "int32"),
        ("long", "int64"),
        ("cfloat", "complex64"),
        ("cdouble", "complex128"),
        ("chalf", "complex32"),
    ],
)
def test_aliases_are_the_same_object(alias: str, name: str) -> None:
    assert named(alias) is named(name)


def test_real_and_complex_counterparts() -> None:
    assert torch.complex64.to_real() is torch.float32
    assert torch.int8.to_real() is torch.int8
    assert torch.float64.to_complex() is torch.complex128
    with pytest.raises(RuntimeError, match="Unknown Complex ScalarType for Char"):
        torch.int8.to_complex()


@pytest.mark.parametrize("cls", [torch.dtype, torch.layout, torch.memory_format])
def test_constants_cannot_be_made(cls: type) -> None:
    with pytest.raises(TypeError, match="cannot create"):
        cls()


@pytest.mark.parametrize("name", FLOATS)
def test_finfo_agrees_with_numpy(name: str) -> None:
    found, true = torch.finfo(named(name)), ml_dtypes.finfo(FLOATS[name])
    for field in ("bits", "eps", "max", "min", "tiny", "smallest_normal"):
        assert getattr(found, field) == float(getattr(true, field)), field
    assert found.dtype == name


@pytest.mark.parametrize("name", INTS)
def test_iinfo_agrees_with_numpy(name: str) -> None:
    found, true = torch.iinfo(named(name)), np.iinfo(name)
    assert (found.bits, found.min, found.max) == (true.bits, true.min, true.max)


def test_limits_refuse_the_wrong_kind() -> None:
    with pytest.raises(TypeError, match="requires a floating point input type"):
        torch.finfo(torch.int8)
    with pytest.raises(TypeError, match="requires an integer input type"):
        torch.iinfo(torch.float32)
    with pytest.raises(TypeError, match=r"torch\.bool is not supported by torch\.iinfo"):
        torch.iinfo(torch.bool)
    assert torch.finfo(torch.complex64) == torch.finfo()
    text = repr(torch.finfo(torch.bfloat16))
    assert text.startswith("finfo(resolution=0.01, min=-3.38953e+38, max=3.38953e+38")


def test_size_is_a_tuple_that_stays_a_size() -> None:
    size = torch.Size([2, 3, 4])
    assert repr(size) == "torch.Size([2, 3, 4])"
    assert size.numel() == 24
    assert size[1] == 3
    assert size == (2, 3, 4)
    assert hash(size) == hash((2, 3, 4))
    tail = (5,)
    for derived in (size[1:], size + tail, tail + size, size * 2, 2 * size, torch.Size(size)):
        assert type(derived) is torch.Size
    assert tail + size == (5, 2, 3, 4)
    assert size[::2] == (2, 4)
    assert pickle.loads(pickle.dumps(size)) == size
    assert type(copy.deepcopy(size)) is torch.Size
    with pytest.raises(IndexError):
        size[3]
    with pytest.raises(TypeError, match=r"takes an iterable of 'int' \(item 1 is 'float'\)"):
        torch.Size([1, 1.5])


def test_layout_and_formats_print_and_pickle() -> None:
    for name in ("strided", "channels_last", "contiguous_format", "preserve_format"):
        value = named(name)
        assert repr(value) == f"torch.{name}"
        assert pickle.loads(pickle.dumps(value)) is value
