# SPDX-License-Identifier: Apache-2.0
from typing import Any

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

def memory_snapshot_raw() -> list[dict[str, Any]]:
    """All segments with their blocks, by device and address."""

def cycle_seconds(nbytes: int, device: int, count: int) -> float:
    """Seconds that `count` cached allocations and frees take; for benchmarks."""

def set_observed(on: bool) -> None:
    """Tell `observers` of allocations and frees; `observers` calls it."""

def forget(forked: bool) -> None:
    """Every handle is void; keep the books of a forked child readable."""
