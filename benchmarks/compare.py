# SPDX-License-Identifier: Apache-2.0
"""Workers that take turns, and the table of what they found."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from flambeau.cli.run import has_gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LIBRARIES = ("flambeau", "torch", "cupy")
TURNS = 5
_WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Parameters
    ----------
    name
        What people read.
    statement
        What is measured, for torch's interface.
    setup
        What makes its names.
    cupy
        CuPy's statement and setup; None if it has no such thing.
    calls
        How many calls make one measurement.
    bytes
        Bytes moved by one call, for bandwidths.
    clock
        How it is measured, unless as the whole table is.
    """

    name: str
    statement: str
    setup: str = ""
    cupy: tuple[str, str] | None = None
    calls: int = 200
    bytes: int = 0
    clock: str = ""

    def code(self, library: str) -> tuple[str, str] | None:
        """Statement and setup for a library."""
        return self.cupy if library == "cupy" else (self.statement, self.setup)


class Worker:
    """A library's process."""

    def __init__(self, library: str) -> None:
        self.library = library
        python = os.environ.get(f"BENCH_{library.upper()}_PYTHON", sys.executable)
        self._process = subprocess.Popen(
            [python, str(_WORKER), library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        about = json.loads(self._output.readline() or '{"missing": "the process ended"}')
        self.missing: str | None = about.get("missing")
        self.version: str = about.get("version", "")
        self.device: str = about.get("device", "")

    @property
    def _output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def measure(self, row: Row, clock: str) -> float | str:
        """Seconds for a call, or what went wrong."""
        code = row.code(self.library)
        if self.missing is not None or code is None:
            return ""
        request = {
            "statement": code[0],
            "setup": code[1],
            "calls": row.calls,
            "clock": row.clock or clock,
        }
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = json.loads(self._output.readline() or '{"error": "the process ended"}')
        return float(answer["seconds"]) if "seconds" in answer else str(answer["error"])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._output.close()


def ensure_device() -> None:
    """Use a virtual GPU where there is no real one; its figures say nothing about real ones."""
    if not os.environ.get("FLAMBEAU_VIRTUAL") and not has_gpu():
        os.environ["FLAMBEAU_VIRTUAL"] = "h200:1"


def median_of_turns(
    workers: Iterable[Worker], row: Row, clock: str, turns: int = TURNS
) -> dict[str, float | str]:
    """Let the libraries measure a row in turn; the median of each, or what went wrong."""
    workers = list(workers)
    found: dict[str, list[float]] = {worker.library: [] for worker in workers}
    failed: dict[str, str] = {}
    for _ in range(turns):
        for worker in workers:
            if worker.library not in failed:
                answer = worker.measure(row, clock)
                if isinstance(answer, str):
                    failed[worker.library] = answer
                else:
                    found[worker.library].append(answer)
    return {
        name: failed[name] if name in failed else statistics.median(values)
        for name, values in found.items()
    }


def print_table(
    title: str,
    rows: Iterable[Row],
    clock: str,
    show: Callable[[Row, float], str],
    libraries: Iterable[str] = LIBRARIES,
    turns: int = TURNS,
) -> None:
    """Measure rows and print them as a Markdown table."""
    ensure_device()
    workers = [Worker(library) for library in libraries]
    heads = [" ".join(filter(None, (w.library, w.version))) for w in workers]
    others = [w.library for w in workers[1:]]
    print(f"### {title}\n\nOn {workers[0].device or 'no device'}; medians of {turns} turns.\n")
    print("| |", " | ".join([*heads, *(f"ratio to {name}" for name in others)]), "|")
    print("|---|" + "---|" * (len(heads) + len(others)))
    try:
        for row in rows:
            result = median_of_turns(workers, row, clock, turns)
            cells = [v if isinstance(v, str) else show(row, v) for v in result.values()]
            cells += [ratio(result, name) for name in others]
            print("|", " | ".join([row.name, *cells]), "|", flush=True)
    finally:
        for worker in workers:
            worker.close()
    print()


def ratio(result: Mapping[str, float | str], other: str) -> str:
    """How many times the other library's time flambeau takes."""
    ours, theirs = result[LIBRARIES[0]], result[other]
    if isinstance(ours, str) or isinstance(theirs, str):
        return ""
    return f"{ours / theirs:.3f}"
