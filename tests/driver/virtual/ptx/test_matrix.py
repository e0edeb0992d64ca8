# SPDX-License-Identifier: Apache-2.0
"""``mma.sync`` and ``ldmatrix`` by the fragment layouts that CUDA documents."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

RNG = np.random.default_rng(8)

LANE = np.arange(32)
GROUP, PLACE = LANE >> 2, LANE & 3


def source(shape: str, types: str, words: tuple[int, int, int], result: str) -> str:
    """A kernel in which each lane brings the words of its fragments."""
    a, b, c = words
    register = {"f32": "f", "s32": "r", "f16": "r"}[result]
    total = {"f": "float", "r": "unsigned"}[register]
    outputs = ", ".join(f'"={register}"(d[{n}])' for n in range(c))
    inputs = ", ".join(
        [f'"r"(a[t * {a} + {n}])' for n in range(a)]
        + [f'"r"(b[t * {b} + {n}])' for n in range(b)]
        + [f'"{register}"(c[t * {c} + {n}])' for n in range(c)]
    )
    names = iter(range(99))
    group = lambda count: "{" + ", ".join(f"%{next(names)}" for _ in range(count)) + "}"  # noqa: E731
    text = ", ".join(group(count) for count in (c, a, b, c))
    return f"""
extern "C" __global__ void product(const unsigned* a, const unsigned* b, const {total}* c,
                                   {total}* out) {{
  const int t = threadIdx.x;
  {total} d[{c}];
  asm volatile("mma.sync.aligned.{shape}.row.col.{types} {text};" : {outputs} : {inputs});
  for (int n = 0; n < {c}; ++n) out[t * {c} + n] = d[n];
}}"""


def fragments_a(a: np.ndarray, per: int) -> np.ndarray:
    """Words of A: its element type is packed `per` to a word."""
    words = []
    for r in range(a.size // 32 // per):
        row = GROUP + 8 * (r & 1)
        columns = PLACE[:, None] * per + np.arange(per) + (r >> 1) * 4 * per
        words.append(np.ascontiguousarray(a[row[:, None], columns]).view(np.uint32)[:, 0])
    return np.stack(words, 1)


def fragments_b(b: np.ndarray, per: int) -> np.ndarray:
    words = []
    for r in range(b.size // 32 // per):
        rows = PLACE[:, None] * per + np.arange(per) + r * 4 * per
        words.append(np.ascontiguousarray(b[rows, GROUP[:, None]]).view(np.uint32)[:, 0])
    return np.stack(words, 1)


def fragments_c(c: np.ndarray) -> np.ndarray:
    index = np.arange(4)
    return c[GROUP[:, None] + 8 * (index >> 1), PLACE[:, None] * 2 + (index & 1)]


@pytest.mark.parametrize(
    ("shape", "types", "dtype", "depth"),
    [
        ("m16n8k16", "f32.f16.f16.f32", np.float16, 16),
        ("m16n8k8", "f32.f16.f16.f32", np.float16, 8),
        ("m16n8k16", "f32.bf16.bf16.f32", ml_dtypes.bfloat16, 16),
        ("m16n8k8", "f32.tf32.tf32.f32", np.float32, 8),
        ("m16n8k4", "f32.tf32.tf32.f32", np.float32, 4),
        ("m16n8k32", "s32.s8.s8.s32", np.int8, 32),
        ("m16n8k16", "s32.s8.s8.s32", np.int8, 16),
    ],
)
def test_products(cuda, shape, types, dtype, depth):
    integer = np.issubdtype(dtype, np.integer)
    a, b, c = (RNG.integers(-8, 8, size) for size in ((16, depth), (depth, 8), (16, 8)))
    per = 4 // np.dtype(dtype).itemsize
    words_a = fragments_a(a.astype(dtype), per)
    words_b = fragments_b(b.astype(dtype), per)
    sums = np.int32 if integer else np.float32
    words_c = np.ascontiguousarray(fragments_c(c.astype(sums)))
    out = np.zeros_like(words_c)
    counts = (words_a.shape[1], words_b.shape[1], 4)
    module = cuda(source(shape, types, counts, types.split(".")[0]))
    module.run("product", 1, 32, words_a, words_b, words_c, out)
    np.testing.assert_array_equal(out, fragments_c(a @ b + c))


def test_half_precision_sums(cuda):
    a, b, c = (RNG.standard_normal(s).astype(np.float16) for s in ((16, 16), (16, 8), (16, 8)))
    pairs = np.ascontiguousarray(fragments_c(c)).view(np.uint32)
    out = np.zeros_like(pairs)
    module = cuda(source("m16n8k16", "f16.f16.f16.f16", (4, 2, 2), "f16"))
    module.run("product", 1, 32, fragments_a(a, 2), fragments_b(b, 2), pairs, out)
    expected = a.astype(np.float64) @ b + c
    np.testing.assert_array_equal(
        out.view(np.float16).reshape(32, 4), fragments_c(expected.astype(np.float16))
    )


LOAD = """
extern "C" __global__ void load(const unsigned short* x, unsigned* out) {
  __shared__ __align__(16) unsigned short box[32 * 8];
  const int t = threadIdx.x;
  for (int n = 0; n < 8; ++n) box[t * 8 + n] = x[t * 8 + n];
  __syncwarp();
  const unsigned at = __cvta_generic_to_shared(box + t * 8);
  unsigned r[8];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[4]), "=r"(r[5]), "=r"(r[6]), "=r"(r[7]) : "r"(at));
  for (int n = 0; n < 8; ++n) out[t * 8 + n] = r[n];
}"""


def test_load_matrix(cuda):
    x = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    out = np.zeros((32, 8), np.uint32)
    cuda(LOAD).run("load", 1, 32, x.reshape(-1), out)
    halves = out.view(np.uint16).reshape(32, 2, 4, 2)
    for matrix in range(4):
        for n in range(2):
            np.testing.assert_array_equal(halves[:, 0, matrix, n], x[matrix, GROUP, PLACE * 2 + n])
            np.testing.assert_array_equal(halves[:, 1, matrix, n], x[matrix, PLACE * 2 + n, GROUP])


WMMA = """
#include <mma.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
using namespace nvcuda::wmma;
template <int M, int N, class T, class LayoutA, class LayoutB>
__device__ void tiles(const T* a, const T* b, float* c, int lda, int ldb) {
  fragment<matrix_a, M, N, 16, T, LayoutA> fa;
  fragment<matrix_b, M, N, 16, T, LayoutB> fb;
  fragment<accumulator, M, N, 16, float> fc;
  load_matrix_sync(fc, c, N, mem_row_major);
  load_matrix_sync(fa, a, lda);
  load_matrix_sync(fb, b, ldb);
  for (int i = 0; i < fc.num_elements; ++i) fc.x[i] *= 2.0f;
  mma_sync(fc, fa, fb, fc);
  store_matrix_sync(c, fc, N, mem_row_major);
}
extern "C" __global__ void square(const __half* a, const __half* b, float* c) {
  tiles<16, 16, __half, row_major, col_major>(a, b, c, 16, 16);
}
extern "C" __global__ void tall(const __half* a, const __half* b, float* c) {
  tiles<32, 8, __half, row_major, row_major>(a, b, c, 16, 8);
}
extern "C" __global__ void wide(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
  tiles<8, 32, __nv_bfloat16, col_major, row_major>(a, b, c, 8, 32);
}"""


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("square", (16, 16), np.float16),
        ("tall", (32, 8), np.float16),
        ("wide", (8, 32), ml_dtypes.bfloat16),
    ],
)
def test_tiles(cuda, name, shape, dtype):
    rows, columns = shape
    a = RNG.integers(-8, 8, (rows, 16)).astype(dtype)
    b = RNG.integers(-8, 8, (16, columns)).astype(dtype)
    c = RNG.integers(-8, 8, shape).astype(np.float32)
    expected = a.astype(np.float32) @ b.astype(np.float32) + 2 * c
    given_a = np.ascontiguousarray(a.T if name == "wide" else a)
    given_b = np.ascontiguousarray(b.T if name == "square" else b)
    cuda(WMMA).run(name, 1, 32, given_a, given_b, c)
    np.testing.assert_array_equal(c, expected)
