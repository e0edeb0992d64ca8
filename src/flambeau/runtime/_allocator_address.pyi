# SPDX-License-Identifier: Apache-2.0
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

def forget() -> None:
    """Every address is void; `_allocator.forget` calls it."""
