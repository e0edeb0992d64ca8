# SPDX-License-Identifier: Apache-2.0
"""Names of cuBLASLt's algorithms, there and back, without the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.driver.libraries import GemmProblem
from flambeau.driver.nvidia import _nvidia
from flambeau.driver.nvidia.cublas import NvidiaBlas

if TYPE_CHECKING:
    import pytest

PROBLEM = GemmProblem(1, 2, 3, 1, 3, 2, 2, 0, 0, 0, 0, 0, 11, 0)
# id, tile, split of k, reduction, swizzle, custom, stages, inner, cluster
SETTINGS = (66, 17, 0xFFFFFFFF, 2, 1, 3, 35, 0, 5)
NAME = "Gemm_Cublaslt_id_66_tile_17_stages_35_splitk_-1_red_2_swizzle_1_custom_3_inner_0_cluster_5"


def test_names_tell_all_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_nvidia, "gemm_algorithms", lambda *_: [(2, 4096, SETTINGS)])
    own, named = NvidiaBlas().algorithms(PROBLEM, 8, 1 << 20)
    assert (own.name, own.number, own.workspace_bytes) == ("Gemm_Cublas", 1, 1 << 20)
    assert (named.name, named.number, named.workspace_bytes) == (NAME, 2, 4096)


def test_names_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def find(problem: Any, settings: Any, workspace: int) -> Any:
        asked.append(settings)
        return None if settings[0] == 1 else (7, 0, settings)

    monkeypatch.setattr(_nvidia, "find_algorithm", find)
    blas = NvidiaBlas()
    found = blas.algorithm(PROBLEM, NAME, 1 << 20)
    assert found is not None
    assert (found.name, found.number) == (NAME, 7)
    assert asked == [SETTINGS]
    assert blas.algorithm(PROBLEM, NAME.replace("id_66", "id_1"), 0) is None
    assert blas.algorithm(PROBLEM, "Gemm_Rocblas_5", 0) is None
    assert blas.algorithm(PROBLEM, "Gemm_Cublas", 64) is not None
