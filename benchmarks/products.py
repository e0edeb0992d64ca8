# SPDX-License-Identifier: Apache-2.0
"""Matrix products, tuned and as they come, beside torch's in one process on a real GPU.

    python benchmarks/products.py [--seconds 50]

Rounds of torch and flambeau alternate, in a new order each time. A figure is the median of the
rounds' ratios, and the spread is that of its middle half. A busy kernel before each round lets the
host queue all its products, so that it is the device which is timed. Products that come out near
torch's time get more rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from typing import Any, NamedTuple

ROUNDS, MORE_ROUNDS = 7, 21
NEAR = 1.01  # ratios below this are measured again
CYCLES_PER_CALL = 40_000


class Product(NamedTuple):
    """One product: its precision and its sizes; no batch is 0. With a bias it is a linear layer."""

    precision: str
    batch: int
    m: int
    n: int
    k: int
    bias: bool = False


_SIZES: dict[str, list[tuple[int, ...]]] = {
    "bf16": [
        (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (16, 4096, 4096),
        (64, 4096, 4096), (128, 8192, 1024), (4096, 64, 4096), (512, 512, 8192),
        (4096, 11008, 4096), (8192, 8192, 1024),
        (16, 512, 512, 512), (64, 128, 128, 128), (32, 1024, 64, 1024),
    ],
    "fp16": [
        (1024, 1024, 1024), (4096, 4096, 4096), (32, 4096, 11008), (256, 256, 16384),
        (2048, 512, 2048), (3000, 3000, 3000), (16, 1024, 128, 1024),
    ],
    "fp32": [
        (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (64, 2048, 2048),
        (2048, 64, 2048), (256, 256, 8192),
    ],
    "tf32": [(1024, 1024, 1024), (4096, 4096, 4096), (64, 4096, 4096), (512, 512, 8192)],
}  # fmt: skip
PRODUCTS = [
    Product(precision, *((0, *sizes) if len(sizes) == 3 else sizes))
    for precision, all_sizes in _SIZES.items()
    for sizes in all_sizes
]
PRODUCTS += [
    Product(precision, 0, *sizes, bias=True)
    for precision, sizes in (
        ("bf16", (4096, 4096, 4096)),
        ("bf16", (128, 4096, 1024)),
        ("fp16", (1024, 1024, 1024)),
        ("fp32", (512, 512, 512)),
    )
]
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "tf32": "float32"}


def microseconds(library: Any, call: Any, runs: int) -> float:
    """Device time of one of several runs."""
    first, last = (library.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    library.cuda._sleep(CYCLES_PER_CALL * (runs + 2))
    first.record()
    for _ in range(runs):
        call()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) * 1e3 / runs


class Outcome(NamedTuple):
    """Torch's time as a multiple of flambeau's, in each round."""

    tuned: list[float]
    plain: list[float]

    def add(self, times: dict[str, float]) -> None:
        self.tuned.append(times["torch"] / times["tuned"])
        self.plain.append(times["torch"] / times["plain"])


def spread(values: list[float]) -> float:
    """Half the distance between the quartiles."""
    first, _, third = statistics.quantiles(values, n=4)
    return (third - first) / 2


def compare(torch: Any, flambeau: Any, product: Product) -> tuple[float, float, str]:
    """Torch's time as a multiple of flambeau's, tuned and not, and a line about it."""
    shape = (product.batch,) if product.batch else ()
    dtype = getattr(torch, _DTYPES[product.precision])
    theirs = [
        torch.randn(sizes, device="cuda", dtype=dtype)
        for sizes in (
            [(product.m, product.k), (product.n, product.k), (product.n,)]
            if product.bias
            else [(*shape, product.m, product.k), (*shape, product.k, product.n)]
        )
    ]
    ours = [flambeau.from_dlpack(one) for one in theirs]
    call_of = {
        library: library.nn.functional.linear if product.bias else library.matmul
        for library in (torch, flambeau)
    }
    for library in (torch, flambeau):
        library.backends.cuda.matmul.allow_tf32 = product.precision == "tf32"
    tunable = flambeau.cuda.tunable
    tunable.enable(True)
    found, expected = call_of[flambeau](*ours), call_of[torch](*theirs)
    difference = (torch.from_dlpack(found).float() - expected.float()).abs().max().item()
    error = difference / expected.float().abs().max().item()
    probe = microseconds(torch, lambda: call_of[torch](*theirs), 3)
    runs = max(5, min(30, int(3000 / probe)))

    def timed(kind: str) -> float:
        if kind == "torch":
            return microseconds(torch, lambda: call_of[torch](*theirs), runs)
        tunable.enable(kind == "tuned")
        return microseconds(flambeau, lambda: call_of[flambeau](*ours), runs)

    kinds = ["torch", "tuned", "plain"]
    outcome, theirs_took = Outcome([], []), []
    while len(outcome.tuned) < ROUNDS or (
        len(outcome.tuned) < MORE_ROUNDS and statistics.median(outcome.tuned) < NEAR
    ):
        times = {kind: timed(kind) for kind in kinds}
        theirs_took.append(times["torch"])
        outcome.add(times)
        kinds = [*kinds[1:], kinds[0]]
    tunable.enable(False)
    tuned, plain = (statistics.median(ratios) for ratios in outcome)
    solution = tunable.get_results()[-1][2].removeprefix("Gemm_Cublaslt_")
    line = (
        f"{product.precision} {product.batch:3}x {product.m:5} {product.n:5} {product.k:5} "
        f"{'bias' * product.bias:4} torch "
        f"{statistics.median(theirs_took):7.1f} us  tuned {tuned:.3f} +- "
        f"{spread(outcome.tuned):.3f}  plain {plain:.3f} +- {spread(outcome.plain):.3f}  "
        f"rounds {len(theirs_took):2}  error {error:.0e}  {solution}"
    )
    return tuned, plain, line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="stop after this long")
    options = parser.parse_args()
    import torch

    import flambeau

    os.chdir(tempfile.mkdtemp())
    flambeau.cuda.tunable.set_max_tuning_duration(5)
    began = time.monotonic()
    ratios: list[tuple[float, float]] = []
    for product in PRODUCTS:
        if time.monotonic() - began > options.seconds:
            print("out of time")
            break
        tuned, plain, line = compare(torch, flambeau, product)
        ratios.append((tuned, plain))
        print(line, flush=True)
    for name, values in zip(("tuned", "plain"), zip(*ratios, strict=True), strict=True):
        mean = statistics.geometric_mean(values)
        print(f"{name}: geometric mean {mean:.3f}, least {min(values):.3f}, {len(values)} products")


if __name__ == "__main__":
    main()
