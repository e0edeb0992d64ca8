# SPDX-License-Identifier: Apache-2.0
"""Who broke a stream capture: the first forbidden call, where it was, what to do instead."""

from __future__ import annotations

import linecache
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flambeau.driver import errors

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["Report", "begin", "end", "forget", "note", "note_fork", "note_uncaptured", "place"]

_PACKAGE = str(Path(__file__).parents[1]) + "/"
_FIRST, _LAST, _INVALIDATED, _UNJOINED = 900, 908, 901, 904

_ADVICE = {
    900: "It would have to wait for work that is only being recorded, or might disturb the "
    "capture. Do it before or after the capture; if another thread did it, capture with "
    'capture_error_mode="thread_local".',
    902: "Each capture has streams of its own: no stream can wait for an event of another capture.",
    904: "A stream that joined the capture by waiting for one of its events must be waited for by "
    "the stream on which the capture began: current_stream().wait_stream(side) before the end.",
    905: "Captured work cannot wait for work outside the capture. Wait for it before the capture "
    "begins, or let that stream join first: side.wait_stream(current_stream()).",
    906: "The default stream waits for captured work, or captured work for it. Use streams of your "
    "own throughout the capture.",
    907: "An event recorded in a capture marks a place in the graph, not a moment. Have a stream "
    "wait for it, or record an event with external=True.",
    908: "A capture ends on the thread on which it began, unless it is relaxed.",
}


@dataclass
class Report:
    """What is known of one capture while it is under way.

    Attributes
    ----------
    name : str
        Its stream and device, for people.
    began : str
        Where in the user's code it began.
    first : AcceleratorError or None
        The error that broke it.
    forks : dict of int to str
        Streams that joined it, and where.
    uncaptured : dict of int to str
        Streams that were given work on the capturing thread and are no part of it, and where.
    """

    name: str
    began: str
    is_broken: object  # called without arguments
    thread: int = field(default_factory=threading.get_ident)
    first: errors.AcceleratorError | None = None
    forks: dict[int, str] = field(default_factory=dict)
    uncaptured: dict[int, str] = field(default_factory=dict)


_reports: list[Report] = []


def begin(name: str, is_broken: object) -> Report:
    """Start to watch a capture; `is_broken()` tells whether the driver gave it up."""
    report = Report(name, place(), is_broken)
    _reports.append(report)
    return report


def end(report: Report) -> None:
    """Stop to watch it."""
    if report in _reports:
        _reports.remove(report)


def forget() -> None:
    """All captures are void."""
    _reports.clear()


def place() -> str:
    """Where the user's code is: the call, the file, the line and the function."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None:
        return "in no Python code of yours"
    code, line = frame.f_code, frame.f_lineno
    text = f'File "{code.co_filename}", line {line}, in {code.co_name}'
    expression = _expression(frame)
    return f"`{expression}`, {text}" if expression else text


def note_fork(stream: int) -> None:
    """A stream waits for an event of a capture: remember where it did so first."""
    for report in _reports:
        report.forks.setdefault(stream, place())


def note_uncaptured(stream: int) -> None:
    """Work was given to a stream that no capture has; remember where that was first."""
    for report in _reports:
        if report.thread == threading.get_ident():
            report.uncaptured.setdefault(stream, place())


def _expression(frame: FrameType) -> str:
    """The source of the call that a frame is in, if it is on one line and can be found."""
    positions = list(frame.f_code.co_positions())
    index = frame.f_lasti // 2
    if not 0 <= index < len(positions):
        return ""
    line, end_line, column, end_column = positions[index]
    if line is None or line != end_line or column is None or end_column is None:
        return ""
    source = linecache.getline(frame.f_code.co_filename, line).encode()
    return source[column:end_column].decode(errors="replace")


def note(status: int, detail: str | None) -> Exception:
    """Make the error of a call that a capture forbids, and remember it if it is the first."""
    lines = [detail or _ADVICE.get(status, "")]
    lines.append(f"The call: {place()}, on thread {threading.current_thread().name}.")
    broken = [report for report in _reports if report.is_broken()]  # type: ignore[operator]
    lines.extend(f"The capture: {r.name}, begun at {r.began}." for r in broken or _reports)
    earlier = next((report.first for report in broken if report.first), None)
    if status == _INVALIDATED and earlier is not None:
        lines.append(f"What had broken it: {earlier}")
    error = errors.from_status(status, "\n".join(line for line in lines if line))
    assert isinstance(error, errors.AcceleratorError)
    for report in broken:
        if report.first is None and status != _INVALIDATED:
            report.first = error
    return error
