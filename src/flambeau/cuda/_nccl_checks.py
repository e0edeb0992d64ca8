# SPDX-License-Identifier: Apache-2.0
"""What collectives ask of their tensors, and the numbers that NCCL knows types by."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from flambeau.runtime import _dtype
from flambeau.runtime._stream import current_stream, stream_of
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from flambeau.driver.contract import Communicator
    from flambeau.runtime._stream import BaseStream

__all__ = [
    "AVG",
    "MAX",
    "MIN",
    "PROD",
    "SUM",
    "OutputShape",
    "check_communicators",
    "check_lists",
    "check_operation",
    "check_outputs",
    "check_root",
    "check_sequence",
    "is_convertible",
    "streams_for",
    "type_number",
]

OutputShape: TypeAlias = Literal["alike", "all", "slice"]
"""What an output holds: as much as an input, all inputs, one rank's slice."""

SUM, PROD, MAX, MIN, AVG = range(5)
_OPERATION_NAMES = ("sum", "prod", "max", "min", "avg")

_TYPES: dict[_dtype.dtype, int] = {
    _dtype.dtypes[name]: number
    for name, number in (
        ("int8", 0),
        ("uint8", 1),
        ("bool", 1),
        ("int32", 2),
        ("uint32", 3),
        ("int64", 4),
        ("uint64", 5),
        ("float16", 6),
        ("float32", 7),
        ("float64", 8),
        ("bfloat16", 9),
        ("float8_e4m3fn", 10),
        ("float8_e5m2", 11),
    )
    if name in _dtype.dtypes
}
_BOOL = _dtype.dtypes["bool"]
# What the sum and its kin are for truth values, which travel as bytes.
_BOOL_OPERATIONS = {SUM: MAX, PROD: MIN, MAX: MAX, MIN: MIN}


def is_convertible(dtype: _dtype.dtype) -> bool:
    """Whether NCCL has a number for a dtype."""
    return dtype in _TYPES


def type_number(dtype: _dtype.dtype) -> int:
    """NCCL's number for a dtype (``ncclDataType_t``).

    Raises
    ------
    RuntimeError
        NCCL has none: complex and 16-bit integer types.
    """
    number = _TYPES.get(dtype)
    if number is None:
        names = ", ".join(str(known).removeprefix("torch.") for known in _TYPES)
        raise RuntimeError(
            f"Unconvertible NCCL type {dtype}: NCCL knows {names}. View a complex tensor with "
            "torch.view_as_real, or convert it."
        )
    return number


def check_operation(op: Any, dtype: _dtype.dtype) -> int:
    """NCCL's number for an operation on a dtype.

    Raises
    ------
    TypeError, RuntimeError
        It is no operation, or an average of truth values.
    """
    try:
        number = operator.index(op)
    except TypeError:
        raise TypeError(
            f"op is a number from 0 to 4 ({', '.join(_OPERATION_NAMES)}), not {op!r}"
        ) from None
    if not SUM <= number <= AVG:
        listed = ", ".join(f"{i} {name}" for i, name in enumerate(_OPERATION_NAMES))
        raise RuntimeError(f"invalid op {number}: NCCL's operations are {listed}")
    if dtype == _BOOL:
        if number == AVG:
            raise RuntimeError("invalid op 4 (avg) for torch.bool: convert the tensors first")
        return _BOOL_OPERATIONS[number]
    return number


def check_sequence(inputs: Any) -> list[Tensor]:
    """The inputs as a list.

    Raises
    ------
    TypeError
        They are a single tensor, or no sequence of tensors.
    """
    if not isinstance(inputs, Sequence) or isinstance(inputs, (Tensor, str, bytes)):
        raise TypeError(f"Inputs should be a collection of tensors, not {type(inputs).__name__}")
    for position, tensor in enumerate(inputs):
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"Inputs should be a collection of tensors, but the one at index {position} is a "
                f"{type(tensor).__name__}"
            )
    return list(inputs)


def check_lists(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Refuse tensors that NCCL cannot work on together.

    Raises
    ------
    RuntimeError
        There are none, or their number, device, dtype, layout or size does not fit.
    """
    if not inputs:
        raise RuntimeError("input sequence can't be empty")
    if len(inputs) != len(outputs):
        raise RuntimeError(
            "inputs and outputs sequences have to be of the same length, but got "
            f"{len(inputs)} inputs and {len(outputs)} outputs"
        )
    first = inputs[0]
    for position, (source, target) in enumerate(zip(inputs, outputs, strict=True)):
        for what, tensor in (("input", source), ("output", target)):
            _check_tensor(f"{what} {position}", tensor, first)
        if source.numel() != first.numel():
            raise RuntimeError(
                "all input tensors must have the same number of elements, but input "
                f"{position} has {source.numel()} and input 0 has {first.numel()}"
            )
        if source.device != target.device:
            raise RuntimeError(
                f"input and output must be on the same device, but input {position} is on "
                f"{source.device} and output {position} on {target.device}"
            )
    _check_unique([tensor.get_device() for tensor in inputs])


def _check_tensor(name: str, tensor: Tensor, first: Tensor) -> None:
    if tensor.device.type != "cuda":
        raise RuntimeError(
            "input and output elements have to be cuda dense Tensors, but "
            f"{name} is on {tensor.device}"
        )
    if tensor.dtype != first.dtype:
        raise RuntimeError(
            "all inputs and outputs must be of the same Tensor dtype, but "
            f"{name} has {tensor.dtype} and input 0 has {first.dtype}"
        )
    if not tensor.is_contiguous():
        raise RuntimeError(
            f"inputs and outputs have to be contiguous, but {name} has strides "
            f"{tuple(tensor.stride())} for shape {tuple(tensor.shape)}; call .contiguous()"
        )


def _check_unique(devices: Sequence[int]) -> None:
    if len(set(devices)) != len(devices):
        raise RuntimeError(
            f"inputs must be on unique devices, but they are on {[f'cuda:{i}' for i in devices]}"
        )


def check_outputs(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    ranks: int,
    shape: OutputShape,
) -> None:
    """Refuse outputs of another size than what they will get.

    Raises
    ------
    RuntimeError
        An output does not have the input's number of elements (``"alike"``), that of all inputs
        (``"all"``), or one rank's share of it (``"slice"``).
    """
    count = inputs[0].numel()
    if shape == "slice" and count % ranks != 0:
        raise RuntimeError(
            f"inputs of {count} elements cannot be cut into {ranks} equal parts, one a rank"
        )
    expected = {"alike": count, "all": count * ranks, "slice": count // ranks}[shape]
    for position, output in enumerate(outputs):
        if output.numel() != expected:
            raise RuntimeError(
                f"output must be of size {expected} for inputs of {count} elements and {ranks} "
                f"rank{'s' if ranks > 1 else ''}, but output {position} has {output.numel()}"
            )


def check_root(root: Any, ranks: int) -> int:
    """The root's number.

    Raises
    ------
    RuntimeError
        No rank has it.
    """
    try:
        number = operator.index(root)
    except TypeError:
        raise TypeError(f"root is the number of a rank, not {root!r}") from None
    if not 0 <= number < ranks:
        raise RuntimeError(f"invalid root {number}: there are ranks 0 to {ranks - 1}")
    return number


def streams_for(inputs: Sequence[Tensor], streams: Sequence[Any] | None) -> list[BaseStream]:
    """For each input the stream to work on: what was given, else its device's current one.

    Raises
    ------
    RuntimeError
        There is another number of streams, or one is of another device.
    """
    if streams is None:
        return [current_stream(tensor.device) for tensor in inputs]
    if len(streams) != len(inputs):
        raise RuntimeError(
            f"number of streams is not equal to number of inputs: {len(streams)} and {len(inputs)}"
        )
    chosen: list[BaseStream] = []
    for position, (tensor, given) in enumerate(zip(inputs, streams, strict=True)):
        stream = current_stream(tensor.device) if given is None else stream_of(given)
        if stream.device_index != tensor.get_device():
            raise RuntimeError(
                f"stream {position} is of cuda:{stream.device_index}, but input {position} is on "
                f"{tensor.device}"
            )
        chosen.append(stream)
    return chosen


def check_communicators(inputs: Sequence[Tensor], comms: Sequence[Communicator]) -> int:
    """How many ranks the communicators have.

    Raises
    ------
    RuntimeError
        There is another number of them, or one is of another device.
    TypeError
        One was not made by `init_rank`.
    """
    if len(comms) != len(inputs):
        raise RuntimeError(
            "number of communicators is not equal to number of inputs: "
            f"{len(comms)} and {len(inputs)}"
        )
    for position, (tensor, comm) in enumerate(zip(inputs, comms, strict=True)):
        if not hasattr(comm, "ranks"):
            raise TypeError(
                f"communicator {position} is a {type(comm).__name__}; init_rank makes them"
            )
        if comm.device != tensor.get_device():
            raise RuntimeError(
                f"communicator {position} is of cuda:{comm.device}, but input {position} is on "
                f"{tensor.device}"
            )
    return comms[0].ranks
