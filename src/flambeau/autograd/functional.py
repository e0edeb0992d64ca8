# SPDX-License-Identifier: Apache-2.0
"""Whole derivatives of functions: Jacobians, Hessians and products with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.runtime._tensor import Tensor

__all__ = ["hessian", "jacobian", "vjp"]


def _inputs(inputs: Any, create_graph: bool) -> tuple[tuple[Tensor, ...], bool]:
    several = isinstance(inputs, tuple)
    given = inputs if several else (inputs,)
    return tuple(
        one.view_as(one) if create_graph and one.requires_grad else one.detach().requires_grad_()
        for one in given
    ), several


def jacobian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False
) -> Any:
    """Compute all first derivatives of a function.

    Parameters
    ----------
    func
        Takes the inputs and gives a tensor.
    inputs
        A tensor, or a tuple of them.
    create_graph
        Whether the result can be differentiated.
    strict
        Accepted; results that do not depend on an input have zeros.

    Returns
    -------
    Tensor or tuple of Tensor
        Of shape (output shape) + (input shape), one for each input.
    """
    given, several = _inputs(inputs, create_graph)
    with flambeau.enable_grad():
        out: Tensor = func(*given)
        rows = []
        for k in range(out.numel()):
            rows.append(
                flambeau.autograd.grad(
                    out.reshape(-1)[k], given, retain_graph=True, create_graph=create_graph,
                    allow_unused=True, materialize_grads=True,
                )
            )  # fmt: skip
        found = tuple(
            flambeau.stack([row[j] for row in rows]).reshape((*out.shape, *one.shape))
            for j, one in enumerate(given)
        )
    if not create_graph:
        found = tuple(one.detach() for one in found)
    return found if several else found[0]


def hessian(
    func: Callable[..., Any], inputs: Tensor, create_graph: bool = False, strict: bool = False
) -> Tensor:
    """Compute all second derivatives of a function with one number as its result."""

    def gradient(x: Tensor) -> Tensor:
        found: Tensor = jacobian(func, x, create_graph=True)
        return found

    found: Tensor = jacobian(gradient, inputs, create_graph, strict)
    return found


def vjp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """Compute a function's results and the product of a vector with its Jacobian."""
    given, several = _inputs(inputs, create_graph)
    with flambeau.enable_grad():
        out = func(*given)
        found = flambeau.autograd.grad(
            out, given, v, create_graph=create_graph, allow_unused=True, materialize_grads=True
        )
    return out if create_graph else out.detach(), found if several else found[0]
