// SPDX-License-Identifier: Apache-2.0
// Inclusive scans along contiguous rows: a block walks a row in chunks and carries the running state.
#pragma once
#include "math.cuh"

enum { SCAN_THREADS = 256 };

struct Plus {
  template <class A> __device__ static A start() { return A(0); }
  template <class A> __device__ static A join(A a, A b) { return plus(a, b); }
};
struct Times {
  template <class A> __device__ static A start() { return A(1); }
  template <class A> __device__ static A join(A a, A b) { return times(a, b); }
};

template <class Op, class A, class In, class Out>
__device__ inline void scan_rows(Out *out, const In *in, int64 n) {
  __shared__ A parts[SCAN_THREADS];
  const int t = threadIdx.x;
  in += blockIdx.x * n, out += blockIdx.x * n;
  A carry = Op::template start<A>();
  for (int64 first = 0; first < n; first += SCAN_THREADS) {
    const int64 i = first + t;
    parts[t] = i < n ? convert<A>(in[i]) : Op::template start<A>();
    __syncthreads();
#pragma unroll 1
    for (int reach = 1; reach < SCAN_THREADS; reach *= 2) {
      const A left = t >= reach ? parts[t - reach] : Op::template start<A>();
      __syncthreads();
      if (t >= reach) parts[t] = Op::join(left, parts[t]);
      __syncthreads();
    }
    const A value = Op::join(carry, parts[t]);
    if (i < n) out[i] = convert<Out>(value);
    carry = Op::join(carry, parts[SCAN_THREADS - 1]);
    __syncthreads();
  }
}
