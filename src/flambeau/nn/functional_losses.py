# SPDX-License-Identifier: Apache-2.0
"""Losses."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from flambeau.ops import losses, pointwise_losses, softmax, statistics
from flambeau.ops.losses import check_reduction
from flambeau.ops.registry import FUNCTIONS, OPS

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor


def _reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction, also by the names that it had once."""
    if size_average is None and reduce is None:
        check_reduction(reduction)
        return reduction
    warnings.warn(
        "size_average and reduce args will be deprecated, please use reduction instead.",
        UserWarning,
        stacklevel=3,
    )
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return loss
    return statistics.mean(loss) if reduction == "mean" else statistics.sum(loss)


def _pair(name: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        warnings.warn(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}). This will likely lead to incorrect results due to broadcasting. "
            "Please ensure they have the same size.",
            UserWarning,
            stacklevel=3,
        )


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Compute the cross entropy of scores with class numbers or with probabilities.

    Parameters
    ----------
    input
        (classes) or (batch, classes, ...) scores, before any softmax.
    target
        Class numbers (int64) of the input's shape without the classes, or probabilities of the
        input's shape.
    weight
        A weight for each class.
    size_average, reduce
        Deprecated forms of `reduction`.
    ignore_index
        A class number that takes no part.
    reduction
        ``"none"``, ``"mean"`` (by the weights) or ``"sum"``.
    label_smoothing
        The share of each target, from 0 to 1, that is spread over all classes.

    Examples
    --------
    >>> import flambeau as torch
    >>> scores = torch.zeros(1, 4, device="cuda")
    >>> loss = torch.nn.functional.cross_entropy(scores, torch.tensor([2], device="cuda"))
    >>> round(loss.item(), 4)
    1.3863
    """
    reduction = _reduction(size_average, reduce, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if target.dtype.category == 2 and target.shape == input.shape:
        return _with_probabilities(input, target, weight, reduction, label_smoothing)
    return losses.cross_entropy_loss(
        input, target, weight, reduction, ignore_index, label_smoothing
    )


def _with_probabilities(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    dim = 0 if input.ndim == 1 else 1
    classes = input.shape[dim]
    if smoothing:
        target = target * (1 - smoothing) + smoothing / classes
    terms = softmax.log_softmax(input, dim) * target
    if weight is not None:
        terms = terms * weight.reshape(-1, *[1] * (input.ndim - dim - 1))
    if reduction == "none":
        return -statistics.sum(terms, dim)
    total = -statistics.sum(terms)
    return total if reduction == "sum" else total / max(1, input.numel() // max(1, classes))


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Compute the negative log likelihood of class numbers.

    Parameters
    ----------
    input
        (classes) or (batch, classes, ...) log probabilities.
    target, weight, size_average, ignore_index, reduce, reduction
        As for `cross_entropy`.
    """
    reduction = _reduction(size_average, reduce, reduction)
    return losses.nll_loss(input, target, weight, reduction, ignore_index)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """Compute squared differences.

    Parameters
    ----------
    input, target
        Tensors of one shape.
    size_average, reduce, reduction
        As for `cross_entropy`.
    weight
        A factor for each element.
    """
    reduction = _reduction(size_average, reduce, reduction)
    _pair("mse_loss", input, target)
    loss = pointwise_losses.pointwise("mse", input, target)
    if weight is None:
        return _reduced(loss, reduction)
    weighted: Tensor = loss * weight
    if reduction == "mean":
        return statistics.sum(weighted) / statistics.sum(weight)
    return _reduced(weighted, reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Compute absolute differences; arguments as for `mse_loss`."""
    reduction = _reduction(size_average, reduce, reduction)
    _pair("l1_loss", input, target)
    if input.is_complex() or target.is_complex():
        return _reduced((input - target).abs(), reduction)
    return _reduced(pointwise_losses.pointwise("l1", input, target), reduction)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Compute differences that count squared below `beta` and linearly above.

    Parameters
    ----------
    input, target, size_average, reduce, reduction
        As for `mse_loss`.
    beta
        Where the two forms meet; 0 gives `l1_loss`.
    """
    reduction = _reduction(size_average, reduce, reduction)
    _pair("smooth_l1_loss", input, target)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    return _reduced(pointwise_losses.pointwise("smooth_l1", input, target, beta), reduction)


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Compute ``delta * smooth_l1_loss`` with ``beta=delta``."""
    check_reduction(reduction)
    _pair("huber_loss", input, target)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    loss = pointwise_losses.pointwise("smooth_l1", input, target, delta) * delta
    if weight is not None:
        loss = loss * weight
    return _reduced(loss, reduction)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Compute the cross entropy of two classes from probabilities.

    Parameters
    ----------
    input
        Probabilities; their logarithms count as no less than -100.
    target
        Of the same shape.
    weight
        A factor for each element.
    size_average, reduce, reduction
        As for `cross_entropy`.
    """
    reduction = _reduction(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}) is deprecated. Please ensure they have the same size."
        )
    loss = pointwise_losses.pointwise("bce", input, target)
    if weight is not None:
        loss = loss * weight
    return _reduced(loss, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Compute the cross entropy of two classes from scores, before any sigmoid.

    Parameters
    ----------
    input
        Scores.
    target
        Probabilities of the same shape.
    weight
        A factor for each element.
    size_average, reduce, reduction
        As for `cross_entropy`.
    pos_weight
        A factor for what counts as positive; broadcasts.
    """
    reduction = _reduction(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise ValueError(
            f"Target size ({target.shape}) must be the same as input size ({input.shape})"
        )
    if pos_weight is None:
        loss = pointwise_losses.pointwise("bce_with_logits", input, target)
    else:
        from flambeau.nn.functional_activations import logsigmoid

        positive = pos_weight * target * logsigmoid(input)
        loss = -(positive + (1 - target) * (logsigmoid(input) - input))
    if weight is not None:
        loss = loss * weight
    return _reduced(loss, reduction)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """Compute the divergence of Kullback and Leibler.

    Parameters
    ----------
    input
        Log probabilities.
    target
        Probabilities, or their logarithms.
    size_average, reduce
        Deprecated forms of `reduction`.
    reduction
        Also ``"batchmean"``: the sum divided by the first dimension's size.
    log_target
        Whether the target holds logarithms.
    """
    batch = reduction == "batchmean"
    reduction = _reduction(size_average, reduce, "sum" if batch else reduction)
    if log_target:
        loss = FUNCTIONS["exp"](target) * (target - input)
    else:
        safe = OPS["_where"](target > 0, target, 1.0)
        loss = target * FUNCTIONS["log"](safe) - target * input
    result = _reduced(loss, reduction)
    return result / input.shape[0] if batch and input.ndim else result
