# SPDX-License-Identifier: Apache-2.0
"""Calls through pointers and virtual functions."""

from __future__ import annotations

import numpy as np
import pytest

from driver.virtual.ptx.compiler import compile_ptx
from driver.virtual.ptx.harness import Module
from flambeau.driver.errors import UnsupportedPtxError

POINTERS = """
typedef int (*Binary)(int, int);
__device__ __noinline__ int plus(int a, int b) { return a + b; }
__device__ __noinline__ int times(int a, int b) { return a * b; }
__device__ __noinline__ int deep(int a, int b) {
  int cells[8];
  for (int k = 0; k < 8; ++k) cells[k] = a + k * b;
  return cells[b & 7];
}
__device__ __noinline__ float halve(float a) { return a / 2; }
__device__ Binary table[4] = {plus, times, deep, 0};
__device__ float (*other)(float) = halve;
extern "C" __global__ void apply(const int* which, int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = table[which[i]](i, 3) + (int)other(4.f);
  __syncthreads();
}
extern "C" __global__ void wild(unsigned long long target, int* out) {
  *out = ((Binary)target)(1, 2);
}"""

VIRTUAL = """
struct Shape {
  __device__ virtual float area() const = 0;
  __device__ virtual float scaled(float by) const { return area() * by; }
};
struct Square : Shape {
  float side;
  __device__ Square(float s) : side(s) {}
  __device__ float area() const override { return side * side; }
};
struct Disc : Shape {
  float radius;
  __device__ Disc(float r) : radius(r) {}
  __device__ float area() const override { return 3 * radius * radius; }
  __device__ float scaled(float by) const override { return -area() * by; }
};
extern "C" __global__ void areas(float* out) {
  const float size = threadIdx.x;
  Square square(size);
  Disc disc(size);
  const Shape* shape = threadIdx.x & 1 ? (const Shape*)&square : &disc;
  out[threadIdx.x] = shape->area() + shape->scaled(10);
}"""


def test_pointers_in_a_table(cuda):
    which = np.array([0, 1, 2, 1, 0, 2, 2] * 10, np.int32)
    out = np.zeros_like(which)
    cuda(POINTERS).run("apply", 2, 35, which, out, np.int32(which.size), workers=2)
    i = np.arange(which.size)
    np.testing.assert_array_equal(out, np.choose(which, [i + 3, i * 3, i + 9]) + 2)


def test_virtual_functions(cuda):
    out = np.zeros(32, np.float32)
    cuda(VIRTUAL).run("areas", 1, 32, out)
    size = np.arange(32, dtype=np.float32)
    square, disc = size * size, 3 * size * size
    np.testing.assert_array_equal(out, np.where(size % 2, square * 11, disc * -9))


@pytest.mark.parametrize(("target", "said"), [(0, "null function pointer"), (12345, "no function")])
def test_a_wild_pointer_is_a_fault(cuda, target, said):
    out = np.zeros(1, np.int32)
    outcome = cuda(POINTERS).launch("wild", 1, 1, np.uint64(target), out)
    assert (outcome.status, outcome.access, outcome.address) == (718, "call", target)
    assert said in outcome.message


def test_barriers_behind_pointers_are_refused():
    source = """
__device__ __noinline__ void wait(int* x) { __syncthreads(); *x = 1; }
__device__ void (*pointer)(int*) = wait;
extern "C" __global__ void k(int* x) { pointer(x); }"""
    with pytest.raises(UnsupportedPtxError, match=r"not supported: call.*barriers in .*wait"):
        Module(compile_ptx(source))
