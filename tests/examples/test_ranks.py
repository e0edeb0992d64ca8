# SPDX-License-Identifier: Apache-2.0
"""The example of several processes, run as its text says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REAL

EXAMPLE = Path(__file__).parents[2] / "examples" / "ranks_pi.py"


@pytest.mark.parametrize("count", [1, 3])
def test_pi(count: int) -> None:
    if REAL and count > 1:
        pytest.skip("asks for more GPUs than every machine has")
    options = [] if REAL else ["--virtual", f"h200:{count}"]
    done = subprocess.run(
        [sys.executable, "-m", "flambeau", "run", *options, str(EXAMPLE)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = re.findall(r"^rank (\d) of (\d): (\d+) of 100000 inside$", done.stdout, re.MULTILINE)
    inside = [int(number) for _, _, number in ranks]
    assert len(set(inside)) == len(ranks) == int(ranks[0][1])
    expected = 4 * sum(inside) / (100_000 * len(ranks))
    assert f"pi is about {expected:.3f}" in done.stdout
    assert abs(expected - 3.1416) < 0.02
