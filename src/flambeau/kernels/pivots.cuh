// SPDX-License-Identifier: Apache-2.0
// From row exchanges, as LU factorizations make them one after the other, to permutations.
#pragma once
#include "types.cuh"

constexpr int PIVOT_THREADS = 32;

// One block for each matrix: order[i] is the row that exchanges 1..k bring to row i.
__device__ inline void order_of_rows(int64 *orders, const int32 *exchanges, int64 rows, int64 k) {
  int64 *order = orders + (int64)blockIdx.x * rows;
  const int32 *other = exchanges + (int64)blockIdx.x * k;
  for (int64 i = threadIdx.x; i < rows; i += PIVOT_THREADS) order[i] = i;
  __syncthreads();
  if (threadIdx.x) return;
  for (int64 i = 0; i < k; ++i) {
    const int64 there = other[i] - 1, here = order[i];
    order[i] = order[there];
    order[there] = here;
  }
}
