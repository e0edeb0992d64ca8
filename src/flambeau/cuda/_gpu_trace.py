# SPDX-License-Identifier: Apache-2.0
"""Callbacks at events, streams, memory and synchronisation, for tools that follow a program.

Callbacks get handles and addresses as ints and are called in the order in which they were
registered, from `activate` on; until the process ends there is no way to switch them off. What a
callback raises is logged, and the next one is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flambeau.runtime import observers

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "activate",
    "register_callback_for_device_synchronization",
    "register_callback_for_event_creation",
    "register_callback_for_event_deletion",
    "register_callback_for_event_record",
    "register_callback_for_event_synchronization",
    "register_callback_for_event_wait",
    "register_callback_for_memory_allocation",
    "register_callback_for_memory_deallocation",
    "register_callback_for_stream_creation",
    "register_callback_for_stream_synchronization",
]


@dataclass(frozen=True, slots=True)
class _Callback:
    """A callback of a kind that gets the first `arity` of the kind's arguments."""

    kind: observers.Kind
    arity: int
    function: Callable[..., object]

    def __call__(self, *arguments: object) -> None:
        self.function(*arguments[: self.arity])


_waiting: list[_Callback] = []
_active = False


def activate() -> None:
    """Begin to call the callbacks; repeats do nothing. ``torch._C._activate_gpu_trace``.

    Examples
    --------
    >>> import flambeau as torch
    >>> from flambeau.cuda import _gpu_trace
    >>> from functools import partial
    >>> waited = []
    >>> _gpu_trace.register_callback_for_device_synchronization(partial(waited.append, "device"))
    >>> _gpu_trace.activate()
    >>> torch.cuda.synchronize()
    >>> waited
    ['device']
    """
    global _active
    _active = True
    while _waiting:
        callback = _waiting.pop(0)
        observers.register(callback.kind, callback)


def _register(kind: observers.Kind, arity: int, function: Callable[..., object]) -> None:
    _waiting.append(_Callback(kind, arity, function))
    if _active:
        activate()


def register_callback_for_event_creation(cb: Callable[[int], object]) -> None:
    """Call ``cb(event)`` when an event is made."""
    _register("event_creation", 1, cb)


def register_callback_for_event_deletion(cb: Callable[[int], object]) -> None:
    """Call ``cb(event)`` when an event is freed."""
    _register("event_deletion", 1, cb)


def register_callback_for_event_record(cb: Callable[[int, int], object]) -> None:
    """Call ``cb(event, stream)`` when an event is recorded on a stream."""
    _register("event_record", 2, cb)


def register_callback_for_event_wait(cb: Callable[[int, int], object]) -> None:
    """Call ``cb(event, stream)`` when a stream waits for an event."""
    _register("event_wait", 2, cb)


def register_callback_for_memory_allocation(cb: Callable[[int], object]) -> None:
    """Call ``cb(address)`` when device memory is given out."""
    _register("memory_allocation", 1, cb)


def register_callback_for_memory_deallocation(cb: Callable[[int], object]) -> None:
    """Call ``cb(address)`` when device memory is taken back."""
    _register("memory_deallocation", 1, cb)


def register_callback_for_stream_creation(cb: Callable[[int], object]) -> None:
    """Call ``cb(stream)`` when a stream is made."""
    _register("stream_creation", 1, cb)


def register_callback_for_device_synchronization(cb: Callable[[], object]) -> None:
    """Call ``cb()`` when the host waits for a device."""
    _register("device_synchronization", 0, cb)


def register_callback_for_stream_synchronization(cb: Callable[[int], object]) -> None:
    """Call ``cb(stream)`` when the host waits for a stream, for a blocking copy too."""
    _register("stream_synchronization", 1, cb)


def register_callback_for_event_synchronization(cb: Callable[[int], object]) -> None:
    """Call ``cb(event)`` when the host waits for an event."""
    _register("event_synchronization", 1, cb)
