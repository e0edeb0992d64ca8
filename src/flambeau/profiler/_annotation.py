# SPDX-License-Identifier: Apache-2.0
"""Names for stretches of host code."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from flambeau.profiler import _recorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from flambeau.profiler._recorder import Recorder, Span

__all__ = ["record_function"]

listeners: list[Callable[[str, str], None]] = []
"""Who else is told of ranges: ``"START"`` or ``"END"``, and the name."""

P = ParamSpec("P")
R = TypeVar("R")


class record_function:  # noqa: N801 - torch's name
    """Context manager and decorator: name a stretch of host time in profiles.

    Without a profiler or a memory history that records, it does nothing.

    Parameters
    ----------
    name
        What the stretch is called.
    args
        More text, shown with it. Default None.

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.profiler.profile() as prof:
    ...     with torch.profiler.record_function("scale"):
    ...         y = torch.ones(4, device="cuda") * 2
    >>> "scale" in {event.name for event in prof.events()}
    True
    """

    __slots__ = ("_spans", "args", "name")

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._spans: list[tuple[Recorder, Span]] = []

    def __enter__(self) -> record_function:
        if _recorder.recorders:
            for recorder in _recorder.recorders:
                span = recorder.open_span(self.name, arguments=self.args)
                self._spans.append((recorder, span))
        for listener in listeners:
            listener("START", self.name)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for listener in listeners:
            listener("END", self.name)
        while self._spans:
            recorder, span = self._spans.pop()
            recorder.close_span(span)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def named(*args: P.args, **kwargs: P.kwargs) -> R:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return named


record_function.__module__ = "flambeau.profiler"
