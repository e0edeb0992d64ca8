# SPDX-License-Identifier: Apache-2.0
"""Finding the operations that make the host wait for a device."""

from __future__ import annotations

from flambeau.runtime import sync_debug
from flambeau.runtime.sync_debug import expect_no_sync

__all__ = ["expect_no_sync", "get_sync_debug_mode", "set_sync_debug_mode"]


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Say what happens when an operation makes the host wait, in the whole process.

    Reported are reads of values (``item``, ``tolist``, ``cpu``, ``bool``), operations whose result
    has a size that depends on values (``nonzero``, ``unique``), blocking copies and
    ``Stream.synchronize``. Not reported are the explicit ``torch.cuda.synchronize`` and
    ``Event.synchronize``, queries, and copies with ``non_blocking=True``. `expect_no_sync` watches
    one thread only, and explicit synchronisation too.

    Parameters
    ----------
    debug_mode
        ``0`` or ``"default"``: nothing; ``1`` or ``"warn"``: a `UserWarning`; ``2`` or
        ``"error"``: a `RuntimeError` before it waits. Both name the operation.

    Raises
    ------
    RuntimeError
        The mode is none of these.

    Warns
    -----
    UserWarning
        At the first call, that this is a prototype.

    Examples
    --------
    >>> import flambeau as torch
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # of the first call
    ...     torch.cuda.set_sync_debug_mode("error")
    >>> torch.ones(1, device="cuda").item()
    Traceback (most recent call last):
    RuntimeError: called a synchronizing CUDA operation: ...
    >>> torch.cuda.set_sync_debug_mode("default")
    """
    sync_debug.set_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """The mode that `set_sync_debug_mode` set: 0, 1 or 2. It is 0 at first.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.get_sync_debug_mode()
    0
    """
    return sync_debug.get_mode()
