# SPDX-License-Identifier: Apache-2.0
"""What a backward pass begins with and ends with: first gradients, checks of inputs, zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["batched", "check_inputs", "initial_gradients", "materialized"]


def initial_gradients(outputs: Sequence[Tensor], given: Any) -> list[Tensor]:
    """Gradients with respect to the outputs, ones where they may be left out.

    Raises
    ------
    RuntimeError
        One is missing or does not fit.
    """
    if given is None:
        gradients: list[Any] = [None] * len(outputs)
    else:
        gradients = list(given) if isinstance(given, (tuple, list)) else [given]
    if len(gradients) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(gradients)} gradients")
    for number, out in enumerate(outputs):
        if not isinstance(out, Tensor):
            raise TypeError(f"element {number} of tensors is a {type(out).__name__}, no Tensor")
        if not out.requires_grad:
            raise RuntimeError(
                f"element {number} of tensors does not require grad and does not have a grad_fn"
            )
        gradients[number] = _first(out, gradients[number], number)
    return gradients


def _first(out: Tensor, gradient: Any, number: int) -> Tensor:
    if gradient is None:
        if out.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if not out.dtype.is_floating_point:
            raise RuntimeError(
                f"grad can be implicitly created only for real scalar outputs but got {out.dtype}"
            )
        one: Tensor = flambeau.ones_like(out)
        return one
    if not isinstance(gradient, Tensor):
        raise TypeError(
            f"gradients can be either Tensors or None, but got {type(gradient).__name__}"
        )
    if gradient.shape != out.shape:
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{number}] has a shape of {gradient.shape} and "
            f"output[{number}] has a shape of {out.shape}."
        )
    if out.dtype.is_complex != gradient.dtype.is_complex:
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. "
            f"Mismatch in dtype: grad_output[{number}] has a dtype of {gradient.dtype} and "
            f"output[{number}] has a dtype of {out.dtype}."
        )
    return gradient


def check_inputs(inputs: Sequence[Tensor] | None) -> None:
    """Refuse inputs that gradients cannot reach.

    Raises
    ------
    RuntimeError
        One does not require grad.
    """
    for one in inputs or ():
        if not isinstance(one, Tensor):
            raise TypeError(f"gradients are computed of Tensors, got {type(one).__name__}")
        if not one.requires_grad:
            raise RuntimeError("One of the differentiated Tensors does not require grad")


def materialized(found: Sequence[Tensor | None], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Zeros where there is no gradient."""
    return tuple(
        flambeau.zeros_like(of, requires_grad=True) if one is None else one
        for one, of in zip(found, inputs, strict=True)
    )


def batched(
    grad: Callable[..., Any],
    outputs: list[Tensor],
    inputs: list[Tensor],
    gradients: list[Any],
    create_graph: bool,
    allow_unused: bool,
) -> tuple[Any, ...]:
    """One pass for each index of the gradients' leading dimension, results stacked."""
    passes = [
        grad(
            outputs, inputs, list(part), retain_graph=True, create_graph=create_graph,
            allow_unused=allow_unused,
        )
        for part in zip(*[one.unbind(0) for one in gradients], strict=True)
    ]  # fmt: skip
    return tuple(
        None if column[0] is None else flambeau.stack(column)
        for column in zip(*passes, strict=True)
    )
