# SPDX-License-Identifier: Apache-2.0
"""C functions of NVIDIA's math libraries, found by cuda-pathfinder and called through ctypes.

Only calls whose work takes far longer than such a call are made this way.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from flambeau.driver.errors import MissingExtraError

__all__ = ["Function", "SharedLibrary", "dlopen_handle", "pointer_of"]

Function = Any  # a ctypes function: its arguments are ints, pointers and addresses


@functools.cache
def dlopen_handle(name: str, extra: str = "cu13") -> int:
    """The handle of ``lib<name>.so`` from the NVIDIA wheels, a toolkit or the system.

    Raises
    ------
    MissingExtraError
        It is nowhere.
    """
    from cuda import pathfinder

    try:
        loaded = pathfinder.load_nvidia_dynamic_lib(name)
    except RuntimeError as error:
        raise MissingExtraError(
            f"lib{name} was not found. Install it with: pip install 'flambeau[{extra}]'"
        ) from error
    return int(loaded._handle_uint)


class SharedLibrary:
    """A library whose functions return a status.

    Parameters
    ----------
    name
        As cuda-pathfinder knows it, such as ``"cusolver"``.
    statuses
        What its statuses mean.
    """

    def __init__(self, name: str, statuses: dict[int, str]) -> None:
        self.name = name
        self.statuses = statuses
        self._library: ctypes.CDLL | None = None

    def function(self, symbol: str) -> Function:
        """One of its C functions, taking 64-bit integers and pointers as they come."""
        if self._library is None:
            self._library = ctypes.CDLL(None, handle=dlopen_handle(self.name))
        return getattr(self._library, symbol)

    def call(self, symbol: str, *arguments: object) -> None:
        """Call a function.

        Raises
        ------
        OutOfMemoryError
            It could not get memory.
        RuntimeError
            It answered with another status than 0.
        """
        status = self.function(symbol)(*arguments)
        if status == 0:
            return
        meaning = self.statuses.get(status, "an unknown status")
        text = f"{self.name} error: {symbol} answered {meaning} ({status})"
        if "ALLOC_FAILED" in meaning:
            from flambeau.driver.errors import OutOfMemoryError

            raise OutOfMemoryError(f"CUDA out of memory. {text}.")
        raise RuntimeError(f"{text}.")


def pointer_of(address: int) -> ctypes.c_void_p:
    """An address as C takes it."""
    return ctypes.c_void_p(address)
