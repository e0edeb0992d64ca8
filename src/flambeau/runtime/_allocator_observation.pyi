# SPDX-License-Identifier: Apache-2.0
def publish_blocks(on: bool) -> None:
    """Whether to tell the driver of each block that is handed out or taken back."""

def set_observed(on: bool) -> None:
    """Tell `observers` of allocations and frees; `observers` calls it."""

def follow() -> None:
    """Let the driver know of blocks if it wants to; called when a device gets its allocator."""
