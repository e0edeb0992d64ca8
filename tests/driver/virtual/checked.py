# SPDX-License-Identifier: Apache-2.0
"""Kernels for tests of checks: CUDA source in, something to launch out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau as torch
from flambeau.kernels.compile import get_function
from flambeau.runtime._launch import Kernel

if TYPE_CHECKING:
    from flambeau.virtual import CheckReport

SCALE = """
extern "C" __global__ void scale(float *out, const float *in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2 * in[i];
}
"""


class Launcher:
    """A kernel on device 0, by name and signature letters."""

    def __init__(self, source: str, name: str, signature: str) -> None:
        torch.zeros(1, device="cuda")  # makes the context
        self._kernel = Kernel(get_function(source, name, 0), signature)

    def __call__(self, grid: int, block: int, *arguments: Any, shared: int = 0) -> None:
        self._kernel(0, (grid,), (block,), shared, *arguments)


def scale() -> Launcher:
    """``out[i] = 2 * in[i]`` for i below n."""
    return Launcher(SCALE, "scale", "PPi")


def only(reports: list[CheckReport]) -> CheckReport:
    """The one report there is."""
    assert len(reports) == 1, "\n".join(map(str, reports))
    return reports[0]
