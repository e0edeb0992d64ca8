# SPDX-License-Identifier: Apache-2.0
from typing import Any

from flambeau.runtime._autograd import Node
from flambeau.runtime._tensor import Tensor

class FunctionNode(Node):
    _dirty: Any
    _non_differentiable: Any
    def save_for_backward(self, *tensors: Tensor | None) -> None: ...
    @property
    def saved_tensors(self) -> tuple[Any, ...]: ...

def apply_function(
    node: FunctionNode, args: tuple[Any, ...], results: Any, recording: bool
) -> Any: ...
