# SPDX-License-Identifier: Apache-2.0
"""``flambeau run``: an unmodified program for ``torch.cuda``, started as Python would start it."""

from __future__ import annotations

import ctypes
import glob
import os
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NoReturn

from flambeau import _torch_face
from flambeau.cli import execute
from flambeau.driver.errors import DriverNotFoundError
from flambeau.driver.nvidia.management import NvidiaManagement
from flambeau.driver.virtual import config

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Request", "UsageError", "main", "parse"]

DEFAULT_MACHINE = "h200:1"
CHECKS_FAILED = 3
_SANITIZER_MODES = ("raise", "warn", "collect")
_GPU_NODES = ("/dev/nvidia[0-9]*", "/proc/driver/nvidia/gpus/*", "/dev/dxg", "/dev/nvhost-ctrl-gpu")
_MACHINE = re.compile(r"[A-Za-z0-9_-]*(:\d+)?")


class UsageError(Exception):
    """The command line makes no sense; the text is one line."""


@dataclass(slots=True)
class Request:
    """What the command line of ``flambeau run`` asks for.

    Parameters
    ----------
    kind
        What to run: a file, a module (``-m``) or a piece of code (``-c``).
    target
        The path, the module's name, or the code.
    arguments
        The program's own arguments.
    machine
        The virtual GPUs, as ``FLAMBEAU_VIRTUAL`` takes them; None if none were asked for.
    schedule
        In which order virtual GPUs do their work; None for the default.
    checks
        What to watch accesses to memory for, as ``FLAMBEAU_CHECK`` takes it; None for nothing.
    sanitize
        The mode of the stream sanitizer; None leaves it to the environment.
    explore
        Under how many schedules to run the program, each in a process; None runs it here.
    """

    kind: Literal["script", "module", "code"]
    target: str
    arguments: list[str] = field(default_factory=list)
    machine: str | None = None
    schedule: str | None = None
    checks: str | None = None
    sanitize: str | None = None
    explore: int | None = None


def main(arguments: Sequence[str]) -> None:
    """Run the program that the arguments name; ends the process with status 2 if they are wrong."""
    try:
        request = parse(arguments)
        if request.kind == "script" and not os.path.exists(request.target):
            raise UsageError(f"can't open file {request.target!r}: no such file")
        choose_devices(request)
        if request.explore is not None and not os.environ.get("FLAMBEAU_VIRTUAL"):
            raise UsageError("--explore tries the schedules of virtual GPUs: add --virtual")
    except UsageError as error:
        fail(str(error))
    if request.explore is not None:
        from flambeau.cli.explore import explore

        raise SystemExit(explore(request, request.explore))
    if request.sanitize is not None:
        switch_on_sanitizer(request.sanitize)
    _torch_face.install()
    _torch_face.install_in_children()
    try:
        execute.run(request.kind, request.target, request.arguments)
    except SystemExit as end:
        if end.code in (None, 0):
            report_findings()
        raise
    report_findings()


def switch_on_sanitizer(mode: str) -> None:
    """Switch the stream sanitizer on in this process and in its children."""
    from flambeau.cuda import _sanitizer

    os.environ[_sanitizer.VARIABLE] = mode
    _sanitizer.enable_from_environment()


def report_findings() -> None:
    """Say what the stream sanitizer and checks found, and end with `CHECKS_FAILED` if they did.

    Only for programs that ended well: others have a status of their own, and what checks found is
    written when the driver shuts down.
    """
    if report_races() + report_checks():
        raise SystemExit(CHECKS_FAILED)


def report_races() -> int:
    """How many races the stream sanitizer found; it has told of each already."""
    sanitizer = sys.modules.get("flambeau.cuda._sanitizer")
    count = 0 if sanitizer is None else len(sanitizer.cuda_sanitizer.errors)
    if count:
        races = "race" if count == 1 else "races"
        print(f"flambeau run: the stream sanitizer found {count} {races}", file=sys.stderr)
    return count


def report_checks() -> int:
    """Say what checks found; how many things."""
    from flambeau import driver
    from flambeau.driver.virtual.driver import VirtualDriver

    if not os.environ.get("FLAMBEAU_CHECK") or not isinstance(driver.peek(), VirtualDriver):
        return 0
    from flambeau.driver.virtual import checks

    return checks.print_summary()


def fail(message: str) -> NoReturn:
    """End the process with one line on stderr and status 2, as Python does for a bad call."""
    print(f"flambeau run: {message}", file=sys.stderr)
    raise SystemExit(2)


def parse(arguments: Sequence[str]) -> Request:
    """Read the arguments of ``flambeau run``.

    The value of ``--virtual`` is optional: the word after it is the value if it looks like
    ``MODEL``, ``MODEL:N`` or ``:N``, more words follow, and no file has this name.

    Raises
    ------
    UsageError
        An option is unknown or lacks its value, or there is nothing to run.
    """
    rest = list(arguments)
    machine = schedule = checks = sanitize = explore = None
    while rest:
        word = rest.pop(0)
        option, has_value, value = word.partition("=")
        if option == "--virtual":
            machine = value if has_value else _machine_value(rest)
        elif option == "--schedule":
            schedule = value if has_value else _value(option, rest)
        elif option == "--check":
            checks = value if has_value else _value(option, rest)
        elif option == "--explore":
            explore = _count(option, value if has_value else _value(option, rest))
        elif option == "--sanitize":
            sanitize = _sanitizer_mode(value if has_value else "raise")
        elif word in ("-m", "-c"):
            kind: Literal["module", "code"] = "module" if word == "-m" else "code"
            target = _value(word, rest)
            return Request(kind, target, rest, machine, schedule, checks, sanitize, explore)
        elif word == "--" and rest:
            options = (machine, schedule, checks, sanitize, explore)
            return Request("script", rest[0], rest[1:], *options)
        elif word.startswith("-"):
            raise UsageError(f"no such option: {option} (options of the script go after it)")
        else:
            return Request("script", word, rest, machine, schedule, checks, sanitize, explore)
    raise UsageError("nothing to run: give a SCRIPT, -m MODULE or -c CODE")


def _value(option: str, rest: list[str]) -> str:
    if not rest:
        raise UsageError(f"{option} needs a value")
    return rest.pop(0)


def _count(option: str, text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"{option} needs a number of schedules, from 1, not {text!r}")
    return int(text)


def _sanitizer_mode(mode: str) -> str:
    if mode not in _SANITIZER_MODES:
        known = ", ".join(_SANITIZER_MODES)
        raise UsageError(f"--sanitize has no mode {mode!r}; there are {known}")
    return mode


def _machine_value(rest: list[str]) -> str:
    is_value = len(rest) > 1 and _MACHINE.fullmatch(rest[0]) and not rest[0].startswith("-")
    return rest.pop(0) if is_value and not os.path.exists(rest[0]) else ""


def choose_devices(request: Request) -> None:
    """Settle which GPUs this process and its children see, before anything asks for one.

    Raises
    ------
    UsageError
        There is no such model, policy or check, or checks without virtual GPUs.
    """
    try:
        config.parse_plan(request.machine or "")
        config.parse_schedule(request.schedule or "fifo")
        config.parse_checks(request.checks or "")
    except ValueError as error:
        raise UsageError(str(error)) from error
    if request.machine is not None:
        os.environ["FLAMBEAU_VIRTUAL"] = request.machine or DEFAULT_MACHINE
    elif not os.environ.get("FLAMBEAU_VIRTUAL") and not has_gpu():
        os.environ["FLAMBEAU_VIRTUAL"] = DEFAULT_MACHINE
        print(
            "flambeau run: no NVIDIA GPU here, so this runs on one virtual H200; "
            "--virtual MODEL:N chooses others",
            file=sys.stderr,
        )
    if request.schedule is not None:
        os.environ["FLAMBEAU_SCHEDULE"] = request.schedule
    if request.checks is not None:
        if not os.environ.get("FLAMBEAU_VIRTUAL"):
            raise UsageError("--check watches virtual GPUs: add --virtual")
        os.environ["FLAMBEAU_CHECK"] = request.checks


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU, found out without starting the driver.

    A started driver would be inherited, unusable, by every process that the program forks.
    """
    if any(glob.glob(pattern) for pattern in _GPU_NODES):
        return True
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    try:
        return NvidiaManagement().device_count() > 0
    except DriverNotFoundError:
        return False
