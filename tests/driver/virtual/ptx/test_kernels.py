# SPDX-License-Identifier: Apache-2.0
"""Kernels as people write them, compiled by NVRTC, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

RNG = np.random.default_rng(0)

ADD = """
extern "C" __global__ void add(const float* __restrict__ a, const float* __restrict__ b, float* c,
                               long long n) {
  const long long step = (long long)gridDim.x * blockDim.x;
  const long long quarter = n / 4;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < quarter; i += step) {
    const float4 x = ((const float4*)a)[i], y = ((const float4*)b)[i];
    ((float4*)c)[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
  }
  const long long j = quarter * 4 + threadIdx.x;
  if (blockIdx.x == 0 && j < n) c[j] = a[j] + b[j];
}"""


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("n", [1, 3, 1000, 65_539])
def test_vectorised_add(cuda, n, workers):
    a, b = (RNG.standard_normal(n).astype(np.float32) for _ in range(2))
    c = np.zeros_like(a)
    cuda(ADD).run("add", min(-(-n // 1024), 64), 256, a, b, c, np.int64(n), workers=workers)
    np.testing.assert_array_equal(c, a + b)


STRIDED = """
struct Layout { long long size[4], a[4], b[4], out[4]; };
extern "C" __global__ void add(const float* a, const float* b, float* out, Layout l, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  long long pa = 0, pb = 0, po = 0;
  for (int d = 3; d >= 0; --d) {
    const long long k = i % l.size[d];
    i /= l.size[d];
    pa += k * l.a[d]; pb += k * l.b[d]; po += k * l.out[d];
  }
  out[po] = a[pa] + b[pb];
}"""


def test_strided_add(cuda):
    a = RNG.standard_normal((5, 4, 7, 6)).astype(np.float32).transpose(1, 0, 3, 2)
    b = RNG.standard_normal((6, 1)).astype(np.float32)
    out = np.zeros(a.shape, np.float32)
    wide = np.broadcast_to(b, a.shape)
    strides = [s // 4 for array in (a, wide, out) for s in array.strides]
    layout = np.array([*a.shape, *strides], np.int64).tobytes()
    cuda(STRIDED).run("add", 7, 128, a, b, out, layout, np.int64(a.size))
    np.testing.assert_array_equal(out, a + b)


HALVES = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void pairs(const __half2* a, const __half2* b, __half2* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = __hadd2(__hmul2(a[i], b[i]), __hmax2(a[i], b[i]));
}
extern "C" __global__ void scale(const __nv_bfloat16* a, __nv_bfloat16* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = __float2bfloat16(__bfloat162float(a[i]) * 1.7f) + a[i];
}"""


def test_half_precision(cuda):
    a, b = (RNG.standard_normal(2000).astype(np.float16) for _ in range(2))
    c = np.zeros_like(a)
    cuda(HALVES).run("pairs", 4, 256, a, b, c, np.int32(1000))
    np.testing.assert_array_equal(c, a * b + np.maximum(a, b))
    x = RNG.standard_normal(1000).astype(ml_dtypes.bfloat16)
    y = np.zeros_like(x)
    cuda(HALVES).run("scale", 4, 256, x, y, np.int32(1000))
    scaled = (x.astype(np.float32) * np.float32(1.7)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(y, scaled + x)


SOFTMAX = """
__device__ float combine(float v, bool sum) {
  for (int o = 16; o; o >>= 1) {
    const float other = __shfl_xor_sync(0xffffffffu, v, o);
    v = sum ? v + other : fmaxf(v, other);
  }
  return v;
}
extern "C" __global__ void softmax(const float* x, float* y, int columns) {
  __shared__ float parts[32];
  const float* row = x + (size_t)blockIdx.x * columns;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  float top = -INFINITY, sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) top = fmaxf(top, row[i]);
  top = combine(top, false);
  if (lane == 0) parts[warp] = top;
  __syncthreads();
  top = combine(lane < warps ? parts[lane] : -INFINITY, false);
  __syncthreads();
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - top);
  sum = combine(sum, true);
  if (lane == 0) parts[warp] = sum;
  __syncthreads();
  sum = combine(lane < warps ? parts[lane] : 0.0f, true);
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    y[(size_t)blockIdx.x * columns + i] = expf(row[i] - top) / sum;
}""".replace("INFINITY", "__int_as_float(0x7f800000)")


@pytest.mark.parametrize("workers", [1, 2])
def test_softmax(cuda, workers):
    x = RNG.standard_normal((16, 1000)).astype(np.float32) * 3
    y = np.zeros_like(x)
    cuda(SOFTMAX).run("softmax", 16, 256, x, y, np.int32(1000), workers=workers)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=2e-6)


SUM = """
extern "C" __global__ void sum(const float* x, double* out, unsigned* tickets, int n) {
  __shared__ double parts[8];
  double t = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) t += x[i];
  for (int o = 16; o; o >>= 1) t += __shfl_down_sync(~0u, t, o);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = t;
  __syncthreads();
  if (threadIdx.x < 8) {
    t = parts[threadIdx.x];
    for (int o = 4; o; o >>= 1) t += __shfl_down_sync(0xffu, t, o);
    if (threadIdx.x == 0) { atomicAdd(out, t); atomicInc(tickets, 1000u); }
  }
}"""


@pytest.mark.parametrize("workers", [1, 2])
def test_sum_with_atomics(cuda, workers):
    x = RNG.standard_normal(100_000).astype(np.float32)
    out, tickets = np.zeros(1), np.zeros(1, np.uint32)
    cuda(SUM).run("sum", 20, 256, x, out, tickets, np.int32(x.size), workers=workers)
    np.testing.assert_allclose(out[0], x.sum(dtype=np.float64), rtol=1e-12)
    assert tickets[0] == 20


PHILOX = """
extern "C" __global__ void philox(uint4* out, int n, unsigned long long seed) {
  const unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  unsigned c[4] = {0, 0, t, 0}, k[2] = {(unsigned)seed, (unsigned)(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const unsigned h0 = __umulhi(0xD2511F53u, c[0]), l0 = 0xD2511F53u * c[0];
    const unsigned h1 = __umulhi(0xCD9E8D57u, c[2]), l1 = 0xCD9E8D57u * c[2];
    c[0] = h1 ^ c[1] ^ k[0]; c[1] = l1; c[2] = h0 ^ c[3] ^ k[1]; c[3] = l0;
    k[0] += 0x9E3779B9u; k[1] += 0xBB67AE85u;
  }
  out[t] = make_uint4(c[0], c[1], c[2], c[3]);
}"""


def philox(counter: np.ndarray, seed: int) -> np.ndarray:
    low = np.uint64(0xFFFFFFFF)
    zero = np.zeros_like(counter)
    c = [zero, zero, counter, zero]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0),
            p1 & low,
            (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1),
            p0 & low,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, 1).astype(np.uint32)


def test_philox(cuda):
    n, seed = 1000, 0x123456789ABCDEF0
    out = np.zeros((n, 4), np.uint32)
    cuda(PHILOX).run("philox", 4, 256, out, np.int32(n), np.uint64(seed))
    np.testing.assert_array_equal(out, philox(np.arange(n, dtype=np.uint64), seed))


MATMUL = """
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float ta[16][16], tb[16][17];
  const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  float sum = 0;
  for (int at = 0; at < k; at += 16) {
    ta[y][x] = row < m && at + x < k ? a[row * k + at + x] : 0.f;
    tb[y][x] = at + y < k && col < n ? b[(at + y) * n + col] : 0.f;
    __syncthreads();
    for (int j = 0; j < 16; ++j) sum = fmaf(ta[y][j], tb[j][x], sum);
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = sum;
}"""


@pytest.mark.parametrize("workers", [1, 2])
def test_tiled_matmul(cuda, workers):
    m, n, k = 70, 50, 33
    a = RNG.standard_normal((m, k)).astype(np.float32)
    b = RNG.standard_normal((k, n)).astype(np.float32)
    c = np.zeros((m, n), np.float32)
    sizes = [np.int32(v) for v in (m, n, k)]
    cuda(MATMUL).run("matmul", (4, 5), (16, 16), a, b, c, *sizes, workers=workers)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-5)


DIVERGENT = """
extern "C" __global__ void steps(const int* x, int* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int count = 0;
  for (unsigned long long v = x[i]; v != 1 && count < 300; ++count) v = v & 1 ? 3 * v + 1 : v >> 1;
  switch (x[i] % 7) {
    case 0: y[i] = count * 3; break;
    case 1: y[i] = count ^ x[i]; break;
    case 2: y[i] = __popc(x[i]); break;
    case 3: y[i] = __clz(x[i]); break;
    case 4: y[i] = __ffs(x[i]); break;
    case 5: y[i] = __brev(x[i]); break;
    default: y[i] = -count;
  }
}"""


def steps(value: int) -> int:
    count, v = 0, value
    while v != 1 and count < 300:
        v, count = (3 * v + 1 if v & 1 else v >> 1), count + 1
    results = (
        count * 3,
        count ^ value,
        value.bit_count(),
        32 - value.bit_length(),
        (value & -value).bit_length(),
        int(f"{value:032b}"[::-1], 2),
        -count,
    )
    return results[value % 7]


def test_divergent_loops(cuda):
    x = np.arange(1, 1500, dtype=np.int32)
    y = np.zeros_like(x)
    cuda(DIVERGENT).run("steps", 6, 256, x, y, np.int32(x.size))
    expected = np.array([steps(v) for v in x.tolist()], np.int64).astype(np.uint32).view(np.int32)
    np.testing.assert_array_equal(y, expected)


DOUBLE = """
extern "C" __global__ void functions(const double* x, double* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double* o = y + i * 8;
  const double v = x[i];
  o[0] = exp(v); o[1] = log(v); o[2] = sin(v); o[3] = pow(v, 1.37); o[4] = erf(v);
  o[5] = tanh(v); o[6] = 1.0 / v; o[7] = cbrt(v);
}"""


def test_double_precision_functions(cuda):
    from scipy import special

    x = np.concatenate([RNG.uniform(1e-3, 50, 300), [1e-300, 0.5, 700.0, 1e5, 3e9]])
    y = np.zeros((x.size, 8))
    cuda(DOUBLE).run("functions", 2, 256, x, y, np.int32(x.size))
    with np.errstate(over="ignore"):
        parts = (np.exp(x), np.log(x), np.sin(x), x**1.37, special.erf(x), np.tanh(x))
        expected = np.stack((*parts, 1 / x, np.cbrt(x)), 1)
    np.testing.assert_allclose(y, expected, rtol=2e-15, atol=1e-300)


SINGLE = """
extern "C" __global__ void functions(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float* o = y + i * 8;
  const float v = x[i];
  o[0] = expf(v); o[1] = logf(v); o[2] = sinf(v); o[3] = powf(v, 1.37f); o[4] = erff(v);
  o[5] = tanhf(v); o[6] = 1.0f / v; o[7] = fmodf(v, 0.7f);
}"""


def test_single_precision_functions(cuda):
    from scipy import special

    x = np.concatenate([RNG.uniform(1e-3, 50, 500), [1e-30, 80.0, 700.0]]).astype(np.float32)
    y = np.zeros((x.size, 8), np.float32)
    cuda(SINGLE).run("functions", 2, 256, x, y, np.int32(x.size))
    wide = x.astype(np.float64)
    expected = [
        np.exp(wide),
        np.log(wide),
        np.sin(wide),
        wide ** np.float64(np.float32(1.37)),
        special.erf(wide),
        np.tanh(wide),
        1 / wide,
        np.fmod(wide, np.float64(np.float32(0.7))),
    ]
    with np.errstate(over="ignore"):
        narrow = np.stack(expected, 1).astype(np.float32)
    np.testing.assert_allclose(y, narrow, rtol=5e-7, atol=1e-37)


LOCAL = """
__device__ __noinline__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
struct Big { int v[8]; };
__device__ __noinline__ Big twist(Big b, int by) {
  Big r;
  for (int i = 0; i < 8; ++i) r.v[i] = b.v[(i + by) & 7];
  return r;
}
extern "C" __global__ void local(const int* x, int* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int table[16];
  for (int k = 0; k < 16; ++k) table[k] = x[i] * k;
  Big b;
  for (int k = 0; k < 8; ++k) b.v[k] = table[k + (x[i] & 3)];
  y[i] = table[(x[i] + i) & 15] + fibonacci(x[i] & 7) + twist(b, x[i]).v[1];
}"""


def test_local_arrays_recursion_and_structures(cuda):
    x = np.arange(100, dtype=np.int32)
    y = np.zeros_like(x)
    cuda(LOCAL).run("local", 1, 128, x, y, np.int32(100))
    fibonacci = [0, 1, 1, 2, 3, 5, 8, 13]
    expected = [
        v * ((v + i) & 15) + fibonacci[v & 7] + v * (((1 + v) & 7) + (v & 3))
        for i, v in enumerate(x.tolist())
    ]
    np.testing.assert_array_equal(y, expected)


GLOBALS = """
__device__ int counter = 5;
__constant__ float table[4] = {1.5f, -2.0f, 4.0f, 0.25f};
__device__ float buffer[4];
__device__ float* pointer = buffer + 1;
extern "C" __global__ void variables(float* out) {
  out[threadIdx.x] = table[threadIdx.x] * counter;
  if (threadIdx.x == 3) { *pointer = 7.0f; out[4] = buffer[1]; atomicAdd(&counter, 1); }
}"""


def test_module_variables(cuda):
    module = cuda(GLOBALS)
    out = np.zeros(5, np.float32)
    module.run("variables", 1, 4, out)
    np.testing.assert_array_equal(out, np.array([7.5, -10, 20, 1.25, 7], np.float32))
    module.run("variables", 1, 4, out)
    np.testing.assert_array_equal(out[:4], np.array([9, -12, 24, 1.5], np.float32))
    assert module.loaded.globals["table"][1] == 16


HISTOGRAM = """
extern "C" __global__ void histogram(const unsigned char* x, unsigned* bins, int n) {
  extern __shared__ unsigned local[];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&local[x[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}
extern "C" __global__ void largest(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int old = *(volatile int*)out, seen;
  do {
    seen = old;
    if (__int_as_float(seen) >= x[i]) break;
    old = atomicCAS((int*)out, seen, __float_as_int(x[i]));
  } while (seen != old);
}"""


@pytest.mark.parametrize("workers", [1, 2])
def test_dynamic_shared_memory_and_compare_and_swap(cuda, workers):
    x = RNG.integers(0, 256, 10_000).astype(np.uint8)
    bins = np.zeros(256, np.uint32)
    module = cuda(HISTOGRAM)
    module.run("histogram", 8, 128, x, bins, np.int32(x.size), shared=1024, workers=workers)
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=256))
    values = RNG.standard_normal(5000).astype(np.float32)
    out = np.full(1, -np.inf, np.float32)
    module.run("largest", 20, 256, values, out, np.int32(5000), workers=workers)
    assert out[0] == values.max()


ATOMICS = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void halves(__half* h, __nv_bfloat162* b) {
  atomicAdd(h, __float2half(0.5f));
  atomicAdd(b, __floats2bfloat162_rn(1.0f, -2.0f));
}
extern "C" __global__ void integers(int* s, unsigned* u, unsigned long long* l, double* d) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  atomicMin(s, -t); atomicMax(s + 1, t); atomicExch(s + 2, 7); atomicSub(s + 3, 2);
  atomicAnd(u, ~(1u << t % 32)); atomicOr(u + 1, 1u << t % 32); atomicXor(u + 2, t);
  atomicInc(u + 3, 9u); atomicDec(u + 4, 9u);
  atomicAdd(l, 1ull << 40); atomicMax(l + 1, (unsigned long long)t << 35);
  atomicAdd(d, 0.25);
}"""


@pytest.mark.parametrize("workers", [1, 2])
def test_atomics(cuda, workers):
    h, b = np.zeros(1, np.float16), np.zeros(2, ml_dtypes.bfloat16)
    cuda(ATOMICS).run("halves", 2, 50, h, b, workers=workers)
    assert h[0] == 50
    np.testing.assert_array_equal(b.astype(np.float32), [100, -200])
    s, d = np.zeros(4, np.int32), np.zeros(1)
    u, wide = np.array([2**32 - 1, 0, 0, 0, 0], np.uint32), np.zeros(2, np.uint64)
    cuda(ATOMICS).run("integers", 40, 64, s, u, wide, d, workers=workers)
    n = 40 * 64
    np.testing.assert_array_equal(s, [1 - n, n - 1, 7, -2 * n])
    xor = np.bitwise_xor.reduce(np.arange(n))
    np.testing.assert_array_equal(u, [0, 2**32 - 1, xor, n % 10, -n % 10])
    np.testing.assert_array_equal(wide, [n << 40, (n - 1) << 35])
    assert d[0] == n / 4
