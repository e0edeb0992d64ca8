# SPDX-License-Identifier: Apache-2.0
"""Which driver a process gets, and what it says when there is none."""

import os
import subprocess
import sys

WITHOUT_GPU = {k: v for k, v in os.environ.items() if k != "FLAMBEAU_VIRTUAL"}


def run(source, **env):
    return subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=WITHOUT_GPU | env,
    )


def test_nothing_is_loaded_before_first_use():
    done = run("from flambeau import driver; print(driver.peek())")
    assert done.stdout.strip() == "None", done.stderr


def test_the_environment_chooses_the_virtual_driver():
    done = run("from flambeau import driver; print(driver.current().name)", FLAMBEAU_VIRTUAL="h200")
    assert done.stdout.strip() == "virtual", done.stderr


def test_virtual_gpus_cannot_come_after_another_driver():
    source = """
from flambeau import driver
driver._current = type("Other", (), {"name": "nvidia"})()
try:
    driver.prefer_virtual()
except RuntimeError as error:
    print(error)
"""
    done = run(source)
    assert "already uses the nvidia driver" in done.stdout, done.stderr
    assert "before the first CUDA call" in done.stdout
