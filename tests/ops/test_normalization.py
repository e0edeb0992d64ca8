# SPDX-License-Identifier: Apache-2.0
"""Layer norm and RMS norm against NumPy, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.ops import normalization as ops
from ops.cases import array_of, tensor_of

# A warp per row; a block; rows without whole packs; rows that are not held.
SHAPES = [(50, 100), (3, 1000), (5, 4096), (3, 1001), (2, 40001)]


def reference(
    x: np.ndarray[Any, Any], w: Any, b: Any, g: np.ndarray[Any, Any], rms: bool
) -> list[np.ndarray[Any, Any]]:
    """The result, and the gradients of input, weight and bias."""
    x = x.astype(np.float64)
    mean = 0 if rms else x.mean(1, keepdims=True)
    scale = 1 / np.sqrt(((x - mean) ** 2).mean(1, keepdims=True) + 1e-5)
    normal, weighted = (x - mean) * scale, g * w
    slopes = 0 if rms else weighted.mean(1, keepdims=True)
    of_input = scale * (weighted - slopes - normal * (weighted * normal).mean(1, keepdims=True))
    return [normal * w + b, of_input, (g * normal).sum(0), g.sum(0)]


@pytest.mark.parametrize("rms", [False, True], ids=["layer", "rms"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: tuple[int, int], rms: bool, gpu: Any) -> None:
    random = np.random.default_rng(shape[1])
    n = shape[1]
    x, g = (random.normal(m, s, shape).astype(np.float32) for m, s in ((1, 3), (0, 1)))
    w, b = (random.normal(m, 1, n).astype(np.float32) for m in (1, 0))
    expected = reference(x, w, 0 if rms else b, g, rms)
    for device in (gpu, "cpu"):
        tx, tg, tw, tb = (tensor_of(a, device) for a in (x, g, w, b))
        made = ops.forward(tx, n, tw, None if rms else tb, 1e-5, rms)
        wanted = (True, True, not rms)
        grads = ops.backward(tg, tx, n, made.mean, made.scale, tw, rms, wanted)
        assert (grads[2] is None) == rms
        for found, right in zip((made.out, *grads), expected, strict=True):
            if found is not None:
                np.testing.assert_allclose(array_of(found), right, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(dtype: str, gpu: Any) -> None:
    of = getattr(torch, dtype)
    random = np.random.default_rng(3)
    x, g = (tensor_of(random.normal(0, 1, (20, 64)), gpu).to(of) for _ in range(2))
    w = tensor_of(random.normal(1, 1, 64), gpu).to(of)
    expected = reference(array_of(x), array_of(w), 0, array_of(g), False)
    made = ops.forward(x, 64, w, None, 1e-5, False)
    assert made.out.dtype == of
    assert made.mean.dtype == (torch.float64 if dtype == "float64" else torch.float32)
    grads = ops.backward(g, x, 64, made.mean, made.scale, w, False)
    tolerance = {"float16": 2e-2, "bfloat16": 1.2e-1, "float64": 1e-12}[dtype]
    for found, right in zip((made.out, *grads), expected, strict=True):
        np.testing.assert_allclose(array_of(found), right, rtol=tolerance, atol=tolerance)


def test_public_functions(gpu: Any) -> None:
    x = torch.arange(12.0, device=gpu).reshape(2, 2, 3)
    y = torch.layer_norm(x, (2, 3))
    np.testing.assert_allclose(array_of(y.mean((1, 2))), [0, 0], atol=1e-6)
    out, mean, scale = torch.native_layer_norm(x, (2, 3), None, None, 1e-5)
    assert torch.equal(out, y)
    assert mean.shape == scale.shape == (2, 1, 1)
    assert mean.reshape(-1).tolist() == [2.5, 8.5]
    z = torch.rms_norm(torch.full((1, 4), 1e-4, device=gpu), (4,))
    eps = np.finfo(np.float32).eps
    np.testing.assert_allclose(array_of(z), 1e-4 / np.sqrt(1e-8 + eps), rtol=1e-4)


def test_mixed_precision_and_no_rows(gpu: Any) -> None:
    """Parameters in float32 go with a 16-bit input."""
    x = torch.ones(2, 8, device=gpu, dtype=torch.float16)
    w, b = torch.full((8,), 2.0, device=gpu), torch.full((8,), 0.5, device=gpu)
    y = torch.layer_norm(x, (8,), w, b)
    assert y.dtype == torch.float16
    assert set(y.reshape(-1).tolist()) == {0.5}
    empty = torch.empty(0, 8, device=gpu)
    made = ops.forward(empty, 8, w, b, 1e-5, False)
    grads = ops.backward(empty, empty, 8, made.mean, made.scale, w, False)
    assert [g.shape for g in grads] == [(0, 8), (8,), (8,)]
    assert not grads[1].any()


def test_refusals(gpu: Any) -> None:
    x = torch.ones(2, 3, device=gpu)
    with pytest.raises(RuntimeError, match="expected input with shape \\[\\*, 4\\]"):
        torch.layer_norm(x, (4,))
    with pytest.raises(RuntimeError, match="Expected weight to be of same shape"):
        torch.layer_norm(x, (3,), torch.ones(2, device=gpu))
    with pytest.raises(RuntimeError, match="at least 1-dimensional"):
        torch.layer_norm(x, ())
    with pytest.raises(RuntimeError, match="same device"):
        torch.layer_norm(x, (3,), torch.ones(3))
    with pytest.raises(NotImplementedError, match="not implemented for"):
        torch.layer_norm(x.int(), (3,))
