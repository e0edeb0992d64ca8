# SPDX-License-Identifier: Apache-2.0
"""What tests of process-wide state need: a fresh interpreter to run a script in."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import pytest

PRELUDE = "import flambeau as torch\n"
TWO_VIRTUAL = {"FLAMBEAU_VIRTUAL": "h200:2"}
"""The environment of scripts that count on two virtual devices, whatever the tests run on."""

needs_two = pytest.mark.usefixtures("two_gpus")
"""A test of two devices: skipped where real hardware has one."""


def _driver_installed() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


needs_no_driver = pytest.mark.skipif(
    _driver_installed(), reason="shows what a machine without NVIDIA's driver says; this one has it"
)


def search_path(*first: object) -> str:
    """``PYTHONPATH`` of a child: these folders, then whatever this process was given."""
    given = os.environ.get("PYTHONPATH")
    return os.pathsep.join([*map(str, first), *([given] if given else [])])


@dataclass(frozen=True)
class Finished:
    """A script that ended: its exit status and what it wrote."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()


def run_script(
    source: str,
    env: dict[str, str | None] | None = None,
    *,
    check: bool = True,
    timeout: float = 120,
    prelude: str = PRELUDE,
) -> Finished:
    """Run Python source in a new interpreter, with ``import flambeau as torch`` before it.

    `env` changes the environment; None takes a variable out. With `check` a script that does not
    end with status 0 fails the test and shows its traceback.
    """
    environment = dict(os.environ)
    for name, value in (env or {}).items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", prelude + textwrap.dedent(source)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if check and done.returncode != 0:
        raise AssertionError(
            f"the script ended with status {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return Finished(done.returncode, done.stdout, done.stderr)
