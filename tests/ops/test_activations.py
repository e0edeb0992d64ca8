# SPDX-License-Identifier: Apache-2.0
"""Activation functions: against their definitions, and their derivatives against differences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.nn import functional as F  # noqa: N812
from flambeau.ops.activations import ACTIVATIONS, backward, forward
from ops.cases import array_of, tensor_of

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS: dict[str, tuple[float, ...]] = {
    "elu": (1.3, 1.1, 0.7),
    "softplus": (1.5, 20.0),
    "leaky_relu": (0.1,),
    "hardtanh": (-1.0, 1.5),
    "softshrink": (0.5,),
    "hardshrink": (0.5,),
    "threshold": (0.1, 2.0),
}


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def softplus(x: float) -> float:
    return math.log1p(math.exp(-abs(x))) + max(x, 0)


DEFINITIONS: dict[str, Callable[[float], float]] = {
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: (
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "silu": lambda x: x * sigmoid(x),
    "mish": lambda x: x * math.tanh(softplus(x)),
    "elu": lambda x: 1.1 * (x if x > 0 else 1.3 * math.expm1(0.7 * x)),
    "softplus": lambda x: x if 1.5 * x > 20 else softplus(1.5 * x) / 1.5,
    "logsigmoid": lambda x: -softplus(-x),
    "leaky_relu": lambda x: x if x > 0 else 0.1 * x,
    "hardtanh": lambda x: min(max(x, -1.0), 1.5),
    "hardswish": lambda x: x * min(max(x + 3, 0), 6) / 6,
    "hardsigmoid": lambda x: min(max(x + 3, 0), 6) / 6,
    "softshrink": lambda x: x - 0.5 if x > 0.5 else x + 0.5 if x < -0.5 else 0.0,
    "hardshrink": lambda x: x if abs(x) > 0.5 else 0.0,
    "threshold": lambda x: x if x > 0.1 else 2.0,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values_and_slopes(name: str, gpu: Any) -> None:
    random = np.random.default_rng(0)
    x, g = random.normal(0, 3, 300), random.normal(0, 1, 300)
    numbers, step = NUMBERS.get(name, ()), 1e-6
    exact = DEFINITIONS[name]
    expected = np.array([exact(v) for v in x])
    slopes = np.array([(exact(v + step) - exact(v - step)) / (2 * step) for v in x]) * g
    for device in (gpu, "cpu"):
        tx, tg = tensor_of(x, device), tensor_of(g, device)
        found = array_of(forward(name, tx, *numbers))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        found = array_of(backward(name, tg, tx, *numbers))
        np.testing.assert_allclose(found, slopes, rtol=1e-5, atol=1e-6)
    if name != "threshold":  # which takes integers too
        with pytest.raises(NotImplementedError, match="not implemented for"):
            forward(name, torch.arange(3, device=gpu), *numbers)


def test_functions(gpu: Any) -> None:
    x = torch.tensor([-2.0, 0.5, 7.0], device=gpu)
    assert F.relu(x).tolist() == [0, 0.5, 7]
    assert F.relu6(x).tolist() == [0, 0.5, 6]
    assert F.hardtanh(x).tolist() == [-1, 0.5, 1]
    assert F.leaky_relu(x, 0.5).tolist() == [-1, 0.5, 7]
    assert F.softsign(x).tolist() == pytest.approx([-2 / 3, 1 / 3, 7 / 8])
    assert F.glu(torch.tensor([3.0, 0.0], device=gpu)).tolist() == [1.5]
    assert F.prelu(x, torch.tensor([0.25], device=gpu)).tolist() == [-0.5, 0.5, 7]
    assert F.selu(x)[2].item() == pytest.approx(7 * 1.0507009873554805)
    assert F.celu(x, 2.0)[0].item() == pytest.approx(2 * math.expm1(-1))
    assert F.tanhshrink(x)[1].item() == pytest.approx(0.5 - math.tanh(0.5))
    y = x.clone()
    assert F.leaky_relu_(y, 0.5) is y
    assert y.tolist() == [-1, 0.5, 7]
    with pytest.raises(RuntimeError, match="approximate argument must be either none or tanh"):
        F.gelu(x, "cubic")
    with pytest.raises(RuntimeError, match="Halving dimension must be even"):
        F.glu(x)
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        F.softmax(x)
