# SPDX-License-Identifier: Apache-2.0
"""Activation functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.ops import activations
from flambeau.ops.registry import FUNCTIONS, METHODS, OPS

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _apply(name: str, input: Tensor, inplace: bool, *numbers: float) -> Tensor:
    if not inplace:
        return activations.activation(name, input, *numbers)
    # The backward pass needs the argument, which is about to be overwritten.
    kept = input.clone() if input.requires_grad else input
    return input.copy_(activations.activation(name, kept, *numbers))


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Set negative elements to 0.

    Parameters
    ----------
    input
        A tensor.
    inplace
        Write into it.
    """
    found: Tensor = METHODS["relu_"](input) if inplace else FUNCTIONS["relu"](input)
    return found


def relu_(input: Tensor) -> Tensor:
    """Do `relu` in place."""
    return relu(input, True)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Limit elements to 0 … 6."""
    return hardtanh(input, 0.0, 6.0, inplace)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Multiply by the share of a normal distribution that lies below.

    Parameters
    ----------
    input
        A floating-point tensor.
    approximate
        ``"none"``, or ``"tanh"`` for a form by the hyperbolic tangent.
    """
    if approximate not in {"none", "tanh"}:
        raise RuntimeError("approximate argument must be either none or tanh.")
    return activations.activation("gelu" if approximate == "none" else "gelu_tanh", input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Compute ``x * sigmoid(x)``."""
    return _apply("silu", input, inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """Compute ``x * tanh(softplus(x))``."""
    return _apply("mish", input, inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Compute ``alpha * (exp(x) - 1)`` for negative elements."""
    return _apply("elu", input, inplace, alpha, 1.0, 1.0)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Do `elu` in place."""
    return elu(input, alpha, True)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Compute `elu` with the numbers that keep mean 0 and variance 1."""
    return _apply("elu", input, inplace, _SELU_ALPHA, _SELU_SCALE, 1.0)


def selu_(input: Tensor) -> Tensor:
    """Do `selu` in place."""
    return selu(input, True)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Compute ``alpha * (exp(x / alpha) - 1)`` for negative elements."""
    return _apply("elu", input, inplace, alpha, 1.0, 1.0 / alpha)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Multiply negative elements by a slope."""
    return _apply("leaky_relu", input, inplace, negative_slope)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Do `leaky_relu` in place."""
    return leaky_relu(input, negative_slope, True)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Compute ``log(1 + exp(beta * x)) / beta``, and x itself where ``beta * x > threshold``."""
    return activations.activation("softplus", input, beta, threshold)


def logsigmoid(input: Tensor) -> Tensor:
    """Compute the logarithm of the sigmoid."""
    return activations.activation("logsigmoid", input)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Limit elements to ``min_val`` … ``max_val``."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if not (input.is_floating_point() or input.is_complex()):
        clamp = METHODS["clamp_"] if inplace else FUNCTIONS["clamp"]
        limited: Tensor = clamp(input, int(min_val), int(max_val))
        return limited
    return _apply("hardtanh", input, inplace, min_val, max_val)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Do `hardtanh` in place."""
    return hardtanh(input, min_val, max_val, True)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Compute ``x * relu6(x + 3) / 6``."""
    return _apply("hardswish", input, inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Compute ``relu6(x + 3) / 6``."""
    return _apply("hardsigmoid", input, inplace)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Move elements towards 0 by `lambd`, not past it."""
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return activations.activation("softshrink", input, lambd)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Set elements between ``-lambd`` and ``lambd`` to 0."""
    return activations.activation("hardshrink", input, lambd)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """Replace elements up to `threshold` by `value`."""
    return _apply("threshold", input, inplace, threshold, value)


def tanhshrink(input: Tensor) -> Tensor:
    """Compute ``x - tanh(x)``."""
    return input - tanh(input)


def softsign(input: Tensor) -> Tensor:
    """Compute ``x / (1 + abs(x))``."""
    result: Tensor = input / (input.abs() + 1)
    return result


def sigmoid(input: Tensor) -> Tensor:
    """Compute ``1 / (1 + exp(-x))``."""
    found: Tensor = FUNCTIONS["sigmoid"](input)
    return found


def tanh(input: Tensor) -> Tensor:
    """Compute the hyperbolic tangent."""
    found: Tensor = FUNCTIONS["tanh"](input)
    return found


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Multiply the first half of a dimension by the sigmoid of the second."""
    if input.shape[dim] % 2:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {dim} is size {input.shape[dim]}"
        )
    first, second = input.chunk(2, dim)
    return first * sigmoid(second)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Multiply negative elements by a learned slope, one for all or one per channel.

    Parameters
    ----------
    input
        (batch, channels, ...).
    weight
        One element, or as many as there are channels.
    """
    if weight.numel() != 1:
        channels = input.shape[1] if input.ndim > 1 else 1
        if weight.numel() != channels:
            raise RuntimeError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{weight.numel()} and channel size = {channels}."
            )
        weight = weight.reshape(-1, *[1] * (input.ndim - 2))
    elif input.ndim == 0:
        weight = weight.reshape(())
    result: Tensor = OPS["_where"](input > 0, input, input * weight)
    return result
