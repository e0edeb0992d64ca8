# SPDX-License-Identifier: Apache-2.0
"""Indexing with tensors: ``t[index]`` and ``t[index] = value``, and the engine behind both.

All of it comes down to one kernel that reads, writes or combines at positions: those of an index
along one dimension, or element offsets worked out before.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.ops import determinism
from flambeau.ops.codegen import cuda_type, includes
from flambeau.ops.common import (
    THREADS,
    broadcast_shapes,
    kernel,
    launch_linear,
    new_like,
    pack_layout,
)
from flambeau.ops.registry import METHODS, inplace_method, public
from flambeau.runtime import _dtype
from flambeau.runtime._autograd import is_grad_enabled
from flambeau.runtime._tensor import Tensor, empty

if TYPE_CHECKING:
    from collections.abc import Sequence

_INT64, _BOOL = _dtype.dtypes["int64"], _dtype.dtypes["bool"]


# -- kernels ---------------------------------------------------------------------------------------

# Structs of index.cuh that join what is there with what comes.
_COMBINATIONS = {
    "accumulate": "Plus",
    "multiply": "Times",
    "maximum": "Maximum",
    "minimum": "Minimum",
}


class Positions(NamedTuple):
    """Where elements are: offsets in elements, or an index along one dimension.

    Parameters
    ----------
    tensor
        int64 offsets, or the index.
    size, stride
        Of the dimension that is indexed; 0 for offsets.
    """

    tensor: Tensor
    size: int = 0
    stride: int = 0

    def reshape(self, *shape: int) -> Positions:
        """The same positions in another shape."""
        return self._replace(tensor=self.tensor.reshape(shape))


@functools.cache
def _access_source(action: str, code: int, index_code: int) -> str:
    first, second = ("", "const ") if action == "read" else ("const ", "")
    names = {"read": "Read", "write": "Write"}
    form = names.get(action) or f"Combine<{_COMBINATIONS[action]}>"
    return f"""{includes("index.cuh", code)}
typedef {cuda_type(code)} T;
typedef {cuda_type(index_code)} Index;
FLAMBEAU_KERNEL({THREADS}) access({first}T *values, {second}T *self, const Index *positions,
                                  int64 size, int64 stride, int64 n, const Layout layout) {{
  FLAMBEAU_GRID_WAIT();
  index_access<{form}>(values, self, Positions<Index>{{positions, size, stride}}, n, layout);
}}
"""


@functools.cache
def _offset_source(code: int) -> str:
    return f"""#include "index.cuh"
FLAMBEAU_KERNEL({THREADS}) offset(int64 *offsets, const {cuda_type(code)} *index, int64 size,
                                  int64 stride, int32 accumulate, int64 n, const Layout layout) {{
  FLAMBEAU_GRID_WAIT();
  add_index(offsets, index, size, stride, accumulate, n, layout);
}}
"""


def access(
    action: str,
    values: Tensor,
    self: Tensor,
    rest: Sequence[int],
    positions: Positions,
    shape: Sequence[int],
) -> None:
    """Read, write or combine over `shape`: ``self`` at ``rest`` strides plus the positions."""
    count = values.numel()
    if count == 0:
        return
    if is_grad_enabled() and (values.requires_grad or self.requires_grad):
        raise RuntimeError(
            "the derivative for this way of indexing is not implemented; call it under "
            "torch.no_grad(), or on x.detach()"
        )
    spread = positions.tensor.expand(*shape)
    if self.device.type == "cpu":
        from flambeau.ops import host_indexing

        host_indexing.access(action, values, self, rest, spread)
        return
    determinism.refuse(action, self.dtype)
    device = self.get_device()
    layout = pack_layout(shape, values.stride(), rest, spread.stride())
    if count < 1 << 31 and max(map(_reach, (values, self, positions.tensor))) < 1 << 31:
        layout = layout[:4] + b"\1\0\0\0" + layout[8:]  # Layout.pad: 32-bit arithmetic will do
    signature = "PRRqqqB" if action == "read" else "RPRqqqB"
    source = _access_source(action, self.dtype.code, positions.tensor.dtype.code)
    made = kernel(source, "access", signature, device)
    launch_linear(
        made, device, count,
        values, self, positions.tensor, positions.size, positions.stride, count, layout,
    )  # fmt: skip


def _reach(tensor: Tensor) -> int:
    """How far apart a tensor's elements lie, in elements."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return sum((size - 1) * step for size, step in pairs)


def positions_of(self: Tensor, indices: Sequence[tuple[int, Tensor]]) -> Positions:
    """Positions in `self` by index tensors for some of its dimensions, broadcast together."""
    if len(indices) == 1 and self.is_cuda:
        dim, index = indices[0]
        if index.numel() == 0 or self.shape[dim]:
            return Positions(index, self.shape[dim], self.stride(dim))
    shape = _index_shape([index for _, index in indices])
    offsets = empty(shape, dtype=_INT64, device=self.device)
    if offsets.numel() == 0:
        return Positions(offsets)
    for position, (dim, index) in enumerate(indices):
        size, stride = self.shape[dim], self.stride(dim)
        spread = index.expand(*shape)
        if self.device.type == "cpu":
            from flambeau.ops import host_indexing

            host_indexing.add_offsets(offsets, spread, dim, size, stride, position > 0)
            continue
        made = kernel(_offset_source(index.dtype.code), "offset", "PRqqiqB", self.get_device())
        layout = pack_layout(shape, offsets.stride(), spread.stride())
        count = offsets.numel()
        launch_linear(
            made, self.get_device(), count,
            offsets, index, size, stride, int(position > 0), count, layout,
        )  # fmt: skip
    return Positions(offsets)


def _index_shape(indices: Sequence[Tensor]) -> tuple[int, ...]:
    try:
        return broadcast_shapes(*(index.shape for index in indices))
    except RuntimeError:
        shapes = ", ".join(str(list(index.shape)) for index in indices)
        raise IndexError(
            f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
        ) from None


# -- t[...] ----------------------------------------------------------------------------------------


def _as_index(part: Any, like: Tensor) -> Tensor:
    """A list, array or tensor as an index tensor on the right device."""
    if isinstance(part, Tensor):
        index = part
    else:
        from flambeau.ops.creation import tensor

        index = tensor(part, device=like.device) if len(part) else empty((0,), dtype=_INT64)
    if index.dtype.category > 1:
        raise IndexError(
            f"tensors used as indices must be long, int, byte or bool tensors, got {index.dtype!r}"
        )
    if index.device == like.device:
        return index
    if index.device.type != "cpu":
        raise RuntimeError(
            f"indices should be either on cpu or on the same device as the indexed tensor "
            f"({like.device}), got {index.device}"
        )
    return index.to(like.device)


def _is_tuple_like(index: Any) -> bool:
    """A short list that holds more than numbers is an index of several parts."""
    return (
        isinstance(index, list)
        and len(index) < 32
        and any(
            part is None or part is Ellipsis or isinstance(part, (Tensor, list, tuple, slice))
            for part in index
        )
    )


def _is_advanced(part: Any) -> bool:
    return isinstance(part, (Tensor, list)) or hasattr(part, "__array__") or isinstance(part, tuple)


def _parse(self: Tensor, index: Any) -> tuple[Tensor, list[Tensor | None]]:
    """Apply the basic parts as a view; per dimension of the view its index tensor or None."""
    parts = list(index) if isinstance(index, tuple) or _is_tuple_like(index) else [index]
    parts = [_as_index(part, self) if _is_advanced(part) else part for part in parts]
    used = 0
    for part in parts:
        if isinstance(part, Tensor):
            used += part.ndim if part.dtype.name in {"bool", "uint8"} else 1
        elif part is not None and part is not Ellipsis and not isinstance(part, bool):
            used += 1
    if used > self.ndim:
        raise IndexError(f"too many indices for tensor of dimension {self.ndim}")
    if not any(part is Ellipsis for part in parts):
        parts.append(Ellipsis)
    basic: list[Any] = []
    indices: list[Tensor | None] = []
    for part in parts:
        if part is Ellipsis:
            rest = self.ndim - used
            basic += [slice(None)] * rest
            indices += [None] * rest
        elif isinstance(part, Tensor):
            expanded = _expand_mask(part, self, basic)
            basic += [slice(None)] * (len(expanded) if part.ndim or part.dtype != _BOOL else 0)
            indices += expanded
        else:
            basic.append(part)
            if not isinstance(part, int) or isinstance(part, bool):
                indices.append(None)
    return self[tuple(basic)] if basic else self, indices


def _expand_mask(part: Tensor, self: Tensor, before: Sequence[Any]) -> list[Tensor | None]:
    """A mask becomes one index vector per dimension it covers."""
    if part.dtype.name not in {"bool", "uint8"}:
        return [part]
    at = sum(1 for b in before if b is not None and not isinstance(b, bool))
    for d, size in enumerate(part.shape):
        if size != self.shape[at + d]:
            raise IndexError(
                f"The shape of the mask {list(part.shape)} at index {d} does not match the shape "
                f"of the indexed tensor {list(self.shape)} at index {at + d}"
            )
    from flambeau.ops.selection import nonzero_positions

    return list(nonzero_positions(part, linear=False).unbind(1))


def _placed(view: Tensor, indices: Sequence[Tensor | None]) -> tuple[int, list[int]]:
    """Where the index shape goes in the result; the dims that are not indexed, in order."""
    dims = [d for d, index in enumerate(indices) if index is not None]
    others = [d for d in range(view.ndim) if d not in dims]
    adjacent = dims == list(range(dims[0], dims[0] + len(dims)))
    return (dims[0] if adjacent else 0), others


class _Selection:
    """What an advanced index means: result shape, strides of the rest, positions."""

    def __init__(self, view: Tensor, indices: Sequence[Tensor | None]) -> None:
        at, others = _placed(view, indices)
        pairs = [(d, index) for d, index in enumerate(indices) if index is not None]
        positions = positions_of(view, pairs)
        before, after = others[:at], others[at:]
        shape = positions.tensor.shape
        self.view = view
        self.shape = (
            *(view.shape[d] for d in before), *shape, *(view.shape[d] for d in after),
        )  # fmt: skip
        self.rest = (
            *(view.stride(d) for d in before), *[0] * len(shape), *(view.stride(d) for d in after),
        )  # fmt: skip
        self.positions = positions.reshape(*shape, *[1] * len(after)) if after else positions


def _scalar_mask(self: Tensor, index: Any) -> Tensor | None:
    """A bool tensor without dimensions selects all or nothing."""
    if isinstance(index, Tensor) and index.ndim == 0 and index.dtype == _BOOL:
        return self.unsqueeze(0)[: 1 if index.item() else 0]
    return None


def getitem(self: Tensor, index: Any) -> Tensor:
    """``self[index]`` for an index with tensors, lists or masks."""
    if (chosen := _scalar_mask(self, index)) is not None:
        return chosen.clone()
    view, indices = _parse(self, index)
    chosen_by = _Selection(view, indices)
    values = new_like(self, chosen_by.shape)
    access("read", values, view, chosen_by.rest, chosen_by.positions, chosen_by.shape)
    return values


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """``self[index] = value`` for an index with tensors, lists or masks."""
    if (chosen := _scalar_mask(self, index)) is not None:
        chosen[...] = value
        return
    whole = isinstance(index, Tensor) and index.dtype == _BOOL and index.shape == self.shape
    if whole and (not isinstance(value, Tensor) or value.numel() == 1):
        METHODS["masked_fill_"](self, _as_index(index, self), value)
        return
    put_at(self, index, value, "write")


def put_at(self: Tensor, index: Any, value: Any, action: str) -> None:
    """Write or accumulate a value, broadcast, at an index."""
    view, indices = _parse(self, index)
    chosen = _Selection(view, indices)
    if not isinstance(value, Tensor):
        from flambeau.ops.creation import tensor

        value = tensor(value, dtype=self.dtype, device=self.device)
    if value.dtype != self.dtype or value.device != self.device:
        value = value.to(device=self.device, dtype=self.dtype)
    while value.ndim > len(chosen.shape) and value.shape[0] == 1:
        value = value.squeeze(0)
    try:
        values = value.expand(*chosen.shape)
    except RuntimeError:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to "
            f"indexing result of shape {list(chosen.shape)}"
        ) from None
    access(action, values, view, chosen.rest, chosen.positions, chosen.shape)
    note_written(self)


def note_written(self: Tensor) -> None:
    """Count an in-place write that a kernel made outside elementwise dispatch."""
    self[:0].fill_(0) if self.ndim else self.reshape(1)[:0].fill_(0)


def _index_put_(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Store `values` at positions given by index tensors, or add them; return this tensor."""
    if values.dtype != self.dtype:
        destination, source = (_dtype.legacy_type_name(t.dtype) for t in (self, values))
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{destination} for the destination and {source} for the source."
        )
    index = tuple(slice(None) if part is None else part for part in indices)
    put_at(self, index, values, "accumulate" if accumulate else "write")
    return self


inplace_method("index_put_", _index_put_)


@public()
def index_put(
    input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Copy a tensor and store values at positions given by index tensors."""
    return _index_put_(input.clone(), indices, values, accumulate)
