# SPDX-License-Identifier: Apache-2.0
"""Losses of class numbers of host tensors through NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flambeau.ops import host
from flambeau.ops.host_softmax import log_softmax, values_of

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor


def _rows(x: host.Array, dim: int) -> host.Array:
    moved = np.moveaxis(x, dim, -1)
    return moved.reshape(-1, x.shape[dim])


def _unrows(rows: host.Array, shape: tuple[int, ...], dim: int) -> host.Array:
    moved = (*shape[:dim], *shape[dim + 1 :], shape[dim])
    return np.moveaxis(rows.reshape(moved), -1, dim)


def _targets(target: Tensor, classes: int, ignored: int) -> tuple[host.Array, host.Array]:
    """Class numbers, 0 in place of ignored ones, and which count."""
    numbers = host.array(target).reshape(-1).astype(np.int64)
    counts = numbers != ignored
    wrong = counts & ((numbers < 0) | (numbers >= classes))
    if wrong.any():
        raise IndexError(
            f"Target {numbers[wrong][0]} is out of bounds: there are {classes} classes"
        )
    return np.where(counts, numbers, 0), counts


def _shares(weight: Tensor | None, classes: int, of: np.dtype[np.generic]) -> host.Array:
    return np.ones(classes, of) if weight is None else values_of(weight).astype(of)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    dim: int,
    ignored: int,
    smoothing: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted losses, weights and logarithms of the sums, of each row."""
    x = _rows(values_of(input), dim)
    numbers, counts = _targets(target, x.shape[1], ignored)
    share = _shares(weight, x.shape[1], x.dtype)
    logs = log_softmax(x, 1)
    at = np.arange(len(x))
    weights = np.where(counts, share[numbers], 0).astype(x.dtype)
    sharp = -logs[at, numbers] * weights
    losses = sharp
    if smoothing:
        losses = (1 - smoothing) * sharp - smoothing / x.shape[1] * np.sum(share * logs, 1)
    losses = np.where(counts, losses, 0).astype(x.dtype)
    sums = x[at, numbers] - logs[at, numbers]
    shape = target.shape
    return (
        host.tensor_of(losses.reshape(shape)),
        host.tensor_of(weights.reshape(shape)),
        host.tensor_of(sums.reshape(shape)),
    )


def cross_entropy_backward(
    grad: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    weights: Tensor,
    total: Tensor | None,
    dim: int,
    ignored: int,
    smoothing: float,
) -> Tensor:
    """Compute the gradient of the scores."""
    x = _rows(values_of(input), dim)
    share = _shares(weight, x.shape[1], x.dtype)
    of_row = host.array(weights).reshape(-1, 1)
    numbers, counts = _targets(target, x.shape[1], ignored)
    spread = smoothing / x.shape[1]
    sharp = (1 - smoothing) * of_row
    result = (sharp + spread * np.sum(share)) * np.exp(log_softmax(x, 1)) - spread * share
    result[np.arange(len(x)), numbers] -= sharp[:, 0]
    result = np.where(counts[:, None], result, 0) * _slope(grad, total)
    return host.tensor_of(_unrows(result, input.shape, dim), input.dtype.code)


def nll(
    input: Tensor, target: Tensor, weight: Tensor | None, dim: int, ignored: int
) -> tuple[Tensor, Tensor]:
    """Weighted losses and weights of each row."""
    x = _rows(values_of(input), dim)
    numbers, counts = _targets(target, x.shape[1], ignored)
    weights = np.where(counts, _shares(weight, x.shape[1], x.dtype)[numbers], 0).astype(x.dtype)
    losses = np.where(counts, -weights * x[np.arange(len(x)), numbers], 0).astype(x.dtype)
    return host.tensor_of(losses.reshape(target.shape)), host.tensor_of(
        weights.reshape(target.shape)
    )


def nll_backward(
    grad: Tensor, input: Tensor, target: Tensor, weights: Tensor, total: Tensor | None, dim: int
) -> Tensor:
    """Compute the gradient of the log probabilities."""
    result = np.zeros_like(_rows(values_of(input), dim))
    of_row = host.array(weights).reshape(-1)
    numbers = np.where(of_row != 0, host.array(target).reshape(-1), 0).astype(np.int64)
    result[np.arange(len(result)), numbers] = -of_row * _slope(grad, total)[:, 0]
    return host.tensor_of(_unrows(result, input.shape, dim), input.dtype.code)


def _slope(grad: Tensor, total: Tensor | None) -> host.Array:
    """The gradient of each row's loss, as a column."""
    slope = values_of(grad).reshape(-1, 1)
    return slope if total is None else slope / values_of(total)
