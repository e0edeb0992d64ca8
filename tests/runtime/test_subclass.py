# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest

import flambeau as torch


class Named(torch.Tensor):
    """A subclass with state and a method."""

    def __init__(self, *data: Any) -> None:
        self.label = "fresh"

    def shout(self) -> str:
        return "loud"


class Deeper(Named):
    pass


class Slotted(torch.Tensor):
    @staticmethod
    def __new__(cls: type[Slotted], data: torch.Tensor, tag: str) -> Slotted:
        made = torch.Tensor._make_subclass(cls, data)
        made.tag = tag
        return made


class Plain(torch.Tensor):
    """Operations on it give tensors."""

    __torch_function__ = torch.runtime._tensor._disabled_torch_function_impl


def test_any_tensor_takes_attributes() -> None:
    tensor = torch.ones(2)
    assert not hasattr(tensor, "note")
    tensor.note = [1]
    assert tensor.note == [1]
    assert vars(tensor) == {"note": [1]}
    assert not hasattr(tensor[0], "note")
    del tensor.note
    assert not hasattr(tensor, "note")
    with pytest.raises(AttributeError):
        tensor.shape = (1,)


def test_weak_references_and_cycles() -> None:
    tensor = torch.ones(2)
    gone = weakref.ref(tensor)
    tensor.me = tensor
    del tensor
    gc.collect()
    assert gone() is None
    assert {torch.ones(1): 1}  # hashable by identity
    one = torch.ones(1)
    assert one in {one}


def test_construction() -> None:
    made = Named([1.0, 2.0])
    assert type(made) is Named
    assert made.tolist() == [1, 2]
    assert made.label == "fresh"
    assert torch.Tensor(2, 3).shape == (2, 3)
    assert torch.Tensor(torch.Size([2, 3])).shape == (2, 3)
    assert torch.Tensor().shape == (0,)
    assert torch.Tensor([1, 2]).dtype is torch.float32
    assert torch.Tensor(torch.ones(2)).tolist() == [1, 1]
    with pytest.raises(TypeError, match="data must be a sequence"):
        torch.Tensor(2.5)


def test_made_from_a_tensor() -> None:
    data = torch.arange(3.0)
    made = data.as_subclass(Named)
    assert type(made) is Named
    assert made.data_ptr() == data.data_ptr()
    assert not hasattr(made, "label")  # __init__ did not run
    tagged = Slotted(data, "x")
    assert (type(tagged), tagged.tag, tagged.tolist()) == (Slotted, "x", [0, 1, 2])
    assert torch.Tensor._make_subclass(Named, data, True).requires_grad
    with pytest.raises(TypeError, match="must be a type that inherits from Tensor"):
        data.as_subclass(int)


@pytest.mark.parametrize("place", ["cpu", "cuda:0"])
def test_results_keep_the_subclass(place: str) -> None:
    made = torch.arange(6.0, device=place).view(2, 3).as_subclass(Named)
    plain = torch.ones(2, 3, device=place)
    for result in (
        made + 1,
        1 + made,
        plain + made,
        -made,
        made < 2,
        made[0],
        made.t(),
        made.view(3, 2),
        made.half(),
        made.clone(),
        made.t().contiguous(),
        made.cpu(),
        made.cuda(),
        made.detach(),
        torch.empty_like(made),
        made.reshape(6),
        made.unbind()[0],
        made.data,
    ):
        assert type(result) is Named, result
        assert result.shout() == "loud"
    assert type(plain + plain) is torch.Tensor
    made += 1
    assert type(made) is Named


def test_the_most_derived_class_wins() -> None:
    base, deeper = torch.ones(2).as_subclass(Named), torch.ones(2).as_subclass(Deeper)
    assert type(base + deeper) is type(deeper + base) is Deeper


def test_a_subclass_may_switch_that_off() -> None:
    made = torch.ones(2, 2).as_subclass(Plain)
    for result in (made + 1, made[0], made.t(), made.clone(), made.double()):
        assert type(result) is torch.Tensor
    made.add_(1)
    assert type(made) is Plain


def test_views_of_a_subclass_know_their_base() -> None:
    made = torch.arange(4.0).as_subclass(Named)
    assert made[1:]._base is made
    assert made[1:].is_contiguous()


def test_copies_keep_class_and_attributes() -> None:
    made = Named([1.0])
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert type(other) is Named
        assert other.label == "fresh"
        assert other.tolist() == [1]


def test_gradients_without_autograd() -> None:
    tensor = torch.ones(2)
    assert (tensor.requires_grad, tensor.grad, tensor.is_leaf, tensor.grad_fn) == (
        False,
        None,
        True,
        None,
    )
    assert tensor.requires_grad_() is tensor
    assert tensor.requires_grad
    tensor.grad = torch.zeros(2)
    assert tensor.grad.tolist() == [0, 0]
    assert not tensor.detach().requires_grad
    assert tensor.detach().data_ptr() == tensor.data_ptr()
    tensor.data = torch.arange(3)
    assert tensor.tolist() == [0, 1, 2]
    with pytest.raises(
        RuntimeError, match="floating point and complex dtype can require gradients"
    ):
        torch.arange(2).requires_grad = True
    with pytest.raises(TypeError, match="expected to be a Tensor or None"):
        tensor.grad = 1
    assert torch.empty(2, requires_grad=True).requires_grad
