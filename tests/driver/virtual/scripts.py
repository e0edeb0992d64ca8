# SPDX-License-Identifier: Apache-2.0
"""Driver-level scripts in processes of their own, for what may happen once in a process."""

from __future__ import annotations

from support import Finished, run_script

START = """
import ctypes, os, sys, threading, time
from flambeau import driver, virtual
from flambeau.driver.errors import AcceleratorError, OutOfMemoryError
from flambeau.driver.virtual import _calls as calls, _machine

def start(devices=1):
    driver.current()
    calls.init()
    contexts = [calls.primary_ctx_retain(i) for i in range(devices)]
    calls.ctx_set_current(contexts[0])
    return contexts

def status_of(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except (AcceleratorError, OutOfMemoryError) as error:
        return getattr(error, "error_code", 2)
    return 0
"""


def run(source: str, machine: str = "h200", check: bool = True, **env: str) -> Finished:
    """Run a script on a machine of its own, with `START` before it."""
    environment: dict[str, str | None] = {"FLAMBEAU_SCHEDULE": None, "CUDA_VISIBLE_DEVICES": None}
    environment |= {"FLAMBEAU_VIRTUAL": machine, **env}
    return run_script(source, environment, check=check, prelude=START)
