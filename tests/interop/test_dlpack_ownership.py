# SPDX-License-Identifier: Apache-2.0
"""Who frees what, and how often, when tensors travel in DLPack capsules."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from interop.capsules import Producer, consume, delete, name_of

VERSIONS = pytest.mark.parametrize("max_version", [None, (1, 0)])


def counted(n: int = 4) -> tuple[Any, list[bool]]:
    """A host tensor and a list that says whether its memory is gone."""
    gone: list[bool] = []

    class Memory(bytearray):
        pass

    memory = Memory(4 * n)
    weakref.finalize(memory, gone.append, True)
    return torch.frombuffer(memory, dtype=torch.float32), gone


# -- our own ---------------------------------------------------------------------------------------


@VERSIONS
def test_a_capsule_that_nobody_takes_lets_go(max_version: Any) -> None:
    x, gone = counted()
    capsule = x.__dlpack__(max_version=max_version)
    del x
    assert not gone
    del capsule
    assert gone == [True]


@VERSIONS
def test_the_consumer_lets_go(max_version: Any) -> None:
    x, gone = counted()
    capsule = x.__dlpack__(max_version=max_version)
    content = consume(capsule)
    content.capsule = None
    del x, capsule
    assert not gone
    delete(content)
    assert gone == [True]


@VERSIONS
def test_a_round_trip_lets_go_once(max_version: Any) -> None:
    x, gone = counted()
    y = torch.from_dlpack(x.__dlpack__(max_version=max_version))
    z = y[1:].view(3, 1)
    del x, y
    assert not gone
    z[0] = 5
    assert z.tolist() == [[5], [0], [0]]
    del z
    assert gone == [True]


def test_numpy_lets_go() -> None:
    x, gone = counted()
    array = np.from_dlpack(x)[::2]
    del x
    array[0] = 3
    assert not gone
    del array
    gc.collect()
    assert gone == [True]


@VERSIONS
def test_device_memory_returns_to_the_cache(gpu: Any, max_version: Any) -> None:
    before = torch.cuda.memory_allocated()
    x = torch.ones(1000, device=gpu)
    used = torch.cuda.memory_allocated()
    capsule = x.__dlpack__(max_version=max_version)
    del x
    assert torch.cuda.memory_allocated() == used
    y = torch.from_dlpack(capsule)
    del capsule
    assert torch.cuda.memory_allocated() == used
    assert y.sum().item() == 1000
    del y
    assert torch.cuda.memory_allocated() == before
    torch.ones(1000, device=gpu).__dlpack__(max_version=max_version)
    assert torch.cuda.memory_allocated() == before


def test_a_resized_tensor_leaves_the_export_alone() -> None:
    x = torch.arange(4)
    array = np.from_dlpack(x)
    x.resize_(1000)
    x.fill_(9)
    assert array.tolist() == [0, 1, 2, 3]


def test_references_of_the_tensor_itself() -> None:
    x = torch.ones(3)
    before = sys.getrefcount(x)
    capsules = [x.__dlpack__(max_version=(1, 0)) for _ in range(10)]
    arrays = [np.from_dlpack(x) for _ in range(10)]
    assert sys.getrefcount(x) == before
    del capsules, arrays
    assert x.tolist() == [1, 1, 1]


# -- of others -------------------------------------------------------------------------------------


@pytest.mark.parametrize("versioned", [False, True])
def test_a_foreign_deleter_is_called_once(versioned: bool) -> None:
    producer = Producer(versioned=versioned)
    capsule = producer.capsule()
    x = torch.from_dlpack(capsule)
    assert name_of(capsule) == (b"used_dltensor_versioned" if versioned else b"used_dltensor")
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    y = x.t()[1:]
    del x, capsule
    assert producer.deleted == 0
    assert y.tolist() == [[1, 4], [2, 5]]
    del y
    assert producer.deleted == 1


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": (2, 32, 4)}, "lanes"),
        ({"dtype": (3, 64, 1)}, "code 3"),
        ({"dtype": (17, 4, 1)}, "code 17"),
        ({"device": (10, 0)}, "device"),
        ({"device": (2, 63)}, "there are"),
        ({"strides": (-3, 1)}, "negative"),
        ({"shape": (-1,)}, "size -1"),
        ({"shape": (1,) * 65}, "64 dimensions"),
        ({"byte_offset": 2}, "aligned"),
    ],
)
def test_what_is_refused_stays_the_producer_s(
    versioned: bool, options: dict[str, Any], message: str
) -> None:
    producer = Producer(versioned=versioned, **options)
    capsule = producer.capsule()
    before = name_of(capsule)
    with pytest.raises(BufferError, match=message):
        torch.from_dlpack(capsule)
    assert name_of(capsule) == before
    assert producer.deleted == 0


def test_an_unknown_major_version() -> None:
    producer = Producer(version=(2, 0))
    with pytest.raises(BufferError, match=r"version 2\.0"):
        torch.from_dlpack(producer)
    assert producer.deleted == 0


def test_a_newer_minor_version_is_read() -> None:
    assert torch.from_dlpack(Producer((2,), version=(1, 99))).tolist() == [0, 1]


def test_null_strides_and_byte_offset() -> None:
    x = torch.from_dlpack(Producer((2, 2), None, byte_offset=8))
    assert x.tolist() == [[2, 3], [4, 5]]
    assert x.stride() == (2, 1)
    y = torch.from_dlpack(Producer((2, 2), (1, 2), byte_offset=8))
    assert y.tolist() == [[2, 4], [3, 5]]


def test_empty_and_scalar_imports() -> None:
    producer = Producer((0, 3), address=0)
    x = torch.from_dlpack(producer)
    assert x.shape == (0, 3)
    del x
    assert producer.deleted == 1
    assert torch.from_dlpack(Producer(())).item() == 0


def test_a_producer_from_before_version_1() -> None:
    producer = Producer((3,), versioned=False)
    x = torch.from_dlpack(producer)
    assert x.tolist() == [0, 1, 2]
    y = torch.from_dlpack(Producer((3,), versioned=False), copy=True)
    assert y.data_ptr() != ctypes.addressof(producer.memory)
    assert y.tolist() == [0, 1, 2]


def test_what_a_producer_is_asked(gpu: Any) -> None:
    producer = Producer()
    torch.from_dlpack(producer)
    assert producer.arguments == {"max_version": (1, 3)}
    torch.from_dlpack(producer, copy=True)
    assert producer.arguments == {"max_version": (1, 3), "copy": True}

    x = torch.ones(2, 3, device=gpu)
    on_gpu = Producer(device=(2, 0), address=x.data_ptr())
    assert torch.from_dlpack(on_gpu).tolist() == [[1, 1, 1], [1, 1, 1]]
    assert on_gpu.arguments == {"max_version": (1, 3), "stream": 1}
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.from_dlpack(on_gpu)
    assert on_gpu.arguments["stream"] == side.cuda_stream


def test_a_foreign_device_gives_a_host_copy_on_request() -> None:
    producer = Producer(device=(10, 0))
    with pytest.raises(BufferError, match="neither the host"):
        torch.from_dlpack(producer)
    producer.content.view.device.type = 10
    real = producer.capsule

    def moved() -> Any:
        producer.content.view.device.type = 1
        return real()

    producer.capsule = moved  # type: ignore[method-assign]
    x = torch.from_dlpack(producer, device="cpu")
    assert producer.arguments["dl_device"] == (1, 0)
    assert x.device == torch.device("cpu")


def test_an_exception_under_way_survives_a_deleter() -> None:
    def fail() -> None:
        x = torch.from_dlpack(Producer())
        raise KeyError(x.shape)

    for _ in range(3):
        with pytest.raises(KeyError):
            fail()


def test_threads_share_capsules() -> None:
    producers = [Producer() for _ in range(50)]
    capsules = [producer.capsule() for producer in producers]
    taken: list[int] = []
    errors: list[str] = []
    start = threading.Barrier(4)

    def take() -> None:
        start.wait()
        for index, capsule in enumerate(capsules):
            try:
                x = torch.from_dlpack(capsule)
            except RuntimeError as error:
                errors.append(str(error))
            else:
                assert x[1, 2].item() == 5
                taken.append(index)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(50))
    assert len(errors) == 150
    assert [producer.deleted for producer in producers] == [1] * 50


def test_exports_die_in_other_threads(gpu: Any) -> None:
    before = torch.cuda.memory_allocated()

    def use() -> None:
        for _ in range(20):
            x = torch.ones(100, device=gpu)
            content = consume(x.__dlpack__(max_version=(1, 0), stream=-1))
            del x
            thread = threading.Thread(target=delete, args=(content,))
            thread.start()
            thread.join()

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert torch.cuda.memory_allocated() == before
