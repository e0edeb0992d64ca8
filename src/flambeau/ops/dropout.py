# SPDX-License-Identifier: Apache-2.0
"""Dropout: elements become zero at random, the others grow to make up for it."""

from __future__ import annotations

import functools
import math
import struct
from typing import TYPE_CHECKING, Any

from flambeau.ops.common import kernel, pack_layout
from flambeau.ops.random import element_type
from flambeau.ops.random_sampling import bernoulli_
from flambeau.ops.registry import public
from flambeau.runtime import _dtype, _factory, _random

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

_THREADS = 256
_MOST_ROWS = 4  # of rounds side by side; more blocks would each start anew for little
_BOOL = _dtype.dtypes["bool"]


def functional_dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Set elements to zero with probability `p` and divide the others by ``1 - p``.

    Parameters
    ----------
    input
        A floating-point tensor.
    p
        The probability, from 0 to 1.
    training
        False gives the input itself.
    inplace
        Write into the input. The numbers drawn are others than without.

    Returns
    -------
    Tensor
        The input itself where nothing is to be done.

    Raises
    ------
    ValueError
        `p` is not in [0, 1].
    NotImplementedError
        A CUDA tensor is not floating-point.
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(_range_error(p))
    return dropout_(input, p, training) if inplace else dropout(input, p, training)


def _range_error(p: float) -> str:
    return f"dropout probability has to be between 0 and 1, but got {p}"


@public(method=False)
def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Set elements to zero with probability `p` and divide the others by ``1 - p``.

    Parameters
    ----------
    input
        A floating-point tensor.
    p
        The probability, from 0 to 1.
    train
        False gives the input itself.

    Raises
    ------
    RuntimeError
        `p` is not in [0, 1].
    NotImplementedError
        A CUDA tensor is not floating-point.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.ones(100, device="cuda")
    >>> sorted(set(torch.dropout(x, 0.5, True).tolist()))
    [0.0, 2.0]
    """
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(_range_error(p))
    if p == 0 or not train or input.numel() == 0:
        return input
    if p == 1:
        return input * 0
    if input.device.type == "cpu":
        return input * _noise(input, p)
    return _fused(input, p, None)


@public(method=False)
def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
    """Do `dropout` in place; the numbers drawn are those of ``bernoulli_(1 - p)``."""
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(_range_error(p))
    if p == 0 or not train or input.numel() == 0:
        return input
    input.mul_(0 if p == 1 else _noise(input, p))
    return input


@public(method=False)
def native_dropout(input: Tensor, p: float, train: bool | None = None) -> tuple[Tensor, Tensor]:
    """Do `dropout` and say which elements were kept; ``train=None`` means True.

    Returns
    -------
    result, mask : Tensor
        The mask is bool.
    """
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(_range_error(p))
    if input.numel() == 0:
        return input, _factory.empty_like(input, dtype=_BOOL)
    if train is False:
        return input.clone(), _factory.empty_like(input, dtype=_BOOL).fill_(True)
    if _is_dense(input):
        mask = _factory.empty_like(input, dtype=_BOOL)
    else:  # in the order of the elements
        mask = _factory.new_empty(input.shape, _BOOL, input.device)
    if p == 1:
        return input * 0, mask.fill_(False)
    if input.device.type == "cpu":
        bernoulli_(mask, 1 - p)
        return input * mask * (1 / (1 - p)), mask
    return _fused(input, p, mask), mask


def _noise(input: Tensor, p: float) -> Tensor:
    noise = bernoulli_(_factory.empty_like(input), 1 - p)
    noise.div_(1 - p)
    return noise


# -- whole features, and with mean and variance kept ----------------------------------------------

_ALPHA = 1.7580993408473766  # what SELU tends to for very negative inputs, negated


def _feature_noise(input: Tensor) -> Tensor:
    if input.ndim < 2:
        raise RuntimeError(
            "Feature dropout requires at least 2 dimensions in the input: batch and features; got "
            f"{input.ndim}"
        )
    shape = (*input.shape[:2], *[1] * (input.ndim - 2))
    return _factory.new_empty(shape, input.dtype, input.device)


def _dropped(input: Tensor, p: float, train: bool, feature: bool, alpha: bool) -> Tensor:
    """Multiply by a noise tensor; `feature` drops whole features, `alpha` to SELU's limit."""
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(_range_error(p))
    if p == 0 or not train or input.numel() == 0:
        return input
    result: Tensor
    if p == 1:
        result = input * 0
        return result
    noise = _feature_noise(input) if feature else _factory.empty_like(input)
    bernoulli_(noise, 1 - p)
    if not alpha:
        noise.div_(1 - p)
        result = input * noise
        return result
    a = 1 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
    shift = (noise - 1).mul_(_ALPHA * a).add_(_ALPHA * a * p)
    noise.mul_(a)
    result = (input * noise).add_(shift)
    return result


@public(method=False)
def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Do `dropout` with whole features: all of ``input[n, c]`` becomes zero or none.

    Parameters
    ----------
    input
        A floating-point tensor with at least two dimensions.
    p
        The probability, from 0 to 1.
    train
        False gives the input itself.

    Raises
    ------
    RuntimeError
        `p` is not in [0, 1], or the input has fewer than two dimensions.
    """
    return _dropped(input, p, train, True, False)


@public(method=False)
def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Drop elements to SELU's limit, then scale and shift so that mean and variance stay.

    Parameters
    ----------
    input
        A floating-point tensor with mean 0 and variance 1.
    p
        The probability, from 0 to 1.
    train
        False gives the input itself.
    """
    return _dropped(input, p, train, False, True)


@public(method=False)
def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Do `alpha_dropout` with whole features, as `feature_dropout` does."""
    return _dropped(input, p, train, True, True)


# -- the fused kernel -----------------------------------------------------------------------------


def _is_dense(input: Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in any order."""
    step = 1
    for stride, size in sorted(zip(input.stride(), input.shape, strict=True)):
        if size == 1:
            continue
        if stride != step:
            return False
        step *= size
    return True


def _width(n: int, itemsize: int, *addresses: int) -> int:
    """How many neighbours a thread does at once."""
    width = 16 // itemsize
    while width > 1 and (n % width or any(a % (width * itemsize) for a in addresses)):
        width //= 2
    return width


def _fused(input: Tensor, p: float, mask: Tensor | None) -> Tensor:
    if input.dtype.category != 2:
        name = _dtype.legacy_type_name(input.dtype)
        raise NotImplementedError(
            f"\"fused_dropout\" not implemented for '{name}': it takes floating-point tensors"
        )
    n, device = input.numel(), input.get_device()
    keep, scale = _factors(input, p)
    out = _factory.empty_like(input)
    threads = _random.grid_threads(device, n)
    rounds = (n - 1) // (4 * threads) + 1
    philox = _random.draw(None, device, 4 * rounds)
    dense = input.is_contiguous() or (_is_dense(input) and out.stride() == input.stride())
    width = _width(n, input.itemsize, input.data_ptr(), out.data_ptr()) if dense else 1
    if width > 1:
        rounds = (n - 1) // (width * threads) + 1
    arguments: list[Any] = [out, input, mask if mask is not None else 0, philox, keep, scale]
    arguments += [n, threads]
    signature = "PRPBddqq"
    if width == 1:
        signature += "B"
        flat = ((n,), (1,), (1,)) if dense else (input.shape, out.stride(), input.stride())
        arguments.append(pack_layout(*flat))
    made = kernel(_fused_source(input.dtype.code, width), "drop", signature, device)
    grid = (threads // _THREADS, min(rounds, _MOST_ROWS), 1)
    made(device, grid, (_THREADS, 1, 1), 0, *arguments)
    return out


def _factors(input: Tensor, p: float) -> tuple[float, float]:
    """What a draw must be below to keep an element, and what that is multiplied by."""
    keep = 1.0 - p
    if input.dtype.name != "float64":
        (keep,) = struct.unpack("f", struct.pack("f", keep))
    return keep, 1.0 / keep


@functools.cache
def _fused_source(code: int, width: int) -> str:
    kind = element_type(code)
    layout, passed = (", const Layout layout", ", layout") if width == 1 else ("", "")
    body = "dropout_strided" if width == 1 else f"dropout_packs<{kind}, {width}>"
    return f"""#include "random_sampling.cuh"
FLAMBEAU_KERNEL({_THREADS}) drop({kind} *out, const {kind} *in, bool *mask, const Philox philox,
                           double keep, double scale, int64 n, int64 threads{layout}) {{
  FLAMBEAU_GRID_WAIT();
  {body}(out, in, mask, philox, keep, scale, n, threads{passed});
}}
"""
