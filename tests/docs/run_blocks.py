# SPDX-License-Identifier: Apache-2.0
"""Run the code blocks of a Markdown file in order, in one namespace.

A ``python`` block is executed; a ``pycon`` block is a session whose output is checked. The first
failure ends the process with status 1.
"""

from __future__ import annotations

import doctest
import re
import sys
from pathlib import Path
from typing import NamedTuple

FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL  # an error's kind counts, not its text
_BLOCK = re.compile(r"^```(python|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A code block: its language, its text and the line it begins on."""

    language: str
    text: str
    line: int


def blocks_of(path: Path) -> list[Block]:
    """The Python blocks of a file in their order."""
    text = path.read_text()
    return [
        Block(match[1], match[2], text.count("\n", 0, match.start(2)) + 1)
        for match in _BLOCK.finditer(text)
    ]


def run(path: Path) -> int:
    """Run all blocks; the number of failed examples."""
    names: dict[str, object] = {"__name__": "__main__"}
    failures = 0
    for block in blocks_of(path):
        if block.language == "python":
            padding = "\n" * (block.line - 1)  # so that a traceback shows the file's own lines
            exec(compile(padding + block.text, str(path), "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(
            block.text, names, path.name, str(path), block.line - 1
        )
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        failures += runner.run(test, clear_globs=False).failed
        names = test.globs
    return failures


if __name__ == "__main__":
    sys.exit(1 if run(Path(sys.argv[1])) else 0)
