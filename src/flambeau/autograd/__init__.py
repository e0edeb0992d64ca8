# SPDX-License-Identifier: Apache-2.0
"""Gradients: backward passes, functions with a derivative of their own, checks of derivatives.

Operations on tensors that require grad are recorded; `Tensor.backward`, `backward` and `grad` go
through the record in reverse. There are three ways to give new work a derivative:

* Write it in tensor operations. Nothing is to be done.
* Subclass `Function` with ``forward(ctx, ...)`` and ``backward(ctx, ...)``, as in torch.
* Inside flambeau: ``ops.derivatives.differentiable(forward, {"x": lambda grad, x, out: ...})``,
  where ``forward`` computes and a function for each argument says what its gradient is. It costs
  nothing while no tensor requires grad. With a tuple as key one function gives several::

      layer_norm = differentiable(
          forward,  # (input, weight, bias, eps) -> (result, mean, rstd)
          {("input", "weight", "bias"): lambda grad, input, weight, out1, out2, needs: (...)},
      )

Backward passes run in the calling thread. Each operation's backward runs on the stream of its
forward; the pass as a whole is ordered like one operation on the caller's current stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.autograd import forward_values, functional, graph
from flambeau.autograd.function import Function, NestedIOFunction, once_differentiable
from flambeau.autograd.gradient_check import GradcheckError, gradcheck, gradgradcheck
from flambeau.ops.grad_mode import (
    enable_grad,
    inference_mode,
    no_grad,
    set_grad_enabled,
)
from flambeau.runtime._autograd_engine import run_backward
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Function",
    "GradcheckError",
    "NestedIOFunction",
    "Variable",
    "backward",
    "enable_grad",
    "function",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "no_grad",
    "once_differentiable",
    "set_grad_enabled",
]

Variable = Tensor
Tensors = "Tensor | Sequence[Tensor]"


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Compute gradients of tensors with respect to the leaves of their graph, and add them there.

    Parameters
    ----------
    tensors
        What to differentiate.
    grad_tensors
        Gradients with respect to them; None for a tensor of one element means 1.
    retain_graph
        Whether the graph stays usable for another pass; like `create_graph` unless given.
    create_graph
        Whether the pass is recorded itself, for higher derivatives.
    grad_variables
        The old name of `grad_tensors`.
    inputs
        Tensors whose ``grad`` is to be computed; all leaves unless given.

    Raises
    ------
    RuntimeError
        A tensor does not require grad; a gradient is missing or has the wrong shape; the graph was
        used already; or a tensor that it needs was written in place.
    """
    outputs = _as_list(tensors)
    given = grad_variables if grad_tensors is None else grad_tensors
    wanted = None if inputs is None else _as_list(inputs)
    if wanted is not None and not wanted:
        raise RuntimeError("'inputs' argument to backward() cannot be empty")
    gradients = forward_values.initial_gradients(outputs, given)
    forward_values.check_inputs(wanted)
    keep = create_graph if retain_graph is None else retain_graph
    run_backward(outputs, gradients, keep, create_graph, wanted, True)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """Compute and return gradients of some tensors with respect to others.

    Parameters
    ----------
    outputs
        What to differentiate.
    inputs
        With respect to what; their ``grad`` is left alone.
    grad_outputs
        Gradients with respect to `outputs`; None for a tensor of one element means 1.
    retain_graph
        Whether the graph stays usable for another pass; like `create_graph` unless given.
    create_graph
        Whether the pass is recorded itself, for higher derivatives.
    only_inputs
        Accepted; always so.
    allow_unused
        Whether inputs that the outputs do not depend on give None instead of an error.
    is_grads_batched
        Whether the gradients have a leading dimension: one pass for each index of it.
    materialize_grads
        Give zeros instead of None.

    Returns
    -------
    tuple of Tensor
        One for each input.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> (slope,) = torch.autograd.grad(x * x, x, create_graph=True)
    >>> torch.autograd.grad(slope, x)
    (tensor(2.),)
    """
    targets, wanted = _as_list(outputs), _as_list(inputs)
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True"
        )
    if is_grads_batched:
        return forward_values.batched(
            grad, targets, wanted, _as_list(grad_outputs), create_graph, bool(allow_unused)
        )
    gradients = forward_values.initial_gradients(targets, grad_outputs)
    forward_values.check_inputs(wanted)
    keep = create_graph if retain_graph is None else retain_graph
    found = run_backward(targets, gradients, keep, create_graph, list(wanted), False)
    if materialize_grads:
        return forward_values.materialized(found, wanted)
    if not allow_unused and any(one is None for one in found):
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. Set "
            "allow_unused=True if this is the desired behavior."
        )
    return tuple(found)
