# SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product attention."""

from __future__ import annotations

import math
import struct
from math import prod
from typing import TYPE_CHECKING

from flambeau.ops import dropout, matmul, softmax
from flambeau.ops.codegen import cuda_type
from flambeau.ops.common import broadcast_shapes
from flambeau.ops.derivatives import differentiable
from flambeau.ops.grad_mode import is_grad_enabled
from flambeau.ops.once import refuse_second_derivative
from flambeau.ops.registry import OPS
from flambeau.ops.rows import is_aligned, launch_rows, plan_rows, row_source

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = ["attention", "backward", "forward", "mask_layout", "scaled_dot_product_attention"]


# -- what may be asked for ------------------------------------------------------------------------


def _check(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> None:
    if query.dtype != key.dtype or query.dtype != value.dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype} key.dtype: {key.dtype} and value.dtype: {value.dtype} instead."
        )
    if query.device != key.device or query.device != value.device:
        raise RuntimeError(
            "Expected query, key, and value to have the same device type, but got query.device: "
            f"{query.device} key.device: {key.device} and value.device: {value.device} instead."
        )
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be at least 2 dimensional, but got query.dim: "
            f"{query.ndim}, key.dim: {key.ndim} and value.dim: {value.ndim} instead."
        )
    if mask is None:
        return
    if causal:
        raise RuntimeError(
            "_scaled_dot_product_attention: Explicit attn_mask should not be set when "
            "is_causal=True"
        )
    if mask.dtype.name not in {"bool", "float32", query.dtype.name}:
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
            f"attn_mask.dtype: {mask.dtype} and query.dtype: {query.dtype} instead."
        )


def _as_four(tensor: Tensor, batch: tuple[int, ...]) -> Tensor:
    """A tensor of (..., tokens, features) as (batch, heads, tokens, features), broadcast."""
    full = tensor.expand(*batch, *tensor.shape[-2:])
    if len(batch) == 2:
        return full
    heads = batch[-1] if batch else 1
    return full.reshape(prod(batch[:-1]), heads, *tensor.shape[-2:])


def _heads_shared(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values with each head as often as queries have heads for it."""
    made = []
    for name, tensor in (("key", key), ("value", value)):
        heads, own = query.shape[-3], tensor.shape[-3]
        if own == 0 or heads % own:
            raise RuntimeError(
                "Number of heads in key and value must divide the number of heads in query, got "
                f"{own} in {name} and {heads} in query"
            )
        shape = (*tensor.shape[:-3], own, heads // own, *tensor.shape[-2:])
        wide = tensor.unsqueeze(-3).expand(*shape)
        made.append(wide.reshape(*tensor.shape[:-3], heads, *tensor.shape[-2:]))
    return made[0], made[1]


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute ``softmax(query @ key.T * scale + mask) @ value``.

    Parameters
    ----------
    query
        (..., heads, queries, features).
    key, value
        (..., heads, keys, features); those of `value` may be others.
    attn_mask
        Broadcasts to (..., queries, keys). bool: False leaves a key out. Floating-point: added.
    dropout_p
        The probability that a weight is dropped; applies always, also outside training.
    is_causal
        Query i sees keys up to i.
    scale
        ``1 / sqrt(features)`` by default.
    enable_gqa
        Whether keys and values may have fewer heads, each for several of the queries'.

    Returns
    -------
    Tensor
        (..., heads, queries, features of `value`). A query that sees no key gives 0.

    Raises
    ------
    RuntimeError
        Shapes, dtypes or devices do not fit, or a mask is given together with `is_causal`.

    Notes
    -----
    For float16 and bfloat16 on a CUDA device, with up to 128 features and without dropout, one
    kernel keeps scores out of memory, forward and backward: T. Dao, FlashAttention-2, 2023.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.ones(1, 2, 3, 4, device="cuda")
    >>> y = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    >>> bool((y == 1).all())
    True
    """
    _check(query, key, value, attn_mask, is_causal)
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0
    records = is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (query, key, value, attn_mask)
    )
    simple = dropout_p == 0 and not (attn_mask is not None and attn_mask.requires_grad)
    if simple and query.dtype.name in {"float16", "bfloat16"}:
        from flambeau.ops import attention_fused

        if attention_fused.takes(query, key, value, enable_gqa):
            attend = attention_fused.recorded if records else attention_fused.forward
            one: Tensor = attend(query, key, value, attn_mask, is_causal, scale, records)[0]
            return one
    if enable_gqa:
        key, value = _heads_shared(query, key, value)
    if simple and query.is_cuda:
        two: Tensor = attention(query, key, value, attn_mask, is_causal, scale)[0]
        return two
    return _composed(query, key, value, attn_mask, dropout_p, is_causal, scale)


def _composed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    causal: bool,
    scale: float,
) -> Tensor:
    """Attention from operations that are differentiable by themselves."""
    scores = matmul.matmul(query * scale, key.transpose(-2, -1))
    if causal:
        mask = _causal_mask(query, key)
    if mask is not None:
        if mask.dtype.name == "bool":
            scores = OPS["_where"](mask, scores, -math.inf)
        else:
            scores = scores + mask.to(scores.dtype)
    weights = softmax.softmax(scores, -1)
    if mask is not None:  # where no key is open, 0/0
        closed = (scores == -math.inf).all(-1, keepdim=True)
        weights = OPS["_masked_fill"](weights, closed, 0.0)
    if dropout_p > 0:
        weights = dropout.dropout(weights, dropout_p, True)
    return matmul.matmul(weights, value)


def _causal_mask(query: Tensor, key: Tensor) -> Tensor:
    from flambeau.ops import sequences

    rows = sequences.arange(query.shape[-2], device=query.device).unsqueeze(1)
    mask: Tensor = rows >= sequences.arange(key.shape[-2], device=query.device)
    return mask


# -- two products and a softmax between ------------------------------------------------------------


def mask_layout(mask: Tensor | None, shape: tuple[int, ...]) -> tuple[Tensor | None, bytes, str]:
    """A mask broadcast to (batch, heads, queries, keys), its ``MaskLayout`` and element type."""
    if mask is None:
        return None, struct.pack("<6q", 1, shape[2], 0, 0, 0, 0), "bool"
    full = mask
    if mask.ndim < 4:
        full = mask.reshape(*[1] * (4 - mask.ndim), *mask.shape)
    elif mask.ndim > 4:
        full = mask.reshape(prod(mask.shape[:-3]), *mask.shape[-3:])
    full = full.expand(*shape)
    packed = struct.pack("<6q", shape[1], shape[2], *full.stride())
    return full, packed, cuda_type(mask.dtype.code)


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Compute attention and its weights on a CUDA device, without a record for gradients.

    Parameters
    ----------
    query, key, value, mask, causal, scale
        As for `scaled_dot_product_attention`, with as many heads everywhere.

    Returns
    -------
    out, weights : Tensor
        (..., queries, features) and (..., queries, keys).
    """
    batch = broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    q, k, v = (_as_four(t, batch) for t in (query, key, value))
    groups = q.shape[0] * q.shape[1]
    q, k, v = (t.reshape(groups, *t.shape[2:]) for t in (q, k, v))
    queries, keys = q.shape[1], k.shape[1]
    if q.shape[2] != k.shape[2] or keys != v.shape[1]:
        raise RuntimeError(
            f"attention needs query and key of as many features, and key and value of as many "
            f"tokens, got {list(query.shape)}, {list(key.shape)} and {list(value.shape)}"
        )
    weights = matmul.baddbmm(q, q, k.transpose(1, 2), beta=0, alpha=scale)
    if weights.numel():
        heads = batch[-1] if batch else 1
        shape = (groups // heads if heads else 0, heads, queries, keys)
        _launch_rows(weights, mask, shape, causal)
    out = matmul.bmm(weights, v)
    return out.reshape(*batch, queries, v.shape[2]), weights.reshape(*batch, queries, keys)


def _launch_rows(
    weights: Tensor, mask: Tensor | None, shape: tuple[int, ...], causal: bool
) -> None:
    full, layout, kind = mask_layout(mask, shape)
    keys = shape[3]
    rows = weights.numel() // keys
    plan = plan_rows(keys, weights.itemsize, aligned=is_aligned(weights))
    source = row_source(
        "attention.cuh", "attention_rows", str(causal).lower(), plan,
        f"T *scores, const {kind} *mask, const MaskLayout layout, int64 rows, int64 n",
        "scores, mask, layout, rows, n", T=weights.dtype.code,
    )  # fmt: skip
    launch_rows(
        source, "PRBqq", plan, weights.get_device(), plan.blocks(rows), weights, full, layout, rows,
        keys,
    )  # fmt: skip


def backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of query, key and value from the weights.

    Parameters
    ----------
    grad
        Of the result's shape.
    query, key, value, scale
        As for `forward`.
    weights
        What `forward` gave.
    """
    refuse_second_derivative("scaled_dot_product_attention_backward", grad, query, key, value)
    batch = tuple(weights.shape[:-2])
    groups = prod(batch)
    g, q, k, v = (
        t.expand(*batch, *t.shape[-2:]).reshape(groups, *t.shape[-2:])
        for t in (grad, query, key, value)
    )
    w = weights.reshape(groups, *weights.shape[-2:])
    of_value = matmul.bmm(w.transpose(1, 2), g)
    slopes = softmax.backward(matmul.bmm(g, v.transpose(1, 2)), w, 2, False)
    of_query = matmul.baddbmm(q, slopes, k, beta=0, alpha=scale)
    of_key = matmul.baddbmm(k, slopes.transpose(1, 2), q, beta=0, alpha=scale)
    made = zip((of_query, of_key, of_value), (query, key, value), strict=True)
    of_query, of_key, of_value = (
        _summed(part.reshape(*batch, *part.shape[-2:]), like) for part, like in made
    )
    return of_query, of_key, of_value


def _summed(grad: Tensor, like: Tensor) -> Tensor:
    """A gradient, added up where its tensor was broadcast."""
    if grad.shape == like.shape:
        return grad
    summed: Tensor = grad.sum_to_size(*like.shape)
    return summed


attention = differentiable(
    forward,
    {
        ("query", "key", "value"): lambda grad, query, key, value, scale, out1: backward(
            grad, query, key, value, out1, scale
        )
    },
    name="scaled_dot_product_attention",
)
"""`forward`, recorded for gradients."""
