# SPDX-License-Identifier: Apache-2.0
"""cuBLAS and cuBLASLt: handles, and the algorithms of matrix products."""

from __future__ import annotations

import re
from dataclasses import astuple
from typing import TYPE_CHECKING

from flambeau.driver.libraries import Algorithm
from flambeau.driver.nvidia import _nvidia
from flambeau.driver.nvidia._shared_library import SharedLibrary

if TYPE_CHECKING:
    from flambeau.driver.libraries import GemmProblem

__all__ = ["CUBLAS", "NvidiaBlas"]

CUBLAS = SharedLibrary(
    "cublas",
    {
        1: "CUBLAS_STATUS_NOT_INITIALIZED",
        3: "CUBLAS_STATUS_ALLOC_FAILED",
        7: "CUBLAS_STATUS_INVALID_VALUE",
        8: "CUBLAS_STATUS_ARCH_MISMATCH",
        11: "CUBLAS_STATUS_MAPPING_ERROR",
        13: "CUBLAS_STATUS_EXECUTION_FAILED",
        14: "CUBLAS_STATUS_INTERNAL_ERROR",
        15: "CUBLAS_STATUS_NOT_SUPPORTED",
    },
)

_OWN_CHOICE = Algorithm("Gemm_Cublas", 1, 32 << 20)
_NAME = (
    "Gemm_Cublaslt_id_{}_tile_{}_stages_{}_splitk_{}_red_{}_swizzle_{}_custom_{}_inner_{}"
    "_cluster_{}"
)
_PATTERN = re.compile(_NAME.replace("{}", r"(-?\d+)"))
# Where the numbers of a name are among cuBLASLt's settings (id, tile, split of k, reduction,
# swizzle, custom, stages, inner, cluster).
_ORDER = (0, 1, 6, 2, 3, 4, 5, 7, 8)


class NvidiaBlas:
    """What the table's Gemm leaves out."""

    def handle(self, stream: int) -> int:
        """The thread's ``cublasHandle_t``."""
        return _nvidia.blas_handle(stream)

    def version(self) -> str:
        """CuBLASLt's version number."""
        return str(_nvidia.cublaslt_version())

    def algorithms(
        self, problem: GemmProblem, requested: int, workspace_bytes: int
    ) -> list[Algorithm]:
        """CuBLAS's own choice, cuBLASLt's favourites, and variants of these."""
        named = _nvidia.gemm_algorithms(astuple(problem), requested, workspace_bytes)
        found = [_algorithm(*one) for one in named]
        if problem.bias:  # cuBLAS proper has no function that adds one
            return found
        return [Algorithm(_OWN_CHOICE.name, _OWN_CHOICE.number, workspace_bytes), *found]

    def algorithm(self, problem: GemmProblem, name: str, workspace_bytes: int) -> Algorithm | None:
        """The algorithm of this name, if it can be used."""
        if name == _OWN_CHOICE.name and not problem.bias:
            return Algorithm(name, _OWN_CHOICE.number, workspace_bytes)
        match = _PATTERN.fullmatch(name)
        if match is None:
            return None
        settings = [0] * len(_ORDER)
        for position, text in zip(_ORDER, match.groups(), strict=True):
            settings[position] = int(text) & 0xFFFFFFFF
        found = _nvidia.find_algorithm(astuple(problem), tuple(settings), workspace_bytes)
        return None if found is None else _algorithm(*found)


def _algorithm(number: int, workspace_bytes: int, settings: tuple[int, ...]) -> Algorithm:
    signed = [n - (1 << 32) if n >= 1 << 31 else n for n in settings]  # -1 splits k by itself
    return Algorithm(_NAME.format(*(signed[i] for i in _ORDER)), number, workspace_bytes)
