# SPDX-License-Identifier: Apache-2.0
"""The legacy classes of sparse CUDA tensors. There are no sparse tensors, so no tensor is one."""

from __future__ import annotations

from typing import Any

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    if name.endswith("Tensor") and name != "BoolTensor":
        from flambeau.ops.legacy_types import legacy_type

        return legacy_type(name, True, True)
    raise AttributeError(f"module 'flambeau.cuda.sparse' has no attribute {name!r}")
