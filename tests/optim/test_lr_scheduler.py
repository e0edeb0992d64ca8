# SPDX-License-Identifier: Apache-2.0
"""Schedules of learning rates against their closed forms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from flambeau import nn, optim
from flambeau.optim import lr_scheduler as lr

if TYPE_CHECKING:
    from collections.abc import Callable

BASE, EPOCHS = 0.1, 14


def optimizer() -> optim.SGD:
    return optim.SGD([nn.Parameter(torch.ones(1))], lr=BASE)


def rates(make: Callable[[Any], Any]) -> list[float]:
    """The rate of each epoch, the first included."""
    of = optimizer()
    schedule = make(of)
    found = [of.param_groups[0]["lr"]]
    for _ in range(EPOCHS - 1):
        of.step()
        schedule.step()
        found.append(of.param_groups[0]["lr"])
        assert schedule.get_last_lr() == [found[-1]]
    return found


def cosine(t: int) -> float:
    return 0.01 + (BASE - 0.01) * (1 + math.cos(math.pi * t / 4)) / 2


CASES: list[tuple[Callable[[Any], Any], Callable[[int], float]]] = [
    (lambda o: lr.StepLR(o, 3), lambda t: BASE * 0.1 ** (t // 3)),
    (lambda o: lr.MultiStepLR(o, [2, 5, 5]), lambda t: BASE * 0.1 ** ((t >= 2) + 2 * (t >= 5))),
    (lambda o: lr.LambdaLR(o, lambda t: 0.9**t), lambda t: BASE * 0.9**t),
    (lambda o: lr.MultiplicativeLR(o, lambda t: 0.9), lambda t: BASE * 0.9**t),
    (lambda o: lr.ExponentialLR(o, 0.8), lambda t: BASE * 0.8**t),
    (lambda o: lr.ConstantLR(o, 0.5, 4), lambda t: BASE * (0.5 if t < 4 else 1)),
    (lambda o: lr.LinearLR(o, 0.2, 0.9, 7), lambda t: BASE * (0.2 + 0.7 * min(t, 7) / 7)),
    (lambda o: lr.PolynomialLR(o, 8, 2.0), lambda t: BASE * (1 - min(t, 8) / 8) ** 2),
    (lambda o: lr.CosineAnnealingLR(o, 4, 0.01), cosine),
    (
        lambda o: lr.SequentialLR(
            o, [lr.LinearLR(o, 0.1, total_iters=3), lr.CosineAnnealingLR(o, 4, 0.01)], [3]
        ),
        lambda t: BASE * (0.1 + 0.3 * t) if t < 3 else cosine(t - 3),
    ),
]


@pytest.mark.parametrize(("make", "closed"), CASES)
def test_closed_forms(make: Any, closed: Any) -> None:
    assert rates(make) == pytest.approx([closed(t) for t in range(EPOCHS)], abs=1e-12)


def test_state_dict() -> None:
    one = lr.CosineAnnealingLR(optimizer(), 10)
    for _ in range(3):
        one.optimizer.step()
        one.step()
    two = lr.CosineAnnealingLR(optimizer(), 5)
    two.load_state_dict(one.state_dict())
    two.optimizer.load_state_dict(one.optimizer.state_dict())
    for each in (one, two):
        each.optimizer.step()
        each.step()
    assert one.get_last_lr() == two.get_last_lr()
    assert "optimizer" not in one.state_dict()


def test_a_tensor_keeps_its_memory() -> None:
    rate = torch.tensor(0.5)
    of = optim.SGD([nn.Parameter(torch.ones(1))], lr=rate)
    schedule = lr.StepLR(of, 1, 0.5)
    of.step()
    schedule.step()
    assert of.param_groups[0]["lr"] is rate
    assert rate.item() == 0.25


def test_plateau() -> None:
    of = optimizer()
    schedule = lr.ReduceLROnPlateau(of, patience=1, factor=0.5, cooldown=1)
    found = []
    for figure in (1.0, 0.9, 0.95, 0.96, 0.97, 0.98, 0.5):
        schedule.step(torch.tensor(figure))
        found.append(of.param_groups[0]["lr"])
    assert found == pytest.approx([0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05])
    again = lr.ReduceLROnPlateau(optimizer(), mode="max")
    again.load_state_dict(schedule.state_dict())
    assert again.best == 0.5
    with pytest.raises(ValueError, match="Factor should be"):
        lr.ReduceLROnPlateau(of, factor=1.0)


def test_refusals() -> None:
    with pytest.raises(TypeError, match="is not an Optimizer"):
        lr.StepLR([], 1)
    with pytest.raises(KeyError, match="'initial_lr' is not specified"):
        lr.StepLR(optimizer(), 1, last_epoch=3)
    with pytest.raises(ValueError, match="Expected 1 lr_lambdas, but got 2"):
        lr.LambdaLR(optimizer(), [abs, abs])
    schedule = lr.StepLR(optimizer(), 1)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        schedule.step()
