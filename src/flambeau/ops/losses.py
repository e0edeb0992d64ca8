# SPDX-License-Identifier: Apache-2.0
"""Losses of class numbers: cross entropy in one pass over the logits, and likelihoods."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from flambeau.ops import statistics
from flambeau.ops.codegen import cuda_type
from flambeau.ops.common import kernel, launch_linear, new_like, same_device
from flambeau.ops.derivatives import differentiable
from flambeau.ops.once import refuse_second_derivative
from flambeau.ops.registry import OPS
from flambeau.ops.rows import is_aligned, launch_rows, plan_rows, row_source
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from flambeau.runtime._launch import Kernel
    from flambeau.runtime._tensor import Tensor

__all__ = [
    "REDUCTIONS",
    "ClassLoss",
    "check_classes",
    "cross_entropy",
    "cross_entropy_backward",
    "nll",
    "nll_backward",
]

REDUCTIONS = ("none", "mean", "sum")


class ClassLoss(NamedTuple):
    """A loss, and what the backward pass needs.

    Parameters
    ----------
    loss
        In the input's dtype.
    weights
        The weight of each row's class, 0 for ignored rows.
    logs
        The logarithm of each row's sum of exponentials; None for `nll`.
    total
        What a mean was taken over, else None.
    """

    loss: Tensor
    weights: Tensor
    logs: Tensor | None
    total: Tensor | None


def check_reduction(reduction: str) -> None:
    """Refuse what is no reduction.

    Raises
    ------
    ValueError
        It is none of `REDUCTIONS`.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction; one of {REDUCTIONS} is")


def check_classes(name: str, input: Tensor, target: Tensor, weight: Tensor | None) -> int:
    """The dimension that classes are counted in: 0 for one row, else 1.

    Raises
    ------
    RuntimeError, ValueError
        Shapes, dtypes or devices do not fit.
    """
    if input.ndim == 0:
        raise ValueError(f"{name} expects (classes) or (batch, classes, ...), got no dimensions")
    dim = 0 if input.ndim == 1 else 1
    expected = (*input.shape[:dim], *input.shape[dim + 1 :])
    if tuple(target.shape) != expected:
        if dim and target.ndim and input.shape[0] != target.shape[0]:
            raise ValueError(
                f"Expected input batch_size ({input.shape[0]}) to match target batch_size "
                f"({target.shape[0]})."
            )
        raise RuntimeError(
            f"{name}: Expected target size {list(expected)}, got {list(target.shape)}"
        )
    if target.dtype.name not in {"int64", "uint8"}:
        legacy = _dtype.legacy_type_name(target.dtype)
        raise RuntimeError(f"expected target of class numbers as Long or Byte, but got {legacy}")
    classes = input.shape[dim]
    if weight is not None and (weight.ndim != 1 or weight.numel() != classes):
        raise RuntimeError(
            "weight tensor should be defined either for all or no classes: expected a vector of "
            f"{classes} numbers, got {list(weight.shape)}"
        )
    same_device(*[t for t in (input, target, weight) if t is not None])
    if input.dtype.category != 2:
        legacy = _dtype.legacy_type_name(input.dtype)
        raise NotImplementedError(
            f"\"{name}\" not implemented for '{legacy}': scores are floating-point"
        )
    return dim


def _wide(input: Tensor) -> _dtype.dtype:
    return _dtype.dtypes["float64" if input.dtype.name == "float64" else "float32"]


def _reduced(losses: Tensor, weights: Tensor, reduction: str) -> tuple[Tensor, Tensor | None]:
    if reduction == "none":
        return losses, None
    total = statistics.sum(losses)
    if reduction == "sum":
        return total, None
    count = statistics.sum(weights)
    return OPS["_div"](total, count), count


def _as_rows(input: Tensor, dim: int) -> tuple[Tensor, int, int]:
    """Scores with classes last, as rows in order; how many rows, and how many classes."""
    classes = input.shape[dim]
    rows = input if dim == input.ndim - 1 else input.movedim(dim, -1)
    return rows.contiguous(), input.numel() // max(1, classes), classes


def _plan_types(input: Tensor, target: Tensor) -> dict[str, int]:
    return {"T": input.dtype.code, "Index": target.dtype.code, "A": _wide(input).code}


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> ClassLoss:
    """Compute the cross entropy of scores and class numbers, without a record for gradients.

    Parameters
    ----------
    input
        (classes) or (batch, classes, ...) scores.
    target
        Class numbers, of the input's shape without the classes.
    weight
        For each class, or None.
    reduction
        ``"none"``, ``"mean"`` or ``"sum"``.
    ignore_index
        A class number that takes no part.
    label_smoothing
        The share of each target that is spread over all classes.
    """
    dim = check_classes("cross_entropy", input, target, weight)
    of = _wide(input)
    if not input.is_cuda:
        from flambeau.ops import host_losses

        losses, weights, logs = host_losses.cross_entropy(
            input, target, weight, dim, ignore_index, label_smoothing
        )
    else:
        x, rows, classes = _as_rows(input, dim)
        losses, weights, logs = (new_like(input, target.shape, of) for _ in range(3))
        if rows:
            share = None if weight is None else weight.contiguous().to(of)
            plan = plan_rows(classes, x.itemsize, aligned=is_aligned(x))
            source = row_source(
                "loss.cuh", "cross_entropy_rows", "", plan,
                "A *losses, A *weights, A *logs, const T *in, const Index *targets, "
                "const A *weight, int64 rows, int64 n, int64 ignored, double smoothing",
                "losses, weights, logs, in, targets, weight, rows, n, ignored, smoothing",
                **_plan_types(x, target),
            )  # fmt: skip
            launch_rows(
                source, "PPPRRRqqqd", plan, x.get_device(), plan.blocks(rows),
                losses, weights, logs, x, target.contiguous(), share, rows, classes, ignore_index,
                float(label_smoothing),
            )  # fmt: skip
    loss, total = _reduced(losses, weights, reduction)
    return ClassLoss(loss.to(input.dtype), weights, logs, total)


def cross_entropy_backward(
    grad: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    made: ClassLoss,
    ignore_index: int,
    label_smoothing: float,
) -> Tensor:
    """Compute the gradient of the scores from that of the loss.

    Parameters
    ----------
    grad
        Of the loss's shape.
    made
        What `cross_entropy` gave.
    input, target, weight, ignore_index, label_smoothing
        As for `cross_entropy`.
    """
    refuse_second_derivative("cross_entropy_loss_backward", grad, input)
    dim = 0 if input.ndim == 1 else 1
    if not input.is_cuda:
        from flambeau.ops import host_losses

        return host_losses.cross_entropy_backward(
            grad, input, target, weight, made.weights, made.total, dim, ignore_index,
            label_smoothing,
        )  # fmt: skip
    of = _wide(input)
    x, rows, classes = _as_rows(input, dim)
    out = new_like(x, x.shape)
    if rows:
        share = None if weight is None else weight.contiguous().to(of)
        step = 1 if grad.ndim else 0
        plan = plan_rows(classes, x.itemsize, aligned=is_aligned(x, out))
        source = row_source(
            "loss.cuh", "cross_entropy_rows_backward", "", plan,
            "T *out, const T *in, const Index *targets, const A *logs, const A *weight, "
            "const A *weight_total, const A *grad, const A *total, int64 step, int64 rows, "
            "int64 n, int64 ignored, double smoothing",
            "out, in, targets, logs, weight, weight_total, grad, total, step, rows, n, ignored, "
            "smoothing",
            **_plan_types(x, target),
        )  # fmt: skip
        launch_rows(
            source, "PRRRRRRRqqqqd", plan, x.get_device(), plan.blocks(rows),
            out, x, target.contiguous(), made.logs, share,
            None if share is None else statistics.sum(share),
            grad.contiguous().to(of), made.total, step, rows, classes, ignore_index,
            float(label_smoothing),
        )  # fmt: skip
    return out if dim == input.ndim - 1 else out.movedim(-1, dim)


def nll(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int
) -> ClassLoss:
    """Compute the negative log likelihood of class numbers, without a record for gradients.

    Parameters
    ----------
    input
        (classes) or (batch, classes, ...) log probabilities.
    target, weight, reduction, ignore_index
        As for `cross_entropy`.
    """
    dim = check_classes("nll_loss", input, target, weight)
    of = _wide(input)
    if not input.is_cuda:
        from flambeau.ops import host_losses

        losses, weights = host_losses.nll(input, target, weight, dim, ignore_index)
    else:
        losses, weights = (new_like(input, target.shape, of) for _ in range(2))
        share = None if weight is None else weight.contiguous().to(of)
        classes, inner = input.shape[dim], prod(input.shape[dim + 1 :])
        made = _nll_kernel(
            input, target, "forward",
            "A *losses, A *weights, const T *in, const Index *targets, const A *weight, "
            "int64 count, int64 classes, int64 inner, int64 ignored",
            "losses, weights, in, targets, weight, count, classes, inner, ignored", "PPRRRqqqq",
        )  # fmt: skip
        count = target.numel()
        launch_linear(
            made, input.get_device(), count, losses, weights, input.contiguous(),
            target.contiguous(), 0 if share is None else share, count, classes, inner, ignore_index,
        )  # fmt: skip
    loss, total = _reduced(losses, weights, reduction)
    return ClassLoss(loss.to(input.dtype), weights, None, total)


def nll_backward(
    grad: Tensor, input: Tensor, target: Tensor, made: ClassLoss, ignore_index: int
) -> Tensor:
    """Compute the gradient of the log probabilities; arguments as for `cross_entropy_backward`."""
    refuse_second_derivative("nll_loss_backward", grad)
    dim = 0 if input.ndim == 1 else 1
    if not input.is_cuda:
        from flambeau.ops import host_losses

        return host_losses.nll_backward(grad, input, target, made.weights, made.total, dim)
    out = new_like(input, input.shape).zero_()
    classes, inner, count = input.shape[dim], prod(input.shape[dim + 1 :]), target.numel()
    step = 1 if grad.ndim else 0
    launched = _nll_kernel(
        input, target, "backward",
        "T *out, const Index *targets, const A *weights, const A *grad, const A *total, "
        "int64 step, int64 count, int64 classes, int64 inner, int64 ignored",
        "out, targets, weights, grad, total, step, count, classes, inner, ignored", "PRRRRqqqqq",
    )  # fmt: skip
    launch_linear(
        launched, input.get_device(), count, out, target.contiguous(), made.weights,
        grad.contiguous().to(_wide(input)), 0 if made.total is None else made.total, step, count,
        classes, inner, ignore_index,
    )  # fmt: skip
    return out


def _nll_kernel(
    input: Tensor, target: Tensor, which: str, parameters: str, arguments: str, signature: str
) -> Kernel:
    types = [
        f"typedef {cuda_type(code)} {name};" for name, code in _plan_types(input, target).items()
    ]
    source = "\n".join([
        '#include "loss.cuh"',
        *types,
        f"FLAMBEAU_KERNEL(256) nll({parameters}) {{",
        "  FLAMBEAU_GRID_WAIT();",
        f"  nll_{which}({arguments});",
        "}",
        "",
    ])  # fmt: skip
    return kernel(source, "nll", signature, input.get_device())


_cross_entropy = differentiable(
    lambda x, target, weight, reduction, ignored, smoothing: tuple(
        cross_entropy(x, target, weight, reduction, ignored, smoothing)
    ),
    {
        "x": lambda grad, x, target, weight, ignored, smoothing, out0, out1, out2, out3: (
            cross_entropy_backward(
                grad, x, target, weight, ClassLoss(out0, out1, out2, out3), ignored, smoothing
            )
        )
    },
    name="cross_entropy_loss",
)
_nll = differentiable(
    lambda x, target, weight, reduction, ignored: tuple(nll(x, target, weight, reduction, ignored)),
    {
        "x": lambda grad, x, target, ignored, out0, out1, out2: nll_backward(
            grad, x, target, ClassLoss(out0, out1, None, out2), ignored
        )
    },
    name="nll_loss",
)


def cross_entropy_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> Tensor:
    """Compute `cross_entropy`, the loss alone, recorded for gradients."""
    made = _cross_entropy(input, target, weight, reduction, ignore_index, label_smoothing)
    loss: Tensor = made[0]
    return loss


def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int
) -> Tensor:
    """Compute `nll`, the loss alone, recorded for gradients."""
    loss: Tensor = _nll(input, target, weight, reduction, ignore_index)[0]
    return loss
