# SPDX-License-Identifier: Apache-2.0
"""Training steps of the small GPT beside torch: ``python -m benchmarks.training``.

Each library runs in a process of its own, by turns; figures are medians of wall times.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

STEP = Path(__file__).with_name("training_step.py")
TURNS = 5
COMMANDS = {"flambeau": ["-m", "flambeau", "run", str(STEP)], "torch": [str(STEP)]}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    names = [n for n in COMMANDS if n == "flambeau" or importlib.util.find_spec(n)]
    workers = {
        name: subprocess.Popen(
            [sys.executable, *COMMANDS[name], str(options.width), str(options.steps)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(TURNS):
        for name, worker in workers.items():
            found[name].append(turn(worker))
    for worker in workers.values():
        worker.communicate()
    print_table(found)


def turn(worker: subprocess.Popen[Any]) -> dict[str, float]:
    """Have a worker measure once."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write("\n")
    worker.stdin.flush()
    line = worker.stdout.readline()
    if not line:
        raise SystemExit("a library's process ended early; its own message is above")
    return dict(json.loads(line))


def print_table(found: dict[str, list[dict[str, float]]]) -> None:
    """Milliseconds a step, and the ratio where torch is installed."""
    print("### A training step of the small GPT, ms\n")
    print("| | " + " | ".join(found) + (" | ratio |" if "torch" in found else " |"))
    print("|---" * (len(found) + 1 + ("torch" in found)) + "|")
    for row in found["flambeau"][0]:
        medians = {name: statistics.median(t[row] for t in turns) for name, turns in found.items()}
        ratio = f" {medians['flambeau'] / medians['torch']:.2f} |" if "torch" in medians else ""
        print(f"| {row} | " + " | ".join(f"{m:.2f}" for m in medians.values()) + " |" + ratio)


if __name__ == "__main__":
    main()
