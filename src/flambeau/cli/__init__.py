# SPDX-License-Identifier: Apache-2.0
"""The command ``flambeau``: run a program, describe the machine, find out what is wrong.

``flambeau run`` reads its own arguments (`flambeau.cli.run`), since all that follows the script
belongs to the script. The other commands are typer's (`flambeau.cli.app`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; ends with `SystemExit` unless a program ran to its end.

    Parameters
    ----------
    arguments
        What follows ``flambeau`` on the command line; by default that of this process.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] == ["run"] and arguments[1:] not in ([], ["--help"], ["-h"]):
        from flambeau.cli.run import main as command

        arguments = arguments[1:]
    else:
        from flambeau.cli.app import main as command
    command(arguments)
