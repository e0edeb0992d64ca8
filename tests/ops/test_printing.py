# SPDX-License-Identifier: Apache-2.0
"""How tensors print, letter by letter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch

if TYPE_CHECKING:
    from collections.abc import Iterator

INF, NAN = float("inf"), float("nan")
EXPECTED = [
    (lambda: torch.tensor([1.0, 2.0]), "tensor([1., 2.])"),
    (lambda: torch.tensor([1, -20]), "tensor([  1, -20])"),
    (lambda: torch.tensor(3), "tensor(3)"),
    (lambda: torch.tensor(3.5), "tensor(3.5000)"),
    (lambda: torch.tensor(NAN), "tensor(nan)"),
    (lambda: torch.tensor([True, False]), "tensor([ True, False])"),
    (lambda: torch.tensor([]), "tensor([])"),
    (lambda: torch.zeros(2, 0), "tensor([], size=(2, 0))"),
    (lambda: torch.zeros(0, dtype=torch.int64), "tensor([], dtype=torch.int64)"),
    (lambda: torch.tensor([1.5, NAN, INF, -INF]), "tensor([1.5000,    nan,    inf,   -inf])"),
    (lambda: torch.tensor([INF, 1.0]), "tensor([inf, 1.])"),
    (lambda: torch.tensor([1e-5, 1.0]), "tensor([1.0000e-05, 1.0000e+00])"),
    (lambda: torch.tensor([1e9]), "tensor([1.0000e+09])"),
    (lambda: torch.tensor([1.0, 2000.0]), "tensor([1.0000e+00, 2.0000e+03])"),
    (lambda: torch.tensor([0.1, 0.25, 10.0]), "tensor([ 0.1000,  0.2500, 10.0000])"),
    (lambda: torch.tensor([1.0]).half(), "tensor([1.], dtype=torch.float16)"),
    (lambda: torch.tensor([1], dtype=torch.int8), "tensor([1], dtype=torch.int8)"),
    (lambda: torch.ones(1, requires_grad=True), "tensor([1.], requires_grad=True)"),
    (lambda: torch.tensor([[1, 2], [3, 4]]), "tensor([[1, 2],\n        [3, 4]])"),
    (lambda: torch.zeros(2, 1, 1), "tensor([[[0.]],\n\n        [[0.]]])"),
    (lambda: torch.arange(2000), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"),
    (lambda: torch.tensor([1 + 2j, -0.5j]), "tensor([1.+2.0000j, -0.-0.5000j])"),
    (
        lambda: torch.arange(30),
        "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
        "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])",
    ),
    (
        lambda: torch.zeros(1001, 1, dtype=torch.int8),
        "tensor([[0],\n        [0],\n        [0],\n        ...,\n        [0],\n        [0],\n"
        "        [0]], dtype=torch.int8)",
    ),
]


@pytest.fixture(autouse=True)
def _default_options() -> Iterator[None]:
    yield
    torch.set_printoptions(profile="default")


@pytest.mark.parametrize("case", EXPECTED, ids=lambda case: case[1][:40])
def test_text(case: Any) -> None:
    make, text = case
    assert repr(make()) == text
    assert str(make()) == text


def test_device_is_named(gpu: Any) -> None:
    x = torch.tensor([1.0, 2.0], device=gpu)
    assert repr(x) == "tensor([1., 2.], device='cuda:0')"
    assert repr(x.half()) == "tensor([1., 2.], device='cuda:0', dtype=torch.float16)"
    assert repr(torch.zeros(0, 3, device=gpu)) == "tensor([], device='cuda:0', size=(0, 3))"
    assert repr(x[0]) == "tensor(1., device='cuda:0')"


def test_abbreviations_are_the_same_on_a_device(gpu: Any) -> None:
    x = torch.arange(100_000, device=gpu).reshape(100, 1000)
    text = repr(x)
    assert "device='cuda:0'" in text
    assert " ".join(text.split()).replace(", device='cuda:0'", "") == " ".join(
        repr(x.cpu()).split()
    )


def test_options() -> None:
    torch.set_printoptions(precision=2)
    assert repr(torch.tensor([1.23456])) == "tensor([1.23])"
    torch.set_printoptions(sci_mode=True)
    assert repr(torch.tensor([1.5])) == "tensor([1.50e+00])"
    torch.set_printoptions(profile="default", threshold=4, edgeitems=1)
    assert repr(torch.arange(5)) == "tensor([0,  ..., 4])"
    torch.set_printoptions(profile="full")
    assert "..." not in repr(torch.arange(2000))
    with pytest.raises(ValueError, match="profile is one of"):
        torch.set_printoptions(profile="tiny")


def test_subclasses_and_formats(gpu: Any) -> None:
    class Named(torch.Tensor):
        pass

    assert repr(torch.ones(1).as_subclass(Named)) == "Named([1.])"
    x = torch.tensor(1.25, device=gpu)
    assert f"{x:.1f}" == "1.2"
    assert f"{torch.tensor(7):03d}" == "007"
    assert f"{torch.ones(1)}" == "tensor([1.])"
