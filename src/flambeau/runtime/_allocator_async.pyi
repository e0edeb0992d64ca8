# SPDX-License-Identifier: Apache-2.0
from typing import Any

def install() -> None:
    """Serve all requests for device memory from the driver's pools."""

def empty_cache() -> None:
    """Give what the pools hold and nobody uses back, and what graphs hold in reserve."""

def forget() -> None:
    """Every handle is void."""

def set_limit(device: int, limit: int | None) -> None:
    """How many bytes tensors may hold; None for no limit."""

def get_limit(device: int) -> int | None:
    """What `set_limit` set."""

def used(device: int, peak: bool = False) -> int:
    """Bytes that tensors hold, or the most they held."""

def reserved(device: int, peak: bool = False) -> int:
    """Bytes that the pool has from the device, or the most it had."""

def stats(device: int) -> dict[str, Any]:
    """Those of memory_stats: the driver tells four figures, the rest is 0."""

def reset_peak(device: int) -> None:
    """Let the peaks start at what is current."""

def reset_accumulated(device: int) -> None:
    """Warn, once, that there are no sums."""
