# SPDX-License-Identifier: Apache-2.0
"""Which kinds of attention may be chosen. flambeau computes attention with plain products."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flambeau.runtime._tensor import Tensor

__all__ = [
    "SDPAParams",
    "allow_fp16_bf16_reduction_math_sdp",
    "can_use_cudnn_attention",
    "can_use_efficient_attention",
    "can_use_flash_attention",
    "cudnn_sdp_enabled",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "fp16_bf16_reduction_math_sdp_allowed",
    "is_ck_sdpa_available",
    "is_flash_attention_available",
    "math_sdp_enabled",
    "mem_efficient_sdp_enabled",
    "sdp_kernel",
]

_enabled = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}
_half_reduction = False


class SDPAParams(NamedTuple):
    """The inputs of an attention, for the ``can_use`` checks.

    Examples
    --------
    >>> import flambeau as torch
    >>> q = torch.ones(1, 1, 2, 4)
    >>> torch.backends.cuda.SDPAParams(q, q, q, None, 0.0, True, False).is_causal
    True
    """

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None
    dropout: float
    is_causal: bool
    enable_gqa: bool


def flash_sdp_enabled() -> bool:
    """Whether flash attention may be chosen.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.flash_sdp_enabled()
    True
    """
    return _enabled["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    """Allow flash attention or forbid it.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.enable_flash_sdp(False)
    >>> torch.backends.cuda.flash_sdp_enabled()
    False
    >>> torch.backends.cuda.enable_flash_sdp(True)
    """
    _enabled["flash"] = bool(enabled)


def mem_efficient_sdp_enabled() -> bool:
    """Whether memory-efficient attention may be chosen.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.mem_efficient_sdp_enabled()
    True
    """
    return _enabled["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Allow memory-efficient attention or forbid it.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.enable_mem_efficient_sdp(False)
    >>> torch.backends.cuda.mem_efficient_sdp_enabled()
    False
    >>> torch.backends.cuda.enable_mem_efficient_sdp(True)
    """
    _enabled["mem_efficient"] = bool(enabled)


def math_sdp_enabled() -> bool:
    """Whether attention by plain products may be chosen.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.math_sdp_enabled()
    True
    """
    return _enabled["math"]


def enable_math_sdp(enabled: bool) -> None:
    """Allow attention by plain products or forbid it.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.enable_math_sdp(False)
    >>> torch.backends.cuda.math_sdp_enabled()
    False
    >>> torch.backends.cuda.enable_math_sdp(True)
    """
    _enabled["math"] = bool(enabled)


def cudnn_sdp_enabled() -> bool:
    """Whether cuDNN's attention may be chosen.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.cudnn_sdp_enabled()
    True
    """
    return _enabled["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Allow cuDNN's attention or forbid it.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.enable_cudnn_sdp(False)
    >>> torch.backends.cuda.cudnn_sdp_enabled()
    False
    >>> torch.backends.cuda.enable_cudnn_sdp(True)
    """
    _enabled["cudnn"] = bool(enabled)


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Whether attention by plain products may sum in half precision.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    >>> torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    True
    >>> torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(False)
    """
    global _half_reduction
    _half_reduction = bool(enabled)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """Whether attention by plain products may sum in half precision; False at first.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    False
    """
    return _half_reduction


def is_flash_attention_available() -> bool:
    """Whether there is a flash attention: no.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.is_flash_attention_available()
    False
    """
    return False


def is_ck_sdpa_available() -> bool:
    """Whether there is AMD's attention: no.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.is_ck_sdpa_available()
    False
    """
    return False


def _cannot(kind: str, debug: bool) -> bool:
    if debug:
        warnings.warn(
            f"{kind} attention is not part of flambeau; attention is computed by plain products.",
            UserWarning,
            stacklevel=3,
        )
    return False


def can_use_flash_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether flash attention can compute this: no; with `debug` a warning says why.

    Examples
    --------
    >>> import flambeau as torch
    >>> q = torch.ones(1, 1, 2, 4)
    >>> params = torch.backends.cuda.SDPAParams(q, q, q, None, 0.0, True, False)
    >>> torch.backends.cuda.can_use_flash_attention(params)
    False
    """
    return _cannot("flash", debug)


def can_use_efficient_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether memory-efficient attention can compute this: no; with `debug` a warning says why.

    Examples
    --------
    >>> import flambeau as torch
    >>> q = torch.ones(1, 1, 2, 4)
    >>> params = torch.backends.cuda.SDPAParams(q, q, q, None, 0.0, True, False)
    >>> torch.backends.cuda.can_use_efficient_attention(params)
    False
    """
    return _cannot("memory-efficient", debug)


def can_use_cudnn_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Whether cuDNN can compute this: no; with `debug` a warning says why.

    Examples
    --------
    >>> import flambeau as torch
    >>> q = torch.ones(1, 1, 2, 4)
    >>> params = torch.backends.cuda.SDPAParams(q, q, q, None, 0.0, True, False)
    >>> torch.backends.cuda.can_use_cudnn_attention(params)
    False
    """
    return _cannot("cuDNN", debug)


@contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """Limit which kinds of attention may be chosen in a ``with`` block.

    .. deprecated:: 0.1
        torch has `torch.nn.attention.sdpa_kernel` for it.

    Examples
    --------
    >>> import flambeau as torch
    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> with torch.backends.cuda.sdp_kernel(enable_math=False):
    ...     torch.backends.cuda.math_sdp_enabled()
    False
    """
    warnings.warn(
        "torch.backends.cuda.sdp_kernel() is deprecated; use torch.nn.attention.sdpa_kernel().",
        FutureWarning,
        stacklevel=3,
    )
    before = dict(_enabled)
    _enabled.update(
        flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn
    )
    try:
        yield
    finally:
        _enabled.update(before)
