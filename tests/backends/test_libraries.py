# SPDX-License-Identifier: Apache-2.0
"""Switches of products, preferred libraries, handles and workspaces, attention kinds."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.backends import _products

if TYPE_CHECKING:
    from collections.abc import Iterator

CUDA = torch.backends.cuda


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    yield
    _products._half.__init__()  # type: ignore[misc]
    _products._half.apply()
    CUDA.preferred_blas_library("default")
    CUDA.preferred_linalg_library("default")


def _python(code: str, **environment: str) -> str:
    environ = {**os.environ, **environment}
    arguments = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environ)
    return done.stdout


@pytest.mark.parametrize("kind", ["fp16", "bf16"])
def test_sums_of_half_types(kind: str) -> None:
    name = f"allow_{kind}_reduced_precision_reduction"
    assert getattr(CUDA.matmul, name)
    assert getattr(CUDA.matmul, f"{name}_split_k")
    setattr(CUDA.matmul, name, (False, False))
    assert not getattr(CUDA.matmul, name)
    assert not getattr(CUDA.matmul, f"{name}_split_k")
    setattr(CUDA.matmul, name, True)
    assert getattr(CUDA.matmul, f"{name}_split_k")
    with pytest.raises(RuntimeError, match="allow_splitk=False is not supported"):
        setattr(CUDA.matmul, name, (True, False))
    with pytest.raises(AttributeError, match="read-only"):
        setattr(CUDA.matmul, f"{name}_split_k", True)
    with pytest.raises(TypeError, match="a pair"):
        setattr(CUDA.matmul, name, 1)


def test_products_follow(gpu: Any) -> None:
    x = torch.full((64, 4096), 0.5, dtype=torch.float16, device=gpu)
    y = x.clone()
    y[:, 0] = 0.333
    exact = float(y[0].cpu().numpy().astype(np.float64) @ np.full(4096, 0.5))
    for name in ("allow_fp16_reduced_precision_reduction", "allow_fp16_accumulation"):
        setattr(CUDA.matmul, name, name.endswith("accumulation"))
        assert (y @ x.t())[0, 0].item() == pytest.approx(exact, rel=0.02)


def test_preferred_libraries(gpu: Any) -> None:
    x = torch.ones(64, 64, device=gpu)
    for name in ("cublas", "cublaslt", "default"):
        assert CUDA.preferred_blas_library(name) is CUDA.preferred_blas_library()
        assert (x @ x)[0, 0].item() == 64.0
    assert str(CUDA.preferred_linalg_library("cusolver")) == "_LinalgBackend.Cusolver"
    for function in (CUDA.preferred_blas_library, CUDA.preferred_linalg_library):
        with pytest.raises(RuntimeError, match=r"Unknown input value\. Choose from"):
            function("nothing")
    with pytest.raises(RuntimeError, match="MAGMA"):
        CUDA.preferred_linalg_library("magma")


def test_preferences_of_the_environment() -> None:
    code = (
        "import flambeau as torch; c = torch.backends.cuda; "
        "print(c.preferred_blas_library(), c.preferred_linalg_library())"
    )
    said = _python(code, TORCH_BLAS_PREFER_CUBLASLT="1", TORCH_LINALG_PREFER_CUSOLVER="1")
    assert said == "_BlasBackend.Cublaslt _LinalgBackend.Cusolver\n"


def test_handles_belong_to_a_thread_and_a_device(gpu: Any) -> None:
    for current in (torch.cuda.current_blas_handle, torch.cuda.current_solver_handle):
        mine, others = current(), []
        assert isinstance(mine, int)
        assert mine
        with torch.cuda.stream(torch.cuda.Stream()):
            assert current() == mine
        thread = threading.Thread(target=lambda: others.append(current()))  # noqa: B023
        thread.start()
        thread.join()
        assert others[0] != mine


_SIZES = (
    "import flambeau as t; c = t.backends.cuda; "
    "print(c.cublas_workspace_size(), c.cublaslt_workspace_size())"
)


@pytest.mark.parametrize(
    ("config", "expected"),
    [(":4096:8", 32 << 20), (":16:8", 131072), (":4096:2:16:8", (4096 * 2 + 16 * 8) << 10)],
)
def test_workspace_sizes_of_the_environment(config: str, expected: int) -> None:
    said = _python(_SIZES, CUBLAS_WORKSPACE_CONFIG=config, CUBLASLT_WORKSPACE_SIZE="2048")
    assert said == f"{expected} {2 << 20}\n"


def test_bad_workspace_configuration_warns() -> None:
    code = (
        "import warnings\nwith warnings.catch_warnings(record=True) as w:\n"
        "  warnings.simplefilter('always')\n"
        "  import flambeau as t; t.backends.cuda.cublas_workspace_size()\nprint(w[-1].message)"
    )
    assert "Could not parse CUBLAS_WORKSPACE_CONFIG" in _python(code, CUBLAS_WORKSPACE_CONFIG="4M")


def test_workspace_sizes() -> None:
    before = CUDA.cublas_workspace_size(), CUDA.cublaslt_workspace_size()
    try:
        assert CUDA.cublaslt_workspace_size(4 << 20) == 4 << 20
        assert CUDA.blas_workspace_size(backend="cublaslt") == 4 << 20
        assert (
            CUDA.blas_workspace_size(3 << 20, "cublas") == CUDA.cublas_workspace_size() == 3 << 20
        )
        with pytest.raises(RuntimeError, match="0 bytes or more"):
            CUDA.cublas_workspace_size(-1)
    finally:
        CUDA.cublas_workspace_size(before[0])
        CUDA.cublaslt_workspace_size(before[1])


def test_kept_workspaces() -> None:
    code = (
        "import flambeau as t\nx = t.ones(256, 256, device='cuda')\n"
        "y = x @ x; first = t.cuda.memory_allocated(); y = x @ x\n"
        "again = t.cuda.memory_allocated()\n"
        "t.cuda.synchronize()\nwith t.cuda.stream(t.cuda.Stream()): z = x @ x\n"
        "more = t.cuda.memory_allocated()\n"
        "t._C._cuda_clearCublasWorkspaces()\n"
        "print(again == first, more - first > 32 << 20, first - t.cuda.memory_allocated())"
    )
    said = _python(code, TORCH_CUBLAS_WORKSPACE_CACHE="1").split()
    assert said[:2] == ["True", "True"]
    assert int(said[2]) > 31 << 20


def test_attention_kinds() -> None:
    kinds = ("flash", "mem_efficient", "math", "cudnn")
    for kind in kinds:
        assert getattr(CUDA, f"{kind}_sdp_enabled")()
    with pytest.warns(FutureWarning, match="sdpa_kernel"), CUDA.sdp_kernel(enable_math=False):
        assert not CUDA.math_sdp_enabled()
    assert CUDA.math_sdp_enabled()
    CUDA.enable_flash_sdp(False)
    assert not CUDA.flash_sdp_enabled()
    CUDA.enable_flash_sdp(True)
    q = torch.ones(1, 1, 2, 2)
    parameters = CUDA.SDPAParams(q, q, q, None, 0.0, False, False)
    with pytest.warns(UserWarning, match="not part of flambeau"):
        assert not CUDA.can_use_flash_attention(parameters, debug=True)
    assert not CUDA.can_use_cudnn_attention(parameters)
    assert not CUDA.can_use_efficient_attention(parameters)
    assert not CUDA.is_flash_attention_available()
    assert not CUDA.is_ck_sdpa_available()
    assert CUDA.is_built()


@pytest.mark.parametrize("kind", ["flash", "mem_efficient", "math", "cudnn"])
def test_each_kind_of_attention_has_a_switch_of_its_own(kind: str) -> None:
    kinds = ("flash", "mem_efficient", "math", "cudnn")
    switch = getattr(CUDA, f"enable_{kind}_sdp")
    try:
        switch(False)
        assert [k for k in kinds if not getattr(CUDA, f"{k}_sdp_enabled")()] == [kind]
    finally:
        switch(True)
    assert getattr(CUDA, f"{kind}_sdp_enabled")()


def test_attention_in_half_precision_may_be_allowed_to_sum_so() -> None:
    assert not CUDA.fp16_bf16_reduction_math_sdp_allowed()
    try:
        CUDA.allow_fp16_bf16_reduction_math_sdp(True)
        assert CUDA.fp16_bf16_reduction_math_sdp_allowed()
    finally:
        CUDA.allow_fp16_bf16_reduction_math_sdp(False)
    assert not CUDA.fp16_bf16_reduction_math_sdp_allowed()


def test_the_preference_of_other_makers_libraries() -> None:
    assert str(CUDA.preferred_rocm_fa_library()) == "_ROCmFABackend.Default"
    with pytest.raises(RuntimeError, match=r"Unknown input value\. Choose from"):
        CUDA.preferred_rocm_fa_library("nothing")


def test_switches_of_products_are_one_object() -> None:
    assert isinstance(CUDA.matmul, CUDA.cuBLASModule)
    assert CUDA.matmul.prefer_cublaslt_grouped_gemm is False
    CUDA.cuBLASModule().allow_fp16_reduced_precision_reduction = False
    assert not CUDA.matmul.allow_fp16_reduced_precision_reduction
    with pytest.raises(AttributeError, match="allow_everything"):
        CUDA.matmul.allow_everything = True
    with pytest.raises(AttributeError, match="allow_everything"):
        _ = CUDA.matmul.allow_everything
