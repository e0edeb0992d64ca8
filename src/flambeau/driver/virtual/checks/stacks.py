# SPDX-License-Identifier: Apache-2.0
"""Where in the program something was done, each place kept once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

__all__ = ["Frame", "capture", "frames"]

_LIBRARY = str(Path(__file__).parents[3]) + "/"
_DEPTH = 24
_numbers: dict[tuple[Frame, ...], int] = {}
_stacks: list[tuple[Frame, ...]] = []


class Frame(NamedTuple):
    """A place in a program.

    Parameters
    ----------
    filename, line, function
        As tracebacks show them.
    """

    filename: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.filename}:{self.line} in {self.function}"


def capture() -> int:
    """The number of the present stack, -1 if no Python runs; the library's own frames are left out.

    The innermost frame comes first.
    """
    found: list[Frame] = []
    frame = sys._getframe(1) if hasattr(sys, "_getframe") else None
    while frame is not None and len(found) < _DEPTH:
        code = frame.f_code
        if not code.co_filename.startswith(_LIBRARY):
            found.append(Frame(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    if not found:
        return -1
    stack = tuple(found)
    number = _numbers.get(stack)
    if number is None:
        number = _numbers[stack] = len(_stacks)
        _stacks.append(stack)
    return number


def frames(number: int) -> tuple[Frame, ...]:
    """The stack with a number that `capture` gave; nothing for -1."""
    return _stacks[number] if number >= 0 else ()
