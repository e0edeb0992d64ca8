# SPDX-License-Identifier: Apache-2.0
"""Optimizers against NumPy, by one kernel and one by one; state, graphs and scaled losses."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn, optim
from ops.cases import array_of

SHAPES = [(3, 5), (7,), ()]
Array = np.ndarray[Any, Any]


def adam(options: dict[str, Any], decoupled: bool) -> Any:
    """One step of Adam as its paper has it, on arrays in a dict."""
    lr, decay = options.get("lr", 1e-3), options.get("weight_decay", 1e-2 if decoupled else 0)
    beta1, beta2 = options.get("betas", (0.9, 0.999))

    def step(state: dict[str, Any], p: Array, g: Array) -> Array:
        g = -g if options.get("maximize") else g
        t = state["t"] = state.get("t", 0) + 1
        if decoupled:
            p = p * (1 - lr * decay)
        else:
            g = g + decay * p
        state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * g
        v = state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * g * g
        if options.get("amsgrad"):
            v = state["top"] = np.maximum(state.get("top", 0), v)
        return np.asarray(
            p - lr * state["m"] / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + 1e-8)
        )

    return step


def sgd(options: dict[str, Any]) -> Any:
    lr, momentum = options["lr"], options.get("momentum", 0)

    def step(state: dict[str, Any], p: Array, g: Array) -> Array:
        g = (-g if options.get("maximize") else g) + options.get("weight_decay", 0) * p
        if momentum:
            fresh = 1 - options.get("dampening", 0)
            state["b"] = momentum * state["b"] + fresh * g if "b" in state else g
            g = g + momentum * state["b"] if options.get("nesterov") else state["b"]
        return np.asarray(p - lr * g)

    return step


CASES: list[tuple[Any, dict[str, Any], Any]] = [
    (optim.SGD, {"lr": 0.1}, sgd),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1}, sgd),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}, sgd),
    (optim.Adam, {"lr": 0.01, "weight_decay": 0.1}, lambda o: adam(o, False)),
    (optim.Adam, {"amsgrad": True, "betas": (0.5, 0.9)}, lambda o: adam(o, False)),
    (optim.AdamW, {"lr": 0.1, "maximize": True}, lambda o: adam(o, True)),
]
WAYS: list[dict[str, Any]] = [{}, {"foreach": False}, {"fused": True}, {"capturable": True}]


def start(device: Any, dtype: Any = torch.float64) -> tuple[list[nn.Parameter], list[Array]]:
    random = np.random.default_rng(0)
    values = [np.asarray(random.normal(0, 1, shape)) for shape in SHAPES]
    return [nn.Parameter(torch.tensor(v, device=device, dtype=dtype)) for v in values], values


def slopes(step: int) -> list[Array]:
    random = np.random.default_rng(step + 1)
    return [np.asarray(random.normal(0, 1, shape)) for shape in SHAPES]


@pytest.mark.parametrize("where", ["device", "host"])
@pytest.mark.parametrize(("kind", "options", "definition"), CASES)
def test_steps(kind: Any, options: dict[str, Any], definition: Any, where: str, gpu: Any) -> None:
    device = gpu if where == "device" else "cpu"
    for way in WAYS:
        if kind is optim.SGD and "capturable" in way:
            continue
        params, values = start(device)
        optimizer = kind(params, **options, **way)
        step, states = definition(options), [{} for _ in params]
        for k in range(4):
            for n, (param, g) in enumerate(zip(params, slopes(k), strict=True)):
                if n == 1 and k == 1:  # without a gradient it stays as it is
                    param.grad = None
                    continue
                param.grad = torch.tensor(g, device=device)
                values[n] = step(states[n], values[n], g)
            optimizer.step()
        for param, value in zip(params, values, strict=True):
            np.testing.assert_allclose(array_of(param), value, rtol=1e-6, atol=1e-8)


def test_groups_and_gradients(gpu: Any) -> None:
    params, _ = start(gpu)
    optimizer = optim.SGD([{"params": params[0]}, {"params": params[1:], "lr": 1.0}], lr=0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 1.0]
    for param in params:
        param.grad = torch.ones_like(param)
    before = [array_of(param) for param in params]
    optimizer.step()
    for param, value, lr in zip(params, before, (0.5, 1, 1), strict=True):
        np.testing.assert_allclose(array_of(param), value - lr)
    kept = params[0].grad
    optimizer.zero_grad(set_to_none=False)
    assert params[0].grad is kept
    assert not kept.any()
    optimizer.zero_grad()
    assert params[0].grad is None
    assert "lr: 0.5" in repr(optimizer)
    named = optim.SGD([("w", params[0])], lr=0.1)
    assert named.param_groups[0]["param_names"] == ["w"]


def test_closures_and_hooks(gpu: Any) -> None:
    weight = nn.Parameter(torch.tensor([3.0], device=gpu))
    optimizer = optim.SGD([weight], lr=0.25)
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    handle = optimizer.register_step_post_hook(lambda *_: seen.append("after"))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight * weight).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 9
    assert weight.item() == 1.5
    handle.remove()
    optimizer.step(closure)
    assert seen == ["before", "after", "before"]


def test_an_optimizer_of_ones_own(gpu: Any) -> None:
    class Signs(optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for param in group["params"]:
                    param.sub_(param.grad.sign(), alpha=group["lr"])

    weight = nn.Parameter(torch.tensor([1.0, -1.0], device=gpu))
    optimizer = Signs([weight], lr=0.5)
    schedule = optim.lr_scheduler.StepLR(optimizer, 1)
    seen: list[Any] = []
    optimizer.register_step_post_hook(lambda *event: seen.append(event))
    weight.grad = torch.tensor([3.0, -2.0], device=gpu)
    optimizer.step()
    schedule.step()  # which warns if it finds no step before
    assert weight.tolist() == [0.5, -0.5]
    assert len(seen) == 1


@pytest.mark.parametrize("way", [{}, {"capturable": True}], ids=["host", "device"])
def test_state_dict(way: dict[str, Any], gpu: Any) -> None:
    def steps(optimizer: Any, params: Any, numbers: range) -> None:
        for k in numbers:
            for param, g in zip(params, slopes(k), strict=True):
                param.grad = torch.tensor(g, device=gpu, dtype=param.dtype)
            optimizer.step()

    one, _ = start(gpu)
    first = optim.AdamW(one, lr=0.05, **way)
    steps(first, one, range(2))
    state = copy.deepcopy(first.state_dict())
    assert state["param_groups"][0]["params"] == [0, 1, 2]
    assert state["state"][1]["step"].item() == 2
    assert state["state"][1]["step"].is_cuda == bool(way)
    two = [nn.Parameter(param.detach().clone()) for param in one]
    second = optim.AdamW(two, lr=1.0, **way)
    second.load_state_dict(state)
    assert second.param_groups[0]["lr"] == 0.05
    steps(first, one, range(2, 4))
    steps(second, two, range(2, 4))
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        optim.AdamW(two[:2], **way).load_state_dict(state)


def test_captured_step(gpu: Any) -> None:
    """A whole step in a graph: replays give what the same steps give without one."""
    torch.cuda.set_device(gpu)
    plain, captured = (start(gpu, torch.float32)[0] for _ in range(2))
    eager = optim.Adam(plain, lr=0.1, capturable=True)
    graphed = optim.Adam(captured, lr=torch.tensor(0.1, device=gpu), capturable=True)
    for param in (*plain, *captured):
        param.grad = torch.full_like(param, 0.5)
    for _ in range(4):
        eager.step()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graphed.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graphed.step()
    for _ in range(3):
        graph.replay()
    for a, b in zip(plain, captured, strict=True):
        np.testing.assert_allclose(array_of(a), array_of(b), rtol=1e-6)
    graphed.param_groups[0]["lr"].fill_(0.0)
    before = array_of(captured[0])
    graph.replay()
    np.testing.assert_array_equal(array_of(captured[0]), before)
    with (
        pytest.raises(RuntimeError, match="capturable=False"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        optim.Adam(plain).step()


@pytest.mark.parametrize("fused", [False, True])
def test_scaled_losses(fused: bool, gpu: Any) -> None:
    """Overflowed steps are skipped, others are those of the true gradient."""
    weight = nn.Parameter(torch.tensor([1.0, 2.0], device=gpu))
    right = nn.Parameter(torch.tensor([1.0, 2.0], device=gpu))
    optimizer, other = optim.Adam([weight], lr=0.1, fused=fused), optim.Adam([right], lr=0.1)
    scaler = torch.amp.GradScaler(init_scale=1024.0)
    for k, factor in enumerate((1.0, float("inf"), 2.0)):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        if k != 1:
            right.grad = torch.full_like(right, factor)
            other.step()
    np.testing.assert_allclose(array_of(weight), array_of(right), rtol=1e-6)
    assert scaler.get_scale() == 512.0
    assert optimizer.state[weight]["step"].item() == 2


def test_refusals(gpu: Any) -> None:
    weight = nn.Parameter(torch.ones(1))
    with pytest.raises(TypeError, match="should be an iterable of Tensors or dicts"):
        optim.SGD(weight, lr=0.1)
    with pytest.raises(ValueError, match="empty parameter list"):
        optim.SGD([], lr=0.1)
    with pytest.raises(ValueError, match="more than one parameter group"):
        optim.SGD([{"params": [weight]}, {"params": [weight]}], lr=0.1)
    with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
        optim.SGD([weight * 2], lr=0.1)
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        optim.Adam([weight], lr=-1.0)
    with pytest.raises(ValueError, match="Invalid beta parameter at index 1"):
        optim.Adam([weight], betas=(0.9, 1.0))
    with pytest.raises(ValueError, match="Nesterov momentum requires a momentum"):
        optim.SGD([weight], lr=0.1, nesterov=True)
    with pytest.raises(RuntimeError, match="`fused` and `foreach` cannot be `True` together"):
        optim.Adam([weight], foreach=True, fused=True)
    with pytest.raises(RuntimeError, match="_fused_sgd_ needs params, grads"):
        torch._fused_sgd_(
            [weight], [weight], [], weight_decay=0, momentum=0, lr=0.1, dampening=0,
            nesterov=False, maximize=False, is_first_step=True,
        )  # fmt: skip
