# SPDX-License-Identifier: Apache-2.0
"""How long the CPU takes for a virtual GPU's work: ``python -m benchmarks.virtual``."""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ELEMENTS = 1_000_000
TURNS = 15


def milliseconds(work: Callable[[], object]) -> float:
    """Median wall time of a call."""
    work()
    times = []
    for _ in range(TURNS):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def main() -> None:
    """Measure and print a Markdown table."""
    os.environ.setdefault("FLAMBEAU_VIRTUAL", "h200:1")
    import numpy as np

    import flambeau

    a, b = (np.ones(ELEMENTS, np.float32) for _ in range(2))
    x, y = (flambeau.ones(ELEMENTS, device="cuda") for _ in range(2))

    def on_gpu(work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            work()
            flambeau.cuda.synchronize()

        return run

    rows = {
        "a + b": (on_gpu(lambda: x + y), lambda: a + b),
        "a.exp()": (on_gpu(x.exp), lambda: np.exp(a)),
        "a.sum()": (on_gpu(x.sum), lambda: a.sum(dtype=np.float64)),
    }
    print(f"### {ELEMENTS:,} floats, ms until the work is done\n")
    print(f"On {flambeau.cuda.get_device_name()}, {os.cpu_count()} CPU cores.\n")
    print(
        f"| | flambeau {flambeau.__version__} | NumPy {np.__version__} | ratio |\n|---|---|---|---|"
    )
    for name, (ours, numpys) in rows.items():
        mine, theirs = milliseconds(ours), milliseconds(numpys)
        print(f"| {name} | {mine:.2f} | {theirs:.2f} | {mine / theirs:.1f} |")


if __name__ == "__main__":
    main()
