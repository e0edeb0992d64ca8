# SPDX-License-Identifier: Apache-2.0
"""Every function's gradients against finite differences, on the host and on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.nn import functional as F  # noqa: N812
from ops.cases import array_of

if TYPE_CHECKING:
    from collections.abc import Callable

ACTIVATIONS = [
    "gelu", "silu", "mish", "elu", "selu", "celu", "softplus", "logsigmoid", "leaky_relu",
    "hardtanh", "hardswish", "hardsigmoid", "softshrink", "hardshrink", "tanhshrink", "softsign",
    "relu", "relu6",
]  # fmt: skip


def classes(device: Any) -> torch.Tensor:
    return torch.tensor([0, 4, 2, 1], device=device)


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    **{name: (getattr(F, name), [(12,)]) for name in ACTIVATIONS},
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), [(12,)]),
    "glu": (F.glu, [(3, 4)]),
    "prelu": (F.prelu, [(3, 4), (4,)]),
    "softmax": (lambda x: F.softmax(x, 1), [(3, 5)]),
    "log_softmax": (lambda x: F.log_softmax(x, 0), [(3, 5)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (2, 3), w, b), [(4, 2, 3), (2, 3), (2, 3)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (3,), w, 1e-6), [(4, 3), (3,)]),
    "linear": (F.linear, [(2, 3, 4), (5, 4), (5,)]),
    "embedding": (
        lambda w: F.embedding(classes(w.device), w, padding_idx=4), [(5, 3)],
    ),
    "cross_entropy": (
        lambda x: F.cross_entropy(x, classes(x.device), label_smoothing=0.1), [(4, 5)],
    ),
    "nll_loss": (lambda x: F.nll_loss(x, classes(x.device), reduction="none"), [(4, 5)]),
    "mse_loss": (F.mse_loss, [(3, 4), (3, 4)]),
    "smooth_l1_loss": (F.smooth_l1_loss, [(3, 4), (3, 4)]),
    "bce_with_logits": (F.binary_cross_entropy_with_logits, [(3, 4), (3, 4)]),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(1, 2, 5, 4), (1, 2, 6, 4), (1, 2, 6, 3)],
    ),
    "attention with a mask": (
        F.scaled_dot_product_attention, [(2, 5, 4), (2, 6, 4), (2, 6, 4), (5, 6)],
    ),
    "attention, heads shared": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        [(1, 4, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, gpu: Any) -> None:
    function, shapes = CASES[name]
    random = np.random.default_rng(len(name))
    arrays = [random.normal(0, 1.5, shape) for shape in shapes]

    def value(values: list[Any], weights: Any, device: Any) -> float:
        with torch.no_grad():
            y = function(*(torch.tensor(v, device=device) for v in values))
        return float((array_of(y) * weights).sum())

    found = []
    for device in (gpu, torch.device("cpu")):
        inputs = [torch.tensor(a, device=device, requires_grad=True) for a in arrays]
        y = function(*inputs)
        weights = np.random.default_rng(0).normal(0, 1, tuple(y.shape))
        y.backward(torch.tensor(weights, device=device))
        found.append([array_of(x.grad) for x in inputs])
    step = 1e-6
    for which, (on_device, on_host) in enumerate(zip(*found, strict=True)):
        np.testing.assert_allclose(on_device, on_host, rtol=1e-9, atol=1e-12)
        for place in random.permutation(on_device.size)[:4]:
            sides = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[which].reshape(-1)[place] += sign * step
                sides.append(value(moved, weights, "cpu"))
            numeric = (sides[0] - sides[1]) / (2 * step)
            assert on_device.reshape(-1)[place] == pytest.approx(numeric, rel=1e-5, abs=1e-7)


def test_gradients_of_gradients(gpu: Any) -> None:
    """Where they are offered they are right; elsewhere they are refused."""
    x = torch.tensor(np.random.default_rng(0).normal(0, 1, (3, 4)), device=gpu)

    def curvature(function: Callable[..., Any], at: torch.Tensor) -> torch.Tensor:
        at = at.detach().requires_grad_()
        (slope,) = torch.autograd.grad(function(at).pow(2).sum(), at, create_graph=True)
        (result,) = torch.autograd.grad(slope.pow(2).sum(), at)
        return result

    def slow_softmax(at: torch.Tensor) -> torch.Tensor:
        powers = at.exp()
        return powers / powers.sum(1, keepdim=True)

    for fast, slow in (
        (lambda at: F.softmax(at, 1), slow_softmax),
        (lambda at: F.log_softmax(at, 1), lambda at: slow_softmax(at).log()),
        (lambda at: F.mse_loss(at, x * 2), lambda at: (at - x * 2).pow(2).mean()),
    ):
        expected = array_of(curvature(slow, x))
        np.testing.assert_allclose(array_of(curvature(fast, x)), expected, rtol=1e-6)
    with pytest.raises(RuntimeError, match="is not implemented: gradients of this operation"):
        curvature(lambda at: F.layer_norm(at, (4,)), x)
    with pytest.raises(RuntimeError, match="is not implemented: gradients of this operation"):
        curvature(F.gelu, x)


def test_in_place_activations(gpu: Any) -> None:
    x = torch.tensor([-1.0, 2.0], device=gpu, requires_grad=True)
    y = x * 1
    assert F.silu(y, inplace=True) is y
    y.sum().backward()
    expected = torch.tensor([-1.0, 2.0], device=gpu, requires_grad=True)
    F.silu(expected).sum().backward()
    np.testing.assert_allclose(array_of(x.grad), array_of(expected.grad), rtol=1e-6)
