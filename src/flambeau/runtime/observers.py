# SPDX-License-Identifier: Apache-2.0
"""Who wants to hear of runtime calls. With nobody registered a call costs one test of a flag.

The kinds and what their callbacks get; handles, addresses and device indices are ints:

Events
    ``event_creation(event)``, ``event_deletion(event)``, ``event_record(event, stream, device)``,
    ``event_wait(event, stream, device)``, ``event_synchronization(event)``, and
    ``event_completion(event)`` when a query found it done.
Streams
    ``stream_creation(stream, device)``, ``stream_synchronization(stream, device)``,
    ``stream_completion(stream, device)`` when the host found its work done in another way, and
    ``stream_wait(stream, device, other, other_device)`` when the runtime itself has a stream wait
    for another. ``device_synchronization(device)``.
Memory
    ``memory_allocation(address, bytes, device, stream)``, ``memory_deallocation(address)``,
    ``memory_use(address, stream, device)`` of a stream that a block is lent to,
    ``memory_return(device)`` when cached memory went back to the driver, which waits for the
    device, and ``pinned_allocation(address, bytes)``.
Work
    ``launch(function, stream)``; ``operation(name, read, written, stream)`` with tuples of the
    tensors, in device or pinned memory, that work on a stream reads and writes; and
    ``host_access(name, read, written)`` with host tensors that the host itself reads and writes.
    Operations are told after they were queued.
    ``graph_launch(capture, stream, device)`` of a graph captured under that id, and
    ``graph_release(capture)`` when the graph is gone.
Annotations
    ``mark(message, domain)``, ``range_push(message, domain)``, ``range_pop(domain)``,
    ``range_start(number, message, domain)``, ``range_end(number)``; the domain is None or a str.
"""

from __future__ import annotations

import atexit
import logging
from typing import TYPE_CHECKING, Literal, get_args

from flambeau.runtime import _state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Finding", "Kind", "callbacks_of", "notify", "register", "unregister"]

Kind = Literal[
    "event_creation",
    "event_deletion",
    "event_record",
    "event_wait",
    "event_synchronization",
    "event_completion",
    "stream_creation",
    "stream_synchronization",
    "stream_completion",
    "stream_wait",
    "device_synchronization",
    "memory_allocation",
    "memory_deallocation",
    "memory_use",
    "memory_return",
    "pinned_allocation",
    "launch",
    "operation",
    "host_access",
    "graph_launch",
    "graph_release",
    "mark",
    "range_push",
    "range_pop",
    "range_start",
    "range_end",
]

# What makes the compiled modules tell of work and of memory.
_WORK: tuple[Kind, ...] = (
    "launch",
    "operation",
    "host_access",
    "graph_launch",
    "graph_release",
    "stream_wait",
    "stream_synchronization",
    "stream_completion",
)
_MEMORY: tuple[Kind, ...] = (
    "memory_allocation",
    "memory_deallocation",
    "memory_use",
    "memory_return",
    "pinned_allocation",
)


class Finding(Exception):  # noqa: N818 - what it finds is the program's error
    """What an observer raises on purpose: it goes on to the program that made the call."""


_logger = logging.getLogger(__name__)
_callbacks: dict[str, list[Callable[..., object]]] = {kind: [] for kind in get_args(Kind)}


def register(kind: Kind, callback: Callable[..., object]) -> None:
    """Call back at every call of a kind, in the order of registration.

    Raises
    ------
    ValueError
        There is no such kind.
    """
    _of_kind(kind).append(callback)
    atexit.unregister(_fall_silent)
    atexit.register(_fall_silent)
    _tell_compiled_modules()


def unregister(kind: Kind, callback: Callable[..., object]) -> None:
    """Undo one `register`.

    Raises
    ------
    ValueError
        There is no such kind, or the callback is not registered for it.
    """
    _of_kind(kind).remove(callback)
    _tell_compiled_modules()


def callbacks_of(kind: Kind) -> Sequence[Callable[..., object]]:
    """The callbacks of a kind, a live list: empty while there is nobody to tell."""
    return _of_kind(kind)


def notify(kind: Kind, *arguments: object) -> None:
    """Tell the observers of a kind.

    Raises
    ------
    Finding
        The first that an observer raised, after all were told. Their other exceptions are logged.
    """
    finding: Finding | None = None
    for callback in tuple(_callbacks[kind]):
        try:
            callback(*arguments)
        except Finding as found:
            finding = finding or found
        except Exception:
            _logger.exception("an observer of %s failed", kind)
    if finding is not None:
        raise finding


def _of_kind(kind: str) -> list[Callable[..., object]]:
    if kind not in _callbacks:
        raise ValueError(f"no kind of call is named {kind!r}; there are {', '.join(_callbacks)}")
    return _callbacks[kind]


def _fall_silent() -> None:
    """Tell nobody of what the interpreter's end frees."""
    for callbacks in _callbacks.values():
        callbacks.clear()
    _tell_compiled_modules()


def _tell_compiled_modules() -> None:
    from flambeau.runtime import _allocator, _launch

    _state.set_observed(any(_callbacks.values()))
    _launch.set_observed(any(_callbacks[kind] for kind in _WORK))
    _allocator.set_observed(any(_callbacks[kind] for kind in _MEMORY))
