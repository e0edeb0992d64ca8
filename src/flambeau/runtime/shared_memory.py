# SPDX-License-Identifier: Apache-2.0
"""How host memory is passed to other processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.runtime import _sharing

if TYPE_CHECKING:
    from flambeau.runtime._storage import UntypedStorage
    from flambeau.runtime._tensor import Tensor

__all__ = [
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "new_shared",
    "set_sharing_strategy",
    "share_tensor",
]

_STRATEGIES = frozenset({"file_descriptor", "file_system"})
_current = "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose how host tensors are passed from now on.

    Parameters
    ----------
    new_strategy
        ``"file_descriptor"``: by open descriptors, which nothing is left of when processes die but
        which count against ``ulimit -n``. ``"file_system"``: by names in shared memory; what dies
        without cleaning up leaves files in ``/dev/shm``.

    Raises
    ------
    ValueError
        There is no such strategy.

    Examples
    --------
    >>> import flambeau.multiprocessing as mp
    >>> mp.set_sharing_strategy("file_descriptor")
    """
    global _current
    if new_strategy not in _STRATEGIES:
        raise ValueError(
            f"there is no sharing strategy {new_strategy!r}: the strategies are "
            f"{' and '.join(sorted(_STRATEGIES))}"
        )
    _current = new_strategy


def get_sharing_strategy() -> str:
    """How host tensors are passed.

    Examples
    --------
    >>> import flambeau.multiprocessing as mp
    >>> mp.get_sharing_strategy()
    'file_descriptor'
    """
    return _current


def get_all_sharing_strategies() -> set[str]:
    """The strategies that there are.

    Examples
    --------
    >>> import flambeau.multiprocessing as mp
    >>> len(mp.get_all_sharing_strategies())
    2
    """
    return set(_STRATEGIES)


def new_shared(nbytes: int) -> UntypedStorage:
    """A storage of zeros that other processes can map, by the present strategy."""
    return _sharing.new_shared(nbytes, named=_current == "file_system")


def share_tensor(tensor: Tensor) -> Tensor:
    """Move a host tensor into shared memory, and return it; views made before stay behind."""
    storage = tensor.untyped_storage()
    if _sharing.is_shared(storage):
        return tensor
    shared = new_shared(storage.nbytes())
    if storage.nbytes():
        shared.copy_(storage)
    tensor.data = tensor.detach().set_(
        shared, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
    )
    return tensor
