# SPDX-License-Identifier: Apache-2.0
"""The older names of mixed precision; `flambeau.amp` has the newer ones."""

from __future__ import annotations

import warnings

from flambeau import amp

__all__ = ["GradScaler", "amp_definitely_not_available"]


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
    """Whether mixed precision is out of the question because there is no CUDA device."""
    import flambeau

    return not flambeau.cuda.is_available()
