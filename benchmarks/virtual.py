# SPDX-License-Identifier: Apache-2.0
"""How long the CPU takes for a virtual GPU's work: ``python -m benchmarks.virtual``.

Each row is measured in turn with NumPy on the same data, because a shared machine disturbs absolute
times more than ratios: the table has the best times of several alternations, and the ratio of each
alternation's own two times in the median. Where Numba is installed, here or in the interpreter that
``--numba-python`` names, one kernel also runs in its CUDA simulator.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

ELEMENTS = 1 << 20
TURNS = 15


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Parameters
    ----------
    name
        What people read.
    ours
        Hands work to the virtual GPU.
    theirs
        NumPy's way.
    mark
        What the median of the ratios is to stay below, if a mark was set.
    """

    name: str
    ours: Callable[[], object]
    theirs: Callable[[], object]
    mark: float | None = None


def milliseconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def measure(row: Row, turns: int) -> list[tuple[float, float]]:
    """Milliseconds of both, measured in turn."""
    row.ours()
    row.theirs()
    return [(milliseconds(row.ours), milliseconds(row.theirs)) for _ in range(turns)]


def operations(torch: Any) -> list[Row]:
    """The library's own operations."""
    a, b = (np.ones(ELEMENTS, np.float32) for _ in range(2))
    x, y = (torch.ones(ELEMENTS, device="cuda") for _ in range(2))
    return [
        Row("a + b", lambda: x + y, lambda: a + b),
        Row("a.exp()", x.exp, lambda: np.exp(a)),
        Row("a.sum()", x.sum, lambda: a.sum(dtype=np.float64)),
    ]


def kernels(torch: Any) -> list[Row]:
    """Kernels as users write them."""
    import ml_dtypes

    from benchmarks import virtual_kernels as k

    def launch(source: str, name: str, grid: int, *args: object) -> Callable[[], object]:
        kernel = torch.cuda._compile_kernel(source, name)
        return lambda: kernel(grid=(grid, 1, 1), block=(256, 1, 1), args=list(args))

    n = ELEMENTS
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(n, np.float32) for _ in range(2))
    x, y, z = (torch.from_numpy(v).cuda() for v in (a, b, np.zeros_like(a)))
    a16, b16 = a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16)
    x16, y16, z16 = x.bfloat16(), y.bfloat16(), z.bfloat16()
    whole = rng.integers(1, 1 << 20, n >> 4, np.int32)
    start, steps = torch.from_numpy(whole).cuda(), torch.from_numpy(np.zeros_like(whole)).cuda()
    rows = a.reshape(-1, 1024)
    random = np.random.Generator(np.random.Philox(7))
    return [
        Row("add, float4", launch(k.ADD, "add", n // 1024, x, y, z, n // 4), lambda: a + b, 1.2),
        Row("add, bf16", launch(k.BF16, "add", n // 256, x16, y16, z16, n), lambda: a16 + b16, 1.5),
        Row(
            "Philox, uniform",
            launch(k.PHILOX, "uniform", n // 1024, z, n // 4, 7),
            lambda: random.random(n, np.float32),
            0.25,
        ),
        Row(
            f"divergent loop, {whole.size:,}",
            launch(k.COLLATZ, "steps", whole.size // 256, start, steps, whole.size),
            lambda: k.numpy_steps(whole),
            0.1,
        ),
        Row(
            "softmax, 1,024 columns",
            launch(k.SOFTMAX, "softmax", rows.shape[0], x, z, 1024),
            lambda: k.numpy_softmax(rows),
            25,
        ),
    ]


def loading(turns: int) -> tuple[float, float]:
    """Milliseconds to load a kernel that was never compiled, and one that was: medians."""
    from benchmarks import virtual_kernels as k
    from flambeau.cuda._compiled_kernel import _nvrtc_compile
    from flambeau.driver.virtual.ptx.loader import load

    image, _ = _nvrtc_compile(k.SOFTMAX, "softmax")
    text = image.decode().rstrip("\0")
    memory = np.zeros(1 << 16, np.uint8)  # for module variables

    def once(comment: int) -> float:
        start = time.perf_counter()
        module = load(f"{text}\n// {comment}", lambda *_: memory.ctypes.data)
        elapsed = (time.perf_counter() - start) * 1e3
        module.close()
        return elapsed

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, FLAMBEAU_CACHE_DIR=folder),
    ):
        cold = [once(n) for n in range(turns)]
        return statistics.median(cold), statistics.median(once(n) for n in range(turns))


SIMULATED = """
import os, sys, time
os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
import numpy as np
from numba import cuda

@cuda.jit
def add(a, b, c, n):
    i = cuda.grid(1)
    if i < n:
        c[i] = a[i] + b[i]

n = int(sys.argv[1])
a, b, c = (np.ones(n, np.float32) for _ in range(3))
add[-(-n // 256), 256](a, b, c, n)
start = time.perf_counter()
add[-(-n // 256), 256](a, b, c, n)
print((time.perf_counter() - start) * 1e3)
"""


def simulator(torch: Any, python: str, turns: int) -> tuple[float, float] | None:
    """Milliseconds for one element-by-element addition here and in Numba's CUDA simulator.

    None where that Python has no Numba.
    """
    from benchmarks import virtual_kernels as k

    n = 1 << 14
    done = subprocess.run(
        [python, "-c", SIMULATED, str(n)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return None
    kernel = torch.cuda._compile_kernel(k.SCALAR_ADD, "add")
    x, y, z = (torch.ones(n, device="cuda") for _ in range(3))

    def ours() -> None:
        kernel(grid=(n // 256, 1, 1), block=(256, 1, 1), args=[x, y, z, n])
        torch.cuda.synchronize()

    ours()
    return statistics.median(milliseconds(ours) for _ in range(turns)), float(done.stdout)


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.virtual")
    parser.add_argument("--turns", type=int, default=TURNS, help="alternations (%(default)s)")
    parser.add_argument(
        "--numba-python",
        default=sys.executable,
        metavar="PATH",
        help="an interpreter that has Numba, for the row of its CUDA simulator (this one)",
    )
    return parser.parse_args()


def main() -> None:
    """Measure and print a Markdown table."""
    options = arguments()
    os.environ.setdefault("FLAMBEAU_VIRTUAL", "h200:1")
    import flambeau

    turns = options.turns
    print(f"### {ELEMENTS:,} elements, ms until the work is done\n")
    print(f"On {flambeau.cuda.get_device_name()}, {os.cpu_count()} CPU cores; {turns} turns.\n")
    numpy = f"NumPy {np.__version__}"
    print(f"| best times | flambeau {flambeau.__version__} | {numpy} | median ratio | mark |")
    print("|---|---|---|---|---|")
    synchronize = flambeau.cuda.synchronize
    for row in [*operations(flambeau), *kernels(flambeau)]:

        def ours(work: Callable[[], object] = row.ours) -> None:
            work()
            synchronize()

        times = measure(Row(row.name, ours, row.theirs), turns)
        mine, theirs = (min(column) for column in zip(*times, strict=True))
        ratio = statistics.median(one / other for one, other in times)
        mark = "" if row.mark is None else f"≤ {row.mark}"
        print(f"| {row.name} | {mine:.2f} | {theirs:.2f} | {ratio:.2f} | {mark} |", flush=True)
    cold, cached = loading(turns)
    print(f"\nA kernel loads in {cold:.1f} ms when compiled, {cached:.1f} ms from the cache (≤ 5).")
    pair = simulator(flambeau, options.numba_python, turns)
    if pair is not None:
        mine, theirs = pair
        print(
            f"One addition: {mine:.3f} ms, in Numba's CUDA simulator {theirs:.0f} ms: "
            f"{theirs / mine:.0f} times faster (≥ 100)."
        )


if __name__ == "__main__":
    main()
