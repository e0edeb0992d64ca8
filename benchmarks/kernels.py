# SPDX-License-Identifier: Apache-2.0
"""Kernels that memory bounds, beside torch's: ``python -m benchmarks.kernels``.

Times come from the device's events. Those of a virtual GPU are its model's, not a measurement.
"""

from __future__ import annotations

import sys

from benchmarks.compare import LIBRARIES, Row, print_table

FLOATS = 1 << 28  # 1 GiB of float32
BIG = f"a = xp.randn({FLOATS}, device='cuda'); b = xp.empty_like(a)"
MATRIX = "a = xp.randn(65536, 4096, device='cuda'); b = xp.empty_like(a)"
SQUARE = "a = xp.randn(16384, 16384, device='cuda'); b = xp.empty_like(a)"
VECTORS = (
    f"{MATRIX}; row = xp.randn(4096, device='cuda'); column = xp.randn(65536, 1, device='cuda')"
)
KEYS = "a = xp.randint(-2**31, 2**31 - 1, (1 << 26,), device='cuda', dtype=xp.int32)"
INDICES = (
    "a = xp.randn(1 << 26, device='cuda'); i = xp.randint(0, 1 << 26, (1 << 26,), device='cuda')"
)
HALF = f"a = xp.randn({FLOATS * 2}, device='cuda', dtype=xp.float16)"

ROWS = [
    Row("copy", "b.copy_(a)", BIG, calls=10, bytes=8 * FLOATS),
    Row("sum", "a.sum()", BIG, calls=10, bytes=4 * FLOATS),
    Row("sum of float16", "a.sum()", HALF, calls=10, bytes=4 * FLOATS),
    Row("max", "a.max()", BIG, calls=10, bytes=4 * FLOATS),
    Row("argmax", "a.argmax()", BIG, calls=10, bytes=4 * FLOATS),
    Row("sum, dim 0", "a.sum(0)", MATRIX, calls=10, bytes=4 * FLOATS),
    Row("sum, dim 1", "a.sum(1)", MATRIX, calls=10, bytes=4 * FLOATS),
    Row("max, dim 0", "a.max(0)", MATRIX, calls=10, bytes=4 * FLOATS),
    Row("max, dim 1", "a.max(1)", MATRIX, calls=10, bytes=4 * FLOATS),
    Row("amax, dim 1", "a.amax(1)", MATRIX, calls=10, bytes=4 * FLOATS),
    Row("cumsum, dim 1", "a.cumsum(1)", MATRIX, calls=5, bytes=8 * FLOATS),
    Row("cumsum, dim 0", "a.cumsum(0)", MATRIX, calls=5, bytes=8 * FLOATS),
    Row("cumsum of a vector", "a.cumsum(0)", BIG, calls=5, bytes=8 * FLOATS),
    Row("transposing copy", "b.copy_(a.t())", SQUARE, calls=5, bytes=8 * FLOATS),
    Row("add a row", "xp.add(a, row, out=b)", VECTORS, calls=10, bytes=8 * FLOATS),
    Row("add a column", "xp.add(a, column, out=b)", VECTORS, calls=10, bytes=8 * FLOATS),
    Row("uniform_", "a.uniform_()", BIG, calls=10, bytes=4 * FLOATS),
    Row("normal_", "a.normal_()", BIG, calls=10, bytes=4 * FLOATS),
    Row("dropout", "xp.nn.functional.dropout(a, 0.1)", BIG, calls=10, bytes=9 * FLOATS),
    Row("exp", "xp.exp(a, out=b)", BIG, calls=10, bytes=8 * FLOATS),
    Row("sort of 64M int32", "a.sort()", KEYS, calls=2, bytes=16 << 26),
    Row("gather of 64M", "a.gather(0, i)", INDICES, calls=5, bytes=16 << 26),
    Row("index_select of 64M", "a.index_select(0, i)", INDICES, calls=5, bytes=16 << 26),
    Row("topk, 10 of 4,096", "a.topk(10)", MATRIX, calls=3, bytes=4 * FLOATS),
    Row("sort of rows of 4,096", "a[:8192].sort()", MATRIX, calls=2, bytes=16 << 25),
    Row("randperm of 10M", "xp.randperm(10_000_000, device='cuda')", calls=3, bytes=80_000_000),
]


def gigabytes(row: Row, seconds: float) -> str:
    """Bytes over time in GB/s."""
    return f"{row.bytes / seconds / 1e9:.0f}"


if __name__ == "__main__":
    chosen = [row for row in ROWS if not sys.argv[1:] or any(w in row.name for w in sys.argv[1:])]
    print_table(
        "Kernels at the speed of memory, GB/s by the device's clock", chosen, "gpu", gigabytes,
        LIBRARIES[:2],
    )  # fmt: skip
