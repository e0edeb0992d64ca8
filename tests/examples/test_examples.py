# SPDX-License-Identifier: Apache-2.0
"""Each example runs under each schedule policy and gives the same answers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
REAL = os.environ.get("FLAMBEAU_TEST_DEVICE") == "real"


@cache
def output_of(name: str, policy: str, *arguments: str) -> str:
    """What an example prints; its timings are part of it."""
    options = [] if REAL else ["--virtual", "h200:1", "--schedule", policy]
    done = subprocess.run(
        [sys.executable, "-m", "flambeau", "run", *options, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def timing(output: str, name: str) -> float:
    """The milliseconds in the line that begins with a name."""
    found = re.search(rf"^{name} +([\d.]+) ms", output, re.MULTILINE)
    assert found is not None, output
    return float(found[1])


def test_vector_add(schedule: str) -> None:
    assert output_of("vector_add.py", schedule).endswith(": the sum ends with 999.5\n")


def test_streams_overlap(schedule: str) -> None:
    output = output_of("streams_overlap.py", schedule)
    assert output.count("the sums are right") == 2
    assert timing(output, "two streams") < timing(output, "one stream")


def test_digits(schedule: str) -> None:
    output = output_of("digits_knn.py", schedule)
    assert "the same answers as NumPy: yes" in output
    accuracy = re.search(r"^accuracy ([\d.]+)$", output, re.MULTILINE)
    assert accuracy is not None
    assert float(accuracy[1]) == pytest.approx(0.9573, abs=1e-4)
    assert timing(output, "all together") >= timing(output, "computation") > 0


def test_digits_answers_do_not_depend_on_the_batch() -> None:
    assert "the same answers as NumPy: yes" in output_of(
        "digits_knn.py", "adversarial", "--batch", "97"
    )


def test_digits_progress_is_one_line_in_a_pipe() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flambeau", "run", str(EXAMPLES / "digits_knn.py")],
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    )
    (line,) = done.stderr.splitlines()
    assert re.match(r"\[#+\] 13/13 batches, [\d.]+ s$", line)


@pytest.mark.parametrize("policy", ["fifo", "adversarial"])
def test_training_steps_as_graphs(policy: str) -> None:
    output = output_of("digits_train.py", policy)
    assert "12 replays equal to eager steps, bit for bit: yes" in output
    accuracy = re.search(r"^accuracy ([\d.]+)$", output, re.MULTILINE)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.96


@pytest.mark.parametrize("policy", ["fifo", "adversarial"])
def test_gpt(policy: str) -> None:
    """A tiny one learns, whatever the order of the device's work."""
    small = [
        "--batch",
        "8",
        "--context",
        "16",
        "--width",
        "32",
        "--heads",
        "2",
        "--depth",
        "1",
        "--characters",
        "12",
    ]
    output = output_of("gpt.py", policy, "--steps", "12", *small)
    losses = [
        float(loss) for loss in re.findall(r"^step +\d+  loss ([\d.]+) ", output, re.MULTILINE)
    ]
    assert losses[0] == pytest.approx(4.6, abs=0.3)  # the logarithm of the number of characters
    assert losses[-1] < losses[0] - 0.4
    assert "\nThe " in output
