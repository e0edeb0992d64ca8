# SPDX-License-Identifier: Apache-2.0
"""Attention of 16-bit types by one kernel, and its gradients by two."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from flambeau.ops import statistics
from flambeau.ops.attention import mask_layout
from flambeau.ops.codegen import cuda_type
from flambeau.ops.common import kernel, new_like
from flambeau.ops.derivatives import differentiable
from flambeau.ops.once import refuse_second_derivative
from flambeau.ops.rows import is_aligned
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = ["backward", "forward", "recorded", "takes"]

_THREADS, _ROWS = 128, 64  # as in attention_fused.cuh
_FEATURES = (32, 64, 128)
_LOG2_E = 1.4426950408889634
_MOST_HEADS = 65535  # of all batches: what a grid takes
_FLOAT32 = _dtype.dtypes["float32"]


def takes(query: Tensor, key: Tensor, value: Tensor, shared_heads: bool) -> bool:
    """Whether the kernel is for these tensors.

    Parameters
    ----------
    query, key, value
        Of one dtype and device.
    shared_heads
        Whether keys and values may have fewer heads.
    """
    if not query.is_cuda or query.dtype.name not in {"float16", "bfloat16"}:
        return False
    if not query.ndim == key.ndim == value.ndim == 4 or key.shape != value.shape:
        return False
    (batch, heads, _, features), key_heads = query.shape, key.shape[1]
    if features % 8 or not 0 < features <= _FEATURES[-1] or key.shape[3] != features:
        return False
    if not query.numel() or not key.numel() or key.shape[0] != batch or batch * heads > _MOST_HEADS:
        return False
    return bool(key_heads == heads or (shared_heads and heads % key_heads == 0))


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    logs: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention of tensors that `takes` accepts, without a record for gradients.

    Parameters
    ----------
    query, key, value, mask, causal, scale
        As for `flambeau.nn.functional.scaled_dot_product_attention`.
    logs
        Whether the logarithms of each query's sum of exponentials are wanted.

    Returns
    -------
    out : Tensor
        (batch, heads, queries, features).
    logs : Tensor or None
        (batch, heads, queries) in float32.
    """
    q, k, v = (_vectors(t) for t in (query, key, value))
    batch, heads, queries, features = q.shape
    device = q.get_device()
    full, layout, kind = mask_layout(mask, (batch, heads, queries, k.shape[2]))
    out = new_like(q, (batch, heads, queries, features))
    sums = new_like(q, (batch, heads, queries), _FLOAT32) if logs else None
    tiles = 1 if causal else _tiles(queries, batch * heads, device)
    source = _forward_source(
        q.dtype.code, _width(features), tiles, causal, kind if mask is not None else ""
    )
    made = kernel(source, "attend", "PPRRRRBB", device)
    made(
        device, (-(-queries // (_ROWS * tiles)), batch * heads, 1), (_THREADS, 1, 1), 0,
        out, 0 if sums is None else sums, q, k, v, 0 if full is None else full,
        _shape(q, k, v, q, scale), layout,
    )  # fmt: skip
    return out, sums


def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    out: Tensor,
    logs: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of query, key and value.

    Parameters
    ----------
    grad
        Of the result's shape and dtype.
    query, key, value, mask, causal, scale
        As for `forward`.
    out, logs
        What `forward` gave.
    """
    refuse_second_derivative("scaled_dot_product_attention_backward", grad, query, key, value)
    q, k, v, g = (_vectors(t) for t in (query, key, value, grad))
    batch, heads, queries, features = q.shape
    device, (key_heads, keys) = q.get_device(), k.shape[1:3]
    deltas = statistics.sum(g.to(_FLOAT32) * out.to(_FLOAT32), 3)
    full, layout, kind = mask_layout(mask, (batch, heads, queries, keys))
    of_query = new_like(q, (batch, heads, queries, features))
    of_key, of_value = (new_like(k, (batch, key_heads, keys, features)) for _ in range(2))
    given: list[Any] = [q, k, v, g, logs, deltas, 0 if full is None else full]
    given += [_shape(q, k, v, g, scale), layout]
    mask_type = kind if mask is not None else ""
    for by_key, rows, groups, outs in (
        (False, queries, batch * heads, (of_query, 0)),
        (True, keys, batch * key_heads, (of_key, of_value)),
    ):
        source = _backward_source(q.dtype.code, _width(features), causal, by_key, mask_type)
        made = kernel(source, "attend_back", "PPRRRRRRRBB", device)
        made(device, (-(-rows // _ROWS), groups, 1), (_THREADS, 1, 1), 0, *outs, *given)
    return of_query, of_key, of_value


recorded = differentiable(
    forward,
    {
        ("query", "key", "value"): (
            lambda grad, query, key, value, mask, causal, scale, out0, out1: backward(  # noqa: PLW0108
                grad, query, key, value, mask, causal, scale, out0, out1
            )
        )
    },
    name="scaled_dot_product_flash_attention",
)
"""`forward`, recorded for gradients; `logs` must be True."""


def _shape(q: Tensor, k: Tensor, v: Tensor, g: Tensor, scale: float) -> bytes:
    """The ``AttentionShape`` of these tensors."""
    _, heads, queries, features = q.shape
    strides = [step for tensor in (q, k, v, g) for step in tensor.stride()[:3]]
    return struct.pack(
        "<14q3if", *strides, queries, k.shape[2], heads, heads // k.shape[1], features,
        scale * _LOG2_E,
    )  # fmt: skip


def _width(features: int) -> int:
    return next(width for width in _FEATURES if width >= features)


def _vectors(tensor: Tensor) -> Tensor:
    """A tensor whose rows can be read 16 bytes at a time."""
    steps = tensor.stride()
    if steps[3] == 1 and not any(step % 8 for step in steps[:3]) and is_aligned(tensor):
        return tensor
    return tensor.contiguous()


def _tiles(queries: int, heads: int, device: int) -> int:
    """Tiles of 16 queries for each warp: two use tensor cores better, one fills a device sooner.

    Causal attention has one: its blocks differ in length, and smaller ones even that out.
    """
    from flambeau.cuda import get_device_properties

    blocks = -(-queries // (2 * _ROWS)) * heads
    return 2 if blocks >= 2 * get_device_properties(device).multi_processor_count else 1


def _flag(value: object) -> str:
    return str(bool(value)).lower()


def _forward_source(code: int, width: int, tiles: int, causal: bool, mask: str) -> str:
    kind = cuda_type(code)
    return f"""#include "attention_fused.cuh"
FLAMBEAU_KERNEL({_THREADS}) attend(
    {kind} *out, float *logs, const {kind} *query, const {kind} *key, const {kind} *value,
    const {mask or "bool"} *mask, const AttentionShape shape, const MaskLayout layout) {{
  FLAMBEAU_GRID_WAIT();
  attention_forward<{_flag(causal)}, {_flag(mask)}, {width}, {tiles}>(
      out, logs, query, key, value, mask, shape, layout);
}}
"""


def _backward_source(code: int, width: int, causal: bool, by_key: bool, mask: str) -> str:
    kind = cuda_type(code)
    return f"""#include "attention_backward.cuh"
FLAMBEAU_KERNEL({_THREADS}) attend_back(
    {kind} *out, {kind} *out_values, const {kind} *query, const {kind} *key, const {kind} *value,
    const {kind} *grad, const float *logs, const float *deltas, const {mask or "bool"} *mask,
    const AttentionShape shape, const MaskLayout layout) {{
  FLAMBEAU_GRID_WAIT();
  attention_backward<{_flag(causal)}, {_flag(mask)}, {_flag(by_key)}, {width}>(
      out, out_values, query, key, value, grad, logs, deltas, mask, shape, layout);
}}
"""
