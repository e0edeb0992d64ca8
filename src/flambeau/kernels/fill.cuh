// SPDX-License-Identifier: Apache-2.0
// Sequences: every element is computed from its position alone.
#pragma once
#include "math.cuh"

template <class Out, class A>
__device__ inline void fill_arange(Out *out, A start, A step, int64 n) {
  const int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (i < n) out[i] = convert<Out>(plus(start, times((A)i, step)));
}
// Computed from the nearer end, so that both ends are met exactly.
template <class Out, class A>
__device__ inline void fill_linspace(Out *out, A start, A end, A step, int64 n) {
  const int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (i >= n) return;
  const A value = i < n / 2 ? start + step * (A)i : end - step * (A)(n - 1 - i);
  out[i] = convert<Out>(value);
}
