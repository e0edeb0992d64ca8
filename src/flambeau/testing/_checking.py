# SPDX-License-Identifier: Apache-2.0
"""The checks of a run of pytest: what each test's work was found to do, judged when it ends."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MARKERS", "end", "judge", "leftovers", "paused", "start"]

MARKERS = (
    "finds(check, ...): the test makes such mistakes; where these checks are on, each of them has "
    "to find something, and no other",
    "unchecked(reason): the checks are off in this test",
)
_ON, _FILE = "FLAMBEAU_CHECK", "FLAMBEAU_CHECK_FILE"
_KIND = re.compile(r"^(memory|init|race): ", re.MULTILINE)


def start(text: str) -> None:
    """Turn checks on, in this process and in its children, whose reports come by a file.

    Raises
    ------
    ValueError
        There is no such check.
    """
    from flambeau.driver.virtual import config

    config.parse_checks(text)
    handle, path = tempfile.mkstemp(prefix="flambeau-checks-", suffix=".txt")
    os.close(handle)
    os.environ[_ON], os.environ[_FILE] = text, path


def end() -> None:
    """Remove the file that `start` made, once."""
    os.environ.pop(_ON, None)
    path = os.environ.pop(_FILE, None)
    if path is not None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _machine() -> Any:
    """The module of the virtual machine; None if nobody has loaded it."""
    return sys.modules.get("flambeau.driver.virtual._machine")


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Have no check on, here and in new child processes."""
    kept = {name: os.environ.pop(name) for name in (_ON, _FILE) if name in os.environ}
    bits = _turn(0)
    try:
        yield
    finally:
        os.environ.update(kept)
        if _ON in kept:
            from flambeau.driver.virtual import config

            bits = config.parse_checks(kept[_ON])
        _turn(bits)


def _turn(bits: int) -> int:
    """Have exactly these checks on, if there is a machine; what was on before."""
    machine = _machine()
    if machine is None or not machine.is_running():
        return 0
    from flambeau.driver.virtual import checks

    before: int = machine.checks()
    checks.turn(bits)
    return before


def leftovers() -> str:
    """What was found since the last time, by this process and by children that have ended."""
    parts = []
    machine = _machine()
    if machine is not None and machine.checks():
        from flambeau.driver.virtual import checks

        reports = checks.take_reports()
        parts = [checks.summary(reports)] if reports else []
    path = os.environ.get(_FILE)
    if path and os.path.getsize(path):
        with open(path, "r+", encoding="utf-8") as file:
            parts.append(f"in a child process, {file.read()}")
            file.truncate(0)
    return "\n".join(parts)


def judge(node: pytest.Item) -> None:
    """Fail a test whose work was found to do what it should not, or not to do what it meant to."""
    text = leftovers()
    found = set(_KIND.findall(text))
    wanted = {name for mark in node.iter_markers("finds") for name in mark.args} & _names_on()
    if found - wanted:
        pytest.fail(text, pytrace=False)
    if wanted - found:
        missing = ", ".join(sorted(wanted - found))
        pytest.fail(f"the test is marked to make mistakes that {missing} finds", pytrace=False)


def _names_on() -> set[str]:
    """Which checks are on, here or in new child processes."""
    machine = _machine()
    bits = machine.checks() if machine is not None else 0
    wanted = os.environ.get(_ON, "")
    if not bits and not wanted:
        return set()
    from flambeau.driver.virtual import config

    bits |= config.parse_checks(wanted)
    return {name for bit, name in enumerate(config.CHECKS) if bits >> bit & 1}
