# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

def set_compiler(compile: Callable[[int], int] | None) -> None:
    """Have ``compile(device)`` give the kernel, asked once for each device; 0 leaves products to the library."""
