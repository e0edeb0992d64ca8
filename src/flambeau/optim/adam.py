# SPDX-License-Identifier: Apache-2.0
"""Adam, and with weights that decay by themselves AdamW."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from flambeau.ops import creation, foreach_optimizers
from flambeau.ops.foreach import FOREACH
from flambeau.optim.optimizer import Optimizer, check_forms, check_lr, steps
from flambeau.runtime import _dtype, _factory
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Adam", "AdamW"]

_FLOAT32 = _dtype.dtypes["float32"]


class Adam(Optimizer):
    """Steps by a running mean of gradients over the root of that of their squares.

    Parameters
    ----------
    params
        Parameters, or groups of them.
    lr
        The learning rate, a number or a tensor of one element.
    betas
        How much is kept of the mean and of the mean square.
    eps
        Added to the root.
    weight_decay
        A factor of the parameter that is added to the gradient.
    amsgrad
        Divide by the greatest mean square so far.
    foreach, fused
        By default and with True all CUDA parameters of a group are done by one kernel; with
        ``foreach=False`` one by one. ``fused=True`` also keeps the number of steps on the device
        and lets `GradScaler` skip steps there.
    maximize
        Go uphill.
    capturable
        Keep the number of steps on the device, as a captured graph needs.
    differentiable
        Not offered: True raises.
    decoupled_weight_decay
        Let the weights decay by themselves, as `AdamW` does.

    Notes
    -----
    D. Kingma and J. Ba, Adam: a method for stochastic optimization, ICLR 2015.

    Examples
    --------
    >>> import flambeau as torch
    >>> weight = torch.nn.Parameter(torch.ones(1, device="cuda"))
    >>> adam = torch.optim.Adam([weight], lr=0.25)
    >>> weight.grad = torch.ones(1, device="cuda")
    >>> adam.step()
    >>> round(weight.item(), 4)
    0.75
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_lr(lr)
        check_forms(foreach, fused)
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueError(
                "lr as a Tensor is not supported for capturable=False and foreach=True"
            )
        if not eps >= 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        for index, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
        if not weight_decay >= 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if differentiable:
            raise RuntimeError(f"{type(self).__name__} does not offer differentiable=True")
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach,
                "capturable": capturable, "differentiable": differentiable, "fused": fused,
                "decoupled_weight_decay": decoupled_weight_decay,
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

        Raises
        ------
        RuntimeError
            A graph is being captured, and ``capturable`` is False.
        """
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            for param in params:
                self._prepare(group, param)
            for chosen in self._alike(params):
                self._update(group, chosen)

    def _prepare(self, group: dict[str, Any], param: Tensor) -> None:
        state = self.state[param]
        if state:
            return
        on_device = (group["capturable"] or group["fused"]) and param.is_cuda
        state["step"] = creation.zeros(
            (), dtype=_FLOAT32, device=param.device if on_device else "cpu"
        )
        names = ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])]
        for name in names:
            state[name] = _factory.empty_like(param.detach()).zero_()

    def _alike(self, params: list[Tensor]) -> list[list[Tensor]]:
        """Parameters by device and dtype, and by step where the host counts."""
        kinds: defaultdict[Any, list[Tensor]] = defaultdict(list)
        for param in params:
            step = self.state[param]["step"]
            count = None if step.is_cuda else step.item()
            kinds[param.get_device(), param.dtype, count].append(param)
        return list(kinds.values())

    def _update(self, group: dict[str, Any], params: list[Tensor]) -> None:
        states = [self.state[param] for param in params]
        steps = [state["step"] for state in states]
        if params[0].is_cuda and not steps[0].is_cuda:
            _refuse_capture(type(self).__name__)
        found_inf = getattr(self, "found_inf", None)
        if steps[0].is_cuda:
            FOREACH["_foreach_add_"](steps, 1)
        else:  # all are alike; filling is quicker than adding on the host
            count = steps[0].item() + 1
            for step in steps:
                step.fill_(count)
        options = {
            name: group[name] for name in ("lr", "weight_decay", "eps", "amsgrad", "maximize")
        }
        done = group["foreach"] is not False and foreach_optimizers.adam(
            params, [param.grad for param in params if param.grad is not None],
            [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states],
            [state["max_exp_avg_sq"] for state in states] if group["amsgrad"] else [], steps,
            beta1=group["betas"][0], beta2=group["betas"][1],
            decoupled=group["decoupled_weight_decay"],
            grad_scale=getattr(self, "grad_scale", None), found_inf=found_inf, **options,
        )  # fmt: skip
        if done:
            if found_inf is not None:  # a step that was skipped does not count
                FOREACH["_foreach_sub_"](steps, found_inf.to(steps[0].device).reshape(()))
            return
        for param, state in zip(params, states, strict=True):
            _one(group, param, state)


class AdamW(Adam):
    """Adam with weights that decay by themselves, not through the gradient.

    Parameters
    ----------
    params, lr, betas, eps, amsgrad, maximize, foreach, capturable, differentiable, fused
        As for `Adam`.
    weight_decay
        What is taken off each parameter, as a factor of it and of the learning rate.

    Notes
    -----
    I. Loshchilov and F. Hutter, Decoupled weight decay regularization, ICLR 2019.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
            capturable=capturable, differentiable=differentiable, fused=fused,
            decoupled_weight_decay=True,
        )  # fmt: skip


def _refuse_capture(name: str) -> None:
    from flambeau.cuda.graphs import is_current_stream_capturing

    if is_current_stream_capturing():
        raise RuntimeError(
            f"Attempting CUDA graph capture of step() for an instance of {name} but this instance "
            "was constructed with capturable=False: its step counts are on the host; make it with "
            "capturable=True."
        )


def _one(group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> None:
    """One parameter by ordinary operations; its step is counted already."""
    grad, lr = param.grad, group["lr"]
    beta1, beta2 = group["betas"]
    assert grad is not None
    if group["maximize"]:
        grad = -grad
    if group["weight_decay"]:
        if group["decoupled_weight_decay"]:
            param.mul_(1 - lr * group["weight_decay"])
        else:
            grad = grad.add(param, alpha=group["weight_decay"])
    mean, square = state["exp_avg"], state["exp_avg_sq"]
    mean.lerp_(grad, 1 - beta1)
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    if group["amsgrad"]:
        square = state["max_exp_avg_sq"].copy_(state["max_exp_avg_sq"].maximum(square))
    step = state["step"]
    if step.is_cuda:
        bias1, bias2 = (1 - beta**step for beta in (beta1, beta2))
        param.sub_(mean / ((square.sqrt() / bias2.sqrt() + group["eps"]) * (bias1 / lr)))
        return
    count = step.item()
    bias1, root = 1 - beta1**count, (1 - beta2**count) ** 0.5
    param.addcdiv_(mean, (square.sqrt() / root).add_(group["eps"]), value=-float(lr) / bias1)
