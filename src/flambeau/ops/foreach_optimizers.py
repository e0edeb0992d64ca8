# SPDX-License-Identifier: Apache-2.0
"""The updates of optimizers, ``_fused_*``: all parameters by one kernel."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from flambeau.ops.foreach import FOREACH
from flambeau.ops.foreach_launch import Program, launch, same_kind
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["adam", "sgd"]

_SCALING = (
    "const float *grad_scale, const float *found_inf, const float *rate_at, double rate_given"
)
_SCALING_SIGNATURE = "RRRd"
_SCALING_SETUP = """
const bool skip = found_inf && *found_inf != 0.0f;
const A unscale = grad_scale ? A(1) / (A)*grad_scale : A(1);
const A rate = rate_at ? (A)*rate_at : (A)rate_given;
"""


def _scaling(lr: float | Tensor, grad_scale: Tensor | None, found_inf: Tensor | None) -> list[Any]:
    on_device = isinstance(lr, Tensor) and lr.is_cuda
    return [
        0 if grad_scale is None else grad_scale,
        0 if found_inf is None else found_inf,
        lr.float() if isinstance(lr, Tensor) and on_device else 0,
        0.0 if on_device else float(lr),
    ]


# -- Adam -----------------------------------------------------------------------------------------


@functools.cache
def _adam_program(
    amsgrad: bool, decoupled: bool, maximize: bool, scaled: bool, on_device: bool
) -> Program:
    largest, operands = ("x[4]", 5) if amsgrad else ("x[3]", 4)
    step = f"*(const float *)table.at[{operands}][t]" if on_device else "table.numbers[0][t]"
    body = [
        "if (skip) return;",
        f"A p = x[0], g = {'-' if maximize else ''}x[1] * unscale;",
        f"x[1] = {'-' if maximize else ''}g;" if scaled else "",
        "p *= A(1) - rate * decay;" if decoupled else "g += decay * p;",
        "const A m = x[2] + (g - x[2]) * fresh1;",
        "const A v = x[3] * keep2 + g * g * fresh2;",
        "x[2] = m; x[3] = v;",
        "x[4] = maximum_of(x[4], v);" if amsgrad else "",
        f"x[0] = p - size * m / (sqrt({largest}) / root + epsilon);",
    ]
    writes = 0b1101 | (0b10 if scaled else 0) | (0b10000 if amsgrad else 0)
    return Program(
        " ".join(filter(None, body)),
        operands=operands,
        reads=(1 << operands) - 1,
        writes=writes,
        # expm1 keeps 1 - beta ** step exact where it is small.
        setup=f"""{_SCALING_SETUP}
const A step = (A)({step});
const A bias1 = -expm1(step * (A)log_beta1), root = sqrt(-expm1(step * (A)log_beta2));
const A size = rate / bias1, fresh1 = (A)(1 - beta1), keep2 = (A)beta2, fresh2 = (A)(1 - beta2);
const A decay = (A)weight_decay, epsilon = (A)eps;
""",
        addresses=1 if on_device else 0,
        numbers=0 if on_device else 1,
        parameters=f"{_SCALING}, double beta1, double beta2, double log_beta1, double log_beta2, "
        "double weight_decay, double eps",
        signature=f"{_SCALING_SIGNATURE}dddddd",
    )


def _log(beta: float) -> float:
    return math.log(beta) if beta > 0 else -math.inf


def adam(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    max_exp_avg_sqs: Sequence[Tensor],
    steps: Sequence[Tensor] | Sequence[float],
    *,
    lr: float | Tensor,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    decoupled: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> bool:
    """Do one step of Adam for all parameters by one kernel.

    Parameters
    ----------
    params, grads, exp_avgs, exp_avg_sqs
        Lists of one length.
    max_exp_avg_sqs
        Too, if `amsgrad`; else empty.
    steps
        How many steps were done with this one: float32 tensors on the device, or numbers.
    lr, beta1, beta2, weight_decay, eps, amsgrad, maximize
        As for `flambeau.optim.Adam`.
    decoupled
        Whether the weights decay by themselves, as in AdamW.
    grad_scale
        A float32 tensor that gradients are divided by; they are stored so.
    found_inf
        A float32 tensor; nothing is done if it is not 0.

    Returns
    -------
    bool
        False, and nothing done, if `same_kind` does not hold.
    """
    lists = [params, grads, exp_avgs, exp_avg_sqs]
    if amsgrad:
        lists.append(max_exp_avg_sqs)
    if not same_kind(*lists):
        return False
    on_device = isinstance(steps[0], Tensor) and steps[0].is_cuda
    program = _adam_program(amsgrad, decoupled, maximize, grad_scale is not None, on_device)
    counts: dict[str, Any] = (
        {"addresses": [[step.data_ptr() for step in steps]]}  # type: ignore[union-attr]
        if on_device
        else {"numbers": [[float(step) for step in steps]]}
    )
    launch(
        program, lists, *_scaling(lr, grad_scale, found_inf), beta1, beta2, _log(beta1),
        _log(beta2), float(weight_decay), float(eps), **counts,
    )  # fmt: skip
    return True


def _fused_adam(name: str, decoupled: bool) -> None:
    def call(
        self: Sequence[Tensor],
        grads: Sequence[Tensor],
        exp_avgs: Sequence[Tensor],
        exp_avg_sqs: Sequence[Tensor],
        max_exp_avg_sqs: Sequence[Tensor],
        state_steps: Sequence[Tensor],
        *,
        lr: float | Tensor,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
    ) -> None:
        """Do one step of the optimizer for lists of CUDA tensors; steps are counted before."""
        done = adam(
            self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps,
            lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, eps=eps,
            amsgrad=amsgrad, maximize=maximize, decoupled=decoupled,
            grad_scale=grad_scale, found_inf=found_inf,
        )  # fmt: skip
        _require(done, name)

    call.__name__ = call.__qualname__ = name
    call.__module__ = "flambeau"
    FOREACH[name] = call


def _require(done: bool, name: str) -> None:
    if not done:
        raise RuntimeError(
            f"{name} needs params, grads, and exp_avgs/momentum buffers to have same dtype, device "
            "(one CUDA device), and layout"
        )


_fused_adam("_fused_adam_", decoupled=False)
_fused_adam("_fused_adamw_", decoupled=True)


# -- SGD ------------------------------------------------------------------------------------------


@functools.cache
def _sgd_program(
    momentum: bool, first: bool, nesterov: bool, maximize: bool, scaled: bool, may_skip: bool
) -> Program:
    body = [
        "if (skip) return;",
        f"A g = {'-' if maximize else ''}x[1] * unscale;",
        f"x[1] = {'-' if maximize else ''}g;" if scaled else "",
        "g += decay * x[0];",
    ]
    if momentum:
        body.append("x[2] = g;" if first else "x[2] = keep * x[2] + fresh * g;")
        body.append("g += keep * x[2];" if nesterov else "g = x[2];")
    body.append("x[0] -= rate * g;")
    operands = 3 if momentum else 2
    return Program(
        " ".join(filter(None, body)),
        operands=operands,
        reads=0b11 if first and not may_skip else (1 << operands) - 1,
        writes=0b1 | (0b10 if scaled else 0) | (0b100 if momentum else 0),
        setup=f"""{_SCALING_SETUP}
const A decay = (A)weight_decay, keep = (A)momentum, fresh = (A)(1 - dampening);
""",
        parameters=f"{_SCALING}, double weight_decay, double momentum, double dampening",
        signature=f"{_SCALING_SIGNATURE}ddd",
    )


def sgd(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    buffers: Sequence[Tensor],
    *,
    weight_decay: float,
    momentum: float,
    lr: float | Tensor,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> bool:
    """Do one step of stochastic gradient descent for all parameters by one kernel.

    Parameters
    ----------
    params, grads
        Lists of one length.
    buffers
        Too, if there is momentum; else empty.
    is_first_step
        Whether the buffers hold nothing yet. They are zeros if `found_inf` is given.
    weight_decay, momentum, lr, dampening, nesterov, maximize
        As for `flambeau.optim.SGD`.
    grad_scale, found_inf
        As for `adam`.

    Returns
    -------
    bool
        False, and nothing done, if `same_kind` does not hold.
    """
    lists = [params, grads, *([buffers] if momentum else [])]
    if not same_kind(*lists):
        return False
    program = _sgd_program(
        momentum != 0, momentum != 0 and is_first_step, nesterov, maximize, grad_scale is not None,
        found_inf is not None,
    )  # fmt: skip
    launch(
        program, lists, *_scaling(lr, grad_scale, found_inf), float(weight_decay),
        float(momentum), float(dampening),
    )  # fmt: skip
    return True


def _fused_sgd_(
    self: Sequence[Tensor],
    grads: Sequence[Tensor],
    momentum_buffer_list: Sequence[Tensor],
    *,
    weight_decay: float,
    momentum: float,
    lr: float | Tensor,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """Do one step of SGD for lists of CUDA tensors."""
    done = sgd(
        self, grads, momentum_buffer_list, weight_decay=weight_decay, momentum=momentum, lr=lr,
        dampening=dampening, nesterov=nesterov, maximize=maximize, is_first_step=is_first_step,
        grad_scale=grad_scale, found_inf=found_inf,
    )  # fmt: skip
    _require(done, "_fused_sgd_")


_fused_sgd_.__module__ = "flambeau"
FOREACH["_fused_sgd_"] = _fused_sgd_


# -- scaled gradients -----------------------------------------------------------------------------

_CHECK = Program(
    # Every value but infinities and NaN is 0 away from itself.
    "if (x[0] - x[0] != A(0)) atomicExch((int *)found_inf, __float_as_int(1.0f)); x[0] *= factor;",
    operands=1,
    reads=1,
    writes=1,
    setup="const A factor = (A)*inverse;",
    parameters="float *found_inf, const float *inverse",
    signature="PR",
)


def _amp_foreach_non_finite_check_and_unscale_(
    self: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor
) -> None:
    """Multiply gradients, in place, and note whether one of them was not finite.

    Parameters
    ----------
    self
        Floating-point tensors of one device.
    found_inf
        A float32 tensor of one element there; it becomes 1 if something was not finite.
    inv_scale
        A float32 tensor of one element there.
    """
    if same_kind(self):
        launch(_CHECK, [self], found_inf, inv_scale)
        found_inf._mark_written()
        return
    for tensor in self:
        bad = tensor.isfinite().logical_not().any().to(found_inf.dtype)
        found_inf.copy_(found_inf.maximum(bad.reshape(found_inf.shape)))
        tensor.mul_(inv_scale.reshape(()).to(tensor.dtype))


_amp_foreach_non_finite_check_and_unscale_.__module__ = "flambeau"
FOREACH["_amp_foreach_non_finite_check_and_unscale_"] = _amp_foreach_non_finite_check_and_unscale_
