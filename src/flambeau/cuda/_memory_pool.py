# SPDX-License-Identifier: Apache-2.0
"""Private pools of device memory."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from flambeau.cuda._memory_by_address import numbered
from flambeau.cuda._pluggable_allocator import PluggableFunctions
from flambeau.runtime import _allocator, _allocator_pools, _cuda_device, _state, lazy_init

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flambeau.cuda._utils import DeviceArgument

__all__ = ["MemPool", "graph_pool_handle", "pool_snapshot", "use_mem_pool"]


def graph_pool_handle() -> tuple[int, int]:
    """A new id of a pool, for graphs that are to share their memory. Does not initialise CUDA.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.graph_pool_handle()[0]
    0
    """
    return _allocator_pools.new_user_id()


def pool_snapshot(mempool_id: tuple[int, int] | None) -> list[dict[str, Any]]:
    """The segments of one pool, or all, by device and address."""
    segments = _allocator.memory_snapshot_raw()
    segments.sort(key=lambda segment: (segment["device"], segment["address"]))
    if mempool_id is None:
        return segments
    wanted = tuple(mempool_id)
    return [segment for segment in segments if segment["segment_pool_id"] == wanted]


class MemPool:
    """Device memory that is kept apart: what comes from here goes back here and serves no other.

    It belongs to the device that is current when it is made. `use_mem_pool` allocates from it.
    When the pool object and all other users are gone, its free memory goes back to the driver;
    tensors that still live keep theirs until they die and the cache is emptied.

    Parameters
    ----------
    allocator
        Who gives the pool its memory, as `CUDAPluggableAllocator.allocator` returns it; None for
        the driver. It is asked for whole segments; caching and statistics work on top.
    use_on_oom
        Whether the pool's free memory may serve other requests before these fail.
    no_split
        Whether every request gets a whole segment, of at least 2 MiB.

    Raises
    ------
    TypeError
        `allocator` is something else.

    Examples
    --------
    >>> import flambeau as torch
    >>> pool = torch.cuda.MemPool()
    >>> with torch.cuda.use_mem_pool(pool):
    ...     x = torch.empty(1 << 20, device="cuda")
    >>> [segment["total_size"] for segment in pool.snapshot()]
    [20971520]
    """

    def __init__(
        self,
        allocator: PluggableFunctions | None = None,
        use_on_oom: bool = False,
        no_split: bool = False,
    ) -> None:
        if allocator is not None and not isinstance(allocator, PluggableFunctions):
            raise TypeError(
                "MemPool takes what CUDAPluggableAllocator.allocator() returns, or None; got "
                f"{type(allocator).__name__}"
            )
        lazy_init.lazy_init()
        self._allocator = allocator
        self._device = _cuda_device.current_device()
        identity = _allocator_pools.new_user_id()
        source = 0 if allocator is None else allocator.source
        _allocator_pools.retain_pool(self._device, identity, source, use_on_oom, no_split)
        self._id = identity

    @property
    def id(self) -> tuple[int, int]:
        """Two numbers that name the pool, as ``segment_pool_id`` of snapshots."""
        return self._id

    @property
    def allocator(self) -> PluggableFunctions | None:
        """Who gives the pool its memory; None for the driver."""
        return self._allocator

    @property
    def device(self) -> int:
        """The index of the device that the pool belongs to."""
        return self._device

    def use_count(self) -> int:
        """How many use the pool: this object, each `use_mem_pool` that is open, graphs."""
        return _allocator_pools.pool_users(self._device, self._id)

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """The pool's segments, as `memory_snapshot` lists them.

        Parameters
        ----------
        include_traces
            Accepted as in torch; the segments have no traces.
        """
        return pool_snapshot(self._id)

    def __del__(self) -> None:
        if hasattr(self, "_id") and not sys.is_finalizing():
            _release(self._device, self._id)


def _release(device: int, identity: tuple[int, int]) -> None:
    """One user less; the memory of a dead pool is freed where that may wait."""
    known = _allocator_pools.drop_pool(device, identity)
    if known and not _allocator_pools.pool_users(device, identity):
        _state.defer_call(partial(_allocator_pools.flush_dead, device))


def _tell_captures(device: int, identity: tuple[int, int]) -> None:
    """A graph that is being captured becomes a user of the pool."""
    graphs = sys.modules.get("flambeau.runtime._graph")  # nobody captures unless it is loaded
    if graphs is not None:
        graphs.note_pool(device, identity)


@contextmanager
def use_mem_pool(pool: MemPool, device: DeviceArgument = None) -> Iterator[None]:
    """Take what this thread allocates inside the block from a pool.

    Blocks nest; the innermost pool counts. Other threads are not affected, and may use the same
    pool at the same time.

    Parameters
    ----------
    pool
        Where from.
    device
        The pool's device, if it is named at all.

    Raises
    ------
    RuntimeError
        This thread takes from that pool already.
    ValueError
        The pool is another device's, or `device` has no number.

    Examples
    --------
    >>> import flambeau as torch
    >>> pool = torch.cuda.MemPool()
    >>> with torch.cuda.use_mem_pool(pool):
    ...     pool.use_count()
    2
    """
    identity = pool.id
    home = pool.device
    if device is not None and (index := numbered(device)) != home:
        raise ValueError(
            f"the pool {identity} belongs to device {home}, not to device {index}: make one there, "
            f"with torch.cuda.device({index})"
        )
    _allocator_pools.begin_for_this_thread(home, identity)
    try:
        _tell_captures(home, identity)
        yield
    finally:
        _allocator_pools.end_for_this_thread(home, identity)
        _release(home, identity)


@contextmanager
def _use_uvm(device: DeviceArgument = None) -> Iterator[MemPool]:
    """Take what this thread allocates inside the block from managed memory; gives the pool.

    Managed memory has one address for the host and all devices, and may be larger than a device:
    the driver moves its pages to where they are touched (``cuMemAllocManaged``).

    Parameters
    ----------
    device
        Where; None is the current device.

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.cuda.memory._use_uvm() as pool:
    ...     x = torch.ones(3, device="cuda")
    >>> x.sum().item(), len(pool.snapshot())
    (3.0, 1)
    """
    lazy_init.lazy_init()
    index = numbered(device)
    with _cuda_device.device(index):
        pool = MemPool(PluggableFunctions(*_allocator_pools.managed_functions()))
    with use_mem_pool(pool, index):
        yield pool
