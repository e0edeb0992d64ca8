# SPDX-License-Identifier: Apache-2.0
"""Regions in which operations choose their precision."""

import threading
from typing import Any

import pytest

import flambeau as torch
from flambeau.amp import autocast_mode


def matrices() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    return (
        torch.randn(4, 4, device="cuda", requires_grad=True),
        torch.randn(2, 4, device="cuda"),
    )


def test_which_dtype(gpu: Any) -> None:
    w, x = matrices()
    target = torch.tensor([1, 2], device="cuda")
    functional = torch.nn.functional
    with torch.autocast("cuda"):
        y = x @ w
        lower = (y, torch.mm(x, w), functional.linear(x, w), y + y, y.relu())
        wide = (
            y.exp(), y.sum(), y**2, y.softmax(0), y.log_softmax(1), y.norm(),
            functional.layer_norm(y, (4,)), functional.cross_entropy(y, target),
            torch.cat([y, x]), torch.addcmul(y, x, y), y + x,
        )  # fmt: skip
        double = (x.double() @ w.double(), x.long() + 1)
    assert {t.dtype for t in lower} == {torch.float16}
    assert {t.dtype for t in wide} == {torch.float32}
    assert [t.dtype for t in double] == [torch.float64, torch.int64]
    assert (x @ w).dtype == torch.float32
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x @ w).dtype == torch.bfloat16
    with torch.autocast("cpu"):
        assert (x @ w).dtype == torch.float32
        assert (x.cpu() @ w.cpu()).dtype == torch.bfloat16


def test_values_and_gradients(gpu: Any) -> None:
    w, x = matrices()
    with torch.autocast("cuda"):
        loss = ((x @ w).tanh() ** 2).sum()
    loss.backward()
    by_hand = w.detach().clone().requires_grad_()
    ((x.half() @ by_hand.half()).tanh().float() ** 2).sum().backward()
    assert w.grad.dtype == torch.float32
    assert torch.equal(w.grad, by_hand.grad)


def test_nesting_state_and_threads(gpu: Any) -> None:
    w, x = matrices()
    with torch.autocast("cuda", cache_enabled=False):
        assert torch.is_autocast_enabled()
        assert torch.is_autocast_enabled("cuda")
        assert not torch.is_autocast_enabled("cpu")
        assert not torch.is_autocast_cache_enabled()
        with torch.autocast("cuda", enabled=False):
            assert not torch.is_autocast_enabled()
            assert (x @ w).dtype == torch.float32
        assert (x @ w).dtype == torch.float16
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.is_autocast_enabled()))
        thread.start()
        thread.join()
        assert seen == [False]
    assert not torch.is_autocast_enabled()
    assert torch.is_autocast_cache_enabled()
    assert torch.get_autocast_dtype("cuda") == torch.float16
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        with torch.amp.autocast("cuda"):
            assert (x @ w).dtype == torch.bfloat16
    finally:
        torch.set_autocast_dtype("cuda", torch.float16)


def test_casts_of_parameters_are_kept(gpu: Any) -> None:
    w, x = matrices()
    cache = autocast_mode._state.cache
    with torch.autocast("cuda"):
        with torch.autocast("cuda"):
            first = x @ w
        assert len(cache) == 1
        second = x @ w
        assert len(cache) == 1
    assert not cache
    assert torch.equal(first, second)
    (first.sum() + second.sum()).backward()
    assert torch.equal(w.grad, (2 * x.half().sum(0)).float().unsqueeze(1).expand(4, 4))


def test_as_a_decorator(gpu: Any) -> None:
    w, x = matrices()

    @torch.autocast("cuda")
    def product(a: Any, b: Any) -> Any:
        """Multiply."""
        return a @ b

    assert product(x, w).dtype == torch.float16
    assert product.__doc__ == "Multiply."


@pytest.mark.parametrize("cast_inputs", [None, torch.float32])
def test_functions(gpu: Any, cast_inputs: Any) -> None:
    seen: list[Any] = []

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=cast_inputs)
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            seen.append(torch.is_autocast_enabled())
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx: Any, grad: Any) -> Any:
            a, b = ctx.saved_tensors
            seen.append(torch.is_autocast_enabled())
            return grad @ b.t(), a.t() @ grad

    w, x = matrices()
    with torch.autocast("cuda"):
        y = Product.apply(x.half(), w)
    y.sum().backward()
    plain = cast_inputs is not None
    assert seen == [not plain, not plain]
    assert y.dtype == (torch.float32 if plain else torch.float16)
    assert w.grad.dtype == torch.float32


def test_older_names(gpu: Any) -> None:
    w, x = matrices()
    with pytest.warns(FutureWarning, match=r"torch.cuda.amp.autocast\(args...\)"):
        region = torch.cuda.amp.autocast()
    with region:
        assert (x @ w).dtype == torch.float16
    with pytest.warns(FutureWarning, match="custom_fwd"):
        torch.cuda.amp.custom_fwd(lambda ctx: None)
    with pytest.warns(FutureWarning, match="custom_bwd"):
        torch.cuda.amp.custom_bwd(lambda ctx: None)


def test_what_is_refused() -> None:
    with pytest.raises(RuntimeError, match="unsupported autocast device_type"):
        torch.autocast("abacus")
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        torch.autocast(3)
    with pytest.warns(UserWarning, match="target dtype is not supported. Disabling autocast"):
        torch.autocast("cuda", dtype=torch.int32)
    assert torch.amp.is_autocast_available("cuda")
    assert not torch.amp.is_autocast_available("abacus")


def test_scaled_steps(gpu: Any) -> None:
    w = torch.ones(2, 2, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.5)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    x = torch.ones(2, 2, device="cuda")
    with torch.autocast("cuda"):
        loss = (x @ w).sum()
    scaler.scale(loss).backward()
    assert w.grad.tolist() == [[2048, 2048], [2048, 2048]]
    scaler.unscale_(optimizer)
    assert w.grad.tolist() == [[2, 2], [2, 2]]
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [[0, 0], [0, 0]]
    optimizer.zero_grad()
    scaler.scale((w * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [[0, 0], [0, 0]]
    assert scaler.get_scale() == 512
