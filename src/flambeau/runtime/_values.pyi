# SPDX-License-Identifier: Apache-2.0
from typing import Any

from flambeau.runtime._tensor import Tensor

def tolist(self: Tensor) -> Any:
    """``Tensor.tolist``."""
