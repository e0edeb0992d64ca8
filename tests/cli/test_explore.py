# SPDX-License-Identifier: Apache-2.0
"""``flambeau run --explore`` finds the schedule that breaks a program."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from flambeau.cli import explore
from flambeau.cli.run import Request, UsageError, parse

if TYPE_CHECKING:
    from pathlib import Path

MISSING_WAIT = """
import sys
import torch
side = torch.cuda.Stream()
x = torch.zeros(1000, device="cuda")
x.fill_(0) + 0  # compiles the kernels: work starts by itself after a while
torch.cuda.synchronize()
with torch.cuda.stream(side):
    x.fill_(7)
{wait}
y = x + 0
torch.cuda.synchronize()
print(sys.argv[1:], file=sys.stderr)
sys.exit(0 if y.tolist() == [7.0] * 1000 else 5)
"""


pytestmark = pytest.mark.unchecked("programs end with a status of their own, not with the checks'")


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FLAMBEAU_VIRTUAL": "h200:1"}
    environment.pop("FLAMBEAU_SCHEDULE", None)
    return subprocess.run(
        [sys.executable, "-m", "flambeau", "run", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=environment,
        timeout=120,
    )


def test_the_first_schedule_that_fails_is_named_and_can_be_replayed(tmp_path: Path) -> None:
    program = MISSING_WAIT.format(wait="")
    (tmp_path / "race.py").write_text(program)
    found = run("--explore", "6", "race.py", "a b", cwd=tmp_path)
    assert found.returncode == 5
    assert "under the schedule adversarial (status 5), number 2 of 6" in found.stderr
    assert "['a b']" in found.stderr
    replay = found.stderr.rstrip().splitlines()[-1]
    words = shlex.split(replay)[2:]
    assert words == ["--schedule", "adversarial", "race.py", "a b"]
    assert run(*words, cwd=tmp_path).returncode == 5


def test_a_program_that_waits_ends_well_under_all(tmp_path: Path) -> None:
    wait = "torch.cuda.current_stream().wait_stream(side)"
    done = run("--explore=3", "-c", MISSING_WAIT.format(wait=wait), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "flambeau run: the program ended well under 3 schedules\n"


def test_a_signal_is_a_failure(tmp_path: Path) -> None:
    done = run("--explore", "2", "-c", "import os; os.kill(os.getpid(), 9)", cwd=tmp_path)
    assert done.returncode == 137
    assert "under the schedule fifo (SIGKILL), number 1 of 2" in done.stderr


@pytest.mark.parametrize("value", ["0", "-1", "many", ""])
def test_the_number_must_be_one(value: str) -> None:
    with pytest.raises(UsageError, match="needs a number of schedules"):
        parse(["--explore", value, "x.py"])


def test_schedules_begin_with_the_plainest() -> None:
    assert list(islice(explore.schedules(), 4)) == ["fifo", "adversarial", "random:0", "random:1"]


@pytest.mark.parametrize(
    "words",
    [
        ["x.py", "--explore", "3"],
        ["--virtual=h200:2", "--schedule", "random:4", "-m", "module", "-v"],
        ["--check", "race,init", "--sanitize=warn", "-c", "print(1)"],
        ["--", "-odd.py", "a"],
    ],
)
def test_words_of_a_request_make_it_again(words: list[str]) -> None:
    request = parse(words)
    assert isinstance(request, Request)
    assert explore.words(request) == words
    assert parse(["--explore", "4", *words]).explore == 4
