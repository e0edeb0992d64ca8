# SPDX-License-Identifier: Apache-2.0
"""Who wants to hear of runtime calls. With nobody registered a call costs one test of a flag.

The kinds and what their callbacks get, all ints but for the last:

``event_creation(event)``, ``event_deletion(event)``, ``event_record(event, stream)``,
``event_wait(event, stream)``, ``memory_allocation(address)``, ``memory_deallocation(address)``,
``stream_creation(stream)``, ``device_synchronization()``, ``stream_synchronization(stream)``,
``event_synchronization(event)``, ``launch(function, stream)``, and
``operation(name, read, written, stream)`` with tuples of the CUDA tensors that an operation on
tensors read and wrote.

Of annotations: ``mark(message, domain)``, ``range_push(message, domain)``, ``range_pop(domain)``,
``range_start(number, message, domain)`` and ``range_end(number)``; the domain is None or a str.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, get_args

from flambeau.runtime import _state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Kind", "callbacks_of", "notify", "register", "unregister"]

Kind = Literal[
    "event_creation",
    "event_deletion",
    "event_record",
    "event_wait",
    "memory_allocation",
    "memory_deallocation",
    "stream_creation",
    "device_synchronization",
    "stream_synchronization",
    "event_synchronization",
    "launch",
    "operation",
    "mark",
    "range_push",
    "range_pop",
    "range_start",
    "range_end",
]

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
    """Tell the observers of a kind. Their exceptions are logged, and the next one is called."""
    for callback in tuple(_callbacks[kind]):
        try:
            callback(*arguments)
        except Exception:
            _logger.exception("an observer of %s failed", kind)


def _of_kind(kind: str) -> list[Callable[..., object]]:
    if kind not in _callbacks:
        raise ValueError(f"no kind of call is named {kind!r}; there are {', '.join(_callbacks)}")
    return _callbacks[kind]


def _tell_compiled_modules() -> None:
    from flambeau.runtime import _allocator, _launch

    _state.set_observed(any(_callbacks.values()))
    _launch.set_observed(bool(_callbacks["launch"] or _callbacks["operation"]))
    _allocator.set_observed(
        bool(_callbacks["memory_allocation"] or _callbacks["memory_deallocation"])
    )
