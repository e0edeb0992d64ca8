# SPDX-License-Identifier: Apache-2.0
"""Kernels that Triton compiled, kept as PTX in ``data``.

The sources, with blocks of 256 elements and tiles of 32 x 32 x 32, four warps and two stages::

    def add(x, y, z, n, B):
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(z + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

    def softmax(x, y, columns, B):
        i = tl.arange(0, B)
        at = tl.program_id(0) * columns + i
        v = tl.load(x + at, mask=i < columns, other=-float("inf"))
        e = tl.exp(v - tl.max(v, 0))
        tl.store(y + at, e / tl.sum(e, 0), mask=i < columns)

    def matmul(a, b, c, M, N, K, BM, BN, BK):  # a masked tl.dot over tiles of K
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from driver.virtual.ptx.harness import Module

DATA = Path(__file__).with_name("data")
THREADS = 128


@cache
def module(name: str) -> Module:
    return Module((DATA / f"triton_{name}.ptx").read_text())


def launch(name: str, grid: int | tuple[int, ...], *arguments: object, **options: int) -> None:
    """Launch with the two scratch pointers that Triton adds, which these kernels do not use."""
    unused = [np.uint64(0)] * (len(module(name).info(name).parameters) - len(arguments))
    module(name).run(name, grid, THREADS, *arguments, *unused, **options)


@pytest.mark.parametrize("workers", [1, 2])
def test_add(workers):
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(1000).astype(np.float32) for _ in range(2))
    z = np.full(1003, 7, np.float32)
    launch("add", 4, x, y, z[:1000], np.int32(1000), workers=workers)
    np.testing.assert_array_equal(z[:1000], x + y)
    assert (z[1000:] == 7).all()


@pytest.mark.parametrize("columns", [1, 200, 256])
def test_softmax(columns):
    x = np.random.default_rng(2).standard_normal((5, columns)).astype(np.float32) * 4
    y = np.zeros_like(x)
    launch("softmax", 5, x, y, np.int32(columns), shared=16, workers=2)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize(("m", "n", "k"), [(32, 32, 32), (70, 40, 50), (1, 3, 100)])
def test_matmul(m, n, k):
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n)))
    c = np.zeros((m, n), np.float16)
    sizes = [np.int32(v) for v in (m, n, k)]
    launch("matmul", (-(-m // 32), -(-n // 32)), a, b, c, *sizes, shared=4096, workers=2)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c, exact, rtol=1e-3, atol=2e-3)
