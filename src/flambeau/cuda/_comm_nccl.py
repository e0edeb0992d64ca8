# SPDX-License-Identifier: Apache-2.0
"""Broadcasts and sums over three and more GPUs by NCCL.

Its rings use all links at once. Between two GPUs a copy over their link does the same with less
ado, and no communicator is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.cuda._nccl_checks import is_convertible
from flambeau.runtime import _dtype
from flambeau.runtime._device import device as device_type
from flambeau.runtime._tensor import empty, empty_like

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._tensor import Tensor

__all__ = ["broadcast_into", "broadcast_to", "reduce_to"]

FEWEST = 3
_BYTES = _dtype.dtypes["uint8"]
_BOOL = _dtype.dtypes["bool"]


def _serves(tensors: Sequence[Tensor]) -> bool:
    """Whether NCCL can work on these tensors, and does it better than copies."""
    if len(tensors) < FEWEST or tensors[0].numel() == 0:
        return False
    if any(tensor.requires_grad for tensor in tensors):
        return False
    from flambeau.cuda import nccl

    return nccl.is_available(tensors)


def _usable(tensor: Tensor) -> bool:
    """What `_serves` asks of each tensor, before any other is made."""
    return (
        tensor.is_cuda
        and tensor.is_contiguous()
        and tensor.numel() > 0
        and not tensor.requires_grad
    )


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(_BYTES)


def broadcast_into(tensor: Tensor, out: Sequence[Tensor]) -> bool:
    """Copy a tensor into others of its dtype by NCCL; False if that would not serve."""
    if any(target.dtype != tensor.dtype for target in out) or not _serves([tensor, *out]):
        return False
    from flambeau.cuda import nccl

    nccl.broadcast([_bytes(part) for part in (tensor, *out)])
    return True


def broadcast_to(tensor: Tensor, devices: Sequence[int]) -> dict[int, Tensor]:
    """New copies of a tensor by device, by NCCL; empty if that would not serve."""
    others = [index for index in devices if index != tensor.get_device()]
    if len(others) + 1 < FEWEST or len(set(others)) != len(others) or not _usable(tensor):
        return {}
    made = {
        index: empty(tensor.shape, dtype=tensor.dtype, device=device_type("cuda", index))
        for index in others
    }
    return made if broadcast_into(tensor, list(made.values())) else {}


def reduce_to(inputs: Sequence[Tensor], root: int) -> Tensor | None:
    """The sum of tensors on the device of ``inputs[root]``, by NCCL; None if it would not serve."""
    dtype = inputs[root].dtype
    alike = all(tensor.dtype == dtype for tensor in inputs)
    if not alike or dtype == _BOOL or not is_convertible(dtype) or not _serves(inputs):
        return None
    from flambeau.cuda import nccl

    total = empty_like(inputs[root])
    nccl.reduce(inputs, total, root=root)
    return total
