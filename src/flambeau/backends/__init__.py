# SPDX-License-Identifier: Apache-2.0
"""Switches of the libraries behind operations: ``torch.backends``.

`fp32_precision` of this module is the generic precision of float32, which `cuda` and `cudnn` ask
where they have none of their own.
"""

from __future__ import annotations

import sys
from types import ModuleType

from flambeau.backends import _precision, cuda, cudnn

__all__ = ["cuda", "cudnn", "fp32_precision"]


class _Backends(ModuleType):
    """A module one of whose names is a setting."""

    @property
    def fp32_precision(self) -> str:
        """``"none"``, ``"ieee"``, ``"tf32"`` or ``"bf16"``."""
        return _precision.get_precision("generic", "all")

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        _precision.set_precision("generic", "all", precision)


sys.modules[__name__].__class__ = _Backends
