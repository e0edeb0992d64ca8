# SPDX-License-Identifier: Apache-2.0
"""Kernels that `benchmarks.virtual` runs, and what NumPy does instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ADD = """
extern "C" __global__ void add(const float4* a, const float4* b, float4* c, long long n) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) {
    const float4 x = a[i], y = b[i];
    c[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
  }
}"""

SCALAR_ADD = """
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}"""

BF16 = """
#include <cuda_bf16.h>
extern "C" __global__ void add(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                               int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = __float2bfloat16(__bfloat162float(a[i]) + __bfloat162float(b[i]));
}"""

PHILOX = """
extern "C" __global__ void uniform(float4* out, int n, unsigned long long seed) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  unsigned c[4] = {0, 0, (unsigned)t, 0}, k[2] = {(unsigned)seed, (unsigned)(seed >> 32)};
#pragma unroll
  for (int i = 0; i < 10; ++i) {
    const unsigned h0 = __umulhi(0xD2511F53u, c[0]), l0 = 0xD2511F53u * c[0];
    const unsigned h1 = __umulhi(0xCD9E8D57u, c[2]), l1 = 0xCD9E8D57u * c[2];
    c[0] = h1 ^ c[1] ^ k[0]; c[1] = l1; c[2] = h0 ^ c[3] ^ k[1]; c[3] = l0;
    k[0] += 0x9E3779B9u; k[1] += 0xBB67AE85u;
  }
  const float s = 1.f / (1 << 24);
  out[t] = make_float4((c[0] >> 8) * s, (c[1] >> 8) * s, (c[2] >> 8) * s, (c[3] >> 8) * s);
}"""

COLLATZ = """
extern "C" __global__ void steps(const int* x, int* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int count = 0;
  for (long long v = x[i]; v != 1; ++count) v = v & 1 ? 3 * v + 1 : v >> 1;
  y[i] = count;
}"""

SOFTMAX = """
__device__ float combine(float v, bool add) {
  for (int o = 16; o; o >>= 1) {
    const float w = __shfl_xor_sync(~0u, v, o);
    v = add ? v + w : fmaxf(v, w);
  }
  return v;
}
extern "C" __global__ void softmax(const float* x, float* y, int columns) {
  __shared__ float parts[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const float* row = x + (size_t)blockIdx.x * columns;
  float top = __int_as_float(0xff800000), sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) top = fmaxf(top, row[i]);
  top = combine(top, false);
  if (lane == 0) parts[warp] = top;
  __syncthreads();
  top = combine(lane < warps ? parts[lane] : __int_as_float(0xff800000), false);
  __syncthreads();
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - top);
  sum = combine(sum, true);
  if (lane == 0) parts[warp] = sum;
  __syncthreads();
  sum = combine(lane < warps ? parts[lane] : 0.0f, true);
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    y[(size_t)blockIdx.x * columns + i] = expf(row[i] - top) / sum;
}"""


def numpy_softmax(x: NDArray[Any]) -> NDArray[Any]:
    """Softmax of the rows."""
    e = np.exp(x - x.max(1, keepdims=True))
    e /= e.sum(1, keepdims=True)
    return e


def numpy_steps(x: NDArray[Any]) -> NDArray[Any]:
    """How many Collatz steps each number takes to 1, all numbers at once."""
    value = x.astype(np.int64)
    count = np.zeros(x.shape, np.int32)
    while (open_ := value != 1).any():
        step = np.where(value & 1, 3 * value + 1, value >> 1)
        value = np.where(open_, step, value)
        count += open_
    return count
