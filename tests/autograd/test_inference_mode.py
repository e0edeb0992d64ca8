# SPDX-License-Identifier: Apache-2.0
"""Inference tensors: what is made inside `inference_mode`, and what can be done with it outside."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda":
        request.getfixturevalue("gpu")
    return str(request.param)


@pytest.fixture
def made(device: str) -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(3, device=device)


@pytest.fixture
def normal(device: str) -> torch.Tensor:
    return torch.ones(3, device=device)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.ones(3, device=x.device),
        lambda x: torch.tensor([1.0], device=x.device),
        lambda x: x + 1,
        lambda x: x.clone(),
        lambda x: x.sum(),
        lambda x: x.double(),
        lambda x: torch.add(x, 1, out=torch.empty(3, device=x.device)),
        lambda x: torch.rand(3, device=x.device),
        lambda x: torch.stack([x, x]),
    ],
)
def test_what_is_made_inside(normal: torch.Tensor, make: Callable[[Any], Any]) -> None:
    with torch.inference_mode():
        assert make(normal).is_inference()
    assert not make(normal).is_inference()


def test_views_go_with_what_they_are_of(made: torch.Tensor, normal: torch.Tensor) -> None:
    with torch.inference_mode():
        assert not normal[1:].is_inference()
        assert not normal.detach().is_inference()
        assert not normal.contiguous().is_inference()
        assert not torch.add(made, 1, out=normal).is_inference()
    for view in (made[1:], made.detach(), made.data, made.as_strided((2,), (1,))):
        assert view.is_inference()
    assert torch.is_inference(made)


def test_results_outside_are_like_any_other(made: torch.Tensor) -> None:
    for result in (made + 1, made.clone(), made.sum(), pickle.loads(pickle.dumps(made))):
        assert not result.is_inference()
        result.add_(1)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: x[1:].mul_(2),
        lambda x: x.__setitem__(0, 1.0),
        lambda x: x.fill_(1),
        lambda x: x.zero_(),
        lambda x: x.copy_(torch.zeros(3)),
        lambda x: x.uniform_(),
        lambda x: x.index_fill_(0, torch.zeros(1, dtype=torch.int64, device=x.device), 3.0),
        lambda x: torch.add(x, 1, out=x),
        lambda x: torch.cumsum(x, 0, out=x),
        lambda x: x.resize_(5),
        lambda x: x.set_(torch.zeros(1, device=x.device)),
    ],
)
def test_writing_outside_is_refused(made: torch.Tensor, write: Callable[[Any], Any]) -> None:
    for grad in (True, False):
        with (
            torch.set_grad_enabled(grad),
            pytest.raises(RuntimeError, match="Inplace update to inference tensor outside"),
        ):
            write(made)
    with torch.inference_mode():
        write(made)
        assert made.numel() != 3 or made.is_inference()


def test_the_mode_can_be_left_inside(made: torch.Tensor) -> None:
    with torch.inference_mode(), torch.inference_mode(False):
        assert torch.is_grad_enabled()
        assert not torch.ones(2).is_inference()
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            made.add_(1)
    with torch.inference_mode(), torch.enable_grad():
        assert not (torch.ones(2, requires_grad=True) * 2).requires_grad


def test_nobody_counts_its_writes(made: torch.Tensor, normal: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
        _ = made._version
    before = normal._version
    with torch.inference_mode():
        normal.add_(1)
    assert normal._version == before + 1


def test_it_cannot_be_kept_for_a_backward_pass(made: torch.Tensor) -> None:
    leaf = torch.ones(3, device=made.device, requires_grad=True)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        leaf * made
    with torch.no_grad():
        leaf * made
    (leaf + made).sum().backward()  # a sum keeps nothing
    (leaf * made.clone()).sum().backward()
    assert leaf.grad.tolist() == [2, 2, 2]

    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(y)
            return x * 1

    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        Kept.apply(leaf, made)


def test_gradients_cannot_be_asked_for_later(made: torch.Tensor) -> None:
    for ask in (made.requires_grad_, lambda: torch.nn.Parameter(made)):
        with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor"):
            ask()
    assert not made.requires_grad_(False).requires_grad
    with torch.inference_mode():
        made.requires_grad_()
        assert not (made * 2).requires_grad
    with pytest.raises(RuntimeError, match="cannot be saved for backward"):
        made * made


def test_views_made_where_nothing_is_recorded(device: str) -> None:
    leaf = torch.ones(3, device=device, requires_grad=True)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            view = leaf[1:]
            view.add_(1)
        with pytest.raises(RuntimeError, match="is being modified inplace"):
            view.add_(1)
        with pytest.raises(RuntimeError, match="is being modified inplace"):
            view.zero_()
    assert leaf.tolist() == [1, 3, 3]


def test_decorators() -> None:
    @torch.inference_mode()
    def called(x: Any) -> Any:
        return x + 1

    @torch.inference_mode
    def bare(x: Any) -> Any:
        return x + 1

    assert called(torch.ones(1)).is_inference()
    assert bare(torch.ones(1)).is_inference()
    assert not torch.is_inference_mode_enabled()
