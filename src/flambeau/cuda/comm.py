# SPDX-License-Identifier: Apache-2.0
"""Copies and sums between the GPUs of one process.

Everything here is asynchronous on GPUs: a copy between two of them is ordered with the work that
is queued on the current streams of both. Complex tensors stay complex. No context is made on a
device that is neither named nor the home of an argument. From three GPUs on, broadcasts and sums
are NCCL's where it is installed and the tensors are contiguous.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from typing import TYPE_CHECKING

from flambeau.cuda._coalescing import chunked, pack, unpack
from flambeau.cuda._comm_nccl import broadcast_into, broadcast_to, reduce_to
from flambeau.cuda._utils import _get_device_index
from flambeau.cuda.streams import stream as on_stream
from flambeau.driver.errors import FlambeauError
from flambeau.runtime import _dtype
from flambeau.runtime._device import device as device_type
from flambeau.runtime._stream import stream_of
from flambeau.runtime._tensor import Tensor, empty

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flambeau.cuda._utils import DeviceArgument
    from flambeau.cuda.streams import Stream
    from flambeau.runtime._dtype import memory_format

__all__ = [
    "broadcast",
    "broadcast_coalesced",
    "gather",
    "reduce_add",
    "reduce_add_coalesced",
    "scatter",
]

COALESCED_BYTES = 10485760


class HostTensorError(FlambeauError, AssertionError, ValueError):
    """A host tensor where only CUDA tensors make sense. An `AssertionError` too, as in torch."""


# -- what the functions check --------------------------------------------------------------------


def _indices(devices: Iterable[DeviceArgument]) -> list[int]:
    indices = [_get_device_index(device) for device in devices]
    for index in indices:
        if index < 0:
            raise RuntimeError(f"Expected non-negative device index, but got {index}")
    return indices


def _require_cuda(tensors: Sequence[Tensor], what: str) -> None:
    for position, tensor in enumerate(tensors):
        if tensor.device.type != "cuda":
            raise RuntimeError(
                f"Expected all {what} tensors to be CUDA tensors, but the tensor at index "
                f"{position} is on {tensor.device}; move it with .cuda()"
            )


def _wrap_dim(dim: int, ndim: int) -> int:
    if not -ndim <= dim < ndim:
        fix = "; give it one with unsqueeze(0)" if ndim == 0 else ""
        raise IndexError(
            f"Dimension out of range: {dim} was given, and the tensor has {ndim} dimensions{fix}"
        )
    return dim % ndim


def _cuda(index: int) -> device_type:
    return device_type("cuda", index)


# -- one to many ----------------------------------------------------------------------------------


def broadcast(
    tensor: Tensor,
    devices: Iterable[DeviceArgument] | None = None,
    *,
    out: Sequence[Tensor] | None = None,
) -> Sequence[Tensor]:
    """Copy a tensor to several GPUs.

    Parameters
    ----------
    tensor
        On the host or a GPU, of any dtype.
    devices
        Where to; one of `devices` and `out` must be given.
    out
        CUDA tensors of the same shape that get the values.

    Returns
    -------
    list of Tensor
        One per device, in order. For the device that `tensor` is on it is `tensor` itself. With
        `out`, that.

    Raises
    ------
    RuntimeError
        Both or none of `devices` and `out` are given; an output is on the host or has another
        shape.

    Examples
    --------
    >>> import flambeau as torch
    >>> from flambeau.cuda import comm
    >>> x = torch.ones(2, device="cuda:0")
    >>> comm.broadcast(x, [0])[0] is x
    True
    """
    if (devices is None) == (out is None):
        raise RuntimeError(
            "Exactly one of 'devices' and 'out' must be specified, but got "
            f"devices={devices} and out={out}"
        )
    if out is not None:
        return _broadcast_into(tensor, out)
    assert devices is not None
    indices = _indices(devices)
    return [
        tensor if tensor.device == _cuda(index) else copy
        for index, copy in zip(indices, _copies(tensor, indices), strict=True)
    ]


def _copies(tensor: Tensor, indices: Sequence[int]) -> list[Tensor]:
    """The tensor on each device."""
    made = broadcast_to(tensor, indices)
    return [made[i] if i in made else tensor.to(_cuda(i), non_blocking=True) for i in indices]


def _broadcast_into(tensor: Tensor, out: Sequence[Tensor]) -> Sequence[Tensor]:
    _require_cuda(out, "output")
    for position, target in enumerate(out):
        if target.shape != tensor.shape:
            raise RuntimeError(
                "Expected all output tensors to have the same shape as the source tensor "
                f"{list(tensor.shape)}, but the output tensor at index {position} has shape "
                f"{list(target.shape)}"
            )
    if not broadcast_into(tensor, out):
        for target in out:
            target.copy_(tensor, non_blocking=True)
    return out


def broadcast_coalesced(
    tensors: Sequence[Tensor],
    devices: Iterable[DeviceArgument],
    buffer_size: int = COALESCED_BYTES,
) -> list[list[Tensor]]:
    """Copy many tensors to several GPUs, small ones packed together.

    Parameters
    ----------
    tensors
        CUDA tensors on ``devices[0]``, of any dtypes and shapes, empty ones too.
    devices
        Where to, the tensors' own device first.
    buffer_size
        Bytes of one dtype that are collected before they are sent.

    Returns
    -------
    list of list of Tensor
        For each device the tensors in the order given. The first row holds `tensors` themselves;
        those of another device's row may share memory with each other.

    Raises
    ------
    RuntimeError
        A tensor is not on ``devices[0]``, or there is no device.

    Examples
    --------
    >>> import flambeau as torch
    >>> from flambeau.cuda import comm
    >>> parts = [torch.ones(2, device="cuda:0"), torch.zeros(1, device="cuda:0")]
    >>> rows = comm.broadcast_coalesced(parts, [0])
    >>> rows[0][1] is parts[1]
    True
    """
    tensors = list(tensors)
    indices = _indices(devices)
    if not indices:
        raise RuntimeError("Expected at least one device to broadcast to")
    for position, tensor in enumerate(tensors):
        if tensor.device != _cuda(indices[0]):
            raise RuntimeError(
                f"All tensors must be on devices[0]: {indices[0]}, but the tensor at index "
                f"{position} is on {tensor.device}"
            )
    rows = [tensors, *([*tensors] for _ in indices[1:])]
    for chunk in chunked(tensors, buffer_size, "reached"):
        members = [tensors[position] for position in chunk]
        flat = pack(members)
        copies = _copies(flat, indices[1:])
        for index, row, sent in zip(indices[1:], rows[1:], copies, strict=True):
            if index == indices[0]:
                continue
            for position, part in zip(chunk, unpack(sent, members), strict=True):
                row[position] = part
    return rows


def scatter(
    tensor: Tensor,
    devices: Iterable[DeviceArgument] | None = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Sequence[Stream | None] | None = None,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Cut a tensor along a dimension and send a piece to each GPU.

    Parameters
    ----------
    tensor
        On the host or a GPU.
    devices
        Where to.
    chunk_sizes
        The length of each piece; they add up to the tensor's. By default equal ones, as
        `torch.chunk` cuts: then there may be fewer pieces than devices.
    dim
        The dimension to cut; negative ones count from the end.
    streams
        For each device the stream to copy on, or None for its current stream. The caller orders
        the uses of the pieces with these streams.
    out
        CUDA tensors that get the pieces, in place of `devices` and `chunk_sizes`.

    Returns
    -------
    tuple of Tensor
        The pieces. One for the device that `tensor` is on is a view of it.

    Raises
    ------
    RuntimeError
        There is no device; the sizes or streams do not fit.

    Examples
    --------
    >>> import flambeau as torch
    >>> from flambeau.cuda import comm
    >>> [piece.tolist() for piece in comm.scatter(torch.arange(5), [0, 0], [2, 3])]
    [[0, 1], [2, 3, 4]]
    """
    if out is not None:
        for name, value in (("devices", devices), ("chunk_sizes", chunk_sizes)):
            if value is not None:
                raise RuntimeError(
                    f"'{name}' must not be specified when 'out' is specified, "
                    f"but got {name}={value}"
                )
        return _scatter_into(tensor, out, dim, streams)
    if devices is None:
        raise RuntimeError("Expected at least one device to scatter to: 'devices' or 'out'")
    indices = _indices(devices)
    if not indices:
        raise RuntimeError("Expected at least one device to scatter to")
    dim = _wrap_dim(dim, tensor.ndim)
    if chunk_sizes is not None and len(chunk_sizes) != len(indices):
        raise RuntimeError(
            "Expected devices and chunk_sizes to be of same length, but got "
            f"{len(indices)} devices and {len(chunk_sizes)} chunk_sizes"
        )
    pieces = (
        tensor.chunk(len(indices), dim)
        if chunk_sizes is None
        else tensor.split(list(chunk_sizes), dim)
    )
    contexts = _stream_contexts(streams, indices)
    sent = []
    for piece, index, context in zip(pieces, indices, contexts, strict=False):
        with context:
            sent.append(piece.to(_cuda(index), non_blocking=True))
    return tuple(sent)


def _stream_contexts(
    streams: Sequence[Stream | None] | None, indices: Sequence[int]
) -> list[contextlib.AbstractContextManager[None]]:
    """For each device a context in which its stream is current."""
    if streams is None:
        return [contextlib.nullcontext() for _ in indices]
    queues = [None if stream is None else stream_of(stream) for stream in streams]
    if len(queues) != len(indices):
        raise RuntimeError(
            "Expected streams and devices to be of same length, but got "
            f"{len(queues)} streams and {len(indices)} devices"
        )
    for position, (stream, index) in enumerate(zip(queues, indices, strict=True)):
        if stream is not None and stream.device_index != index:
            raise RuntimeError(
                f"Expected the device associated with the stream at index {position} (was "
                f"{stream.device_index}) to match the device supplied at that index "
                f"(expected {index})"
            )
    return [contextlib.nullcontext() if s is None else on_stream(s) for s in queues]


def _scatter_into(
    tensor: Tensor, out: Sequence[Tensor], dim: int, streams: Sequence[Stream | None] | None
) -> tuple[Tensor, ...]:
    if not out:
        raise RuntimeError("Expected at least one output tensor to scatter to")
    _require_cuda(out, "output")
    dim = _wrap_dim(dim, tensor.ndim)
    for position, target in enumerate(out):
        expected = list(tensor.shape)
        if target.ndim == tensor.ndim:
            expected[dim] = target.shape[dim]
        if list(target.shape) != expected:
            raise RuntimeError(
                f"Output tensor at index {position} has shape {list(target.shape)}; it may differ "
                f"from the source tensor's {list(tensor.shape)} only at dimension {dim}"
            )
    sizes = [target.shape[dim] for target in out]
    if sum(sizes) != tensor.shape[dim]:
        raise RuntimeError(
            f"Total size for output tensors along scatter dim {dim} is {sum(sizes)}, but the "
            f"source tensor has {tensor.shape[dim]} there"
        )
    contexts = _stream_contexts(streams, [target.get_device() for target in out])
    for piece, target, context in zip(tensor.split(sizes, dim), out, contexts, strict=True):
        with context:
            target.copy_(piece, non_blocking=True)
    return tuple(out)


# -- many to one ----------------------------------------------------------------------------------


def gather(
    tensors: Sequence[Tensor],
    dim: int = 0,
    destination: DeviceArgument = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Join tensors of several GPUs along a dimension.

    Parameters
    ----------
    tensors
        CUDA tensors whose shapes differ only at `dim`.
    dim
        The dimension to join; negative ones count from the end.
    destination
        Where the result is: a GPU, the current one by default, or ``"cpu"``, which waits for the
        copies. -1 means ``"cpu"`` and is deprecated.
    out
        A tensor of the result's shape that gets the values, in place of `destination`.

    Returns
    -------
    Tensor
        New memory, in channels-last order if all `tensors` are.

    Raises
    ------
    RuntimeError
        There is no tensor, one is on the host, or the shapes do not fit.
    IndexError
        The tensors have no such dimension.

    Examples
    --------
    >>> import flambeau as torch
    >>> from flambeau.cuda import comm
    >>> parts = [torch.zeros(2, device="cuda:0"), torch.ones(1, device="cuda:0")]
    >>> comm.gather(parts, destination="cpu")
    tensor([0., 0., 1.])
    """
    tensors = list(tensors)
    if out is not None and destination is not None:
        raise RuntimeError(
            "'destination' must not be specified when 'out' is specified, "
            f"but got destination={destination}"
        )
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    _require_cuda(tensors, "input")
    dim, shape = _joined_shape(tensors, dim)
    if out is None:
        index = _destination(destination)
        out = empty(
            shape,
            dtype=tensors[0].dtype,
            device=device_type("cpu") if index < 0 else _cuda(index),
            memory_format=_common_format(tensors),
        )
    elif list(out.shape) != shape:
        raise RuntimeError(f"Expected out tensor to have shape {shape}, but got {list(out.shape)}")
    parts = out.split([tensor.shape[dim] for tensor in tensors], dim)
    for part, tensor in zip(parts, tensors, strict=True):
        part.copy_(tensor, non_blocking=out.device.type == "cuda")
    return out


def _destination(destination: DeviceArgument) -> int:
    if destination == -1 and isinstance(destination, int):
        warnings.warn(
            'Using -1 to represent CPU tensor is deprecated; give "cpu" as the destination',
            FutureWarning,
            stacklevel=3,
        )
        return -1
    return _get_device_index(destination, optional=True, allow_cpu=True)


def _joined_shape(tensors: Sequence[Tensor], dim: int) -> tuple[int, list[int]]:
    """The dimension from 0 on, and the shape of the tensors joined along it."""
    first = tensors[0]
    dim = _wrap_dim(dim, first.ndim)
    expected = list(first.shape)
    for position, tensor in enumerate(tensors):
        if tensor.ndim != first.ndim:
            raise RuntimeError(
                "Expected all input tensors to have the same number of dimensions, but the tensor "
                f"at index {position} has {tensor.ndim} dimensions (expected {first.ndim})"
            )
        expected[dim] = tensor.shape[dim]
        if list(tensor.shape) != expected:
            raise RuntimeError(
                f"Input tensor at index {position} has invalid shape {list(tensor.shape)}, "
                f"but expected {expected}"
            )
        if tensor.dtype != first.dtype:
            raise RuntimeError(
                f"Input tensor at index {position} is {tensor.dtype}, but the one at index 0 is "
                f"{first.dtype}; gather joins tensors of one dtype"
            )
    expected[dim] = sum(tensor.shape[dim] for tensor in tensors)
    return dim, expected


def _common_format(tensors: Sequence[Tensor]) -> memory_format:
    name = {4: "channels_last", 5: "channels_last_3d"}.get(tensors[0].ndim)
    plain: memory_format = _dtype.constants["contiguous_format"]
    if name is None:
        return plain
    shared: memory_format = _dtype.constants[name]
    alike = all(t.is_contiguous(memory_format=shared) and not t.is_contiguous() for t in tensors)
    return shared if alike else plain


def reduce_add(inputs: Sequence[Tensor], destination: DeviceArgument = None) -> Tensor:
    """Add tensors of several GPUs.

    Parameters
    ----------
    inputs
        CUDA tensors of one shape.
    destination
        The GPU of the result, the current one by default. One of `inputs` must be there.

    Returns
    -------
    Tensor
        The sum: of the last input on the destination first, then of the others in order; over
        three and more GPUs in the order of NCCL's ring. With one input, that itself.

    Raises
    ------
    HostTensorError
        An input is on the host; it is an `AssertionError` and a `ValueError`.
    ValueError
        There is no input, or the shapes differ.
    RuntimeError
        No input is on the destination.

    Examples
    --------
    >>> import flambeau as torch
    >>> from flambeau.cuda import comm
    >>> x = torch.ones(2, device="cuda:0")
    >>> comm.reduce_add([x, x, x], 0).tolist()
    [3.0, 3.0]
    """
    index = _get_device_index(destination, optional=True)
    inputs = list(inputs)
    if not inputs:
        raise ValueError("reduce_add needs at least one tensor")
    root = None
    for position, tensor in enumerate(inputs):
        if tensor.device.type == "cpu":
            raise HostTensorError(
                "reduce_add expects all inputs to be on GPUs, but the one at index "
                f"{position} is on the host"
            )
        if tensor.device.index == index:
            root = position
        if tensor.shape != inputs[0].shape:
            raise ValueError(
                f"input {position} has invalid size: got {list(tensor.shape)}, but expected "
                f"{list(inputs[0].shape)}"
            )
    if root is None:
        raise RuntimeError(
            "reduce_add expects destination to be on the same GPU with one of the tensors, but "
            f"none is on cuda:{index}"
        )
    if len(inputs) == 1:
        return inputs[0]
    total = reduce_to(inputs, root)
    if total is not None:
        return total
    where = inputs[root].device
    others = (t.to(where, non_blocking=True) for i, t in enumerate(inputs) if i != root)
    total = inputs[root] + next(others)
    for other in others:
        total.add_(other)
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]],
    destination: DeviceArgument = None,
    buffer_size: int = COALESCED_BYTES,
) -> tuple[Tensor, ...]:
    """Add the lists of tensors of several GPUs, small tensors packed together.

    Parameters
    ----------
    inputs
        For each GPU its list of tensors; all lists have the same shapes and dtypes.
    destination
        The GPU of the results, the current one by default. One of the lists must be there.
    buffer_size
        Bytes of one dtype that are added at once; a tensor that would exceed it starts anew.

    Returns
    -------
    tuple of Tensor
        A sum per tensor of a list, in order; they may share memory with each other.

    Raises
    ------
    ValueError
        The lists differ in length or in a tensor's shape, or there is none.
    RuntimeError
        No list is on the destination.

    Examples
    --------
    >>> import flambeau as torch
    >>> from flambeau.cuda import comm
    >>> lists = [[torch.ones(2, device="cuda:0"), torch.ones(1, device="cuda:0")]] * 2
    >>> [total.tolist() for total in comm.reduce_add_coalesced(lists, 0)]
    [[2.0, 2.0], [2.0]]
    """
    lists = [list(row) for row in inputs]
    if not lists:
        raise ValueError("reduce_add_coalesced needs the list of at least one GPU")
    for position, row in enumerate(lists[1:], 1):
        if len(row) != len(lists[0]):
            raise ValueError(
                f"the list at index {position} has {len(row)} tensors, the first {len(lists[0])}"
            )
    results: dict[int, Tensor] = {}
    for chunk in chunked(lists[0], buffer_size, "exceeded"):
        members = [[row[position] for position in chunk] for row in lists]
        _check_alike(members, chunk)
        total = reduce_add([pack(row) for row in members], destination)
        results.update(zip(chunk, unpack(total, members[0]), strict=True))
    return tuple(results[position] for position in range(len(lists[0])))


def _check_alike(rows: Sequence[Sequence[Tensor]], positions: Sequence[int]) -> None:
    """Refuse tensors that packing would hide a difference of."""
    for (number, row), (column, position) in itertools.product(
        enumerate(rows), enumerate(positions)
    ):
        tensor, first = row[column], rows[0][column]
        if tensor.shape != first.shape or tensor.dtype != first.dtype:
            raise ValueError(
                f"tensor {position} of list {number} has invalid size: got "
                f"{list(tensor.shape)} of {tensor.dtype}, but expected {list(first.shape)} of "
                f"{first.dtype}"
            )
