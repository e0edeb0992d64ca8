# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's math libraries."""

from __future__ import annotations

from flambeau.driver.nvidia.cublas import NvidiaBlas
from flambeau.driver.nvidia.cufft import NvidiaFft
from flambeau.driver.nvidia.cusolver import NvidiaSolver

__all__ = ["NvidiaLibraries"]


class NvidiaLibraries:
    """Each library is loaded when one of its functions is first called."""

    def __init__(self) -> None:
        self.blas = NvidiaBlas()
        self.solver = NvidiaSolver()
        self.fft = NvidiaFft()
