# SPDX-License-Identifier: Apache-2.0
from flambeau.runtime import _memory_stats
from flambeau.runtime.out_of_memory import Figures

host_memory_stats_raw = _memory_stats.host_memory_stats_raw
memory_snapshot_raw = _memory_stats.memory_snapshot_raw
memory_stats_raw = _memory_stats.memory_stats_raw
reset_accumulated = _memory_stats.reset_accumulated
reset_accumulated_host = _memory_stats.reset_accumulated_host
reset_peak = _memory_stats.reset_peak
reset_peak_host = _memory_stats.reset_peak_host

class Allocation:
    """A piece of memory that is given back when this object goes, or at `close`.

    Attributes
    ----------
    address : int
        Where it is; 0 for no bytes and after `close`.
    nbytes : int
        How much was asked for.
    device : int
        The device's index; -1 for host memory.
    """

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> int: ...
    def record_stream(self, stream: int, device: int = -1) -> None:
        """Declare that a stream (handle) of a device works on it too.

        Parameters
        ----------
        stream
            The ``CUstream`` handle; 0 is the default stream.
        device
            The stream's device; -1 asks the driver, and means the memory's own for stream 0.
        """

    def close(self) -> None:
        """Give it back now."""

def allocate(nbytes: int, device: int, stream: int = 0) -> Allocation:
    """Memory of the caching allocator, for work on one stream.

    Parameters
    ----------
    nbytes
        How many bytes.
    device
        The device's index.
    stream
        The handle of the stream that works on it.

    Raises
    ------
    OutOfMemoryError
        There is not enough, even after the cache was emptied.
    AcceleratorError
        The driver failed for another reason, or there is no such device (101).
    """

def allocate_on_host(nbytes: int, *, pin: bool = False) -> Allocation:
    """Host memory, aligned to 64 bytes; with `pin`, page-locked from the pinned cache."""

def raw_alloc(nbytes: int, device: int, stream: int) -> int:
    """Device memory by address, to be given back with `raw_delete`; 0 for no bytes."""

def raw_delete(address: int) -> None:
    """Give back what `raw_alloc` gave; nothing for 0.

    Raises
    ------
    RuntimeError
        The address is not one of these, or was deleted before.
    """

def is_pinned(address: int) -> bool:
    """Whether an address lies in page-locked host memory known to us or to the driver."""

def empty_cache() -> None:
    """Give all unused memory of all devices back to the driver; waits for pending uses."""

def empty_host_cache() -> None:
    """Give all unused pinned memory back to the driver."""

def configure(
    *,
    large_segment: int = ...,
    max_split_size: int | None = None,
    max_non_split_rounding: int = ...,
    garbage_threshold: float = 0.0,
    roundup_divisions: tuple[int, ...] = ...,
    reject_early: bool = False,
    configured_fraction: float = 1.0,
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
    """

def configure_host(
    *,
    use_register: bool = False,
    register_threads: int = 1,
    max_round_threshold: int | None = None,
    max_cached_size: int | None = None,
    reserve_segment: int = 0,
    free_catch_all: bool = False,
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
    """

def initialize_settings() -> None:
    """Take note of settings that count as they are when CUDA is initialised."""

def set_caching(on: bool) -> None:
    """Whether device memory is kept for reuse; without, every request goes to the driver."""

def is_caching() -> bool:
    """What `set_caching` set."""

def free_dead() -> None:
    """Free the memory of tensors that died and was not from the cache."""

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

def is_foreign() -> bool:
    """Whether the user's functions serve all requests."""

def check_native(what: str) -> None:
    """Raise RuntimeError if the user's functions serve all requests, which cannot do `what`."""

def memory_balance(device: int) -> Figures:
    """Where the memory of a device is now."""

def host_allocator_address() -> int:
    """Where the object of the pinned cache is."""

def set_metadata(text: str) -> None:
    """What entries of histories that this thread makes carry."""

def get_metadata() -> str:
    """What `set_metadata` set in this thread."""

def set_memory_limit(device: int, limit: int | None) -> None:
    """What the allocator may take from the driver on a device, in bytes; None for no limit."""

def get_memory_limit(device: int) -> int | None:
    """The limit in bytes, or None."""

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

def set_observed(on: bool) -> None:
    """Tell `observers` of allocations and frees; `observers` calls it."""

def pause() -> None:
    """Before a fork: let no thread be in the middle of a change."""

def resume() -> None:
    """After a fork, in the parent: let them go on."""

def forget(forked: bool) -> None:
    """Every handle is void; keep the books of a forked child readable."""
