# SPDX-License-Identifier: Apache-2.0
"""Copies between places, dtypes and layouts; making tensors; copying and pickling them."""

from __future__ import annotations

import copy
import gc
import inspect
import itertools
import pickle
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flambeau as torch
from flambeau.driver import _table
from flambeau.runtime import _factory
from support import needs_two

if TYPE_CHECKING:
    from collections.abc import Callable

NUMPY: dict[str, Any] = {
    "bool": np.bool_,
    **{name: np.dtype(name) for name in ("uint8", "int8", "int16", "int32", "int64")},
    **{name: np.dtype(name) for name in ("uint16", "uint32", "uint64")},
    **{
        name: np.dtype(name)
        for name in ("float16", "float32", "float64", "complex64", "complex128")
    },
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}
EXOTIC = [name for name, made in NUMPY.items() if made.__class__ is type and name != "bool"]
CARRIERS = {1: torch.uint8, 2: torch.int16}
PLACES = ("cpu", "cuda:0", "cuda:1")


def named(name: str) -> torch.dtype:
    return getattr(torch, name)


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A host tensor's memory as NumPy has it."""
    wanted = np.dtype(NUMPY[tensor.dtype.name])
    if tensor.dtype.name in EXOTIC:
        return np.asarray(memoryview(tensor.view(CARRIERS[tensor.itemsize]))).view(wanted)
    return np.asarray(memoryview(tensor))


def from_array(array: np.ndarray, name: str) -> torch.Tensor:
    made = torch.empty(array.shape, dtype=named(name))
    as_numpy(made)[...] = array
    return made


@pytest.mark.parametrize(("source", "target"), list(itertools.product(NUMPY, NUMPY)))
def test_host_conversions_agree_with_numpy(source: str, target: str) -> None:
    values = np.array([0, 1, 2, 3, 100, 1, 0, 7]).astype(NUMPY[source])
    tensor = from_array(values, source)
    with np.errstate(all="ignore"):
        if np.dtype(NUMPY[source]).kind == "c" and np.dtype(NUMPY[target]).kind != "c":
            values = values.real
        true = values.astype(NUMPY[target])
    found = tensor.to(named(target))
    assert found.dtype is named(target)
    assert as_numpy(found).tobytes() == true.tobytes()


@pytest.mark.parametrize(
    "name",
    ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"],
)
def test_every_code_of_a_small_float(name: str) -> None:
    dtype = np.dtype(NUMPY[name])
    codes = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    tensor = from_array(codes.view(dtype), name)
    true = codes.view(dtype).astype(np.float32)
    found = as_numpy(tensor.float())
    np.testing.assert_array_equal(found, true)
    np.testing.assert_array_equal(
        np.signbit(found)[~np.isnan(true)], np.signbit(true)[~np.isnan(true)]
    )
    back = as_numpy(tensor.float().to(named(name))).view(codes.dtype)
    np.testing.assert_array_equal(back[~np.isnan(true)], codes[~np.isnan(true)])


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e5m2", "float8_e4m3fnuz"])
@given(values=st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_rounding_to_a_small_float(name: str, values: list[float]) -> None:
    array = np.array(values, np.float32)
    with np.errstate(all="ignore"):
        true = array.astype(NUMPY[name])
    found = as_numpy(from_array(array, "float32").to(named(name)))
    np.testing.assert_array_equal(found.astype(np.float32), true.astype(np.float32))


def test_floats_truncate_to_integers() -> None:
    tensor = torch.tensor([1.9, -1.9, 255.0, 256.0, -1.0])
    assert tensor.int().tolist() == [1, -1, 255, 256, -1]
    assert tensor[:3].to(torch.uint8)[0].item() == 1
    assert torch.tensor([2.0**63]).to(torch.uint64).tolist() == [2**63]
    assert torch.tensor([0.0, 0.1, float("nan")]).bool().tolist() == [False, True, True]


ORDERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.t().contiguous().t(),
    "strided": lambda t: torch.empty(8, 10, dtype=t.dtype, device=t.device)[::2, ::2].copy_(t),
}


@pytest.mark.parametrize("here", PLACES)
@pytest.mark.parametrize("there", PLACES)
@pytest.mark.parametrize(
    ("source", "target"), [("int32", "int32"), ("int32", "float64"), ("float32", "float16")]
)
@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize(("from_order", "to_order"), list(itertools.product(ORDERS, ORDERS)))
def test_copies_between_all_places(
    here: str,
    there: str,
    source: str,
    target: str,
    non_blocking: bool,
    from_order: str,
    to_order: str,
    gpus: Callable[[int], list[torch.device]],
) -> None:
    gpus(2 if "cuda:1" in (here, there) else 1)
    values = np.arange(20).reshape(4, 5)
    tensor = ORDERS[from_order](from_array(values, source).to(here))
    into = ORDERS[to_order](torch.zeros(4, 5, dtype=named(target), device=there))
    assert into.copy_(tensor, non_blocking) is into
    torch.cuda.synchronize(torch.device(here) if here != "cpu" else None)
    assert into.tolist() == values.tolist()


def test_copies_broadcast() -> None:
    for place in PLACES[:2]:
        into = torch.empty(2, 3, device=place)
        into.copy_(torch.tensor([1.0, 2.0, 3.0]))
        assert into.tolist() == [[1, 2, 3], [1, 2, 3]]
        into.copy_(torch.tensor(5, device=place))
        assert into.tolist() == [[5, 5, 5], [5, 5, 5]]
        with pytest.raises(
            RuntimeError,
            match=r"The size of tensor a \(3\) must match the size of "
            r"tensor b \(2\) at non-singleton dimension 1",
        ):
            into.copy_(torch.empty(2))


def test_to_returns_the_tensor_itself_if_nothing_changes() -> None:
    tensor = torch.empty(2)
    assert tensor.to("cpu") is tensor
    assert tensor.float() is tensor
    assert tensor.cpu() is tensor
    assert tensor.to(torch.float32) is tensor
    assert tensor.to("cpu", copy=True) is not tensor
    on_gpu = tensor.cuda()
    assert on_gpu.cuda() is on_gpu
    assert on_gpu.to("cuda:0") is on_gpu
    assert on_gpu.to(tensor).is_cpu
    assert on_gpu.to("cuda:0", torch.int32).dtype is torch.int32
    assert tensor.to(device="cuda", dtype=torch.half, non_blocking=True).dtype is torch.half
    with pytest.raises(RuntimeError, match="must be cuda device"):
        tensor.cuda("cpu")


def test_type() -> None:
    tensor = torch.zeros(2, device="cuda")
    assert tensor.type() == "torch.cuda.FloatTensor"
    assert tensor.type("torch.LongTensor").type() == "torch.LongTensor"
    assert tensor.type(torch.half).type() == "torch.cuda.HalfTensor"
    assert torch.empty(1).type("torch.cuda.IntTensor").device.type == "cuda"
    assert tensor.type_as(torch.empty(1, dtype=torch.int8)).type() == "torch.CharTensor"
    with pytest.raises(ValueError, match="invalid type"):
        tensor.type("torch.StrangeTensor")


@pytest.mark.parametrize(
    "name",
    [
        "float",
        "half",
        "bfloat16",
        "double",
        "int",
        "long",
        "short",
        "char",
        "byte",
        "bool",
        "cfloat",
        "cdouble",
    ],
)
def test_dtype_methods(name: str) -> None:
    wanted = {"char": "int8", "byte": "uint8"}.get(name, name)
    assert getattr(torch.ones(2), name)().dtype is named(wanted)


def test_clones_keep_the_order_of_dimensions() -> None:
    for place in PLACES[:2]:
        tensor = torch.arange(6, device=place).view(2, 3).t()
        made = tensor.clone()
        assert made.stride() == (1, 3)
        assert made.tolist() == tensor.tolist()
        assert made._base is None
        assert made._version == 0
        assert tensor.clone(memory_format=torch.contiguous_format).stride() == (2, 1)
        assert tensor[::2].clone().stride() == (1, 2)
        assert torch.empty_like(tensor).stride() == (1, 3)


def test_pinned_memory() -> None:
    tensor = torch.arange(1024).float()
    assert not tensor.is_pinned()
    pinned = tensor.pin_memory()
    assert pinned.is_pinned()
    assert pinned[10:20].is_pinned()
    assert pinned.pin_memory() is pinned
    assert pinned.untyped_storage().is_pinned()
    assert pinned.to("cuda", non_blocking=True).tolist() == tensor.tolist()
    back = pinned.cuda().to("cpu", non_blocking=True)
    assert back.is_pinned()
    torch.cuda.synchronize()
    assert back.tolist() == tensor.tolist()
    assert torch.empty(3, pin_memory=True).is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        tensor.cuda().pin_memory()
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty(3, device="cuda", pin_memory=True)


def traced(act: Callable[[], object]) -> list[str]:
    _table.start_trace()
    act()
    return [name for name, _ in _table.stop_trace() if "Memcpy" in name or "Synchronize" in name]


def test_a_contiguous_copy_is_one_call_and_waits_for_one_stream() -> None:
    host, device = torch.empty(64).pin_memory(), torch.empty(64, device="cuda")
    pageable = torch.empty(64)
    assert traced(lambda: device.copy_(host)) == ["cuMemcpyHtoDAsync", "cuStreamSynchronize"]
    assert traced(lambda: host.copy_(device)) == ["cuMemcpyDtoHAsync", "cuStreamSynchronize"]
    assert traced(lambda: device.copy_(host, non_blocking=True)) == ["cuMemcpyHtoDAsync"]
    assert traced(lambda: host.copy_(device, non_blocking=True)) == ["cuMemcpyDtoHAsync"]
    assert traced(lambda: device.copy_(pageable, non_blocking=True)) == ["cuMemcpyHtoDAsync"]
    assert traced(lambda: device.t().copy_(host)) == ["cuMemcpyHtoDAsync", "cuStreamSynchronize"]
    transposed = host.view(8, 8).t()
    into = torch.empty_like(transposed, device="cuda")
    assert traced(lambda: into.copy_(transposed)) == ["cuMemcpyHtoDAsync", "cuStreamSynchronize"]
    assert traced(lambda: device.half().copy_(device)) == []


@needs_two
def test_a_copy_to_another_device_is_one_call_and_waits_for_nothing() -> None:
    device, other = torch.empty(64, device="cuda"), torch.empty(64, device="cuda:1")
    assert traced(lambda: other.copy_(device)) == ["cuMemcpyPeerAsync"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first call of a process announces a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        other.copy_(device)
    finally:
        torch.cuda.set_sync_debug_mode(0)


@needs_two
def test_copies_between_devices_are_ordered_with_both_streams(schedule: str) -> None:
    first, second = torch.cuda.Stream(device=0), torch.cuda.Stream(device=1)
    with torch.cuda.stream(second), torch.cuda.stream(first):
        source = torch.zeros(1 << 12, device="cuda:0")
        target = torch.zeros(1 << 12, device="cuda:1")
        for step in range(4):
            source.fill_(float(step))
            reread = target * 1  # must not see what comes after it
            target.copy_(source)
            source.fill_(-1.0)  # must wait until it has been read
            assert target[0].item() == step
            assert reread[-1].item() == max(step - 1, 0)


def test_pinned_memory_is_not_reused_while_a_copy_reads_it(schedule: str) -> None:
    device = torch.zeros(1 << 12, device="cuda")
    for step in range(1, 6):
        staged = torch.full((1 << 12,), float(step)).pin_memory()
        device.copy_(staged, non_blocking=True)
        del staged
        torch.full((1 << 12,), -1.0).pin_memory()
        assert device[7].item() == step


def test_reading_values_counts_as_synchronizing() -> None:
    tensor = torch.ones(1, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first call of a process announces a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        for act in (
            tensor.item,
            tensor.cpu,
            tensor.tolist,
            lambda: bool(tensor),
            lambda: torch.empty(1).cuda(),
            lambda: tensor.copy_(torch.empty(1)),
        ):
            with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
                act()
        tensor.copy_(torch.empty(1), non_blocking=True)
    finally:
        torch.cuda.set_sync_debug_mode(0)


@pytest.mark.parametrize("place", PLACES[:2])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("uint8", 200),
        ("int16", -3),
        ("int64", 1 << 40),
        ("float32", 0.1),
        ("float64", 0.1),
        ("float16", 2.5),
        ("bfloat16", 1.5),
        ("bool", True),
        ("complex64", 1 - 2j),
        ("int32", 1.7),
    ],
)
def test_fills(place: str, name: str, value: Any) -> None:
    tensor = torch.empty(3, 4, dtype=named(name), device=place)
    true = np.full((3, 4), value).astype(NUMPY[name])
    assert as_numpy(tensor.fill_(value).cpu()).tolist() == true.tolist()
    assert as_numpy(tensor.zero_().cpu()).tolist() == np.zeros_like(true).tolist()
    tensor[:, ::2].fill_(value)
    true[:, 1::2] = 0
    assert as_numpy(tensor.cpu()).tolist() == true.tolist()


def test_fills_refuse_what_does_not_fit() -> None:
    with pytest.raises(
        RuntimeError, match="value cannot be converted to type uint8_t without overflow"
    ):
        torch.empty(2, dtype=torch.uint8).fill_(300)
    with pytest.raises(RuntimeError, match="fill_ only supports 0-dimension value tensor"):
        torch.empty(2).fill_(torch.empty(2))
    assert torch.empty(2).fill_(torch.tensor(3)).tolist() == [3, 3]


def test_values() -> None:
    for place in PLACES[:2]:
        assert torch.tensor(5, device=place).item() == 5
        assert isinstance(torch.tensor(True, device=place).item(), bool)
        assert torch.tensor(1 - 2j).item() == 1 - 2j
        assert torch.tensor([2**63], dtype=torch.uint64).tolist() == [2**63]
        tensor = torch.tensor([[2.5]], device=place)
        assert (float(tensor), int(tensor), bool(tensor)) == (2.5, 2, True)
        assert [0, 1, 2][torch.tensor(1, device=place)] == 1
    with pytest.raises(
        RuntimeError, match="a Tensor with 6 elements cannot be converted to Scalar"
    ):
        torch.empty(2, 3).item()
    with pytest.raises(RuntimeError, match="more than one value is ambiguous"):
        bool(torch.empty(2))
    with pytest.raises(RuntimeError, match="no values is ambiguous"):
        bool(torch.empty(0))
    with pytest.raises(ValueError, match="only one element tensors can be converted"):
        int(torch.empty(2))
    with pytest.raises(TypeError, match="only integer tensors of a single element"):
        [0][torch.tensor(0.0)]
    with pytest.raises(TypeError, match=r"len\(\) of a 0-d tensor"):
        len(torch.tensor(1))


def test_numbers_become_tensors() -> None:
    make = _factory.from_sequence
    assert make([1, 2.5, True]).dtype is torch.float32
    assert make([[True], [False]]).dtype is torch.bool
    assert make([1, 2]).dtype is torch.int64
    assert make([1, 2j]).dtype is torch.complex64
    assert make([]).shape == (0,)
    assert make([[], []]).shape == (2, 0)
    assert make(3).shape == ()
    assert make([1.9], torch.int32).tolist() == [1]
    assert make([torch.tensor(1), torch.tensor(2)]).tolist() == [1, 2]
    assert make([np.float32(1.5), np.int8(2)]).tolist() == [1.5, 2]
    assert make(range(3)).tolist() == [0, 1, 2]
    for error, phrase, data, dtype in [
        (ValueError, r"expected sequence of length 2 at dim 1 \(got 1\)", [[1, 2], [3]], None),
        (ValueError, "expected a number", [1, [2]], None),
        (ValueError, "too many dimensions 'str'", ["a"], None),
        (RuntimeError, "Could not infer dtype of NoneType", [1, None], None),
        (ValueError, "Overflow when unpacking long long", [2**63], None),
        (
            RuntimeError,
            "value cannot be converted to type uint8 without overflow",
            [300],
            torch.uint8,
        ),
    ]:
        with pytest.raises(error, match=phrase):
            make(data, dtype)


def test_empty() -> None:
    assert (
        torch.empty(2, 3).shape == torch.empty((2, 3)).shape == torch.empty([2, 3]).shape == (2, 3)
    )
    assert torch.empty(()).shape == ()
    assert torch.empty(0, 3).numel() == 0
    assert torch.empty(2, dtype=torch.half, device="cuda").dtype is torch.half
    assert torch.empty_strided((2, 3), (1, 2)).stride() == (1, 2)
    assert torch.empty_strided((2,), (5,), device="cuda").untyped_storage().nbytes() == 24
    for sizes, text in [((-1,), "-1: [-1]"), ((2, -1), "-1: [2, -1]")]:
        with pytest.raises(RuntimeError) as caught:
            torch.empty(*sizes)
        assert f"Trying to create tensor with negative dimension {text}" in str(caught.value)
    with pytest.raises(RuntimeError, match="more elements than 64 bits can count"):
        torch.empty(1 << 40, 1 << 40)
    for place in ({"device": "cpu"}, {"device": "cuda"}, {"pin_memory": True}):
        with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
            torch.empty(1 << 62, **place)
    for size, stride in [((3,), (1 << 62,)), ((2, 2), (1 << 62, 1 << 62)), ((2,), (1 << 61,))]:
        with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
            torch.empty_strided(size, stride, device="cuda")
    with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
        torch.empty(3).resize_(1 << 62)
    with pytest.raises(TypeError, match="must be tuple of ints"):
        torch.empty("a")
    with pytest.raises(TypeError, match=r"argument 'dtype' must be torch\.dtype, not str"):
        torch.empty(2, dtype="float32")


def test_empty_has_a_short_way_that_looks_like_the_long_one() -> None:
    assert list(inspect.signature(torch.empty).parameters)[10:13] == ["out", "dtype", "layout"]
    assert (torch.empty.__module__, torch.empty.__name__) == ("flambeau", "empty")
    assert pickle.loads(pickle.dumps(torch.empty)) is torch.empty
    keyword = "".join(["de", "vice"])  # not interned
    for more in ({}, {"dtype": torch.int8}, {"dtype": None, "device": None}, {keyword: "cuda"}):
        made = torch.empty(3, **more)
        assert made.shape == (3,)
        assert made.dtype is (more.get("dtype") or torch.float32)
        assert made.is_cuda is (keyword in more and more[keyword] is not None)
    assert torch.empty(3, requires_grad=True).requires_grad
    with pytest.raises(TypeError, match=r"empty\(\) got an unexpected keyword argument 'divice'"):
        torch.empty(2, divice="cuda")
    with pytest.raises(RuntimeError, match="at start of device string: cudo"):
        torch.empty(2, device="cudo")
    with pytest.raises(OverflowError):
        torch.empty(1 << 70)


def test_memory_of_others() -> None:
    owner = bytearray(16)
    tensor = _factory.from_buffer(owner, dtype=torch.int32, offset=4, count=2)
    tensor.fill_(7)
    assert np.frombuffer(owner, np.int32).tolist() == [0, 7, 7, 0]
    with pytest.raises(BufferError):
        owner.append(1)
    del tensor
    owner.append(1)
    with pytest.raises(ValueError, match="multiple of element size"):
        _factory.from_buffer(owner, dtype=torch.int32)
    array = np.arange(6.0).reshape(2, 3)
    keeper = Owner()
    gone = weakref.ref(keeper)
    tensor = _factory.wrap_foreign(array.ctypes.data, keeper, (3, 2), (1, 3), dtype=torch.float64)
    del keeper
    view = tensor[1]
    del tensor
    gc.collect()
    assert gone() is not None
    assert view.tolist() == [1.0, 4.0]
    del view
    assert gone() is None


class Owner:
    pass


def test_buffers() -> None:
    tensor = torch.arange(6).view(2, 3)
    assert np.shares_memory(np.asarray(memoryview(tensor)), np.asarray(memoryview(tensor.t())))
    assert memoryview(tensor.t()).strides == (8, 24)
    with pytest.raises(BufferError, match="no buffer format"):
        memoryview(tensor.bfloat16())
    with pytest.raises(BufferError, match="no host buffer"):
        memoryview(tensor.cuda())


def test_resize_and_set() -> None:
    tensor = torch.arange(6)
    assert tensor.resize_(2, 2).tolist() == [[0, 1], [2, 3]]
    grown = tensor.resize_((3, 3))
    assert grown is tensor
    assert tensor.flatten()[:6].tolist() == [0, 1, 2, 3, 4, 5]
    other = torch.empty(0, dtype=torch.int64).set_(tensor.untyped_storage(), 1, (2, 2), (3, 1))
    assert other.tolist() == [[1, 2], [4, 5]]
    assert other.untyped_storage() == tensor.untyped_storage()


def test_storages() -> None:
    tensor = torch.tensor([1, 256], dtype=torch.int16)
    storage = tensor.untyped_storage()
    assert storage.tolist() == [1, 0, 0, 1]
    assert len(storage) == storage.nbytes() == storage.size() == 4
    assert storage.data_ptr() == tensor.data_ptr()
    storage[0] = 3
    assert tensor.tolist() == [3, 256]
    assert tensor[1:].untyped_storage() == storage
    assert storage.cuda().device == torch.device("cuda:0")
    assert storage.cuda().cpu().tolist() == storage.tolist()
    assert torch.empty(0, device="cuda").untyped_storage().device == torch.device("cuda:0")


def test_typed_storages() -> None:
    tensor = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    storage = tensor[1].storage()
    assert storage.tolist() == list(storage) == [1, 2, 3, 4]
    assert (len(storage), storage.nbytes(), storage.dtype) == (4, 16, torch.float32)
    assert storage.data_ptr() == tensor.data_ptr()
    assert storage.type() == "torch.FloatStorage"
    assert storage.cuda().type() == "torch.cuda.FloatStorage"
    storage[0] = 9
    assert tensor[0, 0] == 9
    assert storage[3] == 4
    assert storage == tensor.storage()
    assert storage.untyped() == tensor.untyped_storage()
    copied = storage.clone().fill_(0)
    assert tensor.tolist() == [[9, 2], [3, 4]]
    assert copied.copy_(storage).tolist() == storage.tolist()
    assert repr(copied).endswith("TypedStorage(dtype=torch.float32, device=cpu) of size 4]")
    with pytest.raises(RuntimeError, match="slices are only supported in UntypedStorage"):
        _ = storage[:2]


@pytest.mark.parametrize("place", PLACES)
def test_pickles_and_deep_copies(place: str, gpus: Callable[[int], list[torch.device]]) -> None:
    gpus(2 if place == "cuda:1" else 1)
    tensor = torch.arange(6, device=place).view(2, 3).t()
    tensor.note = "kept"
    for made in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor)):
        assert made.tolist() == tensor.tolist()
        assert made.stride() == tensor.stride()
        assert made.device == tensor.device
        assert made.note == "kept"
        assert made.data_ptr() != tensor.data_ptr()
    whole, part = copy.deepcopy([tensor, tensor[1]])
    part.fill_(9)
    assert whole[1].tolist() == [9, 9]
    assert tensor[1].tolist() == [1, 4]
    same = copy.deepcopy({"a": tensor, "b": tensor})
    assert same["a"] is same["b"]


def test_storages_are_freed_with_their_last_tensor() -> None:
    torch.cuda.synchronize()
    gc.collect()
    before = torch.cuda.memory_allocated()
    tensor = torch.empty(1 << 16, device="cuda")
    view = tensor[5:]
    del tensor
    assert torch.cuda.memory_allocated() == before + (1 << 18)
    del view
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("extra", [-1, 0, 1, 12345])
@pytest.mark.parametrize("chunks", [1, 3])
def test_large_pageable_copies_go_both_ways_in_pieces(chunks, extra, gpu):
    bytes_ = chunks * (8 << 20) + extra
    data = np.random.default_rng(5).integers(0, 255, bytes_, dtype=np.uint8)
    host = torch.from_numpy(data.copy())
    on_device = host.to(gpu)
    host.zero_()  # the source is free again once the call has returned
    back = on_device.cpu()
    np.testing.assert_array_equal(back.numpy(), data)
    non_blocking = torch.from_numpy(data).to(gpu, non_blocking=True)
    np.testing.assert_array_equal(non_blocking.cpu().numpy(), data)


def test_large_pageable_copies_from_several_threads(gpu):
    import threading

    data = [np.full(12 << 20, i, dtype=np.uint8) for i in range(4)]
    results = [None] * 4

    def work(i):
        results[i] = torch.from_numpy(data[i]).to(gpu).cpu().numpy()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for got, want in zip(results, data, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("entry", ["cuMemcpyHtoDAsync", "cuEventRecord", "cuEventSynchronize"])
def test_a_failing_piece_fails_the_copy_and_nothing_else(entry, gpu, fault):
    host = torch.ones(20 << 20, dtype=torch.uint8)
    host.to(gpu)
    fault(entry, status=999, nth=2)
    with pytest.raises(torch.AcceleratorError, match="unknown error"):
        host.to(gpu)
    assert int(host.to(gpu)[-1]) == 1
