# SPDX-License-Identifier: Apache-2.0
from flambeau.runtime import (
    _allocator_address,
    _allocator_control,
    _allocator_observation,
    _memory_stats,
)

host_memory_stats_raw = _memory_stats.host_memory_stats_raw
memory_snapshot_raw = _memory_stats.memory_snapshot_raw
memory_stats_raw = _memory_stats.memory_stats_raw
reset_accumulated = _memory_stats.reset_accumulated
reset_accumulated_host = _memory_stats.reset_accumulated_host
reset_peak = _memory_stats.reset_peak
reset_peak_host = _memory_stats.reset_peak_host
Allocation = _allocator_address.Allocation
allocate = _allocator_address.allocate
allocate_on_host = _allocator_address.allocate_on_host
raw_alloc = _allocator_address.raw_alloc
raw_delete = _allocator_address.raw_delete
allocated_bytes = _allocator_control.allocated_bytes
configure = _allocator_control.configure
configure_host = _allocator_control.configure_host
cycle_seconds = _allocator_control.cycle_seconds
host_allocator_address = _allocator_control.host_allocator_address
initialize_settings = _allocator_control.initialize_settings
publish_blocks = _allocator_observation.publish_blocks
set_observed = _allocator_observation.set_observed
max_allocated_bytes = _allocator_control.max_allocated_bytes
max_reserved_bytes = _allocator_control.max_reserved_bytes
reserved_bytes = _allocator_control.reserved_bytes

def is_pinned(address: int) -> bool:
    """Whether an address lies in page-locked host memory known to us or to the driver."""

def empty_cache() -> None:
    """Give all unused memory of all devices back to the driver; waits for pending uses."""

def empty_host_cache() -> None:
    """Give all unused pinned memory back to the driver."""

def set_caching(on: bool) -> None:
    """Whether device memory is kept for reuse; without, every request goes to the driver."""

def is_caching() -> bool:
    """What `set_caching` set."""

def free_dead() -> None:
    """Free the memory of tensors that died and was not from the cache."""

def watch_pinned() -> None:
    """Start or end the thread that looks for uses of pinned memory that have ended."""

def end_watch() -> None:
    """End that thread."""

def unpin_doomed() -> None:
    """Free the pinned blocks that were too large to be kept."""

def install_foreign(source: int, hooks: int) -> None:
    """Let the user's functions serve all requests.

    Parameters
    ----------
    source, hooks
        The addresses of a ``SegmentSource`` and of ``AllocatorHooks``, which must stay valid.
    """

def foreign_initialized() -> None:
    """Tell the user's functions that CUDA is initialised."""

def is_async() -> bool:
    """Whether the backend cudaMallocAsync serves all requests."""

def is_foreign() -> bool:
    """Whether the user's functions serve all requests."""

def check_native(what: str) -> None:
    """Raise RuntimeError if the user's functions serve all requests, which cannot do `what`."""

def set_memory_limit(device: int, limit: int | None) -> None:
    """What the allocator may take from the driver on a device, in bytes; None for no limit."""

def get_memory_limit(device: int) -> int | None:
    """The limit in bytes, or None."""

def pause() -> None:
    """Before a fork: let no thread be in the middle of a change."""

def resume() -> None:
    """After a fork, in the parent: let them go on."""

def forget(forked: bool) -> None:
    """Every handle is void; keep the books of a forked child readable."""
