# SPDX-License-Identifier: Apache-2.0
"""Views against NumPy's: sizes, strides, where they start, and that memory is shared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flambeau as torch

if TYPE_CHECKING:
    from collections.abc import Callable


def counting(*shape: int) -> tuple[torch.Tensor, np.ndarray]:
    values = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    made = torch.empty(shape, dtype=torch.int32)
    np.asarray(memoryview(made))[...] = values
    return made, values


def assert_same(tensor: torch.Tensor, array: np.ndarray, root: torch.Tensor) -> None:
    """Shape, values and, for strides that matter, layout are equal, over the root's memory."""
    assert tuple(tensor.shape) == array.shape
    assert tensor.tolist() == array.tolist()
    if array.size:
        for extent, step, true in zip(array.shape, tensor.stride(), array.strides, strict=True):
            assert extent == 1 or step * 4 == true
        assert tensor.untyped_storage() == root.untyped_storage()
        base = np.asarray(memoryview(root))
        offset = array.__array_interface__["data"][0] - _start(array)
        assert tensor.data_ptr() - base.__array_interface__["data"][0] == offset
        assert tensor.storage_offset() * 4 == offset


def _start(array: np.ndarray) -> int:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return int(array.__array_interface__["data"][0])


CASES: dict[str, tuple[tuple[int, ...], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "transpose": ((2, 3, 4), lambda t: t.transpose(0, -1), lambda a: a.swapaxes(0, -1)),
    "t": ((2, 3), lambda t: t.t(), lambda a: a.T),
    "t of a vector": ((3,), lambda t: t.t(), lambda a: a),
    "T": ((2, 3, 4), lambda t: t.T, lambda a: a.T),
    "mT": ((2, 3, 4), lambda t: t.mT, lambda a: a.swapaxes(1, 2)),
    "permute": ((2, 3, 4), lambda t: t.permute(2, 0, -2), lambda a: a.transpose(2, 0, 1)),
    "permute sequence": ((2, 3), lambda t: t.permute([1, 0]), lambda a: a.T),
    "movedim": (
        (2, 3, 4),
        lambda t: t.movedim((0, 1), (2, 0)),
        lambda a: np.moveaxis(a, (0, 1), (2, 0)),
    ),
    "squeeze": ((1, 2, 1), lambda t: t.squeeze(), lambda a: a.squeeze()),
    "squeeze one": ((1, 2, 1), lambda t: t.squeeze(-1), lambda a: a.squeeze(-1)),
    "squeeze none": ((1, 2, 1), lambda t: t.squeeze(1), lambda a: a),
    "unsqueeze": ((2, 3), lambda t: t.unsqueeze(1), lambda a: a[:, None]),
    "unsqueeze last": ((2, 3), lambda t: t.unsqueeze(-1), lambda a: a[..., None]),
    "expand": ((1, 3), lambda t: t.expand(2, 4, -1), lambda a: np.broadcast_to(a, (2, 4, 3))),
    "view": ((2, 6), lambda t: t.view(3, -1), lambda a: a.reshape(3, 4)),
    "view split strided": (
        (4, 6),
        lambda t: t[:, :4].view(4, 2, 2),
        lambda a: a[:, :4].reshape(4, 2, 2),
    ),
    "reshape": ((2, 6), lambda t: t.reshape((4, 3)), lambda a: a.reshape(4, 3)),
    "flatten": ((2, 3, 4), lambda t: t.flatten(1), lambda a: a.reshape(2, 12)),
    "unflatten": ((2, 12), lambda t: t.unflatten(1, (3, -1)), lambda a: a.reshape(2, 3, 4)),
    "narrow": ((5, 3), lambda t: t.narrow(0, 1, 3), lambda a: a[1:4]),
    "narrow from the end": ((5, 3), lambda t: t.narrow(0, -2, 2), lambda a: a[-2:]),
    "select": ((5, 3), lambda t: t.select(1, -1), lambda a: a[:, -1]),
    "diagonal": ((4, 5), lambda t: t.diagonal(1), lambda a: a.diagonal(1)),
    "diagonal below": ((2, 4, 5), lambda t: t.diagonal(-2, 1, 2), lambda a: a.diagonal(-2, 1, 2)),
    "unfold": (
        (7,),
        lambda t: t.unfold(0, 3, 2),
        lambda a: np.lib.stride_tricks.sliding_window_view(a, 3)[::2],
    ),
    "as_strided": (
        (12,),
        lambda t: t.as_strided((2, 3), (6, 2), 1),
        lambda a: np.ndarray((2, 3), a.dtype, a, 4, (24, 8)),
    ),
    "view_as": ((2, 6), lambda t: t.view_as(torch.empty(3, 4)), lambda a: a.reshape(3, 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_views_agree_with_numpy(name: str) -> None:
    shape, ours, theirs = CASES[name]
    tensor, array = counting(*shape)
    assert_same(ours(tensor), theirs(array), tensor)


@pytest.mark.parametrize("name", CASES)
def test_views_know_their_base(name: str) -> None:
    shape, ours, _ = CASES[name]
    tensor, _ = counting(*shape)
    made = ours(tensor)
    assert made._is_view()
    assert made._base is tensor
    assert not tensor._is_view()
    version = tensor._version
    made.zero_()
    assert tensor._version == made._version == version + 1


def test_parts_cover_the_dimension() -> None:
    tensor, array = counting(7, 2)
    for ours, theirs in [
        (tensor.split(3), [array[:3], array[3:6], array[6:]]),
        (tensor.split([1, 6]), [array[:1], array[1:]]),
        (tensor.chunk(3), [array[:3], array[3:6], array[6:]]),
        (tensor.unbind(1), [array[:, 0], array[:, 1]]),
        (tuple(tensor), list(array)),
    ]:
        assert isinstance(ours, tuple)
        assert len(ours) == len(theirs)
        for part, true in zip(ours, theirs, strict=True):
            assert_same(part, true, tensor)


shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@given(st.data(), shapes)
def test_chains_of_views_agree_with_numpy(data: st.DataObject, shape: tuple[int, ...]) -> None:
    tensor, array = counting(*shape)
    root = tensor
    for _ in range(data.draw(st.integers(1, 5))):
        ndim = array.ndim
        kind = data.draw(st.sampled_from(["permute", "slice", "unsqueeze", "squeeze", "index"]))
        if kind == "permute":
            order = data.draw(st.permutations(range(ndim)))
            tensor, array = tensor.permute(*order), array.transpose(order)
        elif kind == "unsqueeze" and ndim < 6:
            where = data.draw(st.integers(0, ndim))
            tensor, array = tensor.unsqueeze(where), np.expand_dims(array, where)
        elif kind == "squeeze":
            tensor, array = tensor.squeeze(), array.squeeze()
        elif ndim:
            dim = data.draw(st.integers(0, ndim - 1))
            size = array.shape[dim]
            if kind == "index" and size:
                part: Any = data.draw(st.integers(-size, size - 1))
            else:
                ends = st.none() | st.integers(-5, 5)
                part = slice(data.draw(ends), data.draw(ends), data.draw(st.integers(1, 3)))
            index = (slice(None),) * dim + (part,)
            tensor, array = tensor[index], array[index]
            if not isinstance(array, np.ndarray):
                array = np.asarray(array)
                assert tensor.item() == array
                return
    assert_same(tensor, array, root)


@given(st.data(), shapes)
def test_view_exists_exactly_when_numpy_needs_no_copy(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    tensor, array = counting(*shape)
    order = data.draw(st.permutations(range(array.ndim)))
    tensor, array = tensor.permute(*order), array.transpose(order)
    if array.ndim:
        step = data.draw(st.integers(1, 2))
        tensor, array = tensor[..., ::step], array[..., ::step]
    factors = [extent for extent in array.shape if extent != 1]
    wanted = data.draw(st.permutations(factors)) if factors else []
    if len(wanted) > 1 and data.draw(st.booleans()):
        wanted = [wanted[0] * wanted[1], *wanted[2:]]
    copied = array.reshape(wanted)
    if array.size and np.shares_memory(copied, array):
        assert_same(tensor.view(wanted), copied, tensor._base)
    elif array.size:
        with pytest.raises(
            RuntimeError, match="view size is not compatible with input tensor's size"
        ):
            tensor.view(wanted)
    assert tensor.reshape(wanted).tolist() == copied.tolist()


def test_views_as_other_dtypes() -> None:
    tensor, array = counting(2, 4)
    assert tensor.view(torch.float32).dtype is torch.float32
    assert tensor.view(torch.int16).tolist() == array.view(np.int16).tolist()
    assert tensor.view(torch.int64).tolist() == array.view(np.int64).tolist()
    assert tensor.view(dtype=torch.uint8).shape == (2, 16)
    assert tensor.view(torch.int64)._base is tensor
    with pytest.raises(RuntimeError, match=r"self.size\(-1\) must be divisible by 2"):
        tensor[:, :3].view(torch.int64)
    with pytest.raises(RuntimeError, match=r"self.stride\(-1\) must be 1 to view Int as Short"):
        tensor.t().view(torch.int16)
    with pytest.raises(RuntimeError, match=r"self.storage_offset\(\) must be divisible by 2"):
        tensor.flatten()[1:7].view(torch.int64)


@pytest.mark.parametrize(
    ("error", "phrase", "act"),
    [
        (RuntimeError, r"shape '\[5\]' is invalid for input of size 6", lambda t: t.view(5)),
        (RuntimeError, "only one dimension can be inferred", lambda t: t.view(-1, -1)),
        (RuntimeError, r"shape '\[4, -1\]' is invalid", lambda t: t.reshape(4, -1)),
        (RuntimeError, "is ambiguous", lambda t: t[:0].view(-1, 0)),
        (
            IndexError,
            r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 2\)",
            lambda t: t.size(2),
        ),
        (IndexError, r"\[-2, 1\], but got -3", lambda t: t.transpose(0, -3)),
        (IndexError, r"\[-3, 2\], but got 5", lambda t: t.unsqueeze(5)),
        (IndexError, "has no dimensions", lambda t: t[0, 0].size(0)),
        (RuntimeError, "duplicate dims are not allowed", lambda t: t.permute(0, 0)),
        (
            RuntimeError,
            "number of dimensions in the tensor input does not match",
            lambda t: t.permute(0),
        ),
        (
            RuntimeError,
            r"expects a tensor with <= 2 dimensions, but self is 3D",
            lambda t: t[None].t(),
        ),
        (
            RuntimeError,
            r"The expanded size of the tensor \(3\) must match the existing size \(2\) at "
            "non-singleton dimension 0",
            lambda t: t.expand(3, 3),
        ),
        (
            RuntimeError,
            "isn't allowed in a leading, non-existing dimension 0",
            lambda t: t.expand(-1, 2, 3),
        ),
        (
            RuntimeError,
            r"start \(1\) \+ length \(2\) exceeds dimension size",
            lambda t: t.narrow(0, 1, 2),
        ),
        (
            IndexError,
            r"index 2 out of range for tensor of size \[2, 3\] at dimension 0",
            lambda t: t.select(0, 2),
        ),
        (RuntimeError, "don't multiply up to the size of dim 1", lambda t: t.unflatten(1, (2, -1))),
        (RuntimeError, "start_dim cannot come after end_dim", lambda t: t.flatten(1, 0)),
        (RuntimeError, "split_size can only be 0", lambda t: t.split(0)),
        (RuntimeError, "expects split_sizes to sum exactly to 2", lambda t: t.split([1, 2])),
        (RuntimeError, "expects `chunks` to be greater than 0", lambda t: t.chunk(0)),
        (
            RuntimeError,
            "maximum size for tensor at dimension 0 is 2 but size is 3",
            lambda t: t.unfold(0, 3, 1),
        ),
        (RuntimeError, "diagonal dimensions cannot be identical", lambda t: t.diagonal(0, 0, 0)),
        (
            RuntimeError,
            "requiring a storage size of 28 are out of bounds for storage of size 24",
            lambda t: t.as_strided((3,), (3,)),
        ),
        (
            RuntimeError,
            f"requiring a storage size of {2**64 + 4} are out of bounds",
            lambda t: t.as_strided((2,), (1 << 62,)),
        ),
        (
            RuntimeError,
            "requiring a storage size of more than 64 bits can count",
            lambda t: t.as_strided((3, 2), (1 << 62, 1 << 62)),
        ),
        (
            RuntimeError,
            "Storage size calculation overflowed",
            lambda t: t[0, 0].expand(1 << 62).pin_memory(),
        ),
        (RuntimeError, "Negative strides are not supported", lambda t: t.as_strided((2,), (-1,))),
        (
            RuntimeError,
            "mismatch in length of strides and shape",
            lambda t: t.as_strided((2,), (1, 1)),
        ),
        (RuntimeError, "tensor.mT is only supported on matrices", lambda t: t[0].mT),
        (RuntimeError, "at most 64 dimensions", lambda t: t.reshape([1] * 65 + [6])),
    ],
)
def test_errors_say_what_programs_look_for(
    error: type[Exception], phrase: str, act: Callable[[Any], Any]
) -> None:
    with pytest.raises(error, match=phrase):
        act(counting(2, 3)[0])


def test_many_dimensions() -> None:
    tensor, array = counting(2, 1, 2, 1, 2, 1, 2, 1, 2)
    order = (8, 0, 7, 1, 6, 2, 5, 3, 4)
    assert_same(tensor.permute(order), array.transpose(order), tensor)
    assert tensor.permute(order).contiguous().is_contiguous()
    deep = torch.empty([1] * 64)
    assert deep.dim() == 64
    assert deep.view([1] * 64)[(0,) * 64].shape == ()


def test_contiguity() -> None:
    tensor, _ = counting(4, 3)
    assert tensor.is_contiguous()
    assert tensor[1:].is_contiguous()
    assert tensor[:, :1].t().shape == (1, 4)
    assert not tensor.t().is_contiguous()
    assert not tensor[:, 1:].is_contiguous()
    assert tensor[:1, 1:].is_contiguous()
    assert tensor[2:2, ::2].is_contiguous()
    assert tensor.contiguous() is tensor
    image = torch.empty(2, 3, 4, 5)
    last = image.contiguous(memory_format=torch.channels_last)
    assert last.stride() == (60, 1, 15, 3)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert not image.is_contiguous(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="required rank 4 tensor to use channels_last format"):
        tensor.contiguous(memory_format=torch.channels_last)
