# SPDX-License-Identifier: Apache-2.0
"""Parameters as one vector, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.ops import shapes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flambeau.runtime._tensor import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements of parameters, one after the other."""
    return shapes.cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Have parameters use the memory of a vector, one after the other."""
    at = 0
    for parameter in parameters:
        count = parameter.numel()
        parameter.data = vec[at : at + count].view_as(parameter).data
        at += count
