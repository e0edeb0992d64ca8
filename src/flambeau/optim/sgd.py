# SPDX-License-Identifier: Apache-2.0
"""Stochastic gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.ops import foreach_optimizers
from flambeau.optim.optimizer import Optimizer, check_forms, check_lr, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flambeau.runtime._tensor import Tensor

__all__ = ["SGD"]


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if wanted.

    Parameters
    ----------
    params
        Parameters, or groups of them.
    lr
        The learning rate, a number or a tensor of one element.
    momentum
        How much of the last step is kept.
    dampening
        How much less of the gradient goes into the momentum.
    weight_decay
        What is added to the gradient, as a factor of the parameter.
    nesterov
        Look ahead along the momentum; needs one, and no dampening.
    maximize
        Go uphill.
    foreach, fused
        By default and with True all CUDA parameters of a group are done by one kernel; with
        ``foreach=False`` one by one.
    differentiable
        Not offered: True raises.

    Examples
    --------
    >>> import flambeau as torch
    >>> weight = torch.nn.Parameter(torch.ones(1, device="cuda"))
    >>> weight.grad = torch.ones(1, device="cuda")
    >>> torch.optim.SGD([weight], lr=0.25).step()
    >>> weight.tolist()
    [0.75]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check_forms(foreach, fused)
        for name, value in (("momentum", momentum), ("weight_decay", weight_decay)):
            if value < 0.0:
                raise ValueError(f"Invalid {name} value: {value}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        if differentiable:
            raise RuntimeError("SGD does not offer differentiable=True")
        super().__init__(
            params,
            {
                "lr": lr, "momentum": momentum, "dampening": dampening,
                "weight_decay": weight_decay, "nesterov": nesterov, "maximize": maximize,
                "foreach": foreach, "differentiable": differentiable, "fused": fused,
            },
        )  # fmt: skip
        self._step_supports_amp_scaling = bool(fused)

    @steps
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients.

        Parameters
        ----------
        closure
            Computes the loss anew, with gradients, and returns it.
        """
        for group in self.param_groups:
            fresh: list[Tensor] = []
            going: list[Tensor] = []
            for param in group["params"]:
                if param.grad is None:
                    continue
                if group["momentum"] and self.state[param].get("momentum_buffer") is None:
                    fresh.append(param)
                else:
                    going.append(param)
            for first, params in ((True, fresh), (False, going)):
                if params:
                    self._update(group, params, first)

    def _update(self, group: dict[str, Any], params: list[Tensor], first: bool) -> None:
        grads = [param.grad for param in params if param.grad is not None]
        buffers: list[Tensor] = []
        if group["momentum"]:
            for param in params:
                state = self.state[param]
                if first:
                    state["momentum_buffer"] = param.detach().clone().zero_()
                buffers.append(state["momentum_buffer"])
        options = {name: group[name] for name in ("lr", "momentum", "dampening", "weight_decay")}
        if group["foreach"] is not False and foreach_optimizers.sgd(
            params, grads, buffers, nesterov=group["nesterov"], maximize=group["maximize"],
            is_first_step=first, grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None), **options,
        ):  # fmt: skip
            return
        for k, param in enumerate(params):
            self._one(group, param, grads[k], buffers[k] if buffers else None, first)

    @staticmethod
    def _one(
        group: dict[str, Any], param: Tensor, grad: Tensor, buffer: Tensor | None, first: bool
    ) -> None:
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"]:
            grad = grad.add(param, alpha=group["weight_decay"])
        momentum = group["momentum"]
        if buffer is not None:
            if first:
                buffer.copy_(grad)
            else:
                buffer.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
            grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
        param.add_(grad, alpha=-float(group["lr"]))
