# SPDX-License-Identifier: Apache-2.0
"""The backward pass: what it computes, keeps, refuses, and on which streams."""

import gc
import threading
import weakref
from typing import Any

import pytest

import flambeau as torch


def leaf(*values: float, device: str = "cpu") -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device, requires_grad=True)


def test_leaves_and_nodes() -> None:
    x = leaf(1, 2)
    y = x * 2
    assert x.is_leaf
    assert x.grad_fn is None
    assert not y.is_leaf
    assert y.requires_grad
    assert y.grad_fn.name() == "MulBackward0"
    node, output = y.grad_fn.next_functions[0]
    assert (type(node).__name__, output) == ("AccumulateGrad", 0)
    assert node.variable is x
    assert repr(y) == "tensor([2., 4.], grad_fn=<MulBackward0>)"
    assert not y.detach().requires_grad
    assert y.detach().data_ptr() == y.data_ptr()


def test_gradients_add_up() -> None:
    x = leaf(1, 2)
    (x * x).sum().backward()
    first = x.grad
    (x * 3).sum().backward()
    assert x.grad is first
    assert x.grad.tolist() == [5, 7]


def test_leaves_do_not_share_gradients() -> None:
    a, b, seed = leaf(1, 1), leaf(1, 1), torch.ones(2)
    (a + b).backward(seed)
    assert len({a.grad.data_ptr(), b.grad.data_ptr(), seed.data_ptr()}) == 3
    m = torch.ones(2, 2, requires_grad=True)
    n = torch.ones(4, requires_grad=True)
    (m.view(4) + n).sum().backward()
    m.grad.zero_()
    assert n.grad.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (lambda x: torch.ones(2).sum().backward(), "element 0 of tensors does not require grad"),
        (lambda x: (x * 2).backward(), "grad can be implicitly created only for scalar outputs"),
        (lambda x: x.add_(1), "a leaf Variable that requires grad is being used in an in-place"),
        (lambda x: x[0].add_(1), "a view of a leaf Variable that requires grad"),
        (lambda x: x.__setitem__(0, 1.0), "a view of a leaf Variable that requires grad"),
        (lambda x: torch.add(x, 1, out=torch.empty(2)), "don't support automatic differentiation"),
        (lambda x: (x * 1).unbind()[0].add_(1), "is a view and is being modified inplace"),
        (
            lambda x: (x * 2).requires_grad_(False),
            "you can only change requires_grad flags of leaf",
        ),
        (lambda x: x.numpy(), r"Can't call numpy\(\) on Tensor that requires grad"),
        (lambda x: x.sum().backward(torch.ones(2)), "Mismatch in shape: grad_output"),
        (lambda x: torch.autograd.grad(x.sum(), leaf(1)), "appears to not have been used in the"),
        (lambda x: torch.autograd.grad(x.sum(), torch.ones(1)), "does not require grad"),
        (lambda x: x.sum().backward(inputs=[]), "cannot be empty"),
        (lambda x: torch.ones(2).register_hook(print), "cannot register a hook on a tensor that"),
        (lambda x: torch.ones(2).retain_grad(), "can't retain_grad on Tensor that has requires"),
        (lambda x: setattr(x, "grad", torch.ones(3)), "assigned grad has data of a different size"),
    ],
)
def test_errors(run: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        run(leaf(1, 2))


def test_a_graph_serves_once() -> None:
    x = leaf(1, 2)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()
    assert x.grad.tolist() == [4, 8]


def test_saved_tensors_are_checked() -> None:
    x = leaf(1, 2)
    y = x * 1
    z = (y * y).sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_modes() -> None:
    x = leaf(1)
    with torch.no_grad():
        assert not (x * 2).requires_grad
        with torch.enable_grad():
            assert (x * 2).requires_grad
        x.mul_(2)
    with torch.inference_mode():
        assert torch.is_inference_mode_enabled()
        assert not (x * 2).requires_grad
    torch.set_grad_enabled(False)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
    thread.start()
    thread.join()
    torch.set_grad_enabled(True)
    assert seen == [True]


def test_hooks() -> None:
    x = leaf(1, 2)
    seen: list[Any] = []
    handle = x.register_hook(lambda grad: grad * 10)
    y = x * 2
    y.register_hook(lambda grad: seen.append(grad.tolist()))
    y.retain_grad()
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(len(inputs)))
    y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 3,))
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    y.sum().backward()
    assert seen == [[1, 1], 1, [60, 60]]
    assert y.grad.tolist() == [3, 3]
    handle.remove()
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_inputs_and_unused() -> None:
    x, w = leaf(1, 2), leaf(3, 4)
    y = x * w
    y.sum().backward(inputs=[w], retain_graph=True)
    assert x.grad is None
    assert w.grad.tolist() == [1, 2]
    assert torch.autograd.grad(y.sum(), [x, leaf(1)], allow_unused=True)[1] is None
    found = torch.autograd.grad((x * 2).sum(), [x, w], materialize_grads=True)
    assert [one.tolist() for one in found] == [[2, 2], [0, 0]]
    z = x * 2
    (inner,) = torch.autograd.grad((z * z).sum(), z)
    assert inner.tolist() == [4, 8]


def test_higher_derivatives() -> None:
    x = leaf(2)
    (first,) = torch.autograd.grad(x**4, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x, create_graph=True)
    (third,) = torch.autograd.grad(second, x)
    assert (first.item(), second.item(), third.item()) == (32, 48, 48)
    square = torch.tensor([1.0, 2.0])
    assert torch.autograd.functional.hessian(lambda t: (t**3).sum(), square).tolist() == [
        [6, 0],
        [0, 12],
    ]


def test_deep_graphs() -> None:
    x = leaf(1)
    y = x
    for _ in range(5000):
        y = y + 1
    y.backward()
    del y
    assert x.grad.tolist() == [1]


def test_no_cycles() -> None:
    x = leaf(1)
    gc.disable()
    try:
        y = x.exp() * 2
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None
    finally:
        gc.enable()


def test_dtypes_and_broadcasts() -> None:
    x = torch.ones(2, 1, dtype=torch.float32, requires_grad=True)
    y = torch.ones(3, dtype=torch.float64, requires_grad=True)
    (x * y).sum().backward()
    assert x.grad.dtype == torch.float32
    assert x.grad.tolist() == [[3], [3]]
    assert y.grad.tolist() == [2, 2, 2]


class Scale(torch.autograd.Function):
    """Multiplies by a number; also says where the result is positive."""

    @staticmethod
    def forward(ctx: Any, x: Any, by: float) -> Any:
        ctx.save_for_backward(x)
        ctx.by = by
        flags = x > 0
        ctx.mark_non_differentiable(flags)
        return x * by, flags

    @staticmethod
    def backward(ctx: Any, grad: Any, _: Any) -> Any:
        assert ctx.saved_tensors[0].shape == grad.shape
        assert ctx.needs_input_grad == (True, False)
        return grad * ctx.by, None


def test_functions() -> None:
    x = leaf(1, -2)
    scaled, flags = Scale.apply(x, 3.0)
    assert scaled.grad_fn.name() == "ScaleBackward"
    assert not flags.requires_grad
    scaled.sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_functions_in_place_and_once() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    x = leaf(1)
    y = x * 1
    assert Twice.apply(y) is y
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    assert first.item() == 2
    z = Twice.apply(x * x) ** 2
    (first,) = torch.autograd.grad(z, x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.backward()


def test_setup_context_and_undefined_gradients() -> None:
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2, x * 3

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any) -> Any:
            assert second is None
            return first * 2

    x = leaf(1)
    Both.apply(x)[0].backward()
    assert x.grad.tolist() == [2]


def test_saved_tensor_hooks() -> None:
    x = leaf(1, 2)
    kept: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.append(t) or len(kept) - 1, lambda number: kept[number] * 10
    ):
        y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [20, 40]


def test_save_on_cpu(gpu: Any) -> None:
    x = leaf(1, 2, device="cuda")
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [2, 4]


def test_backward_runs_on_the_streams_of_the_forward(gpu: Any, schedule: Any) -> None:
    side = torch.cuda.Stream()
    x = torch.ones(1000, device="cuda", requires_grad=True)
    side.wait_stream(torch.cuda.current_stream())
    seen = []

    class Mark(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a * 3

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            seen.append(torch.cuda.current_stream())
            return grad * 3

    with torch.cuda.stream(side):
        y = Mark.apply(x * 2)
    torch.cuda.current_stream().wait_stream(side)
    (y * y).sum().backward()
    assert seen == [side]
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert x.grad.sum().item() == 1000 * 2 * 36


def test_across_devices(gpus: Any) -> None:
    gpus(2)
    x = torch.ones(3, device="cuda:0", requires_grad=True)
    y = x.to("cuda:1") * torch.full((3,), 2.0, device="cuda:1")
    y.sum().backward()
    assert x.grad.device == torch.device("cuda:0")
    assert x.grad.tolist() == [2, 2, 2]


def test_whole_steps_in_a_graph(gpu: Any) -> None:
    w = torch.ones(4, 4, device="cuda", requires_grad=True)
    x = torch.ones(2, 4, device="cuda")

    def step() -> torch.Tensor:
        w.grad = None
        loss = (x @ w).tanh().sum()
        loss.backward()
        with torch.no_grad():
            w.sub_(w.grad, alpha=0.1)
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    start = w.detach().clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(3):
        graph.replay()
    replayed = w.detach().clone()
    with torch.no_grad():
        w.copy_(start)
    for _ in range(3):
        step()
    assert torch.equal(w, replayed)


def test_nodes_from_before_a_capture(gpu: Any) -> None:
    x = torch.ones(4, device="cuda", requires_grad=True)
    y = x * 2
    graph = torch.cuda.CUDAGraph()
    with (
        pytest.raises(RuntimeError, match="stale reference to the default stream"),
        torch.cuda.graph(graph),
    ):
        (y * 2).sum().backward()


def test_nodes_from_before_a_capture_can_be_redirected(gpu: Any) -> None:
    x = torch.ones(4, device="cuda", requires_grad=True)
    y = x * 2
    graph = torch.cuda.CUDAGraph()
    torch.autograd.graph.set_override_stale_capture_stream(True)
    try:
        with torch.cuda.graph(graph):
            (found,) = torch.autograd.grad((y * 3).sum(), x)
    finally:
        torch.autograd.graph.set_override_stale_capture_stream(False)
    graph.replay()
    assert found.tolist() == [6, 6, 6, 6]


def test_passes_in_several_threads() -> None:
    leaves = [leaf(1, 2, 3) for _ in range(4)]

    def work(x: torch.Tensor) -> None:
        for _ in range(20):
            (x * x).sum().backward()

    threads = [threading.Thread(target=work, args=(x,)) for x in leaves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [x.grad.tolist() for x in leaves] == [[40, 80, 120]] * 4
