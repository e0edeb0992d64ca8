# SPDX-License-Identifier: Apache-2.0
"""Layer norm and RMS norm of host tensors through NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flambeau.ops import host
from flambeau.ops.host_softmax import values_of

if TYPE_CHECKING:
    from flambeau.ops.normalization import Normalized
    from flambeau.runtime._tensor import Tensor


def forward(
    input: Tensor, n: int, weight: Tensor | None, bias: Tensor | None, eps: float, rms: bool
) -> Normalized:
    """Normalise rows of `n` elements of a host tensor."""
    from flambeau.ops.normalization import Normalized

    x = values_of(input).reshape(-1, n)
    mean = np.zeros((len(x), 1), x.dtype) if rms else np.mean(x, 1, keepdims=True)
    away = x - mean
    with np.errstate(all="ignore"):
        scale = 1 / np.sqrt(np.mean(away * away, 1, keepdims=True) + x.dtype.type(eps))
        y = away * scale
        if weight is not None:
            y = y * values_of(weight).reshape(1, n)
        if bias is not None:
            y = y + values_of(bias).reshape(1, n)
    out = host.tensor_of(y.reshape(input.shape), input.dtype.code)
    return Normalized(out, host.tensor_of(mean[:, 0]), host.tensor_of(scale[:, 0]))


def backward(
    grad: Tensor,
    input: Tensor,
    n: int,
    mean: Tensor,
    scale: Tensor,
    weight: Tensor | None,
    rms: bool,
    wanted: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Compute the gradients of input, weight and bias of host tensors."""
    g, x = values_of(grad).reshape(-1, n), values_of(input).reshape(-1, n)
    normal = (x - host.array(mean)[:, None]) * host.array(scale)[:, None]
    weighted = g if weight is None else g * values_of(weight).reshape(1, n)
    like = (input if weight is None else weight).dtype.code
    results: list[Tensor | None] = [None, None, None]
    if wanted[0]:
        slopes = 0 if rms else np.mean(weighted, 1, keepdims=True)
        along = np.mean(weighted * normal, 1, keepdims=True)
        slope = host.array(scale)[:, None] * (weighted - slopes - normal * along)
        results[0] = host.tensor_of(slope.reshape(input.shape), input.dtype.code)
    if wanted[1]:
        results[1] = host.tensor_of(np.sum(g * normal, 0), like)
    if wanted[2]:
        results[2] = host.tensor_of(np.sum(g, 0), like)
    return results[0], results[1], results[2]
