# SPDX-License-Identifier: Apache-2.0
"""Named ranges of the program in memory histories."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from typing import Any

from flambeau.runtime import _cuda_device, _state

__all__ = ["entries", "start", "stop"]

_noted: deque[dict[str, Any]] = deque()
_thread: int | None = None  # the one whose ranges count; None: all count


def _note(stage: str, name: str) -> None:
    if _thread is not None and threading.get_ident() != _thread:
        return
    if not _state.is_initialized():  # in the child of a fork
        return
    _noted.append(
        {
            "stage": stage,
            "name": name,
            "device": _cuda_device.current_device(),
            "time_us": time.time_ns() // 1000,
        }
    )


def start(most: int, *, every_thread: bool, clear: bool) -> None:
    """Note the ranges of this thread, or of every one; the newest `most` entries stay."""
    from flambeau.profiler import _annotation

    global _noted, _thread
    _noted = deque(() if clear else _noted, min(most, sys.maxsize))
    _thread = None if every_thread else threading.get_ident()
    if _note not in _annotation.listeners:
        _annotation.listeners.append(_note)


def stop() -> None:
    """Note nothing any more, and forget."""
    annotation = sys.modules.get("flambeau.profiler._annotation")
    if annotation is not None and _note in annotation.listeners:
        annotation.listeners.remove(_note)
    _noted.clear()


def entries() -> list[dict[str, Any]]:
    """What was noted, oldest first."""
    return list(_noted)
