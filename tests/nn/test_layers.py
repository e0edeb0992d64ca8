# SPDX-License-Identifier: Apache-2.0
"""Layers: their first values, which are torch's for one seed, and what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from ops.cases import array_of


def seeded(make: Any) -> Any:
    torch.manual_seed(0)
    return make()


def test_first_values() -> None:
    """What torch 2.13 has after ``manual_seed(0)``."""
    layer = seeded(lambda: nn.Linear(3, 4))
    expected = [
        [-0.0043, 0.3097, -0.4752],
        [-0.4249, -0.2224, 0.1548],
        [-0.0114, 0.4578, -0.0512],
        [0.1528, -0.1745, -0.1135],
    ]
    np.testing.assert_allclose(array_of(layer.weight), expected, atol=6e-5)
    table = seeded(lambda: nn.Embedding(2, 3, padding_idx=0))
    np.testing.assert_allclose(array_of(table.weight)[1], [0.5684, -1.0845, -1.3986], atol=6e-5)
    assert not table.weight[0].any()


GOLDEN = {
    "xavier_uniform_": [-0.0082, 0.5876, -0.9016],
    "xavier_normal_": [0.9746, -0.1856, -1.378],
    "kaiming_uniform_": [-0.0106, 0.7586, -1.164],
    "kaiming_normal_": [1.2582, -0.2396, -1.779],
}


@pytest.mark.parametrize("name", GOLDEN)
def test_init(name: str) -> None:
    """Of a matrix of (2, 3); figures from torch 2.13 with seed 0."""
    weight = seeded(lambda: getattr(nn.init, name)(torch.empty(2, 3)))
    np.testing.assert_allclose(array_of(weight)[0], GOLDEN[name], atol=6e-5)


def test_init_by_value(gpu: Any) -> None:
    matrix = torch.empty(3, 3, device=gpu)
    assert nn.init.eye_(matrix).tolist() == np.eye(3).tolist()
    assert nn.init.constant_(matrix, 2.5).unique().tolist() == [2.5]
    drawn = array_of(nn.init.trunc_normal_(torch.empty(2000, device=gpu), std=2.0, a=-1, b=3))
    assert -1 <= drawn.min() < -0.98
    assert 2.9 < drawn.max() <= 3
    assert nn.init.calculate_gain("leaky_relu", 0.2) == pytest.approx((2 / 1.04) ** 0.5)
    with pytest.raises(ValueError, match="fewer than 2 dimensions"):
        nn.init.xavier_uniform_(torch.empty(2))
    with pytest.raises(ValueError, match="Unsupported nonlinearity"):
        nn.init.calculate_gain("step")
    with pytest.warns(UserWarning, match="zero-element"):
        nn.init.kaiming_uniform_(torch.empty(0, 2))


def test_dropout_and_flatten(gpu: Any) -> None:
    x = torch.ones(4, 5, 6, device=gpu)
    layer = nn.Dropout(0.5)
    assert set(layer(x).reshape(-1).tolist()) == {0.0, 2.0}
    assert layer.eval()(x) is x
    assert nn.Flatten()(x).shape == (4, 30)
    assert nn.Unflatten(1, (5, 1))(x).shape == (4, 5, 1, 6)
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.Dropout(2.0)


def attended(layer: Any, q: Any, k: Any, v: Any, mask: Any = None) -> tuple[Any, Any]:
    """`MultiheadAttention` by its definition, for (batch, tokens, features)."""
    w, b = array_of(layer.in_proj_weight), array_of(layer.in_proj_bias)
    parts = []
    for a, weight, bias in zip((q, k, v), np.split(w, 3), np.split(b, 3), strict=True):
        wide = (a @ weight.T + bias).reshape(*a.shape[:2], layer.num_heads, -1)
        parts.append(wide.transpose(0, 2, 1, 3))
    scores = parts[0] @ parts[1].swapaxes(-1, -2) / np.sqrt(layer.head_dim)
    if mask is not None:
        scores = np.where(mask, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = (weights @ parts[2]).transpose(0, 2, 1, 3).reshape(q.shape)
    return out @ array_of(layer.out_proj.weight).T + array_of(layer.out_proj.bias), weights


def test_multihead_attention(gpu: Any) -> None:
    layer = seeded(lambda: nn.MultiheadAttention(8, 2, batch_first=True)).to(gpu)
    random = np.random.default_rng(0)
    x = random.normal(0, 1, (3, 5, 8)).astype(np.float32)
    t = torch.tensor(x, device=gpu)
    future = np.triu(np.ones((5, 5), bool), 1)
    mask = torch.tensor(future, device=gpu)
    for given, taken in ((None, None), (mask, future)):
        out, weights = layer(t, t, t, attn_mask=given)
        right, of_heads = attended(layer, x, x, x, taken)
        np.testing.assert_allclose(array_of(out), right, atol=2e-6)
        np.testing.assert_allclose(array_of(weights), of_heads.mean(1), atol=1e-6)
    fast, none = layer(t, t, t, attn_mask=mask, need_weights=False, is_causal=True)
    assert none is None
    np.testing.assert_allclose(array_of(fast), right, atol=2e-6)
    padding = torch.tensor([[False] * 4 + [True]] * 3, device=gpu)
    out, weights = layer(t, t, t, key_padding_mask=padding, average_attn_weights=False)
    assert weights.shape == (3, 2, 5, 5)
    assert not weights[..., -1].any()
    layer.batch_first = False
    turned, _ = layer(*[t.transpose(0, 1)] * 3, attn_mask=mask)
    np.testing.assert_allclose(array_of(turned.transpose(0, 1)), right, atol=2e-6)
    with pytest.raises(AssertionError, match="embed_dim must be divisible by num_heads"):
        nn.MultiheadAttention(8, 3)


def test_clipping(gpu: Any) -> None:
    params = [nn.Parameter(torch.zeros(n, device=gpu)) for n in (3, 1)]
    params[0].grad, params[1].grad = (torch.tensor(v, device=gpu) for v in ([2.0, 1, 2], [4.0]))
    total = nn.utils.clip_grad_norm_(params, 1.0)
    assert total.item() == 5.0
    np.testing.assert_allclose(array_of(params[0].grad), [0.4, 0.2, 0.4], rtol=1e-5)
    nn.utils.clip_grad_value_(params, 0.3)
    np.testing.assert_allclose(array_of(params[0].grad), [0.3, 0.2, 0.3], rtol=1e-5)
    assert nn.utils.get_total_norm([torch.tensor([3.0, -4.0])], float("inf")).item() == 4
    params[1].grad.fill_(float("nan"))
    with pytest.raises(RuntimeError, match="is non-finite"):
        nn.utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    vector = nn.utils.parameters_to_vector(params)
    nn.utils.vector_to_parameters(vector + 1, params)
    assert params[0].tolist() == [1, 1, 1]
