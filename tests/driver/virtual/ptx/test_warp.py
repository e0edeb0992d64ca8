# SPDX-License-Identifier: Apache-2.0
"""Shuffles, votes, matches, reductions, barriers: what threads do together."""

from __future__ import annotations

import numpy as np
import pytest

SHUFFLES = """
extern "C" __global__ void shuffles(const int* x, int* out, int by, int width) {
  const int t = threadIdx.x, v = x[t];
  out[t] = __shfl_sync(~0u, v, by, width);
  out[64 + t] = __shfl_up_sync(~0u, v, by, width);
  out[128 + t] = __shfl_down_sync(~0u, v, by, width);
  out[192 + t] = __shfl_xor_sync(~0u, v, by, width);
}"""


@pytest.mark.parametrize("width", [32, 16, 4])
@pytest.mark.parametrize("by", [0, 1, 3, 17])
def test_shuffles(cuda, by, width):
    x = np.arange(64, dtype=np.int32) * 10
    out = np.zeros((4, 64), np.int32)
    cuda(SHUFFLES).run("shuffles", 1, 64, x, out, np.int32(by), np.int32(width))
    lane = np.arange(64)
    first = lane // width * width
    inside = lane - first
    np.testing.assert_array_equal(out[0], x[first + by % width])
    np.testing.assert_array_equal(out[1], x[np.where(inside - by >= 0, lane - by, lane)])
    np.testing.assert_array_equal(out[2], x[np.where(inside + by < width, lane + by, lane)])
    other = lane ^ by
    good = other < first + width
    np.testing.assert_array_equal(out[3], x[np.where(good, np.minimum(other, 63), lane)])


VOTES = """
extern "C" __global__ void votes(const int* x, unsigned* out) {
  const int t = threadIdx.x, v = x[t];
  unsigned* o = out + t * 10;
  int same;
  o[0] = __all_sync(~0u, v > 0);
  o[1] = __any_sync(~0u, v > 2);
  o[2] = __ballot_sync(~0u, v & 1);
  o[3] = __match_any_sync(~0u, v);
  o[4] = __match_all_sync(~0u, v & 0, &same) + same;
  o[5] = __reduce_add_sync(~0u, v);
  o[6] = __reduce_min_sync(~0u, -v);
  o[7] = __reduce_max_sync(~0u, (unsigned)v);
  o[8] = __reduce_xor_sync(~0u, (unsigned)v);
  o[9] = __any_sync(~0u, v == 9);
}"""


def test_votes_matches_reductions(cuda):
    x = np.array([(7 * i) % 4 + 1 for i in range(32)], np.int32)
    out = np.zeros((32, 10), np.uint32)
    cuda(VOTES).run("votes", 1, 32, x, out)
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    expected = np.zeros((32, 10), np.uint32)
    expected[:, 0] = 1
    expected[:, 1] = 1
    expected[:, 2] = bits[x % 2 == 1].sum()
    for lane in range(32):
        expected[lane, 3] = bits[x == x[lane]].sum()
    expected[:, 4] = 0  # a full mask and one more wraps
    expected[:, 5] = x.sum()
    expected[:, 6] = np.uint32(2**32 - int(x.max()))
    expected[:, 7] = x.max()
    expected[:, 8] = np.bitwise_xor.reduce(x)
    np.testing.assert_array_equal(out, expected)


PARTIAL = """
extern "C" __global__ void partial(int* out) {
  const int t = threadIdx.x;
  if (t >= 40) return;
  int v = t;
  if (t & 1) v = __shfl_xor_sync(0xaaaaaaaau, v, 2);
  else v = __shfl_xor_sync(0x55555555u, v, 4);
  __syncwarp();
  out[t] = v;
}"""


def test_lanes_of_a_mask_meet_in_divergent_code(cuda):
    out = np.zeros(64, np.int32)
    cuda(PARTIAL).run("partial", 1, 50, out)
    t = np.arange(32)
    np.testing.assert_array_equal(out[:32], np.where(t % 2, t ^ 2, t ^ 4))
    assert (out[40:] == 0).all()


ACTIVE = """
extern "C" __global__ void active(unsigned* out, unsigned* total) {
  const int t = threadIdx.x;
  if (t % 3 == 0) {
    const unsigned mask = __activemask();
    out[t] = mask;
    if ((mask & ((1u << t) - 1)) == 0) atomicAdd(total, __popc(mask));
  }
}"""


def test_active_mask_holds_the_lanes_of_a_branch(cuda):
    out, total = np.zeros(32, np.uint32), np.zeros(1, np.uint32)
    cuda(ACTIVE).run("active", 1, 32, out, total)
    third = sum(1 << t for t in range(0, 32, 3))
    np.testing.assert_array_equal(out, [third if t % 3 == 0 else 0 for t in range(32)])
    assert total[0] == 11


BARRIERS = """
extern "C" __global__ void counts(const int* x, int* out) {
  const int t = threadIdx.x;
  out[t] = __syncthreads_count(x[t] > 0);
  out[100 + t] = __syncthreads_and(x[t] > 0);
  out[200 + t] = __syncthreads_or(x[t] > 98);
}
extern "C" __global__ void exchange(int* out) {
  __shared__ int box[100];
  const int t = threadIdx.x;
  for (int round = 0; round < 5; ++round) {
    box[t] = t + round;
    __syncthreads();
    out[t] += box[(t + 1) % blockDim.x];
    __syncthreads();
  }
}
extern "C" __global__ void producer(int* out) {
  __shared__ int box[64];
  const int t = threadIdx.x;
  if (t < 64) {
    box[t] = t * t;
    asm volatile("bar.arrive 1, 128;" ::: "memory");
  } else {
    asm volatile("bar.sync 1, 128;" ::: "memory");
    out[t - 64] = box[t - 64];
  }
}"""


def test_barriers_that_reduce(cuda):
    x = np.arange(100, dtype=np.int32) - 30
    out = np.zeros((3, 100), np.int32)
    cuda(BARRIERS).run("counts", 1, 100, x, out)
    assert (out[0] == 69).all()
    assert (out[1] == 0).all()
    assert (out[2] == 0).all()


@pytest.mark.parametrize("workers", [1, 2])
def test_barriers_in_loops(cuda, workers):
    out = np.zeros(100, np.int32)
    cuda(BARRIERS).run("exchange", 1, 100, out, workers=workers)
    t = np.arange(100)
    np.testing.assert_array_equal(out, 5 * ((t + 1) % 100) + 10)


def test_named_barrier_with_arrivals(cuda):
    out = np.zeros(64, np.int32)
    cuda(BARRIERS).run("producer", 1, 128, out)
    np.testing.assert_array_equal(out, np.arange(64) ** 2)


SPINS = """
extern "C" __global__ void hand_over(volatile int* flag, int* out) {
  // the last block waits for nobody, the others for the one behind them
  if (threadIdx.x == 0) {
    if (blockIdx.x + 1 < gridDim.x) while (flag[blockIdx.x + 1] == 0) {}
    out[blockIdx.x] = blockIdx.x;
    __threadfence();
    flag[blockIdx.x] = 1;
  }
}
extern "C" __global__ void wait_in_block(int* out) {
  __shared__ volatile int ready;
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  if (threadIdx.x == 0) while (!ready) {}
  if (threadIdx.x == 70) ready = 1;
  out[threadIdx.x] = ready;
}"""


@pytest.mark.parametrize("workers", [1, 2])
def test_blocks_that_wait_for_later_blocks(cuda, workers):
    flag, out = np.zeros(20, np.int32), np.zeros(20, np.int32)
    cuda(SPINS).run("hand_over", 20, 32, flag, out, workers=workers)
    np.testing.assert_array_equal(out, np.arange(20))


def test_threads_that_wait_for_each_other_in_a_block(cuda):
    out = np.zeros(96, np.int32)
    cuda(SPINS).run("wait_in_block", 1, 96, out)
    assert out[0] == 1
    assert out[70] == 1


COOPERATIVE = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void tiles(int* out) {
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  int v = block.thread_rank();
  for (int k = tile.size() / 2; k > 0; k /= 2) v += tile.shfl_down(v, k);
  block.sync();
  if (tile.thread_rank() == 0) out[tile.meta_group_rank()] = v;
}
extern "C" __global__ void counted(unsigned* total) {
  if (threadIdx.x % 2) {
    auto group = cg::coalesced_threads();
    if (group.thread_rank() == 0) atomicAdd(total, group.size());
  }
}"""


def test_cooperative_groups(cuda):
    out, total = np.zeros(16, np.int32), np.zeros(1, np.uint32)
    module = cuda(COOPERATIVE)
    module.run("tiles", 1, 128, out)
    np.testing.assert_array_equal(out, np.arange(128).reshape(16, 8).sum(1))
    module.run("counted", 4, 96, total)
    assert total[0] == 4 * 48


CLOCKS = """
extern "C" __global__ void wait(long long cycles, long long* out) {
  const long long start = clock64();
  long long now = start;
  while (now - start < cycles) now = clock64();
  out[threadIdx.x] = now - start;
}
extern "C" __global__ void stamp(unsigned long long* out) {
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(out[0]));
  __nanosleep(1000);
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(out[1]));
}"""


def test_clock_moves_on_when_it_is_read(cuda):
    out = np.zeros(64, np.int64)
    outcome = cuda(CLOCKS).run("wait", 2, 64, np.int64(10_000), out, clock_start=500)
    assert (out >= 10_000).all()
    assert 10_000 <= outcome.clock_cycles < 11_000
    times = np.zeros(2, np.uint64)
    cuda(CLOCKS).run("stamp", 1, 1, times, clock_start=7_000_000)
    assert 7_000_000 <= times[0] < times[1]
    assert times[1] - times[0] >= 1000


CALLED = """
struct Pair { int first, second; };
__device__ __noinline__ Pair neighbours(Pair own, int* box) {
  box[threadIdx.x] = own.first;
  __syncthreads();
  if (own.second < 0) return own;
  Pair r = {box[(threadIdx.x + 1) % blockDim.x], own.second};
  __syncthreads();
  return r;
}
__device__ __noinline__ int warp_sum(int v) {
  for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
  return v;
}
extern "C" __global__ void called(int* out) {
  extern __shared__ int box[];
  Pair p = {(int)threadIdx.x, (int)threadIdx.x * 3};
  for (int i = 0; i < 2; ++i) p = neighbours(p, box);
  out[threadIdx.x] = p.first + p.second;
  out[blockDim.x + threadIdx.x] = warp_sum(threadIdx.x) + warp_sum(1);
}"""


def test_barriers_in_called_functions(cuda):
    out = np.zeros((2, 64), np.int32)
    cuda(CALLED).run("called", 1, 64, out, shared=256)
    t = np.arange(64)
    np.testing.assert_array_equal(out[0], (t + 2) % 64 + 3 * t)
    np.testing.assert_array_equal(out[1, :32], t[:32].sum() + 32)
    np.testing.assert_array_equal(out[1, 32:], t[32:].sum() + 32)


GRID = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void grid(int* x, int* out) {
  auto all = cg::this_grid();
  int sum = 0;
  for (int round = 0; round < 3; ++round) {
    x[blockIdx.x] = blockIdx.x + round;
    all.sync();
    for (int i = 0; i < gridDim.x; ++i) sum += ((volatile int*)x)[i];
    all.sync();
  }
  out[all.thread_rank()] = sum;
}"""


@pytest.mark.parametrize("workers", [1, 2])
def test_grid_wide_barrier(cuda, workers):
    blocks = 40
    x, out = np.zeros(blocks, np.int32), np.zeros(blocks * 64, np.int32)
    cuda(GRID).run("grid", blocks, 64, x, out, workers=workers, cooperative=True)
    assert (out == 3 * sum(range(blocks)) + 3 * blocks).all()


def test_grid_wide_barrier_needs_a_cooperative_launch(cuda):
    x, out = np.zeros(2, np.int32), np.zeros(64, np.int32)
    assert cuda(GRID).launch("grid", 2, 32, x, out).status == 719
