# SPDX-License-Identifier: Apache-2.0
"""First values of parameters, ``torch.nn.init``; all work in place, and without gradients."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

from flambeau.ops.grad_mode import no_grad
from flambeau.ops.registry import METHODS

if TYPE_CHECKING:
    from flambeau.runtime._generator import Generator
    from flambeau.runtime._tensor import Tensor

__all__ = [
    "calculate_gain",
    "constant_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

_LINEAR = {
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "sigmoid",
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a nonlinearity should be made up for.

    Parameters
    ----------
    nonlinearity
        Its name in `flambeau.nn.functional`.
    param
        The slope of ``leaky_relu``, 0.01 by default.

    Raises
    ------
    ValueError
        There is none of that name.
    """
    if nonlinearity in _LINEAR:
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is not None and (isinstance(param, bool) or not isinstance(param, (int, float))):
            raise ValueError(f"negative_slope {param} not a valid number")
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill with numbers evenly from `a` to `b`."""
    with no_grad():
        METHODS["uniform_"](tensor, a, b, generator=generator)
    return tensor


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill with normally distributed numbers."""
    with no_grad():
        METHODS["normal_"](tensor, mean, std, generator=generator)
    return tensor


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fill with normally distributed numbers between `a` and `b`.

    They come from uniform ones through the inverse of the distribution.
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of "
            "values may be incorrect.",
            stacklevel=2,
        )
    low, high = (0.5 * (1 + math.erf((end - mean) / std / math.sqrt(2.0))) for end in (a, b))
    with no_grad():
        METHODS["uniform_"](tensor, 2 * low - 1, 2 * high - 1, generator=generator)
        METHODS["erfinv_"](tensor)
        tensor.mul_(std * math.sqrt(2.0)).add_(mean)
        METHODS["clamp_"](tensor, a, b)
    return tensor


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with 1."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with 0."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Make a matrix the identity.

    Raises
    ------
    ValueError
        It has not two dimensions.
    """
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with no_grad():
        tensor.zero_()
        tensor.detach().diagonal().fill_(1)
    return tensor


def _fans(tensor: Tensor) -> tuple[int, int]:
    """How many numbers go into each element of a layer's result, and come from one of its input."""
    if tensor.ndim < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in {"fan_in", "fan_out"}:
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _fans(tensor)[0 if mode == "fan_in" else 1]


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill evenly so that the variance is ``gain ** 2 * 2 / (fan_in + fan_out)``.

    Notes
    -----
    X. Glorot and Y. Bengio, Understanding the difficulty of training deep feedforward neural
    networks, AISTATS 2010.
    """
    std = gain * math.sqrt(2.0 / float(sum(_fans(tensor))))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill normally with the variance of `xavier_uniform_`."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(sum(_fans(tensor)))), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill evenly so that the variance is the square of the gain, divided by the fan.

    Parameters
    ----------
    tensor
        With two dimensions or more.
    a
        The slope of a ``leaky_relu`` that follows.
    mode
        ``"fan_in"`` keeps the variance on the way forward, ``"fan_out"`` on the way back.
    nonlinearity
        As for `calculate_gain`.
    generator
        Where the numbers come from.

    Notes
    -----
    K. He et al., Delving deep into rectifiers, ICCV 2015.
    """
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill normally with the variance of `kaiming_uniform_`; arguments as there."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=2)
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    return normal_(tensor, 0.0, std, generator)
