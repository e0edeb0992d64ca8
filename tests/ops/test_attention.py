# SPDX-License-Identifier: Apache-2.0
"""Attention against NumPy: by two products and by one kernel, under every mask."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.nn.functional import scaled_dot_product_attention as attend
from flambeau.ops import attention, attention_fused
from ops.cases import array_of, tensor_of

# Batch, heads, queries, keys, features; causal; the mask's dtype; heads of keys.
CASES = [
    ((2, 3, 70, 70, 32), True, None, 3),
    ((1, 2, 5, 130, 32), False, "bool", 2),
    ((2, 4, 66, 90, 24), False, "float32", 2),
]


def reference(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None = None
) -> tuple[Any, Any]:
    """The result and the weights, in float64."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    k, v = (np.repeat(a, q.shape[1] // a.shape[1], 1) for a in (k, v))
    scores = q @ k.swapaxes(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1]))
    if causal:
        keys = np.arange(scores.shape[-1])
        scores = np.where(np.arange(scores.shape[-2])[:, None] >= keys, scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    most = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(most), 0, most))
    total = powers.sum(-1, keepdims=True)
    weights = powers / np.where(total == 0, 1, total)
    return weights @ v, weights


def made(case: Any) -> tuple[list[np.ndarray[Any, Any]], Any, bool]:
    (batch, heads, queries, keys, features), causal, kind, key_heads = case
    random = np.random.default_rng(queries)
    q = random.normal(0, 1, (batch, heads, queries, features))
    k, v = (random.normal(0, 1, (batch, key_heads, keys, features)) for _ in range(2))
    mask = None
    if kind == "bool":
        mask = random.random((queries, keys)) < 0.5
        mask[0] = False  # a query that sees nothing
    elif kind:
        mask = random.normal(0, 1, (batch, 1, queries, keys)).astype(kind)
    return [a.astype(np.float32) for a in (q, k, v)], mask, causal


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(0, "float32"), (1, "float32"), (2, "float32"), (0, "bfloat16"), (1, "float16")],
)
def test_forward(number: int, dtype: str, gpu: Any) -> None:
    arrays, mask, causal = made(CASES[number])
    q, k, v = (tensor_of(a, gpu).to(getattr(torch, dtype)) for a in arrays)
    given = None if mask is None else tensor_of(mask, gpu)
    expected, _ = reference(*(array_of(t) for t in (q, k, v)), mask, causal)
    tolerance = {"float32": 2e-6, "bfloat16": 2e-2, "float16": 2e-3}[dtype]
    shared = q.shape[1] != k.shape[1]
    found = attend(q, k, v, given, is_causal=causal, enable_gqa=shared)
    assert found.dtype == q.dtype
    np.testing.assert_allclose(array_of(found), expected, atol=tolerance)
    if dtype == "float32":
        host = [t.cpu() for t in (q, k, v)]
        on_host = attend(
            *host, None if given is None else given.cpu(), is_causal=causal, enable_gqa=shared
        )
        np.testing.assert_allclose(array_of(on_host), expected, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("tiles", [1, 2])
@pytest.mark.parametrize("features", [64, 96])
def test_every_tiling(features: int, tiles: int, gpu: Any, monkeypatch: Any) -> None:
    """As large problems have it, with an edge in each dimension."""
    monkeypatch.setattr(attention_fused, "_tiles", lambda *_: tiles)
    for causal, kind in ((True, None), (False, "float32")):
        arrays, mask, _ = made(((1, 2, 150, 170, features), causal, kind, 2))
        q, k, v = (tensor_of(a, gpu).half() for a in arrays)
        given = None if mask is None else tensor_of(mask, gpu)
        expected, _ = reference(*(array_of(t) for t in (q, k, v)), mask, causal)
        found = attend(q, k, v, given, is_causal=causal)
        np.testing.assert_allclose(array_of(found), expected, atol=3e-3)


def test_the_kernel_takes_strides_and_gives_logarithms(gpu: Any) -> None:
    """Heads beside each other in memory, as a layer has them."""
    random = np.random.default_rng(0)
    x = tensor_of(random.normal(0, 1, (2, 65, 3 * 2 * 32)).astype(np.float32), gpu).half()
    q, k, v = (part.reshape(2, 65, 2, 32).transpose(1, 2) for part in x.chunk(3, -1))
    assert attention_fused.takes(q, k, v, False)
    found = attention_fused.forward(q, k, v, None, True, 0.3, logs=True)
    expected, _ = reference(*(array_of(t) for t in (q, k, v)), None, True, 0.3)
    np.testing.assert_allclose(array_of(found[0]), expected, atol=3e-3)
    scores = (array_of(q).astype(np.float64) @ array_of(k).swapaxes(-1, -2) * 0.3)[0, 0, 9, :10]
    assert found[1] is not None
    assert found[1][0, 0, 9].item() == pytest.approx(np.log(np.exp(scores).sum()), abs=1e-3)


def test_backward_by_differences(gpu: Any) -> None:
    random = np.random.default_rng(1)
    arrays = [random.normal(0, 1, (1, 2, n, 8)) for n in (5, 7, 7)]
    g = random.normal(0, 1, (1, 2, 5, 8))
    q, k, v = (tensor_of(a, gpu) for a in arrays)
    out, weights = attention.forward(q, k, v, None, True, 0.4)
    np.testing.assert_allclose(array_of(out), reference(*arrays, None, True, 0.4)[0], rtol=1e-10)
    grads = attention.backward(tensor_of(g, gpu), q, k, v, weights, 0.4)
    step = 1e-6
    for which, grad in enumerate(grads):
        for place in [(0, 0, 0, 0), (0, 1, 4, 3), (0, 0, 2, 7)]:
            sides = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[which][place] += sign * step
                sides.append((reference(*moved, None, True, 0.4)[0] * g).sum())
            numeric = (sides[0] - sides[1]) / (2 * step)
            assert array_of(grad)[place] == pytest.approx(numeric, rel=1e-5, abs=1e-7)


def gradients(q: Any, k: Any, v: Any, mask: Any, causal: bool, g: Any) -> list[Any]:
    """Of query, key and value, by the formulas; keys may serve several heads of queries."""
    share = q.shape[1] // k.shape[1]
    wide_k, wide_v = (np.repeat(a, share, 1) for a in (k, v))
    _, weights = reference(q, wide_k, wide_v, mask, causal)
    of_value = weights.swapaxes(-1, -2) @ g
    slopes = g @ wide_v.swapaxes(-1, -2)
    slopes = weights * (slopes - (slopes * weights).sum(-1, keepdims=True))
    slopes /= math.sqrt(q.shape[-1])
    shape = (k.shape[0], k.shape[1], share, *k.shape[2:])
    summed = [a.reshape(shape).sum(2) for a in (slopes.swapaxes(-1, -2) @ q, of_value)]
    return [slopes @ wide_k, *summed]


@pytest.mark.parametrize("number", [0, 1])
def test_backward_of_the_kernel(number: int, gpu: Any) -> None:
    """Causal, and with a mask and heads that share keys."""
    case = [CASES[0], ((1, 4, 5, 130, 32), False, "bool", 2)][number]
    arrays, mask, causal = made(case)
    tensors = [tensor_of(a, gpu).half().requires_grad_() for a in arrays]
    given = None if mask is None else tensor_of(mask, gpu)
    y = attend(*tensors, given, is_causal=causal, enable_gqa=True)
    assert "Flash" in type(y.grad_fn).__name__
    g = np.random.default_rng(5).normal(0, 1, tuple(y.shape)).astype(np.float32)
    y.backward(tensor_of(g, gpu).half())
    wide = [array_of(t).astype(np.float64) for t in tensors]
    for tensor, right in zip(tensors, gradients(*wide, mask, causal, g), strict=True):
        np.testing.assert_allclose(array_of(tensor.grad), right, atol=4e-3 * abs(right).max())


def test_other_ranks_and_refusals(gpu: Any) -> None:
    x = torch.ones(3, 4, device=gpu)
    assert attend(x, x, x).shape == (3, 4)
    wide = torch.ones(2, 1, 5, 3, 4, device=gpu)
    assert attend(wide, x, x).shape == (2, 1, 5, 3, 4)
    torch.manual_seed(0)
    dropped = attend(torch.ones(64, 4, device=gpu), x, x, dropout_p=0.5)
    assert 0.5 < dropped.mean().item() < 1.5
    assert len(set(dropped.reshape(-1).tolist())) > 1
    with pytest.raises(RuntimeError, match="should not be set when is_causal=True"):
        attend(x, x, x, torch.ones(3, 3, device=gpu), is_causal=True)
    with pytest.raises(RuntimeError, match="to have the same dtype"):
        attend(x, x.half(), x)
    with pytest.raises(RuntimeError, match="at least 2 dimensional"):
        attend(x[0], x, x)
    with pytest.raises(RuntimeError, match="Expected attn_mask dtype to be bool or float"):
        attend(x, x, x, torch.ones(3, 3, device=gpu, dtype=torch.int32))
