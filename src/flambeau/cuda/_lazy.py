# SPDX-License-Identifier: Apache-2.0
"""Initialisation: at first use, on demand, and the calls that wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.driver.errors import DeferredCudaCallError
from flambeau.runtime import lazy_init as _runtime

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DeferredCudaCallError", "init", "is_initialized"]


def init() -> None:
    """Initialise CUDA now (``cuInit``); nothing if that is done.

    Programs need not call it: whatever needs a device does.

    Raises
    ------
    DriverNotFoundError
        There is no CUDA driver, or it shows no GPU.
    RuntimeError
        This process was forked from one that had initialised CUDA.
    DeferredCudaCallError
        A call that was queued for this moment failed; CUDA stays uninitialised.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.init()
    >>> torch.cuda.is_initialized()
    True
    """
    _runtime.lazy_init()


def is_initialized() -> bool:
    """Whether CUDA is initialised in this process; False in a child forked after that.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.init()
    >>> torch.cuda.is_initialized()
    True
    """
    return _runtime.is_initialized()


def _lazy_init() -> None:
    """Initialise CUDA unless that is done, as `init` does."""
    _runtime.lazy_init()


def _lazy_call(callable: Callable[[], object], **kwargs: bool) -> None:
    """Run a call now if CUDA is initialised, else when it is.

    Parameters
    ----------
    callable
        What to call, without arguments.
    **kwargs
        ``seed=True`` or ``seed_all=True``: of the waiting calls of this kind only the newest is
        kept, and these run after all others.
    """
    _runtime.lazy_call(
        callable, seed=kwargs.get("seed", False), seed_all=kwargs.get("seed_all", False)
    )


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had initialised CUDA."""
    return _runtime.in_bad_fork()


def _is_compiled() -> bool:
    """Whether this build can use CUDA: always."""
    return True
