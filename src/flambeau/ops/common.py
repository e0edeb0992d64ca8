# SPDX-License-Identifier: Apache-2.0
"""What several families share: dims, shapes, ``out=``, layouts for kernels, compiled kernels."""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING

from flambeau.ops.promotion import can_cast_codes
from flambeau.runtime import _dtype, lazy_init
from flambeau.runtime._tensor import Tensor, empty

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._launch import Kernel

THREADS = 256
MAX_DIMS = 12  # of a kernel's layout, after neighbouring dimensions were merged
MAX_OPERANDS = 5


def wrap_dim(dim: int, ndim: int) -> int:
    """A dimension number from 0 on.

    Raises
    ------
    IndexError
        It is out of range; a tensor without dimensions has 0 and -1.
    """
    most = max(ndim, 1)
    if not -most <= dim < most:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-most}, {most - 1}], "
            f"but got {dim})"
        )
    return dim % most


def wrap_dims(dim: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Dimension numbers in order; None and an empty sequence mean all.

    Raises
    ------
    RuntimeError
        One is named twice.
    """
    if dim is None:
        return tuple(range(ndim))
    if isinstance(dim, int):
        return (wrap_dim(dim, ndim),)[: max(ndim, 0)]
    wrapped = [wrap_dim(d, ndim) for d in dim]
    if not wrapped:
        return tuple(range(ndim))
    for d in wrapped:
        if wrapped.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    return tuple(sorted(wrapped))[:ndim] if ndim else ()


def reduced_shape(shape: Sequence[int], dims: Sequence[int], keepdim: bool) -> tuple[int, ...]:
    """The shape after reducing `dims`."""
    if keepdim:
        return tuple(1 if d in dims else n for d, n in enumerate(shape))
    return tuple(n for d, n in enumerate(shape) if d not in dims)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that these broadcast to.

    Raises
    ------
    RuntimeError
        Two sizes differ and neither is 1.
    """
    ndim = max((len(shape) for shape in shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        for d, size in enumerate(shape, ndim - len(shape)):
            if size == 1 or size == result[d]:
                continue
            if result[d] != 1:
                raise RuntimeError(
                    f"The size of tensor a ({result[d]}) must match the size of tensor b ({size}) "
                    f"at non-singleton dimension {d}"
                )
            result[d] = size
    return tuple(result)


def store_out(result: Tensor, out: Tensor | None) -> Tensor:
    """Give `result`, or store it in the caller's ``out``, which is resized if need be."""
    if out is None:
        return result
    if not can_cast_codes(result.dtype.code, out.dtype.code):
        source, target = (_dtype.legacy_type_name(t.dtype) for t in (result, out))
        raise RuntimeError(
            f"result type {source} can't be cast to the desired output type {target}"
        )
    if out.device != result.device:
        raise RuntimeError(
            f"Expected out tensor to be on {result.device}, like the inputs, but it is on "
            f"{out.device}"
        )
    if out.shape != result.shape:
        out.resize_(result.shape)
    elif any(n > 1 and step == 0 for n, step in zip(out.shape, out.stride(), strict=True)):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. Pass a tensor that was not expanded as out"
        )
    out.copy_(result)
    return out


def new_like(like: Tensor, shape: Sequence[int], of: dtype | None = None) -> Tensor:
    """An uninitialised contiguous tensor on the device of another."""
    return empty(tuple(shape), dtype=of or like.dtype, device=like.device)


def merged_dims(sizes: Sequence[int], *strides: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """Sizes and strides innermost first, with neighbours merged where every operand allows it."""
    merged: list[int] = []
    merged_strides: list[list[int]] = [[] for _ in strides]
    for d in range(len(sizes) - 1, -1, -1):
        if sizes[d] == 1:
            continue
        if merged and all(
            own[d] == done[-1] * merged[-1]
            for own, done in zip(strides, merged_strides, strict=True)
        ):
            merged[-1] *= sizes[d]
            continue
        merged.append(sizes[d])
        for own, done in zip(strides, merged_strides, strict=True):
            done.append(own[d])
    return merged, merged_strides


def pack_layout(sizes: Sequence[int], *strides: Sequence[int]) -> bytes:
    """The ``Layout`` of types.cuh for these operands, given with dims outermost first."""
    merged, merged_strides = merged_dims(sizes, *strides)
    if len(merged) > MAX_DIMS:
        raise RuntimeError(
            f"this operation handles at most {MAX_DIMS} dimensions that cannot be merged, got "
            f"{len(merged)}; make the operands contiguous() first"
        )
    flat = [*merged, *[0] * (MAX_DIMS - len(merged))]
    for own in merged_strides:
        flat += [*own, *[0] * (MAX_DIMS - len(own))]
    flat += [0] * (MAX_DIMS * (1 + MAX_OPERANDS) - len(flat))
    return struct.pack(f"<ii{len(flat)}q", len(merged), 0, *flat)


@functools.cache
def kernel(source: str, name: str, signature: str, device: int) -> Kernel:
    """A compiled kernel for a device, kept for the process."""
    from flambeau.kernels.compile import get_function
    from flambeau.runtime._launch import Kernel

    return Kernel(get_function(source, name, device), signature, name=name)


def _forget_kernels() -> None:
    from flambeau.kernels.compile import forget_functions

    kernel.cache_clear()
    forget_functions()


lazy_init.on_forget(_forget_kernels)


def launch_linear(made: Kernel, device: int, count: int, *arguments: object) -> None:
    """Launch one thread per element; nothing for no elements."""
    if count:
        grid = (count + THREADS - 1) // THREADS
        made(device, (grid, 1, 1), (THREADS, 1, 1), 0, *arguments)


def same_device(*tensors: Tensor) -> None:
    """Refuse tensors on different devices.

    Raises
    ------
    RuntimeError
        Not all are on one device.
    """
    devices = []
    for tensor in tensors:
        if tensor.device not in devices:
            devices.append(tensor.device)
    if len(devices) > 1:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{devices[0]} and {devices[1]}!"
        )
