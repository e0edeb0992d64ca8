# SPDX-License-Identifier: Apache-2.0
"""Many small tensors as few large ones: grouping by dtype and bytes, packing, unpacking."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from flambeau.runtime._tensor import Tensor, empty

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._dtype import dtype

__all__ = ["chunked", "pack", "unpack"]

Closing = Literal["reached", "exceeded"]
"""When a chunk is full: once its bytes reach the limit, or before they would exceed it."""


@dataclass(slots=True)
class _Chunk:
    positions: list[int] = field(default_factory=list)
    bytes: int = 0


def chunked(tensors: Sequence[Tensor], limit: int, closing: Closing) -> list[list[int]]:
    """Group the positions of tensors into chunks of one dtype and about `limit` bytes.

    A tensor is never cut, so one alone may be larger than the limit.
    """
    open_chunks: dict[dtype, _Chunk] = {}
    full: list[list[int]] = []
    for position, tensor in enumerate(tensors):
        size = tensor.numel() * tensor.element_size()
        chunk = open_chunks.setdefault(tensor.dtype, _Chunk())
        if closing == "exceeded" and chunk.bytes > 0 and chunk.bytes + size > limit:
            full.append(chunk.positions)
            chunk = open_chunks[tensor.dtype] = _Chunk()
        chunk.positions.append(position)
        chunk.bytes += size
        if closing == "reached" and chunk.bytes >= limit:
            full.append(chunk.positions)
            del open_chunks[tensor.dtype]
    return full + [chunk.positions for chunk in open_chunks.values() if chunk.positions]


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """One flat tensor with the elements of all, on their device; no copy of a contiguous one."""
    if len(tensors) == 1:
        return tensors[0].reshape(-1)
    total = sum(tensor.numel() for tensor in tensors)
    flat = empty((total,), dtype=tensors[0].dtype, device=tensors[0].device)
    for part, tensor in zip(unpack(flat, tensors), tensors, strict=True):
        part.copy_(tensor)
    return flat


def unpack(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of a flat tensor with the shapes of others, in order."""
    parts: list[Tensor] = []
    start = 0
    for tensor in like:
        count = tensor.numel()
        parts.append(flat.narrow(0, start, count).view(tensor.shape))
        start += count
    return parts
