# SPDX-License-Identifier: Apache-2.0
"""``t[...]`` and ``t[...] = …``."""

from typing import Any

from flambeau.runtime._tensor import Tensor

def install_recorded(get: Any, set: Any) -> None: ...
def getitem(self: Tensor, index: Any) -> Tensor: ...
def setitem(self: Tensor, index: Any, value: Any) -> None: ...
