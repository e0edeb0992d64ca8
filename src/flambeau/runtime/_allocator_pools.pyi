# SPDX-License-Identifier: Apache-2.0
from typing import TypeAlias

_PoolId: TypeAlias = tuple[int, int]

def new_user_id() -> _PoolId:
    """The id of a pool that a user makes: ``(0, n)``, with n from 1."""

def new_graph_id() -> _PoolId:
    """The id of the pool of a graph that was given none: ``(n, 0)``, with n from 1."""

def retain_pool(
    device: int,
    pair: _PoolId,
    source: int = 0,
    use_on_oom: bool = False,
    no_split: bool = False,
) -> None:
    """Make a pool with one user, or add a user to it.

    Parameters
    ----------
    device
        Where.
    pair
        The pool's id.
    source
        The address of the ``SegmentSource`` that gives its memory; 0 for the driver. This and what
        follows count for a new pool only.
    use_on_oom
        Whether its free blocks serve other requests before those fail.
    no_split
        Whether every request gets a whole segment.
    """

def drop_pool(device: int, pair: _PoolId) -> bool:
    """Take one user away; False if there is no such pool.

    The free memory of a pool without users goes back to the driver at the next `flush_dead`,
    `_allocator.empty_cache` or shortage. Makes no driver call.
    """

def pool_users(device: int, pair: _PoolId) -> int:
    """How many users a pool has; 0 if there is no such pool."""

def flush_dead(device: int) -> None:
    """Give the free memory of pools without users back to the driver."""

def begin_for_this_thread(device: int, pair: _PoolId, *, capturing: bool = False) -> None:
    """Let this thread allocate from a pool on a device, and add a user to it.

    Parameters
    ----------
    device
        Where.
    pair
        The pool's id; a pool that is not there yet is made.
    capturing
        Whether a graph is being captured: until the end no event is recorded or asked for, and
        memory that other streams use is held back.

    Raises
    ------
    RuntimeError
        This thread does so already.
    """

def end_for_this_thread(device: int, pair: _PoolId, *, capturing: bool = False) -> None:
    """Undo the routing of `begin_for_this_thread`; the user stays until `drop_pool`."""

def managed_functions() -> tuple[int, int]:
    """The addresses of two functions that give a pool managed memory, as `PluggableFunctions` takes.

    The first asks the driver for it (``cuMemAllocManaged``, attached to all devices), the second
    frees it.
    """
