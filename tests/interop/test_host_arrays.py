# SPDX-License-Identifier: Apache-2.0
"""Host tensors and NumPy, Python's buffers, and files."""

from __future__ import annotations

import array
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import flambeau as torch

if TYPE_CHECKING:
    from pathlib import Path


class DLPackOnly:
    def __init__(self, values: Any) -> None:
        self.values = values

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.values.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()


# -- to NumPy --------------------------------------------------------------------------------------


def test_asarray_shares() -> None:
    x = torch.arange(6).reshape(2, 3)
    values = np.asarray(x)
    values[0, 0] = 9
    assert x[0, 0].item() == 9
    assert np.array(x).ctypes.data != x.data_ptr()
    assert np.asarray(x, dtype=np.float32).dtype == np.float32


def test_the_array_method_follows_numpy_2() -> None:
    x = torch.arange(3)
    assert x.__array__().ctypes.data == x.data_ptr()
    assert x.__array__(copy=True).ctypes.data != x.data_ptr()
    assert x.__array__(np.float64).tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(ValueError, match="copy=False"):
        x.__array__(np.dtype("float64"), copy=False)


def test_device_memory_needs_a_copy_that_says_so(gpu: Any) -> None:
    with pytest.raises(TypeError, match=r"use tensor\.cpu\(\)|Use Tensor\.cpu\(\)"):
        np.asarray(torch.ones(2, device=gpu))


# -- buffers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("uint8", "B"),
        ("int32", "i"),
        ("int64", "q"),
        ("float16", "e"),
        ("float64", "d"),
        ("bool", "?"),
    ],
)
def test_memoryview(name: str, form: str) -> None:
    x = torch.arange(6).reshape(2, 3).to(getattr(torch, name)).t()
    view = memoryview(x)
    assert view.format == form
    assert view.shape == (3, 2)
    assert view.strides == tuple(step * x.element_size() for step in x.stride())
    assert not view.readonly
    assert view.nbytes == x.nbytes


def test_a_buffer_outlives_a_resize() -> None:
    x = torch.arange(4, dtype=torch.uint8)
    view = memoryview(x)
    x.resize_(10000)
    assert bytes(view) == b"\0\1\2\3"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python shows buffers from 3.12 on")
def test_the_buffer_method() -> None:
    import inspect

    with torch.arange(3, dtype=torch.uint8).__buffer__(inspect.BufferFlags.SIMPLE) as view:
        assert bytes(view) == b"\0\1\2"


def test_frombuffer_shares() -> None:
    memory = bytearray(8)
    x = torch.frombuffer(memory, dtype=torch.int32)
    x[1] = -1
    assert memory == b"\0\0\0\0\xff\xff\xff\xff"
    assert torch.frombuffer(memory, dtype=torch.int16, count=1, offset=4).tolist() == [-1]


# -- from others -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor, torch.asarray])
def test_dlpack_objects_are_arrays(make: Any) -> None:
    values = np.arange(3.0)
    x = make(DLPackOnly(values))
    assert x.dtype is torch.float64
    values[0] = 7
    assert x.tolist() == ([0, 1, 2] if make is torch.tensor else [7, 1, 2])


def test_asarray_of_numpy() -> None:
    values = np.arange(3.0)
    assert torch.asarray(values).data_ptr() == values.ctypes.data
    assert torch.asarray(values, copy=True).data_ptr() != values.ctypes.data
    assert torch.asarray(np.float32(2.5)).dtype is torch.float32
    with pytest.raises(ValueError, match="can't alias tensor with dtype"):
        torch.asarray(values, dtype=torch.float32, copy=False)
    with pytest.raises(ValueError, match="can't alias tensor"):
        torch.asarray(values, device="cuda", copy=False)


def test_asarray_of_tensors(gpu: Any) -> None:
    x = torch.arange(3, device=gpu)
    assert torch.asarray(x) is x
    assert torch.asarray(x, copy=False) is x
    assert torch.asarray(x, copy=True).data_ptr() != x.data_ptr()
    assert torch.asarray(x, dtype=torch.float32).dtype is torch.float32
    assert torch.asarray([1.0], requires_grad=True).requires_grad


def test_asarray_of_buffers_takes_bytes_as_elements() -> None:
    memory = array.array("d", [1.0, 2.0])
    x = torch.asarray(memory, dtype=torch.float64)
    memory[0] = 5
    assert x.tolist() == [5.0, 2.0]
    assert torch.asarray(bytearray(8)).dtype is torch.get_default_dtype()


def test_asarray_of_sequences() -> None:
    assert torch.asarray([1, 2]).tolist() == [1, 2]
    with pytest.raises(ValueError, match="can't alias arbitrary sequence"):
        torch.asarray([1, 2], copy=False)


def test_asarray_of_a_capsule() -> None:
    x = torch.arange(3)
    assert torch.asarray(x.__dlpack__()).data_ptr() == x.data_ptr()


# -- files -----------------------------------------------------------------------------------------


def test_a_shared_file(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    x = torch.from_file(str(path), shared=True, size=3, dtype=torch.int64)
    assert x.tolist() == [0, 0, 0]
    x[1] = 5
    assert np.fromfile(path, dtype=np.int64).tolist() == [0, 5, 0]
    longer = torch.from_file(path, shared=True, size=5, dtype=torch.int64)
    assert longer.tolist() == [0, 5, 0, 0, 0]
    assert path.stat().st_size == 40


def test_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    np.arange(4, dtype=np.float32).tofile(path)
    x = torch.from_file(path, size=3)
    x += 1
    assert x.tolist() == [1, 2, 3]
    assert np.fromfile(path, dtype=np.float32).tolist() == [0, 1, 2, 3]
    assert torch.from_file(path).shape == (0,)
    with pytest.raises(RuntimeError, match="has 16 bytes, and 20 are needed"):
        torch.from_file(path, size=5)
    with pytest.raises(FileNotFoundError):
        torch.from_file(tmp_path / "none", size=1)
    assert torch.from_file(path, size=4, device="cuda").tolist() == [0, 1, 2, 3]
