# SPDX-License-Identifier: Apache-2.0
"""Sequences in host memory, through NumPy, with the arithmetic of ``fill.cuh``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flambeau.ops import host

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor


def arange(out: Tensor, start: float, step: float) -> None:
    """``start + i * step``."""
    values = start + np.arange(out.numel()) * step
    host.array(out)[...] = host.convert(np.asarray(values), out.dtype.code)


def linspace(out: Tensor, start: float, end: float, step: float) -> None:
    """Each element from the nearer end."""
    n = out.numel()
    i = np.arange(n)
    values = np.where(i < n // 2, start + step * i, end - step * (n - 1 - i))
    host.array(out)[...] = host.convert(values, out.dtype.code)
