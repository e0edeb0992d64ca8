# SPDX-License-Identifier: Apache-2.0
"""Attention with several heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn import init
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.ops.registry import OPS
from flambeau.runtime._tensor import empty

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of several heads, with a linear map before and behind.

    Parameters
    ----------
    embed_dim
        Features of queries and results.
    num_heads
        A divisor of it.
    dropout
        The probability that a weight is dropped while training.
    bias
        Whether the maps have one.
    add_bias_kv, add_zero_attn
        Not offered: True raises.
    kdim, vdim
        Features of keys and values, `embed_dim` by default.
    batch_first
        Whether the batch is the first dimension, and not the second.
    device, dtype
        Of the parameters.

    Notes
    -----
    A. Vaswani et al., Attention is all you need, NeurIPS 2017.
    """

    in_proj_bias: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and "
                f"num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        if add_bias_kv or add_zero_attn:
            raise NotImplementedError("add_bias_kv and add_zero_attn are not offered")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.head_dim, self.batch_first = embed_dim // num_heads, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim

        def parameter(*shape: int) -> Parameter:
            return Parameter(empty(shape, device=device, dtype=dtype))

        if self._qkv_same_embed_dim:
            self.in_proj_weight = parameter(3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = parameter(embed_dim, embed_dim)
            self.k_proj_weight = parameter(embed_dim, self.kdim)
            self.v_proj_weight = parameter(embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        if bias:
            self.in_proj_bias = parameter(3 * embed_dim)
        else:
            self.register_parameter("in_proj_bias", None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in self._weights():
            init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            if self.out_proj.bias is not None:
                init.constant_(self.out_proj.bias, 0.0)

    def _weights(self) -> list[Parameter]:
        if self._qkv_same_embed_dim:
            return [self.in_proj_weight]
        return [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Parameters
        ----------
        query, key, value
            (tokens, features) or with a batch: (tokens, batch, features), with `batch_first`
            (batch, tokens, features).
        key_padding_mask
            (batch, keys): bool, True leaves a key out; floating-point is added.
        need_weights
            Whether the weights are wanted; without them one kernel may do all.
        attn_mask
            (queries, keys) or (batch * heads, queries, keys): bool, True leaves a key out;
            floating-point is added.
        average_attn_weights
            Whether weights are averaged over heads.
        is_causal
            A hint that `attn_mask` is causal.

        Returns
        -------
        out : Tensor
            As `query`.
        weights : Tensor or None
            (batch, queries, keys), with ``average_attn_weights=False`` (batch, heads, …).
        """
        batched = query.ndim == 3
        if not batched:
            query, key, value = (t.unsqueeze(0) for t in (query, key, value))
        elif not self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        q, k, v = self._projected(query, key, value)
        mask = self._mask(attn_mask, key_padding_mask, query.shape[0], q)
        drop = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = (q * self.head_dim**-0.5) @ k.transpose(-2, -1)
            if mask is not None:
                scores = scores + mask
            weights = F.softmax(scores, -1)
            out = (F.dropout(weights, drop) if drop else weights) @ v
        else:
            causal = is_causal and key_padding_mask is None
            given = None if causal else mask
            out = F.scaled_dot_product_attention(q, k, v, given, drop, causal)
        out = self.out_proj(out.transpose(1, 2).reshape(*query.shape[:2], self.embed_dim))
        if weights is not None:
            weights = weights.mean(1) if average_attn_weights else weights
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return (out if self.batch_first else out.transpose(0, 1)), weights

    def _projected(self, *inputs: Tensor) -> list[Tensor]:
        """Queries, keys and values as (batch, heads, tokens, features of a head)."""
        if self._qkv_same_embed_dim:
            weights = list(self.in_proj_weight.chunk(3))
        else:
            weights = list(self._weights())
        biases: Any = [None] * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        made = []
        for tensor, weight, bias in zip(inputs, weights, biases, strict=True):
            wide = F.linear(tensor, weight, bias)
            heads = wide.reshape(*wide.shape[:2], self.num_heads, self.head_dim)
            made.append(heads.transpose(1, 2))
        return made

    def _mask(
        self, attn_mask: Tensor | None, padding: Tensor | None, batch: int, like: Tensor
    ) -> Tensor | None:
        """Both masks as one that is added to scores."""
        added = None
        if attn_mask is not None:
            added = _as_terms(attn_mask, like)
            if added.ndim == 3:
                added = added.reshape(batch, self.num_heads, *added.shape[1:])
        if padding is not None:
            terms = _as_terms(padding, like)
            terms = terms.reshape(-1, 1, 1, terms.shape[-1])
            added = terms if added is None else added + terms
        return added


def _as_terms(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype.name != "bool":
        return mask.to(like.dtype)
    zeros = like.new_zeros(mask.shape)
    terms: Tensor = OPS["_masked_fill"](zeros, mask, float("-inf"))
    return terms
