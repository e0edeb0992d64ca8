# SPDX-License-Identifier: Apache-2.0
"""The older names of mixed precision; `flambeau.amp` has the newer ones."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

from flambeau import amp
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.runtime._dtype import dtype

__all__ = [
    "GradScaler",
    "amp_definitely_not_available",
    "autocast",
    "custom_bwd",
    "custom_fwd",
]


def _warn(old: str, new: str) -> None:
    warnings.warn(
        f"`torch.cuda.amp.{old}` is deprecated. Please use `torch.amp.{new}` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):  # noqa: N801 - torch's name
    """`flambeau.amp.autocast` for CUDA, under its older name."""

    def __init__(
        self,
        enabled: bool = True,
        dtype: dtype = _dtype.dtypes["float16"],
        cache_enabled: bool = True,
    ) -> None:
        _warn("autocast(args...)", "autocast('cuda', args...)")
        super().__init__("cuda", dtype, enabled, cache_enabled)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: dtype | None = None) -> Any:
    """`flambeau.amp.custom_fwd` for CUDA, under its older name.

    Examples
    --------
    >>> import flambeau as torch
    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> class Double(torch.autograd.Function):
    ...     @staticmethod
    ...     @torch.cuda.amp.custom_fwd
    ...     def forward(ctx, x):
    ...         return x * 2
    >>> Double.apply(torch.ones(1, device="cuda")).tolist()
    [2.0]
    """
    _warn("custom_fwd(args...)", "custom_fwd(args..., device_type='cuda')")
    return functools.partial(amp.custom_fwd, device_type="cuda")(fwd, cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Any:
    """`flambeau.amp.custom_bwd` for CUDA, under its older name.

    Examples
    --------
    >>> import flambeau as torch
    >>> import warnings
    >>> warnings.simplefilter("ignore", FutureWarning)
    >>> @torch.cuda.amp.custom_bwd
    ... def backward(ctx, grad):
    ...     return grad * 2
    >>> backward.__name__
    'backward'
    """
    _warn("custom_bwd(args...)", "custom_bwd(args..., device_type='cuda')")
    return amp.custom_bwd(bwd, device_type="cuda")


class GradScaler(amp.GradScaler):
    """`flambeau.amp.GradScaler` for CUDA, under its older name."""

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        warnings.warn(
            "`torch.cuda.amp.GradScaler(args...)` is deprecated. "
            "Please use `torch.amp.GradScaler('cuda', args...)` instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__(
            "cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


def amp_definitely_not_available() -> bool:
    """Whether mixed precision is out of the question because there is no CUDA device.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.amp.amp_definitely_not_available()
    False
    """
    import flambeau

    return not flambeau.cuda.is_available()
