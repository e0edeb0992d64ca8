# SPDX-License-Identifier: Apache-2.0
"""Gradients that have no gradients themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.ops.grad_mode import is_grad_enabled

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = ["refuse_second_derivative"]


def refuse_second_derivative(name: str, *tensors: Tensor | None) -> None:
    """Refuse to record a backward kernel, as ``create_graph=True`` would have it.

    Raises
    ------
    RuntimeError
        Gradients are recorded, and one of the tensors takes part in them.
    """
    if is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        raise RuntimeError(
            f"the derivative for '{name}' is not implemented: gradients of this operation cannot "
            "be differentiated again. Compose it of simpler operations where that is needed."
        )
