// SPDX-License-Identifier: Apache-2.0
// The product of two small matrices: a block makes a square tile of the result, each of its threads
// one element, whose terms are added in the order of k.
#pragma once
#include "types.cuh"

enum { PRODUCT_TILE = 16, PRODUCT_DEPTH = 64, PRODUCT_THREADS = PRODUCT_TILE * PRODUCT_TILE };

struct ProductShape {
  int m, n, k, lda, ldb, ldc;
  int transpose_a, transpose_b;   // stored as its transpose, row-major like everything else
};

// TILE lines of a matrix into shared memory, `depth` elements from each, zero beyond its end. Lanes
// follow whatever lies side by side in memory.
template <class T, int LINE>
__device__ inline void load_lines(
    T (*lines)[LINE], const T *from, int count, int depth, int leading, bool along_depth) {
  if (along_depth) {
    for (int line = threadIdx.x / 32; line < PRODUCT_TILE; line += PRODUCT_THREADS / 32)
      for (int d = threadIdx.x % 32; d < depth; d += 32)
        lines[line][d] = line < count ? from[line * (int64)leading + d] : T(0);
  } else {
    const int line = threadIdx.x % PRODUCT_TILE;
    for (int d = threadIdx.x / PRODUCT_TILE; d < depth; d += PRODUCT_THREADS / PRODUCT_TILE)
      lines[line][d] = line < count ? from[d * (int64)leading + line] : T(0);
  }
}

template <class T> __device__ inline void small_product(T *c, const T *a, const T *b, const ProductShape &s) {
  __shared__ T rows[PRODUCT_TILE][PRODUCT_DEPTH + 1], columns[PRODUCT_TILE][PRODUCT_DEPTH + 1];
  const int first_row = blockIdx.y * PRODUCT_TILE, first_column = blockIdx.x * PRODUCT_TILE;
  const int row = threadIdx.x / PRODUCT_TILE, column = threadIdx.x % PRODUCT_TILE;
  a += s.transpose_a ? first_row : first_row * (int64)s.lda;
  b += s.transpose_b ? first_column * (int64)s.ldb : first_column;
  T sum = T(0);
  for (int start = 0; start < s.k; start += PRODUCT_DEPTH) {
    const int depth = min((int)PRODUCT_DEPTH, s.k - start);
    if (start) __syncthreads();
    load_lines(rows, a + (s.transpose_a ? start * (int64)s.lda : start), s.m - first_row, depth, s.lda,
               !s.transpose_a);
    load_lines(columns, b + (s.transpose_b ? start : start * (int64)s.ldb), s.n - first_column, depth,
               s.ldb, s.transpose_b);
    __syncthreads();
#pragma unroll 8
    for (int d = 0; d < depth; ++d) sum += rows[row][d] * columns[column][d];
  }
  if (first_row + row < s.m && first_column + column < s.n)
    c[(first_row + row) * (int64)s.ldc + first_column + column] = sum;
}
