# SPDX-License-Identifier: Apache-2.0
"""Layers that normalise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn import init
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.runtime._tensor import empty

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._tensor import Tensor

__all__ = ["LayerNorm", "RMSNorm"]


class _Normalization(Module):
    """What both have: a shape, and parameters of it."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None, affine: bool
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(shape)
        self.eps: Any = eps
        self.elementwise_affine = affine

    def _add(self, name: str, present: bool, device: Any, dtype: Any) -> None:
        made = empty(self.normalized_shape, device=device, dtype=dtype) if present else None
        self.register_parameter(name, None if made is None else Parameter(made))

    def reset_parameters(self) -> None:
        """Set factors to 1 and terms to 0."""
        for name, parameter in self._parameters.items():
            if parameter is not None:
                init.constant_(parameter, 1.0 if name == "weight" else 0.0)

    def extra_repr(self) -> str:
        """The shape and options."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class LayerNorm(_Normalization):
    """Subtract the mean and divide by the standard deviation, over the last dimensions.

    Parameters
    ----------
    normalized_shape
        Their sizes.
    eps
        Added to the variance.
    elementwise_affine
        Whether there are a factor and a term for each element.
    bias
        Whether there is the term.
    device, dtype
        Of the parameters.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.nn.LayerNorm(2, device="cuda")(torch.tensor([[1.0, 3.0]], device="cuda")).tolist()
    [[-0.9999949932098389, 0.9999949932098389]]
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)
        self._add("weight", elementwise_affine, device, dtype)
        self._add("bias", elementwise_affine and bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        """Normalise."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """The shape and options."""
        return f"{super().extra_repr()}, bias={self.bias is not None}"


class RMSNorm(_Normalization):
    """Divide by the root of the mean square over the last dimensions.

    Parameters
    ----------
    normalized_shape
        Their sizes.
    eps
        Added to the mean square; by default the spacing of numbers near 1.
    elementwise_affine
        Whether there is a factor for each element.
    device, dtype
        Of the parameters.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)
        self._add("weight", elementwise_affine, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        """Normalise."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)
