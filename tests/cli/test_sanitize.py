# SPDX-License-Identifier: Apache-2.0
"""``flambeau run --sanitize``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from flambeau.cli.run import UsageError, parse

RACE = """
import torch
x = torch.zeros(4, device="cuda")
with torch.cuda.stream(torch.cuda.Stream()):
    y = x + 1
"""
REPORT = "CSAN detected a possible data race"


def run(option: str, code: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flambeau", "run", "--virtual=h200", option, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "TORCH_CUDA_SANITIZER"} | more,
        timeout=120,
    )


@pytest.mark.finds("race")
def test_a_race_is_raised() -> None:
    done = run("--sanitize", RACE + "print('end')")
    assert done.returncode == 1
    assert done.stdout == ""
    assert REPORT in done.stderr
    assert done.stderr.endswith("CUDASanitizerErrors: detected 1 error\n")


@pytest.mark.finds("race")
@pytest.mark.parametrize("ending", ["", "import sys; sys.exit(0)"])
@pytest.mark.parametrize("option", ["--sanitize=warn", "--sanitize=collect"])
def test_a_program_that_goes_on_ends_with_a_status_that_tells(option: str, ending: str) -> None:
    done = run(option, f"{RACE}\nprint('end')\n{ending}")
    assert done.returncode == 3
    assert done.stdout == "end\n"
    assert "flambeau run: the stream sanitizer found 1 race\n" in done.stderr
    assert done.stderr.count(REPORT) == 1


@pytest.mark.finds("race")
def test_a_race_that_the_program_caught_counts() -> None:
    caught = RACE.replace("    y =", "  try:\n    y =") + "  except Exception: print('caught')\n"
    done = run("--sanitize", caught)
    assert (done.returncode, done.stdout) == (3, "caught\n")


@pytest.mark.finds("race")
def test_a_program_s_own_status_stays() -> None:
    assert run("--sanitize=collect", RACE + "raise SystemExit(7)").returncode == 7


def test_a_program_without_races_ends_well() -> None:
    done = run("--sanitize", RACE.replace("with", "torch.cuda.synchronize()\nwith"))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.finds("race")
def test_children_are_watched_too() -> None:
    child = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {RACE!r}]))"
    done = run("--sanitize", child)
    assert done.returncode == 1
    assert REPORT in done.stderr


@pytest.mark.unchecked("has a check of its own")
def test_checks_and_the_sanitizer_both_report() -> None:
    done = run("--sanitize=collect", RACE, FLAMBEAU_CHECK="race")
    assert done.returncode == 3
    assert "flambeau run: the stream sanitizer found 1 race\n" in done.stderr
    assert "flambeau: checks found 1 problem: 1 of race" in done.stderr


def test_modes() -> None:
    assert parse(["--sanitize", "a.py"]).sanitize == "raise"
    assert parse(["--sanitize=collect", "a.py"]).sanitize == "collect"
    assert parse(["a.py", "--sanitize"]).sanitize is None
    with pytest.raises(UsageError, match="no mode 'shout'; there are raise, warn, collect"):
        parse(["--sanitize=shout", "a.py"])
