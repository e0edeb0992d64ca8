# SPDX-License-Identifier: Apache-2.0
"""PTX text to tokens."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right

from flambeau.driver.errors import AcceleratorError

__all__ = ["TokenStream", "syntax_error"]

_TOKEN = re.compile(
    r"""
      (?P<skip>\s+|//[^\n]*|/\*.*?\*/)
    | (?P<text>
          0[fF][0-9A-Fa-f]{8} | 0[dD][0-9A-Fa-f]{16}
        | \d+\.\d*(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+
        | 0[xX][0-9A-Fa-f]+U? | 0[bB][01]+U? | \d+U?
        | [%$_A-Za-z.][\w$]*(?:(?:\.|::)[\w$]+)*
        | "[^"]*"
        | [{}()\[\],;:@!|<>=+\-*~&?/%]
      )
    """,
    re.VERBOSE | re.DOTALL,
)


def syntax_error(line: int, message: str) -> AcceleratorError:
    """The error for PTX that is malformed, status 218 as the driver has it."""
    return AcceleratorError(f"a PTX JIT compilation failed: PTX line {line}: {message}", 218)


# What parsing and lowering trip over where a text is not PTX: an operand too few, a name or type
# that is not there. Every part need not check for each.
MALFORMED = (
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    AssertionError,
    StopIteration,
    RecursionError,
    struct.error,
    OverflowError,
)


class TokenStream:
    """The tokens of a PTX text with a position in them.

    Parameters
    ----------
    source
        The text. A NUL at its end is cut off.
    """

    def __init__(self, source: str) -> None:
        source = source.rstrip("\0")
        self._newlines = [m.start() for m in re.finditer("\n", source)]
        self._texts: list[str] = []
        self._starts: list[int] = []
        position = 0
        for match in _TOKEN.finditer(source):
            if match.start() != position:
                break
            position = match.end()
            if match.lastgroup == "text":
                self._texts.append(match.group())
                self._starts.append(match.start())
        if position != len(source):
            line = bisect_right(self._newlines, position) + 1
            raise syntax_error(line, f"unexpected character {source[position]!r}")
        self._texts.append("")
        self._starts.append(len(source))
        self._at = 0

    @property
    def line(self) -> int:
        """The line of the next token, from 1."""
        return bisect_right(self._newlines, self._starts[self._at]) + 1

    @property
    def next(self) -> str:
        """The next token, not taken; empty at the end."""
        return self._texts[self._at]

    def ahead(self, distance: int) -> str:
        """A token further on."""
        return self._texts[min(self._at + distance, len(self._texts) - 1)]

    def take(self) -> str:
        """Take the next token."""
        text = self._texts[self._at]
        if not text:
            raise syntax_error(self.line, "the text ends too early")
        self._at += 1
        return text

    def accept(self, text: str) -> bool:
        """Take the next token if it is this one."""
        if self._texts[self._at] != text:
            return False
        self._at += 1
        return True

    def expect(self, text: str) -> None:
        """Take the next token, which must be this one."""
        if self._texts[self._at] != text:
            raise syntax_error(self.line, f"expected {text!r}, not {self.next!r}")
        self._at += 1

    def skip_statement(self) -> None:
        """Skip to behind the next semicolon."""
        while self.take() != ";":
            pass

    def skip_line(self) -> None:
        """Skip what is left of the current line."""
        line = self.line
        while self.next and self.line == line:
            self._at += 1

    def skip_braces(self) -> None:
        """Skip a block in braces."""
        self.expect("{")
        depth = 1
        while depth:
            text = self.take()
            depth += (text == "{") - (text == "}")
