# SPDX-License-Identifier: Apache-2.0
"""Reading and writing at computed positions in host tensors, through NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flambeau.ops import host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._tensor import Tensor

_COMBINATIONS = {
    "accumulate": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


def add_offsets(
    offsets: Tensor, index: Tensor, dim: int, size: int, stride: int, accumulate: bool
) -> None:
    """``offsets (+)= index * stride``, after the check against the size of the dimension."""
    values = host.array(index).astype(np.int64)
    outside = (values < -size) | (values >= size)
    if outside.any():
        raise IndexError(
            f"index {values[outside][0]} is out of bounds for dimension {dim} with size {size}"
        )
    target = host.array(offsets)
    steps = np.where(values < 0, values + size, values) * stride
    target[...] = target + steps if accumulate else steps


def access(action: str, values: Tensor, self: Tensor, rest: Sequence[int], offsets: Tensor) -> None:
    """Read, write or combine at ``offsets`` plus the strides `rest` over the shape of `values`."""
    where = host.array(offsets)
    for d, (size, step) in enumerate(zip(values.shape, rest, strict=True)):
        if step:
            shape = [1] * values.ndim
            shape[d] = size
            where = where + (np.arange(size) * step).reshape(shape)
    reach = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride(), strict=True))
    flat = host.array(self.as_strided((reach,), (1,)))
    if action == "read":
        host.array(values)[...] = flat[where]
    elif action == "write":
        flat[where] = host.array(values)
    else:
        _COMBINATIONS[action].at(flat, where, host.array(values))


def nonzero(input: Tensor, linear: bool) -> Tensor:
    """Positions of the elements that are not zero, row-major."""
    values = host.array(input)
    found = np.flatnonzero(values) if linear else np.argwhere(values)
    return host.tensor_of(found.astype(np.int64))
