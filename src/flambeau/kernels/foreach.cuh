// SPDX-License-Identifier: Apache-2.0
// One launch for lists of tensors: each block does a chunk of one of them.
#pragma once
#include "row.cuh"

enum { FOREACH_THREADS = 256, FOREACH_CHUNK = 4096 };

// Up to N groups of tensors of one size: S operands, E addresses of something else, M numbers.
template <int N, int S, int E, int M> struct TensorTable {
  void *at[S + E][N];
  double numbers[M > 0 ? M : 1][N];
  int64 sizes[N];
  int32 first[N];  // block of each tensor
  int32 count;
  int32 blocks;
  int32 blocks_before, tensors_before;  // of earlier launches

  __device__ int tensor_of(int block) const {
    int low = 0, high = count - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first[middle] <= block) low = middle;
      else high = middle - 1;
    }
    return low;
  }
};

// Bits of READS and WRITES say which operands are loaded and stored. `prepare(t)` gives what is done
// with the elements x[0], …, x[S - 1] of tensor t.
template <class T, int READS, int WRITES, int N, int S, int E, int M, class Prepare>
__device__ inline void for_each_chunk(const TensorTable<N, S, E, M> &table, Prepare prepare) {
  typedef typename arithmetic<T>::type A;
  enum { V = 16 / sizeof(T) };
  const int t = table.tensor_of(blockIdx.x);
  const int64 begin = (blockIdx.x - table.first[t]) * (int64)FOREACH_CHUNK;
  const int64 end = begin + FOREACH_CHUNK < table.sizes[t] ? begin + FOREACH_CHUNK : table.sizes[t];
  T *at[S];
  uint64 bits = 0;
#pragma unroll
  for (int k = 0; k < S; ++k) {
    at[k] = (T *)table.at[k][t];
    bits |= (uint64)at[k];
  }
  auto apply = prepare(t);
  int64 i = begin + threadIdx.x;
  if (bits % 16 == 0) {
    for (int64 p = begin + threadIdx.x * V; p + V <= end; p += FOREACH_THREADS * V) {
      Vector<T, V> packs[S];
#pragma unroll
      for (int k = 0; k < S; ++k)
        if (READS >> k & 1) packs[k] = *(const Vector<T, V> *)(at[k] + p);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        A x[S];
#pragma unroll
        for (int k = 0; k < S; ++k)
          if (READS >> k & 1) x[k] = convert<A>(packs[k].at[j]);
        apply(x);
#pragma unroll
        for (int k = 0; k < S; ++k)
          if (WRITES >> k & 1) packs[k].at[j] = convert<T>(x[k]);
      }
#pragma unroll
      for (int k = 0; k < S; ++k)
        if (WRITES >> k & 1) *(Vector<T, V> *)(at[k] + p) = packs[k];
    }
    i = begin + (end - begin) / V * V + threadIdx.x;
  }
#pragma unroll 1
  for (; i < end; i += FOREACH_THREADS) {
    A x[S];
#pragma unroll
    for (int k = 0; k < S; ++k)
      if (READS >> k & 1) x[k] = convert<A>(at[k][i]);
    apply(x);
#pragma unroll
    for (int k = 0; k < S; ++k)
      if (WRITES >> k & 1) at[k][i] = convert<T>(x[k]);
  }
}

// Norms: one partial result per chunk, then one block joins those of a tensor.
struct AbsoluteSum {
  typedef Added Join;
  template <class A> __device__ static A of(A x) { return absolute(x); }
  template <class A> __device__ static A end(A total) { return total; }
};
struct SquareSum {
  typedef Added Join;
  template <class A> __device__ static A of(A x) { return x * x; }
  template <class A> __device__ static A end(A total) { return sqrt(total); }
};
struct GreatestAbsolute {
  struct Join {
    template <class A> __device__ static A join(A a, A b) { return maximum_of(a, b); }
  };
  template <class A> __device__ static A of(A x) { return absolute(x); }
  template <class A> __device__ static A end(A total) { return total; }
};

template <class Norm, class T, class A, int N>
__device__ inline void norm_of_chunks(A *partial, const TensorTable<N, 1, 0, 0> &table) {
  const int t = table.tensor_of(blockIdx.x);
  const int64 begin = (blockIdx.x - table.first[t]) * (int64)FOREACH_CHUNK;
  const int64 end = begin + FOREACH_CHUNK < table.sizes[t] ? begin + FOREACH_CHUNK : table.sizes[t];
  const T *at = (const T *)table.at[0][t];
  A total = A(0);
  const Walk<16 / sizeof(T), 0, FOREACH_THREADS> walk(at + begin, end - begin, sizeof(T));
  walk([&](auto width, int, int64 i) {
    const Vector<T, width.value> pack = pack_at<width.value>(at + begin, i);
#pragma unroll
    for (int j = 0; j < width.value; ++j) total = Norm::Join::join(total, Norm::of(convert<A>(pack.at[j])));
  });
  total = group_join<typename Norm::Join, FOREACH_THREADS>(total, 0);
  if (threadIdx.x == 0) partial[table.blocks_before + blockIdx.x] = total;
}

template <class Norm, class T, class A, int N>
__device__ inline void norm_of_tensors(T *out, const A *partial, const TensorTable<N, 1, 0, 0> &table) {
  const int t = blockIdx.x;
  const int begin = table.first[t], end = t + 1 < table.count ? table.first[t + 1] : table.blocks;
  A total = A(0);
  for (int i = begin + threadIdx.x; i < end; i += FOREACH_THREADS)
    total = Norm::Join::join(total, partial[table.blocks_before + i]);
  total = group_join<typename Norm::Join, FOREACH_THREADS>(total, 0);
  if (threadIdx.x == 0) out[table.tensors_before + t] = convert<T>(Norm::end(total));
}
