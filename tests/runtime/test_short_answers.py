# SPDX-License-Identifier: Apache-2.0
"""Frequent forms of calls are answered without a Python frame, as the whole function would."""

import inspect
import threading

import pytest

import flambeau as torch


def same(short, whole):
    assert type(short) is type(whole)
    assert (short.shape, short.dtype, short.device) == (whole.shape, whole.dtype, whole.device)
    assert torch.equal(short, whole)


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_answers_are_those_of_the_whole_function(where, gpu):
    x = torch.tensor([[-1.5, 2.0, 3.0], [4.0, -5.0, 6.0]], device=where)
    y = torch.tensor([1.0, 2.0, 3.0], device=where)
    same(x.relu(), torch.relu(input=x))
    same(torch.add(x, y), torch.add(x, other=y))
    same(torch.sub(x, 2), torch.sub(x, other=2))
    same(x.mul(y), torch.mul(x, other=y))
    same(x.sum(), torch.sum(x, dim=None))
    same(x.to(torch.int32).sum(), torch.sum(x.to(torch.int32), dim=None))
    same((x > 0).sum(), torch.sum(x > 0, dim=None))
    same(x.t().sum(), torch.sum(x.t(), dim=None))
    same(x.view(3, -1), x.view((3, -1)))
    same(x.reshape(1, 2, 1, 3), x.reshape((1, 2, 1, 3)))
    same(x.t().reshape(2, 3), x.t().reshape((2, 3)))
    assert x.view(6)._is_view()


def test_in_place_forms_write_into_their_tensor(gpu):
    x = torch.tensor([-1.0, 2.0], device=gpu)
    before = x._version
    assert x.relu_() is x
    assert x.add_(1) is x
    assert x.sub_(torch.ones(2, device=gpu)) is x
    assert x.mul_(3) is x
    assert x.tolist() == [0.0, 6.0]
    assert x._version > before


def test_what_does_not_fit_gets_the_errors_of_the_whole_function(gpu):
    x = torch.ones(2, 3, device=gpu)
    for call in (
        lambda: torch.relu("x"),
        lambda: torch.relu(x, x),
        torch.relu,
        lambda: torch.add(x, "x"),
        lambda: x.add_(None),
        lambda: x.sum("x"),
        lambda: x.view("x", 2),
    ):
        with pytest.raises(TypeError):
            call()
    for call in (
        lambda: x.add_(torch.ones(4, 2, 3, device=gpu)),
        lambda: torch.add(x, torch.ones(2, device=gpu)),
        lambda: x.view(4, 2),
        lambda: x.t().view(2, 3),
        lambda: x.reshape(-1, -1),
    ):
        with pytest.raises(RuntimeError):
            call()


def test_subclasses_and_gradients_are_not_lost(gpu):
    class Mine(torch.Tensor):
        pass

    mine = torch.ones(2, 3, device=gpu).as_subclass(Mine)
    for result in (mine.relu(), mine.add(1), mine.sum(), mine.view(3, 2), mine.reshape(6)):
        assert type(result) is Mine
    x = torch.ones(2, 3, device=gpu, requires_grad=True)
    (x.view(3, 2).relu().reshape(6).mul(2).add(1).sub(x.view(6)).sum()).backward()
    assert x.grad.tolist() == [[1.0] * 3] * 2
    # A view made before its base takes part.
    base = torch.ones(4, device=gpu)
    part = base.view(2, 2)
    base.mul_(torch.ones(4, device=gpu, requires_grad=True))
    assert part.relu().requires_grad
    assert part.view(4).requires_grad


def test_autocast_of_one_thread_is_not_anothers(gpu):
    x = torch.ones(2, 2, device=gpu)
    found = []
    with torch.autocast("cuda"):
        thread = threading.Thread(target=lambda: found.append((x @ x).dtype))
        thread.start()
        thread.join()
        inside = (x @ x).dtype, x.half().sum().dtype, x.half().relu().dtype
    assert found == [torch.float32]
    assert inside == (torch.float16, torch.float32, torch.float16)
    assert (x @ x).dtype == torch.float32


def test_signatures_and_documentation_stay():
    assert list(inspect.signature(torch.relu).parameters) == ["input", "out"]
    assert list(inspect.signature(torch.sum).parameters)[:3] == ["input", "dim", "keepdim"]
    assert list(inspect.signature(torch.rand).parameters)[:3] == ["shape", "size", "generator"]
    assert torch.rand.__doc__.lstrip().startswith("Draw numbers")
    assert torch.randn.__name__ == "randn"


def test_random_factories_draw_the_same_numbers_in_either_form(gpu):
    for make in (torch.rand, torch.randn):
        for options in ({}, {"dtype": torch.float64}, {"dtype": torch.complex64}):
            torch.cuda.manual_seed(7)
            short = make(5, device=gpu, **options)
            torch.cuda.manual_seed(7)
            same(short, make((5,), device=gpu, **options))
    torch.manual_seed(7)
    short = torch.rand(5)
    torch.manual_seed(7)
    same(short, torch.rand(size=(5,)))
    with pytest.raises(NotImplementedError, match="not implemented for 'Int'"):
        torch.rand(5, dtype=torch.int32, device=gpu)
    with pytest.raises(RuntimeError, match="negative"):
        torch.rand(-1, device=gpu)
    assert torch.rand(3, device=gpu, requires_grad=True).requires_grad
