# SPDX-License-Identifier: Apache-2.0
"""Finding the operations that make the host wait: a warning or an error where they happen.

There is a mode of the whole process, torch's, and a guard of one thread, `expect_no_sync`, which
hears of explicit synchronisation as well. A thread inside a guard is judged by the guard alone.
"""

from __future__ import annotations

import linecache
import sys
import threading
import traceback
import warnings
from typing import TYPE_CHECKING, Literal, NamedTuple

from flambeau.runtime import _state

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "Synchronization",
    "expect_no_sync",
    "get_mode",
    "report",
    "report_explicit",
    "set_mode",
]

_MODES = {"default": 0, "warn": 1, "error": 2}
_ACTIONS = ("error", "warn", "record")
_lock = threading.Lock()
_announced = False
_process_mode = 0
_guards_in_force = 0


class Synchronization(NamedTuple):
    """One wait of the host for the device.

    Parameters
    ----------
    operation
        What waited, such as ``"Tensor.item"``.
    stack
        Where it was called, as a traceback is printed.
    """

    operation: str
    stack: str


class _ThisThread(threading.local):
    guard: expect_no_sync | None = None


_this_thread = _ThisThread()


class expect_no_sync:  # noqa: N801 - a context manager, used like a function
    """Context manager: in this thread nothing may make the host wait for a device.

    Unlike `set_sync_debug_mode` it concerns one thread and a block, and hears of the explicit
    ``torch.cuda.synchronize`` and ``Event.synchronize`` too. The innermost guard counts.

    Parameters
    ----------
    action
        ``"error"``: raise a `RuntimeError` that names the operation, before it waits; ``"warn"``:
        warn; ``"record"``: only note it.

    Attributes
    ----------
    found : list of Synchronization
        What waited, or tried to, in this block so far.

    Raises
    ------
    ValueError
        The action is none of these.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.ones(3, device="cuda")
    >>> with torch.cuda.expect_no_sync("record") as guard:
    ...     y = (x + 1).tolist()
    >>> len(guard.found)
    1
    """

    def __init__(self, action: Literal["error", "warn", "record"] = "error") -> None:
        if action not in _ACTIONS:
            raise ValueError(f"action is one of {', '.join(_ACTIONS)}, got {action!r}")
        self.action = action
        self.found: list[Synchronization] = []
        self._outer: list[expect_no_sync | None] = []

    def __enter__(self) -> expect_no_sync:
        self._outer.append(_this_thread.guard)
        _this_thread.guard = self
        _count_guards(1)
        return self

    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _count_guards(-1)
        _this_thread.guard = self._outer.pop()

    def note(self, operation: str) -> None:
        """Take note of a wait and act on it."""
        stack = "".join(traceback.format_stack(sys._getframe(2)))
        self.found.append(Synchronization(operation, stack))
        if self.action == "error":
            raise RuntimeError(f"{_message(operation)}; this thread is inside expect_no_sync()")
        if self.action == "warn":
            warnings.warn(_message(operation), stacklevel=3)


def _count_guards(change: int) -> None:
    global _guards_in_force
    with _lock:
        _guards_in_force += change
        _tell_compiled_modules()


def _tell_compiled_modules() -> None:
    _state.set_sync_debug_mode(_process_mode or int(_guards_in_force > 0))


def set_mode(debug_mode: int | str) -> None:
    """Say what happens when an operation waits for the device, in the whole process.

    Parameters
    ----------
    debug_mode
        ``0`` or ``"default"``: nothing; ``1`` or ``"warn"``: a `UserWarning`; ``2`` or
        ``"error"``: a `RuntimeError` before it waits.

    Raises
    ------
    RuntimeError
        The mode is none of these.
    """
    global _announced, _process_mode
    if isinstance(debug_mode, bool) or not isinstance(debug_mode, int | str):
        raise RuntimeError(
            "invalid argument to set_sync_debug_mode: expected 0, 1, 2, 'default', 'warn' or "
            f"'error', got {debug_mode!r} of type {type(debug_mode).__name__}"
        )
    mode = _MODES.get(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if mode is None or mode not in _MODES.values():
        raise RuntimeError(
            f"invalid value of debug_mode: {debug_mode!r}; expected 0, 1, 2, 'default', 'warn' or "
            "'error'"
        )
    if not _announced:
        _announced = True
        warnings.warn(
            "Synchronization debug mode is a prototype feature and does not yet detect all "
            "synchronizing operations",
            stacklevel=3,
        )
    with _lock:
        _process_mode = mode
        _tell_compiled_modules()


def get_mode() -> int:
    """The mode of the process: 0, 1 or 2."""
    return _process_mode


def report(operation: str, _mode: int = 0) -> None:
    """An operation is about to wait for the device: warn or raise, as guard or mode says."""
    guard = _this_thread.guard
    if guard is not None:
        guard.note(operation)
    elif _process_mode == 2:
        raise RuntimeError(f"{_message(operation)}; set_sync_debug_mode('error') forbids that")
    elif _process_mode == 1:
        warnings.warn(_message(operation), stacklevel=2)


def report_explicit(operation: str) -> None:
    """The program itself asks to wait: only a guard of this thread wants to know."""
    guard = _this_thread.guard
    if guard is not None:
        guard.note(operation)


def _message(operation: str) -> str:
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("flambeau."):
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    source = linecache.getline(file, line).strip()
    return (
        f"called a synchronizing CUDA operation: {operation} makes the host wait for the device, "
        f"at {file}:{line}" + (f" in `{source}`" if source else "")
    )
