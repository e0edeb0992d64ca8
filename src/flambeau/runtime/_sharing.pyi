# SPDX-License-Identifier: Apache-2.0
from typing import Any

from flambeau.runtime._storage import UntypedStorage

def share_cuda(self: UntypedStorage) -> tuple[Any, ...]:
    """What another process needs to hold this device memory too."""

def new_shared_cuda(
    device: int,
    handle: bytes | None,
    nbytes: int,
    offset: int,
    counters: bytes | None,
    slot: int,
    event_handle: bytes | None,
    needs_wait: bool | None,
    descriptors: list[int] | None = None,
) -> UntypedStorage:
    """A storage over device memory of another process.

    Parameters
    ----------
    device, handle, nbytes, offset, counters, slot, event_handle, needs_wait
        What `share_cuda` gave there.
    descriptors
        Those of an expandable segment's pages if they were passed already; they are closed.
    """

def descriptor_numbers(handle: bytes) -> tuple[int, ...]:
    """The descriptors that a handle of pages names, in the process that made it."""

def release_ipc_counter(counters: bytes, slot: int, device: object = None) -> None:
    """Say that what was sent under this counter is not needed."""

def collect() -> None:
    """Take back the memory that no other process holds any more."""

def in_limbo() -> list[tuple[int, int]]:
    """The blocks that only other processes hold: pairs of address and bytes."""

def watch_the_end() -> None:
    """At the end of the process, say what others still hold, and remove what has a name."""

def end(process: int) -> None:
    """Do so now, in the process of that number."""

def forget(forked: bool) -> None:
    """The driver's handles are void."""

def is_received(storage: UntypedStorage) -> bool:
    """Whether the memory is another process's."""

def new_shared(nbytes: int, *, named: bool = False) -> UntypedStorage:
    """New host memory, all zero, that other processes can map: by a descriptor, or by a name."""

def open_shared(source: int | bytes, nbytes: int) -> UntypedStorage:
    """Shared memory by its descriptor, which is taken over, or by its name."""

def is_shared(self: UntypedStorage) -> bool:
    """Whether other processes can map this memory; device memory always."""

def descriptor_of(storage: UntypedStorage) -> int:
    """The descriptor of shared memory; -1 if it has a name or is not shared."""

def name_of(storage: UntypedStorage) -> bytes:
    """The name of shared memory, which a message holds from now on."""
