# SPDX-License-Identifier: Apache-2.0
"""``flambeau run --explore N``: a program under many orders of a virtual GPU's work.

Each order is a process of its own, so that a schedule which breaks the program cannot disturb the
next one, and what is found can be run again with the same words.
"""

from __future__ import annotations

import itertools
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flambeau.cli.run import Request

__all__ = ["explore", "schedules", "words"]

_SHOWN_LINES = 20  # of what a failed run wrote to stderr


def schedules() -> Iterator[str]:
    """Schedules in the order in which they are tried, the plainest first."""
    yield "fifo"
    yield "adversarial"
    for seed in itertools.count():
        yield f"random:{seed}"


def words(request: Request) -> list[str]:
    """The arguments of ``flambeau run`` that make a request, but for ``--explore``."""
    options = []
    if request.machine is not None:
        options.append(f"--virtual={request.machine}")
    if request.schedule is not None:
        options += ["--schedule", request.schedule]
    if request.checks is not None:
        options += ["--check", request.checks]
    if request.sanitize is not None:
        options.append(f"--sanitize={request.sanitize}")
    how = {"script": [], "module": ["-m"], "code": ["-c"]}[request.kind]
    if request.kind == "script" and request.target.startswith("-"):
        how = ["--"]
    return [*options, *how, request.target, *request.arguments]


def explore(request: Request, count: int) -> int:
    """Run a program under `count` schedules, up to the first that fails.

    Parameters
    ----------
    request
        What to run; its own schedule, if it has one, is tried first.
    count
        How many schedules.

    Returns
    -------
    int
        0 if the program ended well under all, else the status of the run that did not; 128 and
        the signal's number for one that a signal ended.
    """
    tried = schedules()
    if request.schedule is not None:
        tried = itertools.chain([request.schedule], (s for s in tried if s != request.schedule))
    for number, schedule in enumerate(itertools.islice(tried, count), 1):
        arguments = words(replace(request, schedule=schedule))
        done = subprocess.run(
            [sys.executable, "-m", "flambeau", "run", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            report(schedule, number, count, done, arguments)
            return done.returncode if done.returncode > 0 else 128 - done.returncode
    plural = "" if count == 1 else "s"
    print(f"flambeau run: the program ended well under {count} schedule{plural}")
    return 0


def report(
    schedule: str,
    number: int,
    count: int,
    done: subprocess.CompletedProcess[str],
    arguments: list[str],
) -> None:
    """Say which schedule broke the program, how it ended, and how to see that again."""
    ended = f"status {done.returncode}"
    if done.returncode < 0:
        ended = signal.Signals(-done.returncode).name
    lines = done.stderr.rstrip().splitlines()
    if len(lines) > _SHOWN_LINES:
        print(f"[{len(lines) - _SHOWN_LINES} lines left out]", file=sys.stderr)
    print("\n".join(lines[-_SHOWN_LINES:]), file=sys.stderr)
    print(
        f"flambeau run: the program fails under the schedule {schedule} ({ended}), "
        f"number {number} of {count}; see it again with\n"
        f"  flambeau run {shlex.join(arguments)}",
        file=sys.stderr,
    )
