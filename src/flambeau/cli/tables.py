# SPDX-License-Identifier: Apache-2.0
"""Tables for people; in a pipe they keep their full width."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["print_table"]

_PIPE_COLUMNS = 500


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print rows under their heads.

    Parameters
    ----------
    heads
        The columns' names.
    rows
        One text for each column.
    title
        A line above the table.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS, highlight=False)
    table = Table(
        *heads, title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for row in rows:
        table.add_row(*row)
    console.print(table)
