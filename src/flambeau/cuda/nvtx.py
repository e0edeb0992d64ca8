# SPDX-License-Identifier: Apache-2.0
"""Names on a profiler's time line: instants and spans of host code, and of a stream's work.

While no tool listens, an annotation only counts how deep it is. A tool such as Nsight Systems is
told through the package ``nvtx``, if that is installed. Observers of `flambeau.runtime.observers`
hear of every annotation.
"""

from __future__ import annotations

import functools
import itertools
import os
import string
import threading
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from flambeau.runtime import observers

if TYPE_CHECKING:
    from collections.abc import Callable

    P = ParamSpec("P")
    R = TypeVar("R")

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

NO_RANGE = -1
"""What `range_pop` returns when no range is open."""


class _Domain(Protocol):
    """What the package ``nvtx`` has for a domain that a tool listens to."""

    def get_event_attributes(
        self, message: str, color: str | int | None, category: None, payload: float | None
    ) -> object: ...
    def mark(self, attributes: object) -> None: ...
    def push_range(self, attributes: object) -> None: ...
    def pop_range(self) -> None: ...
    def start_range(self, attributes: object) -> int: ...
    def end_range(self, range_id: int) -> None: ...


class _Depths(threading.local):
    """How many ranges this thread has open, by domain."""

    def __init__(self) -> None:
        self.by_domain: dict[str | None, int] = {}


_depths = _Depths()
_numbers = itertools.count(1)
_started: dict[int, tuple[_Domain, int]] = {}
_mark_observers = observers.callbacks_of("mark")
_push_observers = observers.callbacks_of("range_push")
_pop_observers = observers.callbacks_of("range_pop")
_start_observers = observers.callbacks_of("range_start")
_end_observers = observers.callbacks_of("range_end")


@functools.cache
def _listening(domain: str | None) -> _Domain | None:
    """The tool's domain, or None if no tool listens; settled at the first annotation."""
    # A tool reaches a process by one of these; without them the package need not be loaded.
    if not (os.environ.get("NVTX_INJECTION64_PATH") or os.environ.get("LD_PRELOAD")):
        return None
    try:
        import nvtx
    except ImportError:
        return None
    found = nvtx.get_domain(domain)
    return found if isinstance(found, nvtx.Domain) else None


def _check(msg: object) -> None:
    if not isinstance(msg, str):
        raise TypeError(f"an annotation's message is a str, got {type(msg).__name__}")


def mark(
    msg: str,
    *,
    domain: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
) -> None:
    """Put a named instant on the time line (``nvtxMarkEx``).

    Parameters
    ----------
    msg
        Its name.
    domain
        The library or part of a program that it belongs to; None for the program at large.
    color
        A name such as ``"green"``, or 0xRRGGBB.
    payload
        A number to show with it.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.nvtx.mark("data loaded")
    """
    _check(msg)
    tool = _listening(domain)
    if tool is not None:
        tool.mark(tool.get_event_attributes(msg, color, None, payload))
    if _mark_observers:
        observers.notify("mark", msg, domain)


def range_push(
    msg: str,
    *,
    domain: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
) -> int:
    """Open a span on this thread, inside those that are open (``nvtxRangePushEx``).

    Parameters
    ----------
    msg
        Its name.
    domain, color, payload
        As for `mark`. Each domain has spans of its own.

    Returns
    -------
    int
        How many spans of this thread and domain it is inside of: 0 for the outermost.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.nvtx.range_push("epoch"), torch.cuda.nvtx.range_push("step")
    (0, 1)
    >>> torch.cuda.nvtx.range_pop(), torch.cuda.nvtx.range_pop()
    (1, 0)
    """
    _check(msg)
    return _push(msg, domain, color, payload)


def _push(
    msg: str,
    domain: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
) -> int:
    depths = _depths.by_domain
    depth = depths.get(domain, 0)
    depths[domain] = depth + 1
    tool = _listening(domain)
    if tool is not None:
        tool.push_range(tool.get_event_attributes(msg, color, None, payload))
    if _push_observers:
        observers.notify("range_push", msg, domain)
    return depth


def range_pop(*, domain: str | None = None) -> int:
    """Close the innermost span of this thread (``nvtxRangePop``).

    Returns
    -------
    int
        The depth that `range_push` returned for it; -1 if no span is open, which changes nothing.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.nvtx.range_pop()
    -1
    """
    return _pop(domain)


def _pop(domain: str | None) -> int:
    depths = _depths.by_domain
    depth = depths.get(domain, 0) - 1
    if depth < 0:
        return NO_RANGE
    depths[domain] = depth
    tool = _listening(domain)
    if tool is not None:
        tool.pop_range()
    if _pop_observers:
        observers.notify("range_pop", domain)
    return depth


def range_start(
    msg: str,
    *,
    domain: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
) -> int:
    """Open a span that any thread may close, in any order (``nvtxRangeStartEx``).

    Parameters
    ----------
    msg
        Its name.
    domain, color, payload
        As for `mark`.

    Returns
    -------
    int
        What `range_end` takes.

    Examples
    --------
    >>> import flambeau as torch
    >>> number = torch.cuda.nvtx.range_start("upload")
    >>> torch.cuda.nvtx.range_end(number)
    """
    _check(msg)
    number = next(_numbers)
    tool = _listening(domain)
    if tool is not None:
        attributes = tool.get_event_attributes(msg, color, None, payload)
        _started[number] = tool, tool.start_range(attributes)
    if _start_observers:
        observers.notify("range_start", number, msg, domain)
    return number


def range_end(range_id: int) -> None:
    """Close a span that `range_start` opened, on any thread (``nvtxRangeEnd``).

    Parameters
    ----------
    range_id
        What `range_start` returned.

    Examples
    --------
    >>> import flambeau as torch
    >>> number = torch.cuda.nvtx.range_start("upload")
    >>> torch.cuda.nvtx.range_end(number)
    """
    started = _started.pop(range_id, None)
    if started is not None:
        tool, handle = started
        tool.end_range(handle)
    if _end_observers:
        observers.notify("range_end", range_id)


class range:  # noqa: N801 - torch's name
    """A span around a block or, as a decorator, around each call of a function.

    Parameters
    ----------
    msg : str
        Its name. With arguments it is a template for `str.format`; without, it is taken as it
        is, braces and all.
    *args, **kwargs
        What to format it with. The keywords ``domain``, ``color`` and ``payload`` mean what they
        mean for `range_push`, unless the template has fields of these names.

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.cuda.nvtx.range("step {}", 7):
    ...     torch.cuda.synchronize()
    >>> @torch.cuda.nvtx.range("preprocess", domain="loader", color="green")
    ... def preprocess():
    ...     pass
    >>> preprocess()
    """

    __slots__ = ("_domain", "_extras", "_message")

    def __init__(self, msg: str, *args: object, **kwargs: Any) -> None:
        _check(msg)
        self._extras = _take_extras(msg, kwargs) if kwargs else None
        self._domain: str | None = self._extras.get("domain") if self._extras else None
        self._message = msg.format(*args, **kwargs) if args or kwargs else msg

    def __enter__(self) -> None:
        if self._extras:
            _push(self._message, **self._extras)
        else:
            _push(self._message)

    def __exit__(self, *exc_info: object) -> None:
        _pop(self._domain)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function: each call is in a range of its own."""

        @functools.wraps(function)
        def annotated(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return annotated


def _take_extras(msg: str, keywords: dict[str, Any]) -> dict[str, Any]:
    """Move the keywords that are not for formatting out of `keywords`."""
    extras = {"domain", "color", "payload"} & keywords.keys()
    if extras:
        extras -= {name.split(".")[0].split("[")[0] for name in _fields(msg)}
    return {name: keywords.pop(name) for name in extras}


def _fields(template: str) -> set[str]:
    """The names of a template's fields, those inside format specifications too."""
    names: set[str] = set()
    for _, name, specification, _ in string.Formatter().parse(template):
        if name is not None:
            names.add(name)
            names |= _fields(specification or "")
    return names


# -- spans in a stream's work ----------------------------------------------------------------------


class _DeviceRange:
    """A span that opens when a stream's earlier work is done."""

    __slots__ = ("message", "number")

    def __init__(self, message: str) -> None:
        self.message = message
        self.number: int | None = None

    def open(self) -> None:
        self.number = range_start(self.message)

    def close(self) -> None:
        if self.number is not None:
            range_end(self.number)
            self.number = None


def _device_range_start(msg: str, stream: int = 0) -> object:
    """Open a span when a stream's earlier work is done.

    Parameters
    ----------
    msg
        Its name.
    stream
        The stream's handle (``cuda_stream``); 0 is the default stream of the current device.

    Returns
    -------
    object
        What `_device_range_end` takes.
    """
    from flambeau.runtime._host_function import launch_host_function

    _check(msg)
    span = _DeviceRange(msg)
    launch_host_function(stream, span.open)
    return span


def _device_range_end(range_handle: object, stream: int = 0) -> None:
    """Close a span of `_device_range_start` when a stream's earlier work is done.

    Parameters
    ----------
    range_handle
        What `_device_range_start` returned.
    stream
        The stream's handle; 0 is the default stream of the current device.
    """
    from flambeau.runtime._host_function import launch_host_function

    if not isinstance(range_handle, _DeviceRange):
        raise TypeError(
            "_device_range_end takes what _device_range_start returned, "
            f"got {type(range_handle).__name__}"
        )
    launch_host_function(stream, range_handle.close)
