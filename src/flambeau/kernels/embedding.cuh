// SPDX-License-Identifier: Apache-2.0
// Looking up rows of a table, and adding up the gradients of those that were.
#pragma once
#include "row.cuh"
#include "store.cuh"

extern "C" __device__ void __assertfail(
    const char *condition, const char *file, unsigned line, const char *function, size_t char_size);

// A row of threads copies a piece of a row of the table, packs of V elements. The first piece of all
// rows comes before the second, so that of a large table a slice is in use at a time, which the cache holds.
enum { EMBEDDING_PACKS = 2 };  // of a thread
template <int V, class T, class Index>
__device__ inline void embedding_forward(
    T *out, const T *table, const Index *indices, int64 count, int64 rows, int64 features) {
  const int64 i = blockIdx.x * (int64)blockDim.y + threadIdx.y;
  if (i >= count) return;
  const int64 at = indices[i];
  if (at < 0 || at >= rows)
    __assertfail("0 <= index && index < num_embeddings: index out of range in self", "embedding.cuh", __LINE__,
                 "embedding_forward", 1);
  out += i * features, table += at * features;
  const int64 step = blockDim.x * V;
#pragma unroll 1
  for (int64 first = blockIdx.y * EMBEDDING_PACKS * step + threadIdx.x * V; first < features;
       first += gridDim.y * EMBEDDING_PACKS * step) {
    Vector<T, V> packs[EMBEDDING_PACKS];
#pragma unroll
    for (int p = 0; p < EMBEDDING_PACKS; ++p)
      if (first + p * step < features) packs[p] = pack_at<V>(table, first + p * step);
#pragma unroll
    for (int p = 0; p < EMBEDDING_PACKS; ++p)
      if (first + p * step < features) store_passing((Vector<T, V> *)(out + first + p * step), packs[p]);
  }
}

// `sorted` are the indices in order and `places` where they stood. The first of equal ones adds up
// the gradients of all, always in the same order. `out` is zero already.
template <class T, class Index>
__device__ inline void embedding_backward(
    T *out, const T *grad, const Index *sorted, const int64 *places, int64 count, int64 features,
    int64 padding, int by_frequency) {
  typedef typename arithmetic<T>::type A;
  const int64 begin = blockIdx.x;
  const int64 feature = blockIdx.y * (int64)blockDim.x + threadIdx.x;
  const Index row = sorted[begin];
  if (feature >= features || row == padding || (begin > 0 && sorted[begin - 1] == row)) return;
  A total = A(0);
  int64 i = begin;
  for (; i < count && sorted[i] == row; ++i) total += convert<A>(grad[places[i] * features + feature]);
  if (by_frequency) total /= (A)(i - begin);
  out[row * features + feature] = convert<T>(total);
}
