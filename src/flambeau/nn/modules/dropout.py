# SPDX-License-Identifier: Apache-2.0
"""Layers that drop elements at random while training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.modules.module import Module

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = ["AlphaDropout", "Dropout", "FeatureAlphaDropout"]


class _Dropout(Module):
    _function: Any

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Drop elements while training; else give the input."""
        result: Tensor = type(self)._function(input, self.p, self.training, self.inplace)
        return result

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Set elements to 0 with probability `p`, and divide the others by ``1 - p``.

    Parameters
    ----------
    p
        The probability.
    inplace
        Write into the input.
    """

    _function = staticmethod(F.dropout)


class AlphaDropout(_Dropout):
    """Drop elements to SELU's limit, and keep mean and variance; parameters as for `Dropout`."""

    _function = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """Do `AlphaDropout` with whole features; parameters as for `Dropout`."""

    _function = staticmethod(F.feature_alpha_dropout)
