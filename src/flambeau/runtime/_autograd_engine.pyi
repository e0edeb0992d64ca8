# SPDX-License-Identifier: Apache-2.0
from typing import Any

from flambeau.runtime._tensor import Tensor

class Pass: ...

def set_override_stale_capture_stream(enabled: bool) -> None: ...
def get_override_stale_capture_stream() -> bool: ...
def run_backward(
    outputs: list[Tensor],
    gradients: list[Tensor],
    keep_graph: bool,
    create_graph: bool,
    inputs: list[Tensor] | None = None,
    accumulate: bool = True,
) -> list[Any]: ...
