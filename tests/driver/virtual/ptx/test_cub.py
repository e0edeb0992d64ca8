# SPDX-License-Identifier: Apache-2.0
"""CUB's block primitives, which flambeau's own kernels are built on."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(7)

SCAN = """
#include <cub/block/block_scan.cuh>
#include <cub/block/block_reduce.cuh>
extern "C" __global__ void scan(const int* x, int* y, int* totals, int n) {
  using Scan = cub::BlockScan<int, 128>;
  using Reduce = cub::BlockReduce<int, 128>;
  __shared__ typename Scan::TempStorage scan;
  __shared__ typename Reduce::TempStorage reduce;
  const int base = (blockIdx.x * 128 + threadIdx.x) * 4;
  int v[4], sum = 0;
  for (int k = 0; k < 4; ++k) sum += v[k] = base + k < n ? x[base + k] : 0;
  const int total = Reduce(reduce).Sum(sum);
  Scan(scan).InclusiveSum(v, v);
  for (int k = 0; k < 4; ++k) if (base + k < n) y[base + k] = v[k];
  if (threadIdx.x == 0) totals[blockIdx.x] = total;
}"""

SORT = """
#include <cub/block/block_radix_sort.cuh>
extern "C" __global__ void sort(float* keys, int* values) {
  using Sort = cub::BlockRadixSort<float, 128, 4, int>;
  __shared__ typename Sort::TempStorage storage;
  float k[4];
  int v[4];
  const int base = (blockIdx.x * 128 + threadIdx.x) * 4;
  for (int i = 0; i < 4; ++i) { k[i] = keys[base + i]; v[i] = threadIdx.x * 4 + i; }
  Sort(storage).Sort(k, v);
  for (int i = 0; i < 4; ++i) { keys[base + i] = k[i]; values[base + i] = v[i]; }
}"""


@pytest.mark.parametrize("workers", [1, 2])
def test_block_scan_and_reduce(cuda, workers):
    x = RNG.integers(-100, 100, 10 * 512).astype(np.int32)
    y, totals = np.zeros_like(x), np.zeros(10, np.int32)
    cuda(SCAN).run("scan", 10, 128, x, y, totals, np.int32(x.size), workers=workers)
    np.testing.assert_array_equal(y.reshape(10, 512), x.reshape(10, 512).cumsum(1))
    np.testing.assert_array_equal(totals, x.reshape(10, 512).sum(1))


@pytest.mark.parametrize("workers", [1, 2])
def test_block_radix_sort(cuda, workers):
    keys = RNG.standard_normal((6, 512)).astype(np.float32)
    keys[:, :100] = np.round(keys[:, :100])
    expected = np.argsort(keys, axis=1, kind="stable")
    sorted_keys, values = keys.copy(), np.zeros(keys.shape, np.int32)
    cuda(SORT).run("sort", 6, 128, sorted_keys, values, workers=workers)
    np.testing.assert_array_equal(sorted_keys, np.take_along_axis(keys, expected, 1))
    np.testing.assert_array_equal(values, expected)
