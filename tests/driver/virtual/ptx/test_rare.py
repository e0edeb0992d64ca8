# SPDX-License-Identifier: Apache-2.0
"""Instructions that compilers seldom write, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.virtual.ptx.harness import Module, apply
from flambeau.driver.errors import UnsupportedPtxError

WORDS = st.integers(0, 2**32 - 1)
BYTES = {
    "f4e": lambda k, s: s + k,
    "b4e": lambda k, s: (s - k) % 8,
    "rc8": lambda _k, s: s,
    "ecl": max,
    "ecr": min,
    "rc16": lambda k, s: 2 * (s & 1) + (k & 1),
}


def u32(*values: int) -> list[np.ndarray]:
    return [np.array([v], np.uint32) for v in values]


@pytest.mark.parametrize("mode", BYTES)
@given(a=WORDS, b=WORDS, selector=WORDS)
@settings(max_examples=20, deadline=None)
def test_permutations_by_mode(mode, a, b, selector):
    (result,) = apply(f"prmt.b32.{mode} %d, %a, %b, %c;", np.uint32, *u32(a, b, selector))
    both = (a | b << 32).to_bytes(8, "little")
    expected = bytes(both[BYTES[mode](k, selector & 3)] for k in range(4))
    assert int(result) == int.from_bytes(expected, "little")


def nth_set(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if mask >> base & 1 else 2**32 - 1
    step = 1 if offset > 0 else -1
    places = [p for p in range(base, 32 if step > 0 else -1, step) if mask >> p & 1]
    return places[abs(offset) - 1] if abs(offset) <= len(places) else 2**32 - 1


@given(mask=WORDS, base=st.integers(0, 31), offset=st.integers(-33, 33))
@settings(max_examples=60, deadline=None)
def test_the_nth_set_bit(mask, base, offset):
    (result,) = apply("fns.b32 %d, %a, %b, %c;", np.uint32, *u32(mask, base, offset % 2**32))
    assert int(result) == nth_set(mask, base, offset)


@pytest.mark.parametrize(
    ("op", "kind", "function"),
    [
        ("add.u16x2", np.uint16, np.add),
        ("min.s16x2", np.int16, np.minimum),
        ("max.s16x2", np.int16, np.maximum),
        ("min.u16x2", np.uint16, np.minimum),
        ("max.u16x2", np.uint16, np.maximum),
        ("max.relu.s16x2", np.int16, lambda a, b: np.maximum(np.maximum(a, b), 0)),
    ],
)
@given(a=WORDS, b=WORDS)
@settings(max_examples=20, deadline=None)
def test_pairs_of_half_words(op, kind, function, a, b):
    x, y = u32(a, b)
    result = apply(f"{op} %d, %a, %b;", np.uint32, x, y)
    np.testing.assert_array_equal(result.view(kind), function(x.view(kind), y.view(kind)))


@given(
    a=st.integers(-(2**31), 2**31 - 1),
    b=st.integers(-(2**31), 2**31 - 1),
    c=st.integers(-(2**31), 2**31 - 1),
)
@settings(max_examples=30, deadline=None)
def test_products_of_24_bits_that_saturate(a, b, c):
    x, y, z = (np.array([v], np.int32) for v in (a, b, c))
    (result,) = apply("mad24.hi.sat.s32 %d, %a, %b, %c;", np.int32, x, y, z)
    low = [((v + 2**23) % 2**24) - 2**23 for v in (a, b)]
    total = (((low[0] * low[1]) >> 16) + 2**31) % 2**32 - 2**31 + c
    assert int(result) == min(max(total, -(2**31)), 2**31 - 1)


def test_hints_do_nothing():
    body = """
    { .reg .b64 %h; createpolicy.fractional.L2::evict_last.b64 %h, 1.0;
      griddepcontrol.wait; fence.proxy.async; pmevent 3;
      discard.global.L2 [%p_a], 128; applypriority.global.L2::evict_normal [%p_a], 128;
      ld.global.L2::cache_hint.b32 %d, [%p_a], %h; griddepcontrol.launch_dependents; }"""
    x = np.arange(5, dtype=np.uint32)
    np.testing.assert_array_equal(apply(body, np.uint32, x), x)


def test_sums_of_vectors(cuda):
    source = """
extern "C" __global__ void sums(float* x, unsigned* h) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %1, %2};"
               :: "l"(x), "f"(1.f), "f"(0.5f) : "memory");
  float a, b;
  asm volatile("atom.global.add.v2.f32 {%0, %1}, [%2], {%3, %3};"
               : "=f"(a), "=f"(b) : "l"(x + 4), "f"(2.f) : "memory");
  asm volatile("red.global.add.noftz.v2.f16x2 [%0], {%1, %1};" :: "l"(h), "r"(0x3c003c00u));
}"""
    x, h = np.zeros(6, np.float32), np.zeros(4, np.float16)
    cuda(source).run("sums", 3, 20, x, h, workers=2)
    np.testing.assert_array_equal(x, [60, 30, 60, 30, 120, 120])
    np.testing.assert_array_equal(h, [60, 60, 60, 60])


def test_extremes_of_vectors_of_halves(cuda):
    source = """
extern "C" __global__ void extremes(unsigned short* h, unsigned short* b) {
  const unsigned short x = 0x3c00 + 16 * threadIdx.x, y = 0xbc00 + 16 * threadIdx.x, nan = 0x7fff;
  asm volatile("red.global.max.noftz.v4.f16 [%0], {%1, %2, %3, %1};"
               :: "l"(h), "h"(x), "h"(y), "h"(nan) : "memory");
  unsigned old0, old1;
  const unsigned both = x | (unsigned)y << 16;
  asm volatile("atom.global.min.noftz.v2.bf16x2 {%0, %1}, [%2], {%3, %3};"
               : "=r"(old0), "=r"(old1) : "l"(b), "r"(both) : "memory");
}"""
    h, b = np.zeros(4, np.uint16), np.zeros(4, np.uint16)
    cuda(source, "--gpu-architecture=compute_90").run("extremes", 2, 20, h, b, workers=2)
    np.testing.assert_array_equal(h, [0x3C00 + 16 * 19, 0, 0, 0x3C00 + 16 * 19])
    np.testing.assert_array_equal(b, [0, 0xBC00 + 16 * 19] * 2)


ELECT = """
extern "C" __global__ void elect(int* out) {
  unsigned leader, chosen;
  const unsigned mask = threadIdx.x < 8 ? 0xf0u | 0xfu : ~0xffu;
  asm volatile("{ .reg .pred p; elect.sync %0|p, %2; selp.u32 %1, 1, 0, p; }"
               : "=r"(leader), "=r"(chosen) : "r"(mask));
  out[threadIdx.x] = 2 * leader + chosen;
}"""


def test_one_lane_is_elected(cuda):
    out = np.zeros(32, np.int32)
    cuda(ELECT).run("elect", 1, 32, out)
    lanes = np.arange(32)
    leader = np.where(lanes < 8, 0, 8)
    np.testing.assert_array_equal(out, 2 * leader + (lanes == leader))


MBARRIER = """
__device__ unsigned long long arrive(unsigned at) {
  unsigned long long state;
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(at) : "memory");
  return state;
}
__device__ bool test(unsigned at, unsigned long long state) {
  unsigned done;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(at), "l"(state) : "memory");
  return done;
}
__device__ bool parity(unsigned at, unsigned phase) {
  unsigned done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
               " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at), "r"(phase) : "memory");
  return done;
}
extern "C" __global__ void rounds(int* out, int n) {
  __shared__ unsigned long long barrier;
  __shared__ int cells[256];
  const unsigned at = (unsigned)__cvta_generic_to_shared(&barrier);
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at), "r"(blockDim.x));
  __syncthreads();
  int value = threadIdx.x;
  for (int i = 0; i < n; ++i) {
    cells[threadIdx.x] = value;
    unsigned long long state = arrive(at);
    while (!test(at, state)) {}
    value = cells[(threadIdx.x + 1) % blockDim.x] + 1;
    arrive(at);
    while (!parity(at, 1)) {}
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
extern "C" __global__ void bytes(unsigned* out) {
  __shared__ unsigned long long barrier;
  const unsigned at = (unsigned)__cvta_generic_to_shared(&barrier);
  asm volatile("mbarrier.init.shared.b64 [%0], 2;" :: "r"(at));
  out[0] = parity(at, 1);
  asm volatile("{ .reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], 16; }"
               :: "r"(at));
  const unsigned long long state = arrive(at);
  unsigned left;
  asm volatile("{ .reg .b64 t; mbarrier.pending_count.b64 %0, %1; }" : "=r"(left) : "l"(state));
  out[1] = left;
  out[2] = test(at, state);
  asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 16;" :: "r"(at));
  out[3] = test(at, state);
  out[4] = parity(at, 0);
  asm volatile("mbarrier.inval.shared.b64 [%0];" :: "r"(at));
}"""


@pytest.mark.parametrize("workers", [1, 2])
def test_barriers_in_shared_memory(cuda, workers):
    out = np.zeros((3, 96), np.int32)
    cuda(MBARRIER, "--gpu-architecture=compute_90").run(
        "rounds", 3, 96, out, np.int32(7), workers=workers
    )
    np.testing.assert_array_equal(out, np.tile((np.arange(96) + 7) % 96 + 7, (3, 1)))


COPIES = """
extern "C" __global__ void copies(const int* in, int* out, unsigned* early) {
  __shared__ unsigned long long barrier;
  __shared__ int cells[64];
  const unsigned at = (unsigned)__cvta_generic_to_shared(&barrier);
  const unsigned to = (unsigned)__cvta_generic_to_shared(cells + threadIdx.x);
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at), "r"(blockDim.x));
  __syncthreads();
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(in + threadIdx.x));
  asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" :: "r"(at) : "memory");
  unsigned done = 0;
  __syncthreads();
  asm volatile("{ .reg .pred p; .reg .b64 s; mbarrier.test_wait.parity.shared.b64 p, [%1], 0;"
               " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at) : "memory");
  early[threadIdx.x] = done;
  __syncthreads();
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(at) : "memory");
  for (done = 0; !done;)
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0;"
                 " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at) : "memory");
  out[threadIdx.x] = cells[threadIdx.x ^ 1];
}"""


def test_barriers_at_which_copies_arrive(cuda):
    x, out, early = np.arange(64, dtype=np.int32), np.zeros(64, np.int32), np.ones(64, np.uint32)
    cuda(COPIES, "--gpu-architecture=compute_90").run("copies", 1, 64, x, out, early)
    np.testing.assert_array_equal(early, np.zeros(64))  # it counted itself in, and then arrived
    np.testing.assert_array_equal(out, x ^ 1)


def test_barriers_that_count_bytes(cuda):
    out = np.full(5, 9, np.uint32)
    cuda(MBARRIER, "--gpu-architecture=compute_90").run("bytes", 1, 1, out)
    np.testing.assert_array_equal(out, [1, 1, 0, 1, 1])


@pytest.mark.parametrize(
    "instruction",
    [
        "tex.1d.v4.f32.f32 {%f1, %f1, %f1, %f1}, [t, {%f1}]",
        "suld.b.1d.b32.trap %r1, [t, {%r1}]",
        "wgmma.fence.sync.aligned",
        "vadd.s32.u32.s32 %r1, %r1, %r1",
        "red.async.relaxed.cluster.global.add.u32 [%rd1], %r1",
        "min.xorsign.abs.f32 %f1, %f1, %f1",
        "cp.async.bulk.commit_group",
        "setp.lt.and.f16x2 %p1|%p1, %r1, %r1, %p1",
        "atom.global.min.noftz.f16 %h1, [%rd1], %h1",
        "neg.ftz.f16 %h1, %h1",
        "add.ftz.bf16 %h1, %h1, %h1",
        "setp.lt.ftz.bf16 %p1, %h1, %h1",
        "ex2.approx.ftz.f16 %h1, %h1",
        "cvt.rn.e4m3x2.f32 %h1, %f1, %f1",
        "cvt.rn.satfinite.e2m3x2.f32 %h1, %f1, %f1",
        "cvt.rn.bf16x2.e5m2x2 %r1, %h1",
        "cvt.rz.satfinite.e5m2x2.f32 %h1, %f1, %f1",
        "cvt.rn.satfinite.tf32.f32 %r1, %f1",
        "cvt.rn.bf16.s32 %h1, %r1",
        "cvt.rs.f16x2.f32 %r1, %f1, %f1, %r1",
        "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r1], {%r1}",
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r1}, [%r1]",
        "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32 {%f1}, {%r1}, {%r1}, {%f1}",
        "isspacep.const %p1, %rd1",
        "cp.async.cg.shared.global [%r1], [%rd1], 8",
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f1}, {%r1}, {%r1}, {%f1}",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%f1}, {%f1}, {%f1}, {%f1}",
        "atom.global.and.f32 %f1, [%rd1], %f1",
        "atom.global.max.f32 %f1, [%rd1], %f1",
        "red.global.min.v2.f32 [%rd1], {%f1, %f1}",
        "multimem.red.global.add.f32 [%rd1], %f1",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], %r1",
        "mapa.shared::cluster.u32 %r1, %r1, %r1",
        "barrier.cluster.arrive",
        "ld.shared::cluster.u32 %r1, [%r1]",
        "st.async.weak.shared::cluster.b32 [%r1], %r1, [%r1]",
        "min.relu.s32 %r1, %r1, %r1",
        "add.rz.f16 %h1, %h1, %h1",
        "lop3.or.b32 %r1|%p1, %r1, %r1, %r1, 1, %p1",
        "set.lt.and.u32.f32 %r1, %f1, %f1, %p1",
        "redux.sync.min.f32 %f1, %f1, -1",
        "alloca.u64 %rd1, 16",
        "stacksave.u64 %rd1",
        "fma.rn.oob.f16 %h1, %h1, %h1, %h1",
        "tanh.approx.f64 %rd1, %rd1",
        "setp.lo.f32 %p1, %f1, %f1",
    ],
)
def test_what_is_not_supported_says_so(instruction):
    text = f""".version 8.7
.target sm_90
.address_size 64
.entry k()
{{
.reg .pred %p<2>; .reg .b16 %h<2>; .reg .b32 %r<2>; .reg .f32 %f<2>; .reg .b64 %rd<2>;
{instruction};
ret;
}}"""
    opcode = instruction.split()[0]
    with pytest.raises(UnsupportedPtxError, match=rf"^not supported: {opcode} at line 7\b"):
        Module(text)
