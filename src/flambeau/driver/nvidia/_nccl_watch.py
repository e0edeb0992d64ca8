# SPDX-License-Identifier: Apache-2.0
"""Looking after collectives that several processes take part in."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import weakref

    from flambeau.driver.nvidia.nccl import NvidiaCommunicator

__all__ = ["Watch"]

_PERIOD = 0.1
_UNTIMED = 2  # CU_EVENT_DISABLE_TIMING
_NOT_READY = 600


class Watch:
    """A thread that sees whether a communicator's work ends in time.

    Parameters
    ----------
    owner
        The communicator. When it is gone the thread ends.
    device
        Its GPU.
    timeout
        Seconds.
    """

    def __init__(self, owner: weakref.ref[NvidiaCommunicator], device: int, timeout: float) -> None:
        self._owner = owner
        self._device = device
        self._timeout = timeout
        self._open: deque[tuple[str, Any, float]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def note(self, name: str, stream: int) -> None:
        """Look after work that was just given to a stream. Captured work is not looked after."""
        from cuda.bindings import driver

        status, capturing = driver.cuStreamIsCapturing(stream)
        if int(status) or int(capturing):
            return
        status, event = driver.cuEventCreate(_UNTIMED)
        if int(status):
            return
        driver.cuEventRecord(event, stream)
        with self._lock:
            self._open.append((name, event, time.monotonic()))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="flambeau-nccl-watch", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        from cuda.bindings import driver

        while True:
            time.sleep(_PERIOD)
            owner = self._owner()
            if owner is None or owner._failure is not None:
                return
            owner.check()
            with self._lock:
                while self._open and int(driver.cuEventQuery(self._open[0][1])[0]) != _NOT_READY:
                    driver.cuEventDestroy(self._open.popleft()[1])
                late = self._open[0] if self._open else None
            if late is not None and time.monotonic() - late[2] > self._timeout:
                owner.give_up(
                    f"{late[0]} of rank {owner.rank} of {owner.ranks} did not end within "
                    f"{self._timeout:g} s: another rank does not take part, or has ended. "
                    "FLAMBEAU_NCCL_TIMEOUT sets the seconds"
                )
                return
