# SPDX-License-Identifier: Apache-2.0
"""Initialisation at first use, the calls that wait for it, and the guard against forking after it.

Importing flambeau makes no driver call. The first call that needs a device runs `lazy_init`; what
was handed to `lazy_call` before then runs at its end.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, NamedTuple

from flambeau.driver.errors import DeferredCudaCallError, DriverNotFoundError
from flambeau.runtime import _state

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["forget", "in_bad_fork", "is_initialized", "lazy_call", "lazy_init", "on_forget"]


class _QueuedCall(NamedTuple):
    callback: Callable[[], object]
    stack: str


class _ThisThread(threading.local):
    initializing = False


_lock = threading.Lock()
_this_thread = _ThisThread()
_queue: list[_QueuedCall] = []
_seed_queue: dict[str, _QueuedCall] = {}  # at most "seed" and "seed_all", oldest first
_bad_fork = False
_fork_guarded = False
_initialized_at: traceback.StackSummary | None = None
_forget_hooks: list[Callable[[], object]] = []


def is_initialized() -> bool:
    """Whether CUDA is initialised in this process; False in a child forked after that."""
    return _state.is_initialized() and not _bad_fork


def in_bad_fork() -> bool:
    """Whether this process was forked from one that had initialised CUDA."""
    return _bad_fork


def lazy_init() -> None:
    """Initialise CUDA unless that is done; threads that come meanwhile wait.

    Raises
    ------
    DriverNotFoundError
        There is no CUDA driver, or it shows no GPU.
    RuntimeError
        This process was forked from one that had initialised CUDA.
    AllocatorSettingsError
        The environment has allocator options that are wrong.
    DeferredCudaCallError
        A queued call failed. CUDA stays uninitialised, and the next attempt runs all queued
        calls again.
    """
    if is_initialized() or _this_thread.initializing:
        return
    with _lock:
        if is_initialized():
            return
        if _bad_fork:
            raise RuntimeError(_bad_fork_message())
        _this_thread.initializing = True
        try:
            _start_driver()
            _run_queued_calls()
            _state.finish()
        finally:
            _this_thread.initializing = False


def lazy_call(
    callback: Callable[[], object], *, seed: bool = False, seed_all: bool = False
) -> None:
    """Run a call that needs CUDA: now if CUDA is initialised, else when it is.

    Parameters
    ----------
    callback
        What to call, without arguments.
    seed, seed_all
        The call seeds one generator, or all. Only the newest waiting call of each kind is kept;
        these run after all others.
    """
    if is_initialized() or _this_thread.initializing:
        callback()
        return
    call = _QueuedCall(callback, "".join(traceback.format_stack(sys._getframe(1))))
    if seed_all or seed:
        kind = "seed_all" if seed_all else "seed"
        _seed_queue.pop(kind, None)
        _seed_queue[kind] = call
    else:
        _queue.append(call)


def on_forget(hook: Callable[[], object]) -> None:
    """Have a hook called whenever all handles become void: in a forked child, at a new driver."""
    _forget_hooks.append(hook)


def forget() -> None:
    """Go back to the state before initialisation, for a driver that has been replaced.

    Streams, events and memory of before must not be used any more; dropping them is harmless.
    """
    from flambeau.runtime import _allocator, _launch, _stream_pool

    _state.forget()
    _allocator.forget(_bad_fork)
    _launch.forget()
    _stream_pool.forget()
    for hook in _forget_hooks:
        hook()


def _report_capture(status: int, detail: str | None) -> Exception:
    """Say of a call that a stream's capture forbids where it was; another library's as well."""
    from flambeau.runtime import capture_report

    return capture_report.note(status, detail)


def _start_driver() -> None:
    from flambeau import driver
    from flambeau.driver import _table
    from flambeau.runtime import _allocator_settings

    _allocator_settings.prepare()
    driver.current()
    _table.set_capture_reporter(_report_capture)
    if _state.start() == 0:
        raise DriverNotFoundError(
            "No CUDA GPUs are available. The driver works but shows no device: see whether "
            "CUDA_VISIBLE_DEVICES hides them, or set FLAMBEAU_VIRTUAL=h200 for a virtual one."
        )
    _guard_forks()


def _run_queued_calls() -> None:
    for call in [*_queue, *_seed_queue.values()]:
        try:
            call.callback()
        except Exception as error:
            raise DeferredCudaCallError(
                f"CUDA call failed lazily at initialization with error: {error}\n\n"
                f"The call was queued, before CUDA was initialised, here:\n\n{call.stack}"
            ) from error
    _queue.clear()
    _seed_queue.clear()


def _guard_forks() -> None:
    global _fork_guarded, _initialized_at
    if _initialized_at is None:
        frames = traceback.walk_stack(sys._getframe(1))
        _initialized_at = traceback.StackSummary.extract(frames, lookup_lines=False)
        _initialized_at.reverse()
    if not _fork_guarded:
        # All that the hooks need is imported here: a child may find the import lock held.
        from flambeau.runtime import _allocator, _launch, _stream_pool  # noqa: F401

        os.register_at_fork(
            before=_allocator.pause,
            after_in_parent=_allocator.resume,
            after_in_child=_after_fork_in_child,
        )
        _fork_guarded = True


def _after_fork_in_child() -> None:
    global _bad_fork, _lock
    _bad_fork = True
    _lock = threading.Lock()  # the parent's may have been held by a thread that is not here
    _this_thread.initializing = False
    forget()


def _bad_fork_message() -> str:
    message = (
        "Cannot re-initialize CUDA in forked subprocess. The parent process had initialised CUDA "
        "before it forked, and neither its context nor its memory works here. To use CUDA with "
        "multiprocessing, you must use the 'spawn' start method, or fork before the first CUDA "
        "call."
    )
    if _initialized_at is not None:
        where = "".join(_initialized_at.format())
        message += f"\n\nThe parent initialised CUDA here:\n\n{where}"
    return message
