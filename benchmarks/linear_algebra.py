# SPDX-License-Identifier: Apache-2.0
"""Solvers, factorizations, transforms and triangles beside torch's in one process on a real GPU.

    python -m benchmarks.linear_algebra [--seconds 60]

Calls of torch and of flambeau take turns; a figure is the median of wall times with the wait for
the device, in milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TURNS, WARM_UP = 13, 2
SIZES = (64, 512, 1024, 2048)
BATCHES = ((500, 8), (64, 32), (16, 100))
SLOW_FROM = 1024  # singular values of larger matrices take seconds
SLOW = ("svd", "svdvals", "matrix_rank")
ALONE = ("solve", "inv", "det", "lu", "cholesky", "qr", "eigh", *SLOW, "lstsq")
IN_BATCHES = ("solve", "inv", "det", "lu", "cholesky", "qr", "eigh", "svd", "svdvals")

Case = tuple[str, "Callable[..., Any]", tuple[Any, ...]]


def named(name: str) -> Callable[..., Any]:
    """A function of ``torch.linalg`` of either library."""
    return lambda library, *operands: getattr(library.linalg, name)(*operands)


def cases(torch: Any) -> Iterator[Case]:
    """What is timed: its name, the call, torch's operands."""
    for batch, n in [*((0, n) for n in SIZES), *BATCHES]:
        shape = (batch, n, n) if batch else (n, n)
        a = torch.randn(shape, device="cuda")
        definite = a @ a.mT + n * torch.eye(n, device="cuda")
        right = torch.randn(*shape[:-1], 1, device="cuda")
        operands = {"solve": (a, a), "lstsq": (a, right), "cholesky": (definite,)}
        operands["eigh"] = operands["cholesky"]
        for name in IN_BATCHES if batch else ALONE:
            if n < SLOW_FROM or name not in SLOW:
                text = f"{name} {batch} x {n}" if batch else f"{name} {n}"
                yield text, named(name), operands.get(name, (a,))
    signal = torch.randn(64, 1 << 18, dtype=torch.complex64, device="cuda")
    cube = torch.randn(256, 256, 256, device="cuda")
    yield "fft 64 x 262144", lambda library, x: library.fft.fft(x), (signal,)
    yield "rfftn 256 x 256 x 256", lambda library, x: library.fft.rfftn(x), (cube,)
    wide = torch.randn(8192, 8192, device="cuda")
    yield "tril 8192", lambda library, x: library.tril(x), (wide,)


def milliseconds(library: Any, call: Callable[[], object]) -> float:
    """Wall time of one call with the wait for the device."""
    began = time.perf_counter()
    call()
    library.cuda.synchronize()
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="stop after this long")
    options = parser.parse_args()
    import torch

    import flambeau

    torch.backends.cuda.preferred_linalg_library("cusolver")
    began = time.monotonic()
    print("| | torch, ms | flambeau, ms | ratio |\n|---|---|---|---|")
    for text, call, theirs in cases(torch):
        if time.monotonic() - began > options.seconds:
            print("out of time")
            break
        ours = [flambeau.from_dlpack(x) for x in theirs]
        taken: tuple[list[float], list[float]] = ([], [])
        for _ in range(TURNS):
            taken[0].append(milliseconds(torch, lambda: call(torch, *theirs)))  # noqa: B023
            taken[1].append(milliseconds(flambeau, lambda: call(flambeau, *ours)))  # noqa: B023
        first, second = (statistics.median(times[WARM_UP:]) for times in taken)
        row = f"| {text} | {first:.3f} | {second:.3f} | {second / first:.3f} |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
