# SPDX-License-Identifier: Apache-2.0
"""Modules: registration, the tree, modes, moving, keeping, hooks and text."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from ops.cases import array_of


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Sequential(nn.ReLU(), nn.Linear(4, 2, bias=False))
        self.scale = nn.Parameter(torch.ones(2))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("cache", torch.zeros(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) * self.scale


NAMES = ["scale", "first.weight", "first.bias", "second.1.weight"]


def test_registration() -> None:
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NAMES
    assert [name for name, _ in net.named_buffers()] == ["count", "cache"]
    assert [name for name, _ in net.named_modules()] == [
        "", "first", "second", "second.0", "second.1",
    ]  # fmt: skip
    assert [name for name, _ in net.named_children()] == ["first", "second"]
    assert isinstance(net.first.weight, nn.Parameter)
    assert net.first.weight.requires_grad
    assert net.first.weight.is_leaf
    assert type(net.first.weight * 2) is torch.Tensor
    net.again = net.first  # a module in two places counts once
    assert len(list(net.parameters())) == 4
    assert len(list(net.named_parameters(remove_duplicate=False))) == 6
    assert net.get_parameter("second.1.weight") is net.second[1].weight
    assert net.get_submodule("second.0") is net.second[0]
    del net.again, net.scale
    assert not hasattr(net, "scale")
    assert "first" in dir(net)


def test_refusals() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(torch.ones(1))

    with pytest.raises(AttributeError, match="before Module"):
        Early()
    net = Net()
    with pytest.raises(TypeError, match="cannot assign 'Tensor' as parameter 'scale'"):
        net.scale = torch.ones(2)
    with pytest.raises(TypeError, match="cannot assign 'int' as child module 'first'"):
        net.first = 3
    with pytest.raises(KeyError, match="already exists"):
        net.register_buffer("first", torch.ones(1))
    with pytest.raises(KeyError, match="t contain"):
        net.add_module("a.b", nn.Identity())
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'third'"):
        net.third  # noqa: B018
    with pytest.raises(NotImplementedError, match='missing the required "forward" function'):
        nn.Module()(1)
    with pytest.raises(AttributeError, match="has no attribute `third`"):
        net.get_submodule("third")
    net.first = None
    assert net.first is None


def test_modes_and_apply() -> None:
    net = Net()
    seen: list[nn.Module] = []
    assert net.apply(seen.append) is net
    assert seen[-1] is net
    assert len(seen) == 5
    assert not net.eval().second[0].training
    assert net.train().second[0].training
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())
    with pytest.raises(ValueError, match="training mode is expected to be boolean"):
        net.train(1)


def test_moving_keeps_parameters(gpu: Any) -> None:
    net = Net()
    weight = net.first.weight
    values = array_of(weight)
    weight.grad = torch.ones(4, 3)
    assert net.to(gpu) is net
    assert net.first.weight is weight
    assert weight.device == torch.device(gpu)
    assert weight.grad is not None
    assert weight.grad.device == weight.device
    np.testing.assert_array_equal(array_of(weight), values)
    assert net.count.device == weight.device
    net.half()
    assert weight.dtype == torch.float16
    assert net.count.dtype == torch.int64
    net.to("cpu", torch.float64)
    assert weight.dtype == torch.float64
    assert net.count.dtype == torch.int64
    assert str(net.count.device) == "cpu"
    assert net.bfloat16().float().scale.dtype == torch.float32
    with pytest.raises(TypeError, match="only accepts floating point"):
        net.to(torch.int32)


def test_state_dict(gpu: Any) -> None:
    one, two = Net().to(gpu), Net()
    state = one.state_dict()
    assert list(state) == ["scale", "count", "first.weight", "first.bias", "second.1.weight"]
    assert not state["scale"].requires_grad
    assert state["scale"].data_ptr() == one.scale.data_ptr()
    found = two.load_state_dict(state)
    assert repr(found) == "<All keys matched successfully>"
    np.testing.assert_array_equal(array_of(two.first.weight), array_of(one.first.weight))
    state["odd"] = state.pop("scale")
    with pytest.raises(RuntimeError, match="Missing key"):
        two.load_state_dict(state)
    assert two.load_state_dict(state, strict=False) == (["scale"], ["odd"])
    with pytest.raises(RuntimeError, match="size mismatch for first"):
        two.load_state_dict({"first.bias": torch.ones(3)}, strict=False)
    two.load_state_dict(one.state_dict(), assign=True)
    assert two.first.weight.device == torch.device(gpu)
    assert isinstance(two.first.weight, nn.Parameter)


def test_copies_and_pickles(gpu: Any) -> None:
    net = Net().to(gpu)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net.cpu()))):
        assert [name for name, _ in other.named_parameters()] == NAMES
        assert other.first.weight.data_ptr() != net.first.weight.data_ptr()
        assert isinstance(other.scale, nn.Parameter)
        np.testing.assert_array_equal(array_of(other.first.weight), array_of(net.first.weight))


def test_hooks(gpu: Any) -> None:
    layer = nn.Linear(2, 2, device=gpu)
    calls: list[str] = []
    x = torch.ones(1, 2, device=gpu)
    before = layer.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    after = layer.register_forward_hook(lambda module, args, result: result + 1)
    first = layer.register_forward_pre_hook(
        lambda module, args, kwargs: calls.append("first"), prepend=True, with_kwargs=True
    )
    expected = nn.functional.linear(x * 2, layer.weight, layer.bias) + 1
    np.testing.assert_allclose(array_of(layer(x)), array_of(expected), rtol=1e-6)
    assert calls == ["first"]
    for handle in (before, after, first):
        handle.remove()
    np.testing.assert_allclose(array_of(layer(x)), array_of(layer.forward(x)))


def test_backward_hooks(gpu: Any) -> None:
    layer = nn.Linear(2, 3, device=gpu)
    seen: list[Any] = []
    handle = layer.register_full_backward_hook(
        lambda module, grads, of_results: seen.append((grads[0].shape, of_results[0].shape))
    )
    x = torch.ones(4, 2, device=gpu, requires_grad=True)
    layer(x).sum().backward()
    assert seen == [((4, 2), (4, 3))]
    handle.remove()
    doubled = layer.register_full_backward_hook(lambda module, grads, results: (grads[0] * 2,))
    single, x.grad = x.grad, None
    layer(x).sum().backward()
    np.testing.assert_allclose(array_of(x.grad), 2 * array_of(single))
    doubled.remove()
    table = nn.Embedding(3, 2, device=gpu)
    table.register_full_backward_hook(lambda module, grads, results: seen.append(grads))
    table(torch.tensor([1, 2], device=gpu)).sum().backward()
    assert seen[-1] == (None,)  # numbers of rows have no gradient


def test_zero_grad(gpu: Any) -> None:
    net = Net().to(gpu)
    net(torch.ones(2, 3, device=gpu)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    kept = net.scale.grad
    net.zero_grad(set_to_none=False)
    assert net.scale.grad is kept
    assert kept.tolist() == [0, 0]
    net.zero_grad()
    assert net.scale.grad is None


def test_text() -> None:
    assert repr(Net()) == (
        "Net(\n"
        "  (first): Linear(in_features=3, out_features=4, bias=True)\n"
        "  (second): Sequential(\n"
        "    (0): ReLU()\n"
        "    (1): Linear(in_features=4, out_features=2, bias=False)\n"
        "  )\n"
        ")"
    )
    assert repr(nn.LeakyReLU(0.2, inplace=True)) == "LeakyReLU(negative_slope=0.2, inplace=True)"
    assert repr(nn.LayerNorm(4)) == "LayerNorm((4,), eps=1e-05, elementwise_affine=True, bias=True)"
    assert repr(nn.Embedding(5, 2, padding_idx=-1)) == "Embedding(5, 2, padding_idx=4)"


def test_containers() -> None:
    layers = nn.ModuleList([nn.Identity(), nn.ReLU()])
    layers.append(nn.Tanh())
    assert [type(m).__name__ for m in layers] == ["Identity", "ReLU", "Tanh"]
    assert isinstance(layers[-1], nn.Tanh)
    assert len(layers[1:]) == 2
    layers.insert(0, nn.Sigmoid())
    del layers[1]
    assert [name for name, _ in layers.named_children()] == ["0", "1", "2"]
    with pytest.raises(IndexError, match="out of range"):
        layers[3]
    chain = nn.Sequential(nn.Identity(), nn.ReLU())
    assert chain(torch.tensor([-1.0])).tolist() == [0]
    assert isinstance(chain[0:1], nn.Sequential)
    table = nn.ModuleDict({"a": nn.ReLU()})
    table["b"] = nn.Tanh()
    assert list(table) == ["a", "b"]
    assert "a" in table
    assert isinstance(table.pop("a"), nn.ReLU)
    held = nn.ParameterList([torch.ones(1), nn.Parameter(torch.ones(2))])
    assert [p.shape for p in held.parameters()] == [(1,), (2,)]
    named = nn.ParameterDict({"w": torch.ones(3)})
    assert named["w"].requires_grad
    with pytest.raises(TypeError, match="unexpected argument"):
        nn.ReLU(slope=1)
    with pytest.raises(TypeError, match="needs the argument 'value'"):
        nn.Threshold(1.0)
