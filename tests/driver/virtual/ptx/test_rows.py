# SPDX-License-Identifier: Apache-2.0
"""Threads that run side by side give what threads one by one give, and fault where those do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.virtual.ptx.compiler import compile_ptx
from flambeau.driver.virtual.ptx.cfg import Graph
from flambeau.driver.virtual.ptx.parser import parse
from flambeau.driver.virtual.ptx.rows import RowPlan, plan_rows

AXPY = """
extern "C" __global__ void axpy(float a, const float* x, const float* y, float* z, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = a * x[i] + y[i];
}"""
AFFINE = """
extern "C" __global__ void affine(const short* x, int* y, int sx, int ox, int sy, int oy, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[sy * i + oy] = x[sx * i + ox] + (int)threadIdx.y;
}"""
FOUR = """
extern "C" __global__ void four(const float4* x, float4* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 v = x[i];
  v.x = sqrtf(v.x) * 3.f + 1.f / v.y; v.y = v.z * v.z - v.w; v.z = fmaxf(v.x, v.y) + v.w * v.x;
  v.w = fminf(v.x, v.z) * (v.y + 2.f) - v.x * v.z; v.x = v.x * v.y + v.z * v.w;
  v.y = v.y / (v.z + 5.f) + fabsf(v.w); v.z = v.x - v.y; v.w = v.w * v.w + v.y * v.z;
  y[i] = v;
}"""
WRAP = """
extern "C" __global__ void wrap(const int* x, int* y, unsigned start) {
  const unsigned i = start + threadIdx.x;
  y[threadIdx.x] = x[i % 64u];
  if (i < 16u) y[64 + threadIdx.x] = (int)i;
}"""
PLANE = """
extern "C" __global__ void plane(const int* x, int* y, int width) {
  const int c = threadIdx.x, r = threadIdx.y + blockDim.y * threadIdx.z;
  y[c * (blockDim.y * blockDim.z) + r] = 2 * x[r * width + c] + (c < 3 ? r : -r);
}"""


def plan_of(source: str) -> RowPlan | None:
    function = next(iter(parse(compile_ptx(source)).functions.values()))
    return plan_rows(function, Graph(function))


@pytest.mark.parametrize("source", [AXPY, AFFINE, FOUR, PLANE])
def test_these_kernels_are_linear(source):
    plan = plan_of(source)
    assert plan is not None
    assert plan.watched is not None
    assert plan.split == (source is FOUR)


@pytest.mark.parametrize(
    "body",
    [
        "y[x[threadIdx.x]] = 1;",
        "atomicAdd(&y[threadIdx.x], 1);",
        "if (x[threadIdx.x]) y[threadIdx.x] = 1;",
        "for (int i = 0; i < x[0]; ++i) y[i + threadIdx.x] = i * i;",
        "y[threadIdx.x] = clock();",
        "y[threadIdx.x] = *(volatile const int*)x;",
    ],
)
def test_these_kernels_run_thread_by_thread(body):
    source = 'extern "C" __global__ void k(const int* __restrict__ x, int* y) {' + body + "}"
    assert plan_of(source) is None


@pytest.mark.parametrize("block", [7, 8, 64, 100, 256])
@pytest.mark.parametrize("n", [1, 255, 1000, 1024])
def test_axpy(cuda, block, n):
    rng = np.random.default_rng(n)
    x, y = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    z = np.full(n + 3, 9, np.float32)
    grid = -(-n // block)
    cuda(AXPY).run("axpy", grid, block, np.float32(2), x, y, z[:n], np.int32(n), workers=2)
    np.testing.assert_array_equal(z[:n], np.float32(2) * x + y)
    assert (z[n:] == 9).all()


def test_in_place(cuda):
    x = np.arange(512, dtype=np.float32)
    cuda(AXPY).run("axpy", 2, 256, np.float32(3), x, x, x, np.int32(512))
    np.testing.assert_array_equal(x, 4 * np.arange(512, dtype=np.float32))


@settings(max_examples=60, deadline=None)
@given(
    sx=st.integers(-3, 3),
    ox=st.integers(-4, 400),
    sy=st.integers(-3, 4),
    oy=st.integers(-4, 500),
    n=st.integers(1, 130),
)
def test_strides_and_bounds(cuda, sx, ox, sy, oy, n):
    x = np.arange(300, dtype=np.int16)
    y = np.full(400, -1, np.int32)
    at = np.arange(n)
    read, written = sx * at + ox, sy * at + oy
    numbers = [np.int32(v) for v in (sx, ox, sy, oy, n)]
    outcome = cuda(AFFINE).launch("affine", 3, 50, x, y, *numbers)
    bad = (read < 0) | (read >= 300) | (written < 0) | (written >= 400)
    if not bad.any():
        assert outcome.status == 0
        expected = np.full(400, -1, np.int32)
        expected[written] = x[read]
        if sy:
            np.testing.assert_array_equal(y, expected)
        return
    first = int(bad.argmax())
    assert outcome.status == 700
    assert outcome.block[0] * 50 + outcome.thread[0] == first
    if 0 <= read[first] < 300:
        assert (outcome.access, outcome.address) == ("write", y.ctypes.data + 4 * written[first])
    else:
        assert (outcome.access, outcome.address) == ("read", x.ctypes.data + 2 * read[first])


def test_elements_of_vectors(cuda):
    n = 100
    x = np.random.default_rng(4).uniform(0.5, 4, (n, 4)).astype(np.float32)
    y, single = np.zeros_like(x), np.zeros_like(x)
    cuda(FOUR).run("four", 1, 128, x, y, np.int32(n))  # a row with an exit: thread by thread
    for start in range(0, 96, 8):
        part = slice(start, start + 8)
        cuda(FOUR).run("four", 1, 8, x[part], single[part], np.int32(8))
        cuda(FOUR).run("four", 2, 8, x[:16], np.zeros_like(x[:16]), np.int32(16))
    np.testing.assert_array_equal(single[:96], y[:96])
    whole = np.zeros_like(x)
    cuda(FOUR).run("four", 4, 24, x[:96], whole[:96], np.int32(96))
    np.testing.assert_array_equal(whole[:96], y[:96])


@pytest.mark.parametrize("start", [0, 2**32 - 30, 2**31 - 30, 2**32 - 1])
def test_an_index_that_wraps(cuda, start):
    x = np.arange(64, dtype=np.int32) * 10
    y = np.full(128, -7, np.int32)
    cuda(WRAP).run("wrap", 1, 64, x, y, np.uint32(start))
    i = (start + np.arange(64)) % 2**32
    np.testing.assert_array_equal(y[:64], x[i % 64])
    np.testing.assert_array_equal(y[64:], np.where(i < 16, i, -7))


def test_planes_of_threads(cuda):
    x = np.arange(24 * 9, dtype=np.int32).reshape(24, 9)
    y = np.zeros((9, 24), np.int32)
    cuda(PLANE).run("plane", 1, (9, 4, 6), x, y, np.int32(9))
    r, c = np.indices((24, 9))
    np.testing.assert_array_equal(y.T, 2 * x + np.where(c < 3, r, -r))


def test_a_misaligned_start_faults_at_its_thread(cuda):
    x = np.zeros(1025, np.uint8)[1:].view(np.uint8)
    n = 256
    y = np.zeros(n, np.float32)
    views = np.frombuffer(x.data, np.uint8)
    raw = np.uint64(views.ctypes.data)
    outcome = cuda(AXPY).launch(
        "axpy", 1, 256, np.float32(1), raw, y, y, np.int32(n), reachable=(views,)
    )
    assert (outcome.status, outcome.thread) == (716, (0, 0, 0))


TWICE = """
extern "C" __global__ void twice(const float4* x, float4* y, const float* s, float* t, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 a = x[i];
  a.x = a.x * 3.f + a.y; a.y = a.y * a.z - a.w; a.z = a.z * a.w + a.x; a.w = a.w - a.x * 0.5f;
  a.x += a.w * 0.25f; a.y += a.z * 0.125f; a.z -= a.x * 0.5f; a.w += a.y * 0.75f;
  y[i] = a;
  t[i] = s[i] + 1.f;
  float4 b = x[i];
  b.x = b.x - b.w; b.y = b.y * 0.5f + b.x; b.z = b.z + b.y; b.w = b.w * b.x - b.z;
  b.x *= 0.5f; b.y -= b.x; b.z += b.w * 0.25f; b.w -= b.y; b.x += b.z; b.y += b.x * 0.125f;
  b.z += b.x * 0.25f; b.w += b.z; b.x -= b.y * 0.5f; b.y *= b.w; b.z -= b.y; b.w *= 0.5f;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    b.x = sqrtf(b.x * b.x + k); b.y = b.y * 0.25f + b.x; b.z = fmaxf(b.z, b.y) * 0.5f; b.w += b.z;
  }
  b.x += s[i] * 2.f;
  y[i] = b;
}"""


@pytest.mark.parametrize("same", [True, False])
def test_a_thread_sees_what_it_has_stored(cuda, same):
    assert plan_of(TWICE).split
    rng = np.random.default_rng(8)
    n = 64
    x = rng.uniform(0.5, 1, (n, 4)).astype(np.float32)
    s = rng.uniform(0.5, 1, n).astype(np.float32)

    def run(block):
        a, c = x.copy(), s.copy()
        b, d = (a, c) if same else (np.zeros_like(a), np.zeros_like(c))
        cuda(TWICE).run("twice", n // block, block, a, b, c, d, np.int32(n))
        return b, d

    one_by_one, in_rows = run(1), run(32)
    np.testing.assert_array_equal(in_rows[0], one_by_one[0])
    np.testing.assert_array_equal(in_rows[1], one_by_one[1])
