# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N999 - torch's name
"""What programs reach for in ``torch._C`` and flambeau has an answer to."""

from __future__ import annotations

from flambeau.cuda._gpu_trace import activate as _activate_gpu_trace

__all__ = ["_activate_gpu_trace"]


def __getattr__(name: str) -> object:
    raise AttributeError(f"module 'flambeau._C' has no attribute {name!r}")
