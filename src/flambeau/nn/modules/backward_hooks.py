# SPDX-License-Identifier: Apache-2.0
"""Hooks on the gradients of a module's inputs and results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.autograd import Function
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.nn.modules.module import Module

__all__ = ["call"]


class _Boundary(Function):
    """Lets tensors pass; tells ``seen`` of the gradients on their way back."""

    @staticmethod
    def forward(ctx: Any, seen: Callable[..., Any], *tensors: Tensor) -> Any:
        ctx.seen = seen
        ctx.set_materialize_grads(False)
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        return (None, *ctx.seen(grads))


def _bounded(values: tuple[Any, ...], seen: Callable[..., Any]) -> tuple[Any, ...]:
    places = [k for k, value in enumerate(values) if isinstance(value, Tensor)]
    if not any(values[k].requires_grad for k in places):
        return values
    passed = _Boundary.apply(seen, *(values[k] for k in places))
    bounded = list(values)
    for k, tensor in zip(places, passed, strict=True):
        bounded[k] = tensor
    return tuple(bounded)


def call(
    module: Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    hooks: list[Callable[..., Any]],
) -> Any:
    """Call ``module.forward`` with hooks on the gradients at both ends."""
    grad_output: list[tuple[Any, ...]] = []
    inputs = [value for value in args if isinstance(value, Tensor)]
    reaches_inputs = any(tensor.requires_grad for tensor in inputs)

    def at_results(grads: tuple[Any, ...]) -> tuple[Any, ...]:
        grad_output[:] = [grads]
        if not reaches_inputs:  # the backward pass ends inside the module
            at_inputs((None,) * len(inputs))
        return grads

    def at_inputs(grads: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in hooks:
            changed = hook(module, grads, grad_output[0])
            if changed is not None:
                grads = changed if isinstance(changed, tuple) else (changed,)
        return grads

    result = module.forward(*_bounded(args, at_inputs), **kwargs)
    if isinstance(result, tuple):
        return _bounded(result, at_results)
    return _bounded((result,), at_results)[0]
