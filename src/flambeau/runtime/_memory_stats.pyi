# SPDX-License-Identifier: Apache-2.0
from typing import Any

def memory_stats_raw(device: int) -> dict[str, Any]:
    """All counters of a device, nested as in ``torch.cuda.memory_stats_as_nested_dict``."""

def reset_peak(device: int) -> None:
    """Set every peak of a device to the current value."""

def reset_accumulated(device: int) -> None:
    """Set the sums and the numbers of events of a device to 0."""

def host_memory_stats_raw() -> dict[str, Any]:
    """All counters of the pinned cache, nested as in ``host_memory_stats_as_nested_dict``."""

def reset_peak_host() -> None:
    """Set every peak of the pinned cache to the current value."""

def reset_accumulated_host() -> None:
    """Set the sums of the pinned cache to 0."""

def memory_snapshot_raw(known: dict[Any, Any] | None = None) -> list[dict[str, Any]]:
    """All segments with their blocks, by device and address; equal stacks share lists by `known`."""

def host_snapshot_raw(known: dict[Any, Any]) -> list[dict[str, Any]]:
    """The blocks of the pinned cache, each as a segment of one block."""
