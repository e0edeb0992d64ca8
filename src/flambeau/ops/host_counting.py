# SPDX-License-Identifier: Apache-2.0
"""Looking up values in sorted sequences of host tensors, through NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flambeau.ops import host

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor


def search(
    out: Tensor, sequence: Tensor, values: Tensor, sorter: Tensor | None, right: bool
) -> None:
    """Where values would be inserted, row by row, by the bisection of ``search.cuh``."""
    code = host.arithmetic_code(sequence.dtype.code)
    length = sequence.shape[-1]
    rows = host.convert(host.array(sequence), code).reshape(-1, length)
    if sorter is not None:
        rows = np.take_along_axis(rows, host.array(sorter).reshape(rows.shape), -1)
    sought = host.convert(host.array(values), code).reshape(len(rows), -1)
    low, high = np.zeros(sought.shape, np.int64), np.full(sought.shape, length, np.int64)
    for _ in range(length.bit_length()):
        middle = low + (high - low) // 2
        element = np.take_along_axis(rows, np.minimum(middle, length - 1), -1)
        before = ~(element > sought) if right else ~(element >= sought)
        active = low < high
        low = np.where(active & before, middle + 1, low)
        high = np.where(active & ~before, middle, high)
    host.array(out)[...] = low.reshape(values.shape)
