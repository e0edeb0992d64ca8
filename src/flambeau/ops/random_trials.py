# SPDX-License-Identifier: Apache-2.0
"""Draws that need more than one trial: gamma, binomial and Dirichlet numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flambeau.ops.common import kernel, new_like
from flambeau.ops.random import element_type
from flambeau.ops.random_sampling import _source
from flambeau.ops.registry import FUNCTIONS, public
from flambeau.ops.shapes import broadcast_tensors
from flambeau.runtime import _dtype, _random
from flambeau.runtime._tensor import empty

if TYPE_CHECKING:
    from flambeau.runtime._generator import Generator
    from flambeau.runtime._tensor import Tensor

_THREADS = 256
# By how much the offset of the generator advances, whatever the trials took.
_GAMMA_WORDS, _BINOMIAL_WORDS = 12, 44


def _host_generator(generator: Generator | None) -> Any:
    """NumPy's generator, seeded by a draw of the host's."""
    import numpy as np

    seed = empty((), dtype=_dtype.dtypes["int64"]).random_(generator=generator).item()
    return np.random.Generator(np.random.PCG64(int(seed)))


def _check(name: str, input: Tensor) -> None:
    if input.dtype.category != 2:
        legacy = _dtype.legacy_type_name(input.dtype)
        raise NotImplementedError(f"\"{name}\" not implemented for '{legacy}'")


def _standard_gamma(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw gamma numbers of scale 1 for shape parameters.

    Parameters
    ----------
    input
        The shapes, positive.
    generator
        None is the default one of the device.

    Returns
    -------
    Tensor
        Of the shape and dtype of `input`; never 0.
    """
    _check("gamma", input)
    shapes = input.contiguous()
    out = new_like(shapes, shapes.shape)
    n = out.numel()
    if n == 0:
        return out
    if input.device.type == "cpu":
        from flambeau.ops import host

        drawn = _host_generator(generator).standard_gamma(host.array(shapes).astype("float64"))
        least = _dtype.finfo(out.dtype).tiny
        return out.copy_(host.tensor_of(drawn.clip(least)))
    kind, device = element_type(shapes.dtype.code), shapes.get_device()
    source = _source(
        f"{kind} *out, const {kind} *shapes, const Philox philox, int64 n",
        "gamma_each(out, shapes, philox, n)",
    )
    philox = _random.draw(generator, device, _GAMMA_WORDS)
    grid = (math.ceil(n / _THREADS), 1, 1)
    made = kernel(source, "draw", "PRBq", device)
    made(device, grid, (_THREADS, 1, 1), 0, out, shapes, philox, n)
    return out


@public(method=False)
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw numbers of successes.

    Parameters
    ----------
    count
        How many trials, a floating-point tensor.
    prob
        The probability of success, broadcast with `count` and of its dtype.
    generator
        None is the default one of the device.

    Returns
    -------
    Tensor
        Of the broadcast shape, in the dtype of `count`.

    Raises
    ------
    NotImplementedError
        The dtype is not floating-point.
    RuntimeError
        The dtypes differ.
    """
    _check("binomial", count)
    if count.dtype != prob.dtype:
        raise RuntimeError(
            f"Found dtype {_dtype.legacy_type_name(prob.dtype)} but expected "
            f"{_dtype.legacy_type_name(count.dtype)}: binomial() takes count and prob of one dtype"
        )
    trials, chances = (part.contiguous() for part in broadcast_tensors(count, prob))
    out = new_like(trials, trials.shape)
    n = out.numel()
    if n == 0:
        return out
    if count.device.type == "cpu":
        from flambeau.ops import host

        counts, probabilities = (host.array(part).astype("float64") for part in (trials, chances))
        drawn = _host_generator(generator).binomial(counts.astype("int64"), probabilities)
        return out.copy_(host.tensor_of(drawn))
    kind, device = element_type(trials.dtype.code), trials.get_device()
    source = _source(
        f"{kind} *out, const {kind} *counts, const {kind} *chances, const Philox philox, int64 n",
        "binomial_each(out, counts, chances, philox, n)",
    )
    philox = _random.draw(generator, device, _BINOMIAL_WORDS)
    grid = (math.ceil(n / _THREADS), 1, 1)
    made = kernel(source, "draw", "PRRBq", device)
    made(device, grid, (_THREADS, 1, 1), 0, out, trials, chances, philox, n)
    return out


def _sample_dirichlet(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Draw points of a simplex: gamma numbers over their sum along the last dimension."""
    drawn = _standard_gamma(input, generator)
    points: Tensor = drawn / drawn.sum(-1, keepdim=True)
    return points


FUNCTIONS["_standard_gamma"] = _standard_gamma
FUNCTIONS["_sample_dirichlet"] = _sample_dirichlet
