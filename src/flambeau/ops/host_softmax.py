# SPDX-License-Identifier: Apache-2.0
"""Softmax of host tensors through NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flambeau.ops import host

if TYPE_CHECKING:
    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._tensor import Tensor


def values_of(tensor: Tensor) -> host.Array:
    """A tensor's elements as the type that arithmetic is done in."""
    return host.convert(host.array(tensor), host.arithmetic_code(tensor.dtype.code))


def log_softmax(x: host.Array, axis: int) -> host.Array:
    """The logarithm of the softmax along an axis."""
    with np.errstate(all="ignore"):
        shifted = x - np.max(x, axis, keepdims=True)
        return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis, keepdims=True)))


def forward(input: Tensor, dim: int, log: bool, of: dtype) -> Tensor:
    """Compute the softmax of a host tensor."""
    x = values_of(input)
    if x.size == 0:
        return host.tensor_of(x, of.code)
    flat = x.reshape(1) if x.ndim == 0 else x
    if log:
        return host.tensor_of(log_softmax(flat, dim).reshape(x.shape), of.code)
    with np.errstate(all="ignore"):
        powers = np.exp(flat - np.max(flat, dim, keepdims=True))
        result = powers / np.sum(powers, dim, keepdims=True)
    return host.tensor_of(result.reshape(x.shape), of.code)


def backward(grad: Tensor, result: Tensor, dim: int, log: bool, of: dtype) -> Tensor:
    """Compute the gradient of the softmax of a host tensor."""
    g, y = values_of(grad), values_of(result)
    if y.size == 0:
        return host.tensor_of(y, of.code)
    shape = y.shape
    if y.ndim == 0:
        g, y = g.reshape(1), y.reshape(1)
    with np.errstate(all="ignore"):
        if log:
            slope = g - np.exp(y) * np.sum(g, dim, keepdims=True)
        else:
            slope = y * (g - np.sum(g * y, dim, keepdims=True))
    return host.tensor_of(slope.reshape(shape), of.code)
