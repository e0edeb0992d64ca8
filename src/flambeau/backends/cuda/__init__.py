# SPDX-License-Identifier: Apache-2.0
"""Switches of the CUDA math libraries: ``torch.backends.cuda``."""

from __future__ import annotations

from flambeau.backends._attention import (
    SDPAParams,
    allow_fp16_bf16_reduction_math_sdp,
    can_use_cudnn_attention,
    can_use_efficient_attention,
    can_use_flash_attention,
    cudnn_sdp_enabled,
    enable_cudnn_sdp,
    enable_flash_sdp,
    enable_math_sdp,
    enable_mem_efficient_sdp,
    flash_sdp_enabled,
    fp16_bf16_reduction_math_sdp_allowed,
    is_ck_sdpa_available,
    is_flash_attention_available,
    math_sdp_enabled,
    mem_efficient_sdp_enabled,
    sdp_kernel,
)
from flambeau.backends._plan_cache import (
    cuFFTPlanCache,
    cuFFTPlanCacheAttrContextProp,
    cuFFTPlanCacheManager,
)
from flambeau.backends._products import (
    blas_workspace_size,
    cublas_workspace_size,
    cublaslt_workspace_size,
    cuBLASModule,
    preferred_blas_library,
    preferred_linalg_library,
    preferred_rocm_fa_library,
)

__all__ = [
    "SDPAParams",
    "allow_fp16_bf16_reduction_math_sdp",
    "blas_workspace_size",
    "can_use_cudnn_attention",
    "can_use_efficient_attention",
    "can_use_flash_attention",
    "cuBLASModule",
    "cuFFTPlanCache",
    "cuFFTPlanCacheAttrContextProp",
    "cuFFTPlanCacheManager",
    "cublas_workspace_size",
    "cublaslt_workspace_size",
    "cudnn_sdp_enabled",
    "cufft_plan_cache",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "fp16_bf16_reduction_math_sdp_allowed",
    "is_built",
    "is_ck_sdpa_available",
    "is_flash_attention_available",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "preferred_blas_library",
    "preferred_linalg_library",
    "preferred_rocm_fa_library",
    "sdp_kernel",
]

matmul = cuBLASModule()
"""How matrix products are computed."""

cufft_plan_cache = cuFFTPlanCacheManager()
"""The plan caches of Fourier transforms."""


def is_built() -> bool:
    """Whether flambeau was built with CUDA: always. `flambeau.cuda.is_available` tells of a GPU.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.is_built()
    True
    """
    return True


for _name in __all__:
    if hasattr(globals()[_name], "__name__"):
        globals()[_name].__module__ = "flambeau.backends.cuda"
