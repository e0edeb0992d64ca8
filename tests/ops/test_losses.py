# SPDX-License-Identifier: Apache-2.0
"""Losses against NumPy: every option, forward and backward."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.nn import functional as F  # noqa: N812
from flambeau.ops import losses
from flambeau.ops.pointwise_losses import LOSSES, forward, slope
from ops.cases import array_of, tensor_of

SHAPES = [(10,), (6, 50), (3, 5, 4, 2), (2, 3001), (2, 40001)]
IGNORED = 2


def log_probabilities(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    shifted = x - x.max(1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))


class Case:
    """Scores and targets as rows in float64, and the loss by its definition."""

    def __init__(self, shape: tuple[int, ...], weighted: bool, smoothing: float) -> None:
        random = np.random.default_rng(len(shape))
        self.dim = min(1, len(shape) - 1)
        self.shape, self.smoothing = shape, smoothing
        classes = shape[self.dim]
        self.x = random.normal(0, 2, shape).astype(np.float32)
        self.target_shape = (*shape[: self.dim], *shape[self.dim + 1 :])
        t = random.integers(0, classes, self.target_shape)
        if t.ndim:
            t.reshape(-1)[1] = IGNORED
        self.t = np.asarray(t, np.int64)
        self.weight = random.uniform(0.5, 2, classes).astype(np.float32) if weighted else None

    def rows(self) -> tuple[np.ndarray[Any, Any], ...]:
        x = np.moveaxis(self.x, self.dim, -1).reshape(-1, self.shape[self.dim]).astype(np.float64)
        t = self.t.reshape(-1)
        share = np.ones(x.shape[1]) if self.weight is None else self.weight.astype(np.float64)
        counts = t != IGNORED
        return x, np.where(counts, t, 0), share, counts

    def cross_entropy(self) -> tuple[np.ndarray[Any, Any], ...]:
        """Losses, their divisor, and the gradient of their sum for a gradient of each."""
        x, t, share, counts = self.rows()
        logs, at, n = log_probabilities(x), np.arange(len(x)), x.shape[1]
        weights = share[t] * counts
        sharp = -logs[at, t] * weights
        spread = -(share * logs).sum(1) / n * counts
        loss = (1 - self.smoothing) * sharp + self.smoothing * spread
        pull = self.smoothing / n * share * counts[:, None]
        pull[at, t] += (1 - self.smoothing) * weights
        return loss, weights.sum(), np.exp(logs) * pull.sum(1, keepdims=True) - pull

    def back(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        moved = (*self.shape[: self.dim], *self.shape[self.dim + 1 :], self.shape[self.dim])
        return np.moveaxis(rows.reshape(moved), -1, self.dim)


def reduced(loss: np.ndarray[Any, Any], divisor: Any, reduction: str, shape: Any) -> Any:
    if reduction == "none":
        return loss.reshape(shape)
    return loss.sum() / (divisor if reduction == "mean" else 1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cross_entropy(shape: tuple[int, ...], gpu: Any) -> None:
    for smoothing, weighted, reduction in product((0.0, 0.2), (False, True), losses.REDUCTIONS):
        case = Case(shape, weighted, smoothing)
        loss, divisor, pull = case.cross_entropy()
        expected = reduced(loss, divisor, reduction, case.target_shape)
        g = np.random.default_rng(0).normal(0, 1, np.shape(expected)).astype(np.float32)
        each = np.reshape(g, (-1, 1)) / (divisor if reduction == "mean" else 1)
        for device in (gpu, "cpu"):
            x, t = tensor_of(case.x, device), tensor_of(case.t, device)
            w = None if case.weight is None else tensor_of(case.weight, device)
            made = losses.cross_entropy(x, t, w, reduction, IGNORED, smoothing)
            np.testing.assert_allclose(array_of(made.loss), expected, rtol=1e-4, atol=1e-5)
            found = losses.cross_entropy_backward(
                tensor_of(np.asarray(g), device), x, t, w, made, IGNORED, smoothing
            )
            np.testing.assert_allclose(
                array_of(found), case.back(pull * each), rtol=1e-3, atol=1e-5
            )


@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_nll(shape: tuple[int, ...], gpu: Any) -> None:
    for weighted, reduction in product((False, True), losses.REDUCTIONS):
        case = Case(shape, weighted, 0.0)
        x, t, share, counts = case.rows()
        at, weights = np.arange(len(x)), share[t] * counts
        expected = reduced(-x[at, t] * weights, weights.sum(), reduction, case.target_shape)
        g = np.random.default_rng(0).normal(0, 1, np.shape(expected)).astype(np.float32)
        pull = np.zeros_like(x)
        divisor = weights.sum() if reduction == "mean" else 1
        pull[at, t] = -weights * np.reshape(g, -1) / divisor
        for device in (gpu, "cpu"):
            tx, tt = tensor_of(case.x, device), tensor_of(case.t, device)
            w = None if case.weight is None else tensor_of(case.weight, device)
            made = losses.nll(tx, tt, w, reduction, IGNORED)
            np.testing.assert_allclose(array_of(made.loss), expected, rtol=1e-5, atol=1e-6)
            found = losses.nll_backward(tensor_of(np.asarray(g), device), tx, tt, made, IGNORED)
            np.testing.assert_allclose(array_of(found), case.back(pull), rtol=1e-5, atol=1e-7)


def test_halves_and_probabilities(gpu: Any) -> None:
    x = tensor_of(np.random.default_rng(0).normal(0, 1, (4, 10)), gpu)
    t = torch.tensor([1, 2, 3, 9], device=gpu)
    sure = torch.nn.functional.one_hot(t, 10).double()
    exact = F.cross_entropy(x, t).item()
    assert F.cross_entropy(x, sure).item() == pytest.approx(exact, rel=1e-12)
    smooth = F.cross_entropy(x, t, label_smoothing=0.1).item()
    assert F.cross_entropy(x, sure, label_smoothing=0.1).item() == pytest.approx(smooth, rel=1e-9)
    half = F.cross_entropy(x.half(), t)
    assert half.dtype == torch.float16
    assert half.item() == pytest.approx(exact, rel=2e-3)
    assert np.isnan(F.cross_entropy(x[:0], t[:0]).item())


def test_refusals(gpu: Any) -> None:
    x, t = torch.zeros(4, 10, device=gpu), torch.zeros(4, dtype=torch.int64, device=gpu)
    with pytest.raises(ValueError, match="to match target batch_size"):
        F.cross_entropy(x, t[:3])
    with pytest.raises(RuntimeError, match="weight tensor should be defined either for all"):
        F.cross_entropy(x, t, torch.ones(3, device=gpu))
    with pytest.raises(ValueError, match="is not a valid value for reduction"):
        F.cross_entropy(x, t, reduction="all")
    with pytest.raises(RuntimeError, match="label_smoothing must be between"):
        F.cross_entropy(x, t, label_smoothing=2.0)
    with pytest.raises(RuntimeError, match="expected target of class numbers"):
        F.nll_loss(x, t.int())
    with pytest.raises(IndexError, match="Target 10 is out of bounds"):
        F.cross_entropy(x.cpu(), t.cpu() + 10)
    with pytest.warns(UserWarning, match="size_average and reduce args"):
        assert F.cross_entropy(x, t, size_average=False).item() == pytest.approx(4 * np.log(10))


NUMBERS: dict[str, tuple[float, ...]] = {"smooth_l1": (0.7,)}


@pytest.mark.parametrize("name", LOSSES)
def test_pointwise(name: str, gpu: Any) -> None:
    """Host and device agree, and the derivative is that of the function."""
    random = np.random.default_rng(0)
    a, b, c = (random.uniform(0.05, 0.95, 200) for _ in range(3))
    if not name.startswith("bce"):
        a = a * 4 - 2
    numbers = NUMBERS.get(name, ())
    values = []
    for device in (gpu, "cpu"):
        x, y, g = (tensor_of(v, device) for v in (a, b, c))
        values.append(array_of(forward(name, x, y, *numbers)))
        step = 1e-6
        numeric = (forward(name, x + step, y, *numbers) - forward(name, x - step, y, *numbers)) / (
            2 * step
        )
        found = array_of(slope(name, g, x, y, *numbers))
        np.testing.assert_allclose(found, array_of(numeric) * c, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(*values, rtol=1e-12)


def test_values(gpu: Any) -> None:
    """Figures that follow from the definitions."""
    x, y = torch.tensor([0.0, 2.0], device=gpu), torch.tensor([0.5, 0.0], device=gpu)
    assert F.mse_loss(x, y).item() == 2.125
    assert F.l1_loss(x, y, reduction="sum").item() == 2.5
    assert F.smooth_l1_loss(x, y, reduction="none").tolist() == [0.125, 1.5]
    assert F.huber_loss(x, y, "none", 0.5).tolist() == [0.125, 0.875]
    half = torch.tensor([0.5], device=gpu)
    assert F.binary_cross_entropy(half, half).item() == pytest.approx(np.log(2))
    assert F.binary_cross_entropy_with_logits(half * 0, half).item() == pytest.approx(np.log(2))
    weighted = F.binary_cross_entropy_with_logits(half * 0, half, pos_weight=half * 6)
    assert weighted.item() == pytest.approx(2 * np.log(2))
    assert F.kl_div(half.log(), half, reduction="batchmean").item() == pytest.approx(0)
    with pytest.warns(UserWarning, match="Using a target size"):
        F.mse_loss(x, y[:1])
