# SPDX-License-Identifier: Apache-2.0
"""What programs look for in ``torch.utils``."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

__all__ = ["dlpack"]


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'flambeau.utils' has no attribute {name!r}")
