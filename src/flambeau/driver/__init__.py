# SPDX-License-Identifier: Apache-2.0
"""One contract for "a CUDA driver" and its two implementations.

`current` answers with the driver of this process. Which one it is gets decided once, at first use:
the virtual driver if the environment variable ``FLAMBEAU_VIRTUAL`` is set or
`flambeau.virtual.enable` was called, else NVIDIA's.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import TYPE_CHECKING

from flambeau.driver import _table

if TYPE_CHECKING:
    from flambeau.driver.contract import Driver

__all__ = ["current", "peek", "prefer_virtual", "replace"]

_lock = threading.RLock()
_current: Driver | None = None
_virtual_preferred = False


def prefer_virtual() -> None:
    """Make `current` choose the virtual driver.

    Raises
    ------
    RuntimeError
        Another driver has been chosen already.
    """
    global _virtual_preferred
    with _lock:
        if _current is not None and _current.name != "virtual":
            raise RuntimeError(
                f"virtual GPUs were asked for, but this process already uses the {_current.name} "
                "driver. Enable them before the first CUDA call, or set FLAMBEAU_VIRTUAL."
            )
        _virtual_preferred = True


def current() -> Driver:
    """The driver of this process, loaded at the first call.

    Raises
    ------
    DriverNotFoundError
        No driver was found; the text says what was looked for and what to do.
    """
    global _current
    if _current is None:
        with _lock:
            if _current is None:
                _current = _start(_choose())
    return _current


def peek() -> Driver | None:
    """The driver of this process if it has been loaded, else None. Loads nothing."""
    return _current


def replace(driver: Driver) -> None:
    """Put another driver in the place of the current one (a fresh virtual machine, a test's own).

    Handles of the old one must not be used any more.
    """
    global _current
    with _lock:
        _current = _start(driver)


def _choose() -> Driver:
    if _virtual_preferred or os.environ.get("FLAMBEAU_VIRTUAL", "").strip():
        from flambeau.driver.virtual.driver import VirtualDriver

        return VirtualDriver()
    from flambeau.driver.nvidia.driver import NvidiaDriver

    return NvidiaDriver()


def _start(driver: Driver) -> Driver:
    _table.install(driver.table())
    _table.set_explainer(driver.explain)
    atexit.register(driver.shutdown)
    return driver
