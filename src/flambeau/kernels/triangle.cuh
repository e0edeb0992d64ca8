// SPDX-License-Identifier: Apache-2.0
// The lower or upper triangle of matrices in row-major order, zeros elsewhere. Elements are moved as
// words of their size; zero is all bits zero in every type.
#pragma once
#include "types.cuh"

constexpr int TRIANGLE_THREADS = 256;

// Column j of row i is kept if j - i <= diagonal (lower) or j - i >= diagonal.
template <class Word, int V, class Index>
__device__ void triangle(Word *out, const Word *in, int64 count, int64 rows, int64 columns, int64 diagonal,
                         int32 lower) {
  typedef Vector<Word, V> Pack;
  const Index at = ((Index)blockIdx.x * TRIANGLE_THREADS + threadIdx.x) * V;
  if (at >= (Index)count) return;
  const Index line = at / (Index)columns;
  const int64 first = (int64)(at - line * (Index)columns) - (int64)(line % (Index)rows);
  const int64 last = first + V - 1;
  Pack pack = {};
  if (lower ? first <= diagonal : last >= diagonal) {
    pack = *(const Pack *)(in + at);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      if (lower ? first + j > diagonal : first + j < diagonal) pack.at[j] = Word{};
    }
  }
  *(Pack *)(out + at) = pack;
}
