# SPDX-License-Identifier: Apache-2.0
"""How fast memory moves: ``python -m benchmarks.bandwidth``.

Times come from the device's events. Those of a virtual GPU are its model's, not a measurement.
"""

from __future__ import annotations

from benchmarks.compare import Row, print_table

GIB = 1 << 30
FLOATS = GIB // 4
BIG = f"a = xp.ones({FLOATS}, device='cuda'); b = xp.ones({FLOATS}, device='cuda')"
CUPY_BIG = f"a = xp.ones({FLOATS}, 'f'); b = xp.ones({FLOATS}, 'f')"
PINNED = f"""
host = xp.empty({FLOATS}, pin_memory=True)
a = xp.empty({FLOATS}, device='cuda')
"""
PAGEABLE = f"host = xp.ones({FLOATS}); a = xp.empty({FLOATS}, device='cuda')"

ROWS = [
    Row("copy", "a.copy_(b)", BIG, ("a[...] = b", CUPY_BIG), 10, 2 * GIB),
    Row("fill", "a.fill_(1.0)", BIG, ("a.fill(1.0)", CUPY_BIG), 10, GIB),
    Row("add", "xp.add(a, b, out=a)", BIG, ("xp.add(a, b, out=a)", CUPY_BIG), 10, 3 * GIB),
    Row("to float16", "a.half()", BIG, ("a.astype('e')", CUPY_BIG), 10, GIB * 3 // 2),
    Row("to float64", "a.double()", BIG, ("a.astype('d')", CUPY_BIG), 10, GIB * 3),
    Row("sum", "a.sum()", BIG, ("a.sum()", CUPY_BIG), 10, GIB),
    Row("pinned to device", "a.copy_(host, non_blocking=True)", PINNED, None, 3, GIB),
    Row("device to pinned", "host.copy_(a, non_blocking=True)", PINNED, None, 3, GIB),
]
PAGEABLE_ROWS = [Row("pageable to device", "a.copy_(host)", PAGEABLE, None, 1, GIB)]


def gigabytes(row: Row, seconds: float) -> str:
    """Bytes over time in GB/s."""
    return f"{row.bytes / seconds / 1e9:.0f}"


if __name__ == "__main__":
    print_table("Bandwidth of 1 GiB, GB/s by the device's clock", ROWS, "gpu", gigabytes)
    print_table("Bandwidth of 1 GiB, GB/s by the host's clock", PAGEABLE_ROWS, "wall", gigabytes)
