# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterable

def configure(
    *,
    large_segment: int = ...,
    max_split_size: int | None = None,
    max_non_split_rounding: int = ...,
    garbage_threshold: float = 0.0,
    roundup_divisions: tuple[int, ...] = ...,
    reject_early: bool = False,
    configured_fraction: float = 1.0,
    expandable: bool = False,
    reserve_share: float = 0.0,
    reserve_bytes: int = 0,
    stream_reserves: Iterable[tuple[int, float, int]] = (),
    reuse_in_capture: bool = False,
) -> None:
    """Replace all settings of the device allocators. The caller has validated them.

    Parameters
    ----------
    large_segment
        Bytes of a segment for requests above 1 MiB and below 10 MiB; 20 MiB by default.
    max_split_size
        Blocks of at least so many bytes are never split; None for no such size.
    max_non_split_rounding
        How much larger than the request such a block may be, in bytes.
    garbage_threshold
        The share of the memory limit above which idle segments go back to the driver; 0 for never.
    roundup_divisions
        16 numbers: into how many parts the sizes from ``2**i`` MiB to the next power of two are
        divided for rounding up; 0 for none. The first serves smaller sizes too.
    reject_early
        Whether to refuse without a retry what would go beyond `configured_fraction`.
    configured_fraction
        The share of each device's memory that may be reserved, as it was configured. Devices that
        are used first after `initialize_settings` start with it as their limit.
    expandable
        Whether new segments grow: addresses are reserved once, memory is mapped as it is needed.
    reserve_share, reserve_bytes
        How many addresses such a segment reserves: a share of the device's memory, or bytes; with
        neither, nine eighths of the device.
    stream_reserves
        The same for single streams: the stream's handle, the share, the bytes.
    reuse_in_capture
        Whether a block that several streams of a capture used may be handed out again in that
        capture, once the graph proves that they have passed.
    """

def configure_host(
    *,
    use_register: bool = False,
    register_threads: int = 1,
    max_round_threshold: int | None = None,
    max_cached_size: int | None = None,
    reserve_segment: int = 0,
    free_catch_all: bool = False,
    background: bool = False,
) -> None:
    """Replace all settings of the pinned cache. The caller has validated them.

    Parameters
    ----------
    use_register
        Take memory from the C library and register it (``cuMemHostRegister``).
    register_threads
        How many threads touch its pages before that.
    max_round_threshold
        Requests of more bytes are not rounded up to a power of two; None for no such size.
    max_cached_size
        Blocks of more bytes are not kept; None for no such size.
    reserve_segment
        Bytes to pin at once at the first request; blocks are cut from that while it lasts.
    free_catch_all
        Whether failures of freeing are a warning instead of an error.
    background
        Whether a thread looks for uses that have ended, in place of each allocation.
    """

def initialize_settings() -> None:
    """Take note of settings that count as they are when CUDA is initialised."""

def host_allocator_address() -> int:
    """Where the object of the pinned cache is."""

def allocated_bytes(device: int) -> int:
    """Bytes that tensors hold; 0 before initialisation."""

def max_allocated_bytes(device: int) -> int:
    """The peak of `allocated_bytes` since the last `reset_peak`."""

def reserved_bytes(device: int) -> int:
    """Bytes that the allocator has from the driver; 0 before initialisation."""

def max_reserved_bytes(device: int) -> int:
    """The peak of `reserved_bytes` since the last `reset_peak`."""

def cycle_seconds(nbytes: int, device: int, count: int) -> float:
    """Seconds that `count` cached allocations and frees take; for benchmarks."""
