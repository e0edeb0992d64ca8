# SPDX-License-Identifier: Apache-2.0
"""The table of losses that compare element by element, with their derivatives."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from flambeau.ops.derivatives import differentiable
from flambeau.ops.elementwise import Row
from flambeau.ops.grad_mode import is_grad_enabled
from flambeau.ops.once import refuse_second_derivative
from flambeau.ops.registry import make_op

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.runtime._elementwise import ElementwiseOp
    from flambeau.runtime._tensor import Tensor

__all__ = ["LOSSES", "forward", "pointwise", "slope"]


class _Loss(NamedTuple):
    """A loss of ``a`` and the target ``b``; its derivative by ``a``, times the gradient ``c``."""

    cuda: str
    numpy: str
    slope_cuda: str
    slope_numpy: str
    scalars: int = 0


LOSSES = {
    "mse": _Loss("(a - b) * (a - b)", "(a - b) * (a - b)", "T(2) * (a - b) * c", "2 * (a - b) * c"),
    "l1": _Loss("absolute(a - b)", "np.abs(a - b)", "sign_of(a - b) * c", "np.sign(a - b) * c"),
    "smooth_l1": _Loss(
        "absolute(a - b) < s0 ? T(0.5) * (a - b) * (a - b) / s0 : absolute(a - b) - T(0.5) * s0",
        "np.where(np.abs(a - b) < s0, 0.5 * (a - b) * (a - b) / s0, np.abs(a - b) - 0.5 * s0)",
        "absolute(a - b) < s0 ? (a - b) / s0 * c : sign_of(a - b) * c",
        "np.where(np.abs(a - b) < s0, (a - b) / s0, np.sign(a - b)) * c",
        1,
    ),
    "bce": _Loss(
        "(b - T(1)) * maximum_of(log1p(-a), T(-100)) - b * maximum_of(log(a), T(-100))",
        "(b - 1) * np.maximum(np.log1p(-a), -100) - b * np.maximum(np.log(a), -100)",
        "c * (a - b) / maximum_of((T(1) - a) * a, T(1e-12))",
        "c * (a - b) / np.maximum((1 - a) * a, 1e-12)",
    ),
    "bce_with_logits": _Loss(
        "(T(1) - b) * a + log1p(exp(-absolute(a))) + larger_of(-a, T(0))",
        "(1 - b) * a + np.log1p(np.exp(-np.abs(a))) + np.maximum(-a, 0)",
        "(sigmoid_of(a) - b) * c",
        "(1 / (1 + np.exp(-a)) - b) * c",
    ),
}

_SYMMETRIC = ("mse", "l1", "smooth_l1")  # in input and target


@functools.cache
def _ops(name: str) -> tuple[ElementwiseOp, ElementwiseOp]:
    row = LOSSES[name]
    return (
        make_op(Row(f"{name}_loss", 2, row.cuda, row.numpy, refuse="bi", scalars=row.scalars)),
        make_op(
            Row(f"{name}_loss_backward", 3, row.slope_cuda, row.slope_numpy, refuse="bi",
                scalars=row.scalars)
        ),
    )  # fmt: skip


def forward(name: str, input: Tensor, target: Tensor, *numbers: float) -> Tensor:
    """Compute a loss of each element, without a record for gradients.

    Parameters
    ----------
    name
        A row of `LOSSES`.
    input, target
        Floating-point tensors that broadcast together.
    numbers
        The row's numbers.
    """
    return _ops(name)[0](input, target, scalars=numbers)


def slope(name: str, grad: Tensor, input: Tensor, target: Tensor, *numbers: float) -> Tensor:
    """Compute the loss's derivative by the input, times a gradient."""
    if name == "mse" and is_grad_enabled():  # a gradient of gradients that is often asked for
        return (input - target) * grad * 2
    refuse_second_derivative(f"{name}_loss_backward", grad, input, target)
    return _ops(name)[1](input, target, grad, scalars=numbers)


@functools.cache
def _recorded(name: str) -> Callable[..., Tensor]:
    return differentiable(
        lambda x, target, numbers: forward(name, x, target, *numbers),
        {
            "x": lambda grad, x, target, numbers: slope(name, grad, x, target, *numbers),
            "target": lambda grad, x, target, numbers: _target_slope(
                name, grad, x, target, *numbers
            ),
        },
        name=f"{name}_loss",
    )


def _target_slope(
    name: str, grad: Tensor, input: Tensor, target: Tensor, *numbers: float
) -> Tensor:
    if name in _SYMMETRIC:
        return slope(name, grad, target, input, *numbers)
    if name == "bce_with_logits":
        return -grad * input
    log, rest = input.log().clamp_min(-100), (-input).log1p().clamp_min(-100)
    found: Tensor = grad * (rest - log)
    return found


def pointwise(name: str, input: Tensor, target: Tensor, *numbers: float) -> Tensor:
    """Compute a loss of each element; `forward`, recorded for gradients."""
    return _recorded(name)(input, target, numbers)
