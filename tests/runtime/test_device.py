# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from flambeau.runtime._device import device_index

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("arguments", "kind", "index"),
    [
        (("cuda:1",), "cuda", 1),
        (("cuda",), "cuda", None),
        (("cpu",), "cpu", None),
        (("cpu:0",), "cpu", 0),
        (("meta",), "meta", None),
        (("cuda", 1), "cuda", 1),
        ((1,), "cuda", 1),
        ((torch.device("cuda:1"),), "cuda", 1),
    ],
)
def test_forms(arguments: tuple[object, ...], kind: str, index: int | None) -> None:
    made = torch.device(*arguments)
    assert (made.type, made.index) == (kind, index)
    assert made == torch.device(made)
    assert hash(made) == hash(torch.device(kind, index))
    assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)


def test_text() -> None:
    assert repr(torch.device("cuda", 0)) == "device(type='cuda', index=0)"
    assert repr(torch.device("cuda")) == "device(type='cuda')"
    assert str(torch.device("cuda", 1)) == "cuda:1"
    assert str(torch.device("cpu")) == "cpu"
    assert torch.device(type="cuda", index=1) == torch.device("cuda:1")


def test_equality_is_with_devices_only() -> None:
    assert torch.device("cuda") != torch.device("cuda:0")
    assert torch.device("cpu") != "cpu"
    assert len({torch.device("cuda:0"), torch.device(0), torch.device("cuda", 0)}) == 1


@pytest.mark.parametrize(
    "text",
    ["cuda0", "cuda:", "cuda:01", "cuda:-1", "cuda:x", "cuda:1:2", "cuda: 1", "cpu1", "cuda:²"],
)
def test_strings_that_are_no_device(text: str) -> None:
    with pytest.raises(RuntimeError, match=f"Invalid device string: '{text}'"):
        torch.device(text)


def test_other_bad_arguments() -> None:
    with pytest.raises(RuntimeError, match="device type at start of device string: tpu"):
        torch.device("tpu")
    with pytest.raises(RuntimeError, match="must not be empty"):
        torch.device("")
    with pytest.raises(RuntimeError, match="must not be negative"):
        torch.device("cuda", -1)
    with pytest.raises(RuntimeError, match="must not include an index"):
        torch.device("cuda:1", 1)
    with pytest.raises(TypeError, match="takes a string, an int or a device"):
        torch.device(1.5)
    with pytest.raises(TypeError, match="a device index is an int"):
        torch.device("cuda", "1")


def test_factories_use_the_device_of_the_context() -> None:
    with torch.device("cuda"):
        assert torch.empty(1).device.type == "cuda"
        with torch.device("cpu"):
            assert torch.empty(1).device == torch.device("cpu")
            assert torch.get_default_device() == torch.device("cpu")
        assert torch.empty(1).device.type == "cuda"
        assert torch.empty(1, device="cpu").is_cpu
    assert torch.empty(1).is_cpu


def test_one_device_object_nests_with_itself() -> None:
    gpu = torch.device("cuda:0")
    with gpu, torch.device("cpu"), gpu:
        assert torch.empty(1).is_cuda
    assert torch.empty(1).is_cpu


def test_the_default_device_is_per_thread() -> None:
    found = []
    torch.set_default_device("cuda:0")
    try:
        thread = threading.Thread(target=lambda: found.append(torch.empty(1).device))
        thread.start()
        thread.join()
        assert torch.empty(1).device == torch.device("cuda:0")
    finally:
        torch.set_default_device(None)
    assert found == [torch.device("cpu")]


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(torch.AcceleratorError, match="invalid device ordinal") as caught:
        torch.empty(1, device="cuda:63")
    assert caught.value.error_code == 101
    with pytest.raises(NotImplementedError, match="meta"):
        torch.empty(1, device="meta")


def test_indices() -> None:
    assert device_index("cpu") == -1
    assert device_index(torch.device("cuda", 0)) == 0
    assert device_index() == -1
    assert torch.empty(1, device=0).device == torch.device("cuda:0")


def test_tensors_say_the_number_of_their_device(gpus: Callable[[int], list[Any]]) -> None:
    _, second = gpus(2)
    x = torch.zeros(2, device=second)
    assert x.get_device() == x.device.index == 1
    assert x.cpu().get_device() == -1
    assert isinstance(x.untyped_storage(), torch.UntypedStorage)
    assert not isinstance(x, torch.UntypedStorage)


def test_the_module_of_a_device() -> None:
    for device in (None, "cuda", "cuda:1", torch.device("cuda", 0)):
        assert torch.get_device_module(device) is torch.cuda
    with pytest.raises(RuntimeError, match="Invalid device 'cpu'"):
        torch.get_device_module("cpu")
    with pytest.raises(RuntimeError, match="device string: tpu"):
        torch.get_device_module("tpu")
