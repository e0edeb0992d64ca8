# SPDX-License-Identifier: Apache-2.0
"""Functions and modules whose forward and backward are replays of graphs."""

import gc
from typing import Any

import pytest

import flambeau as torch


def linear_and_twin() -> tuple[Any, Any]:
    torch.manual_seed(1)
    one = torch.nn.Linear(4, 3, device="cuda")
    two = torch.nn.Linear(4, 3, device="cuda")
    two.load_state_dict(one.state_dict())
    return one, two


def test_gradients_equal_eager_ones(gpu: Any, schedule: Any) -> None:
    graphed, eager = linear_and_twin()
    sample = torch.randn(2, 4, device="cuda", requires_grad=True)
    assert torch.cuda.make_graphed_callables(graphed, (sample,)) is graphed
    for _ in range(3):
        x = torch.randn(2, 4, device="cuda", requires_grad=True)
        y = x.detach().clone().requires_grad_()
        graphed(x).tanh().sum().backward()
        eager(y).tanh().sum().backward()
        assert torch.equal(x.grad, y.grad)
        for one, other in zip(graphed.parameters(), eager.parameters(), strict=True):
            assert torch.equal(one.grad, other.grad)


def test_parameters_get_copies(gpu: Any) -> None:
    graphed, _ = linear_and_twin()
    x = torch.ones(2, 4, device="cuda")
    torch.cuda.make_graphed_callables(graphed, (x.clone(),))
    (first,) = torch.autograd.grad(graphed(x).sum(), graphed.weight)
    kept = first.clone()
    graphed(x * 2).sum().backward()
    assert torch.equal(first, kept)
    assert torch.equal(graphed.weight.grad, kept * 2)


def test_outputs_are_buffers(gpu: Any) -> None:
    graphed, eager = linear_and_twin()
    x = torch.ones(2, 4, device="cuda")
    torch.cuda.make_graphed_callables(graphed, (x.clone(),))
    first = graphed(x)
    second = graphed(x * 2)
    assert first.data_ptr() == second.data_ptr()
    assert torch.equal(first, eager(x * 2))
    graphed.eval()
    assert graphed(x).data_ptr() != second.data_ptr()
    assert graphed(torch.ones(5, 4, device="cuda")).shape == (5, 3)


def test_functions_and_tuples(gpu: Any) -> None:
    def pair(a: Any, parts: Any) -> Any:
        return {"sum": a + parts[0], "product": a * parts[1], "flags": a > 0}

    sample = (
        torch.ones(3, device="cuda", requires_grad=True),
        [torch.ones(3, device="cuda"), torch.ones(3, device="cuda", requires_grad=True)],
    )
    module, _ = linear_and_twin()
    graphed, linear = torch.cuda.make_graphed_callables(
        (pair, module), (sample, (torch.ones(2, 4, device="cuda"),))
    )
    a = torch.tensor([1.0, 2, 3], device="cuda", requires_grad=True)
    b = torch.tensor([3.0, 2, 1], device="cuda", requires_grad=True)
    made = graphed(a, [torch.ones(3, device="cuda"), b])
    assert made["sum"].tolist() == [2, 3, 4]
    assert not made["flags"].requires_grad
    (made["product"] * 2).sum().backward()
    assert a.grad.tolist() == [6, 4, 2]
    assert b.grad.tolist() == [2, 4, 6]
    assert linear(torch.ones(2, 4, device="cuda")).shape == (2, 3)


def test_without_gradients(gpu: Any) -> None:
    graphed = torch.cuda.make_graphed_callables(
        lambda a: a * 2, (torch.ones(3, device="cuda"),), num_warmup_iters=1
    )
    assert graphed(torch.full((3,), 4.0, device="cuda")).tolist() == [8, 8, 8]


def test_unused_inputs(gpu: Any) -> None:
    sample = tuple(torch.ones(3, device="cuda", requires_grad=True) for _ in range(2))
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        torch.cuda.make_graphed_callables(lambda a, b: a * 2, sample)
    graphed = torch.cuda.make_graphed_callables(lambda a, b: a * 2, sample, allow_unused_input=True)
    a, b = (torch.ones(3, device="cuda", requires_grad=True) for _ in range(2))
    graphed(a, b).sum().backward()
    assert a.grad.tolist() == [2, 2, 2]
    assert b.grad is None


def test_what_is_refused(gpu: Any) -> None:
    x = torch.ones(3, device="cuda")
    with pytest.raises(AssertionError, match="must contain only Tensors"):
        torch.cuda.make_graphed_callables(lambda a: a, (3,))
    with torch.autocast("cuda"), pytest.raises(RuntimeError, match="support the autocast caching"):
        torch.cuda.make_graphed_callables(lambda a: a * 2, (x,))
    hooked, _ = linear_and_twin()
    hooked.register_forward_hook(lambda *args: None)
    with pytest.raises(AssertionError, match="must not have hooks"):
        torch.cuda.make_graphed_callables(hooked, (torch.ones(2, 4, device="cuda"),))
    graphed = torch.cuda.make_graphed_callables(lambda a: a * 2, (x,))
    with pytest.raises(RuntimeError, match="size"):
        graphed(torch.ones(4, device="cuda"))
    with pytest.raises(TypeError):
        graphed(a=x)


def test_autocast_without_its_cache(gpu: Any) -> None:
    graphed, eager = linear_and_twin()
    x = torch.ones(2, 4, device="cuda")
    with torch.autocast("cuda", cache_enabled=False):
        torch.cuda.make_graphed_callables(graphed, (x.clone(),))
        assert torch.equal(graphed(x), eager(x))
        assert graphed(x).dtype == torch.float16


def test_a_forward_does_not_keep_its_module(gpu: Any) -> None:
    graphed, _ = linear_and_twin()
    x = torch.ones(2, 4, device="cuda")
    torch.cuda.make_graphed_callables(graphed, (x.clone(),))
    forward = graphed.forward
    del graphed
    gc.collect()
    with pytest.raises(RuntimeError, match="graphed module has been freed"):
        forward(x)


def test_differentiated_once(gpu: Any) -> None:
    x = torch.ones(3, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(lambda a: a * a, (x.detach().requires_grad_(),))
    (first,) = torch.autograd.grad((graphed(x) ** 2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


class Parts(torch.nn.Module):
    """A net whose middle asks for a value, which no capture can."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Linear(6, 8, device="cuda"), torch.nn.Tanh())
        self.last = torch.nn.Linear(8, 2, device="cuda")

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        if x.sum().item() > 0:
            x = x * 2
        return self.last(x)


@pytest.mark.parametrize("half", [False, True])
def test_a_net_captured_in_part_trains_as_an_eager_one(gpu: Any, schedule: Any, half: bool) -> None:
    torch.manual_seed(2)
    net, twin = Parts(), Parts()
    twin.load_state_dict(net.state_dict())
    cast = {"device_type": "cuda", "enabled": half, "cache_enabled": False}
    with torch.autocast(**cast):
        net.first, net.last = torch.cuda.make_graphed_callables(
            (net.first, net.last),
            (
                (torch.randn(4, 6, device="cuda"),),
                (torch.randn(4, 8, device="cuda", requires_grad=True),),
            ),
        )
    data = torch.randn(5, 4, 6, device="cuda")
    losses: list[list[float]] = []
    for model in (net, twin):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cuda", enabled=half, init_scale=64.0)
        losses.append([])
        for batch in data:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(**cast):
                loss = (model(batch).float() - 1).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses[-1].append(loss.item())
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0]
    for one, other in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_pool_and_annotations(gpu: Any) -> None:
    pool = torch.cuda.graph_pool_handle()
    marks = torch.cuda.graph_annotations

    def work(a: Any) -> Any:
        with marks.mark_kernels("square"):
            return (a * a).sum()

    sample = torch.ones(4, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(
        work, (sample,), pool=pool, capture_error_mode="thread_local", enable_annotations=True
    )
    assert any(
        tuple(segment["segment_pool_id"]) == pool for segment in torch.cuda.memory_snapshot()
    )
    if marks.is_available():
        found = [entry[0] for entry in marks.get_kernel_annotations().values()]
        assert {"name": "square"} in found
        assert {"name": "square", "autograd_phase": "backward"} in found
    x = torch.full((4,), 3.0, device="cuda", requires_grad=True)
    graphed(x).backward()
    assert x.grad.tolist() == [6.0] * 4
