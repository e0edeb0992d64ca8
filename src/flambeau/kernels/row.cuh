// SPDX-License-Identifier: Apache-2.0
// Work on whole rows: a group of threads, a warp or a block, does one row of n neighbours.
//
// A row that fits is held in registers, PER packs of V neighbours for each thread, and memory is
// read once. With PER == 0 each pass over the row reads it again; such a row may begin anywhere, and
// `lead` elements before the first whole pack are done one by one, as those behind the last are.
#pragma once
#include "math.cuh"

template <int N> struct Width { enum { value = N }; };

// Calls f(Width<W>, p, i) for each pack of this thread: W elements from i on, kept as pack p.
template <int V, int PER, int THREADS> struct Walk {
  int64 n;
  int lane, lead;

  __device__ Walk(const void *row, int64 count, int size) : n(count), lane(threadIdx.x % THREADS), lead(0) {
    if constexpr (PER == 0 && V > 1) {
      const int behind = ((uint64)row % (V * size)) / size;
      lead = behind ? V - behind : 0;
      if (lead > n) lead = (int)n;
    }
  }
  template <class F> __device__ inline void operator()(F f) const {
    if constexpr (PER > 0) {
#pragma unroll
      for (int p = 0; p < PER; ++p) {
        const int i = (p * THREADS + lane) * V;
        if (i < n) f(Width<V>(), p, (int64)i);
      }
    } else {
      if (lane < lead) f(Width<1>(), 0, (int64)lane);
#pragma unroll 4
      for (int64 i = lead + lane * V; i + V <= n; i += THREADS * V) f(Width<V>(), 0, i);
      const int64 rest = lead + (n - lead) / V * V + lane;
      if (V > 1 && rest < n) f(Width<1>(), 0, rest);
    }
  }
};

// The packs of a row that this thread has, as the type arithmetic is done in.
template <class T, class A, int V, int PER> struct Row {
  const T *from;
  A at[PER > 0 ? PER : 1][V];

  template <class W> __device__ Row(const T *row, const W &walk) : from(row) {
    if constexpr (PER > 0) walk([&](auto width, int p, int64 i) { read(width, p, i); });
  }
  template <class N> __device__ inline void read(N, int p, int64 i) {
    const Vector<T, N::value> pack = *(const Vector<T, N::value> *)(from + i);
#pragma unroll
    for (int j = 0; j < N::value; ++j) at[p][j] = convert<A>(pack.at[j]);
  }
  // Before each pass: a row that is not held is read again.
  template <class N> __device__ inline void again(N width, int p, int64 i) {
    if constexpr (PER == 0) read(width, p, i);
  }
};

template <int W, class T> __device__ inline Vector<T, W> pack_at(const T *row, int64 i) {
  return *(const Vector<T, W> *)(row + i);
}

struct Added {
  template <class A> __device__ static A join(A a, A b) { return a + b; }
};
struct Greatest {
  template <class A> __device__ static A join(A a, A b) { return b > a ? b : a; }
};

// All threads of the group get the joined value. Calls that may overlap take different slots.
template <class Op, int THREADS, class A> __device__ inline A group_join(A value, int slot) {
#pragma unroll
  for (int reach = 16; reach > 0; reach /= 2)
    value = Op::join(value, __shfl_xor_sync(0xffffffff, value, reach));
  if constexpr (THREADS > 32) {
    enum { WARPS = THREADS / 32 };
    __shared__ A warps[4][WARPS];
    if (threadIdx.x % 32 == 0) warps[slot][threadIdx.x / 32] = value;
    __syncthreads();
    value = warps[slot][threadIdx.x % WARPS];
#pragma unroll
    for (int reach = WARPS / 2; reach > 0; reach /= 2)
      value = Op::join(value, __shfl_xor_sync(0xffffffff, value, reach));
  }
  return value;
}

// The row of this thread's group, and how many groups there are.
template <int THREADS> __device__ inline int64 group_index() {
  return blockIdx.x * (int64)(blockDim.x / THREADS) + threadIdx.x / THREADS;
}
template <int THREADS> __device__ inline int64 group_count() {
  return gridDim.x * (int64)(blockDim.x / THREADS);
}
