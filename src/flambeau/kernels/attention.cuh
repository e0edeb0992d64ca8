// SPDX-License-Identifier: Apache-2.0
// Attention's softmax between two matrix products, for any element type: scores become probabilities
// in place, under a mask.
#pragma once
#include "row.cuh"

// The mask's element for batch, head, query and key; strides of 0 where it broadcasts.
struct MaskLayout {
  int64 heads, queries;
  int64 strides[4];
};

// What a mask says about a score: bool excludes it, a number is added.
template <class A> __device__ inline A masked(A score, bool mask) { return mask ? score : lowest<A>(); }
template <class A> __device__ inline A masked(A score, float mask) { return score + (A)mask; }
template <class A> __device__ inline A masked(A score, double mask) { return score + (A)mask; }
template <class A> __device__ inline A masked(A score, float16 mask) { return score + to_float(mask); }
template <class A> __device__ inline A masked(A score, bfloat16 mask) { return score + to_float(mask); }

template <bool CAUSAL, int V, int PER, int THREADS, class T, class M>
__device__ inline void attention_rows(
    T *scores, const M *mask, const MaskLayout &layout, int64 rows, int64 n) {
  typedef typename arithmetic<T>::type A;
  const int64 row = group_index<THREADS>();
  if (row >= rows) return;
  scores += row * n;
  const int64 query = row % layout.queries, head = row / layout.queries;
  if (mask)
    mask += head / layout.heads * layout.strides[0] + head % layout.heads * layout.strides[1] +
            query * layout.strides[2];
  const Walk<V, PER, THREADS> walk(scores, n, sizeof(T));
  Row<T, A, V, PER> x(scores, walk);
  auto score = [&](A value, int64 key) {
    if (CAUSAL && key > query) return lowest<A>();
    return mask ? masked(value, mask[key * layout.strides[3]]) : value;
  };
  A most = lowest<A>(), total = A(0);
  walk([&](auto width, int p, int64 i) {
    x.again(width, p, i);
#pragma unroll
    for (int j = 0; j < width.value; ++j) {
      const A value = score(x.at[p][j], i + j);
      if constexpr (PER > 0) x.at[p][j] = value;
      most = Greatest::join(most, value);
    }
  });
  most = group_join<Greatest, THREADS>(most, 0);
  // A query that no key is open to attends to nothing.
  const bool closed = most == lowest<A>();
  if (closed) most = A(0);
  walk([&](auto width, int p, int64 i) {
    x.again(width, p, i);
#pragma unroll
    for (int j = 0; j < width.value; ++j) {
      if constexpr (PER == 0) x.at[p][j] = score(x.at[p][j], i + j);
      const A power = exp(x.at[p][j] - most);
      if constexpr (PER > 0) x.at[p][j] = power;
      total += power;
    }
  });
  total = group_join<Added, THREADS>(total, 1);
  const A factor = closed ? A(0) : A(1) / total;
  walk([&](auto width, int p, int64 i) {
    x.again(width, p, i);
    Vector<T, width.value> pack;
#pragma unroll
    for (int j = 0; j < width.value; ++j) {
      const A power = PER > 0 ? x.at[p][j] : exp(score(x.at[p][j], i + j) - most);
      pack.at[j] = convert<T>(power * factor);
    }
    *(Vector<T, width.value> *)(scores + i) = pack;
  });
}
