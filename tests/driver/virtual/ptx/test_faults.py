# SPDX-License-Identifier: Apache-2.0
"""Every way in which a kernel can fail, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest

FAULTS = """
extern "C" __global__ void past_the_end(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) x[i] = i;
}
extern "C" __global__ void read_any(const int* x, long long index, int* out) {
  out[0] = x[index];
}
extern "C" __global__ void read_bytes(const char* x, long long offset, double* out) {
  out[0] = *(const double*)(x + offset);
}
extern "C" __global__ void add_any(int* x, long long index) { atomicAdd(x + index, 1); }
extern "C" __global__ void shared_write(int index) {
  extern __shared__ int box[];
  box[index + threadIdx.x] = 1;
}
extern "C" __global__ void shared_bytes(int offset, long long* out) {
  extern __shared__ char bytes[];
  __syncthreads();
  *out = *(long long*)(bytes + offset);
}
extern "C" __global__ void local_write(int index, int* out) {
  int box[8];
  for (int i = 0; i < 8; ++i) box[i] = i;
  box[index] = 5;
  *out = box[(index + 1) & 7];
}
extern "C" __global__ void trap(int n) {
  if (blockIdx.y == 1 && threadIdx.x == 3 && threadIdx.y == 2) __trap();
}
extern "C" __global__ void check(int n) { assert(n > 0 && "n is the size"); }
extern "C" __global__ void stuck(int* out) {
  if (threadIdx.x < 7) out[threadIdx.x] = __shfl_sync(0xffffu, threadIdx.x, 0);
  else __syncthreads();
}
__device__ __noinline__ int deep(int n, volatile int* x) {
  return *x ? deep(n + 1, x) * 3 + *x : n;
}
extern "C" __global__ void endless(int* x) { x[1] = deep(1, x); }
"""

LINE = {
    text.split("(")[0].split()[-1]: number
    for number, text in enumerate(FAULTS.splitlines(), 1)
    if "__global__" in text
}


def test_write_past_the_end(cuda):
    x = np.zeros(1000, np.float32)
    outcome = cuda(FAULTS, "-lineinfo").launch("past_the_end", 8, 128, x, np.int32(1000))
    assert outcome.status == 700
    assert outcome.access == "write"
    assert outcome.access_bytes == 4
    assert outcome.address == x.ctypes.data + 4000
    assert (outcome.block, outcome.thread) == ((7, 0, 0), (104, 0, 0))
    assert outcome.source == f"kernel.cu:{LINE['past_the_end'] + 2}"
    assert "no allocation" in outcome.message
    np.testing.assert_array_equal(x, np.arange(1000))


def test_without_line_information_the_ptx_line_is_named(cuda):
    x = np.zeros(10, np.float32)
    outcome = cuda(FAULTS).launch("past_the_end", 1, 32, x, np.int32(10))
    assert outcome.source.startswith("PTX line ")


def test_null_pointer(cuda):
    out = np.zeros(1, np.int32)
    outcome = cuda(FAULTS).launch("read_any", 1, 1, np.uint64(0), np.int64(3), out)
    assert (outcome.status, outcome.address, outcome.access) == (700, 12, "read")
    assert "null" in outcome.message


def test_atomic_out_of_bounds(cuda):
    x = np.zeros(4, np.int32)
    outcome = cuda(FAULTS).launch("add_any", 1, 1, x, np.int64(-1))
    assert (outcome.status, outcome.access) == (700, "atomic")


def test_access_that_leaves_an_allocation(cuda):
    x, out = np.zeros(12, np.uint8), np.zeros(1)
    offset = -x.ctypes.data % 8
    outcome = cuda(FAULTS).launch("read_bytes", 1, 1, x, np.int64(offset + 8), out)
    assert outcome.status == 700


def test_misaligned_address(cuda):
    x, out = np.zeros(64, np.uint8), np.zeros(1)
    outcome = cuda(FAULTS).launch("read_bytes", 1, 1, x, np.int64(4 - x.ctypes.data % 8), out)
    assert outcome.status == 716
    assert outcome.access_bytes == 8


def test_ranges_need_no_alignment_of_their_own(cuda):
    memory, out = np.arange(64, dtype=np.uint8), np.zeros(1)
    start = -memory.ctypes.data % 8
    part = memory[start + 3 : start + 35]
    module = cuda(FAULTS)
    module.run("read_bytes", 1, 1, part, np.int64(5), out)
    assert out.view(np.uint64)[0] == memory[start + 8 : start + 16].view(np.uint64)[0]
    assert module.launch("read_bytes", 1, 1, part, np.int64(-3), out).status == 700


@pytest.mark.parametrize("index", [253, -1, 2**28])
def test_shared_memory_out_of_bounds(cuda, index):
    outcome = cuda(FAULTS).launch("shared_write", 1, 4, np.int32(index), shared=1024)
    assert outcome.status == 700
    assert "shared" in outcome.message
    assert outcome.thread == (3 if index == 253 else 0, 0, 0)


def test_shared_memory_misaligned(cuda):
    out = np.zeros(1, np.int64)
    module = cuda(FAULTS)
    assert module.launch("shared_bytes", 1, 1, np.int32(4), out, shared=64).status == 716
    assert module.launch("shared_bytes", 1, 1, np.int32(64), out, shared=64).status == 700
    assert module.launch("shared_bytes", 1, 1, np.int32(56), out, shared=64).status == 0


def test_local_memory_out_of_bounds(cuda):
    out = np.zeros(1, np.int32)
    module = cuda(FAULTS)
    assert module.launch("local_write", 1, 1, np.int32(3), out).status == 0
    outcome = module.launch("local_write", 1, 1, np.int32(1000), out)
    assert outcome.status == 700
    assert "local" in outcome.message


def test_trap_names_the_thread(cuda):
    outcome = cuda(FAULTS).launch("trap", (2, 3), (8, 4), np.int32(0))
    assert outcome.status == 719
    assert outcome.block == (0, 1, 0)
    assert outcome.thread == (3, 2, 0)


def test_assertion(cuda):
    module = cuda(FAULTS)
    assert module.launch("check", 1, 1, np.int32(1)).status == 0
    outcome = module.launch("check", 1, 1, np.int32(0))
    assert outcome.status == 710
    assert "n > 0" in outcome.message
    assert f"kernel.cu:{LINE['check']}" in outcome.message
    assert "check" in outcome.message


def test_threads_that_wait_for_nobody(cuda):
    out = np.zeros(32, np.int32)
    outcome = cuda(FAULTS).launch("stuck", 1, 32, out)
    assert outcome.status == 702
    assert "wait" in outcome.message


def test_endless_recursion_overflows_the_stack(cuda):
    x = np.array([1, 0], np.int32)
    outcome = cuda(FAULTS).launch("endless", 1, 1, x)
    assert outcome.status == 719
    assert "stack" in outcome.message


@pytest.mark.parametrize("workers", [1, 2])
def test_the_first_fault_ends_the_grid(cuda, workers):
    x = np.zeros(10, np.float32)
    module = cuda(FAULTS)
    outcome = module.launch("past_the_end", 100_000, 256, x, np.int32(2**30), workers=workers)
    assert outcome.status == 700
    assert module.launch("past_the_end", 1, 32, x, np.int32(9), workers=workers).status == 0


def test_costs_are_estimated(cuda):
    x = np.zeros(2000, np.float32)
    module = cuda(FAULTS)
    outcome = module.launch("past_the_end", 8, 128, x, np.int32(1000))
    info = module.info("past_the_end")
    assert info.global_bytes_per_thread == 4
    assert outcome.global_bytes == 4 * 8 * 128
    assert outcome.operations == info.operations_per_thread * 8 * 128
    assert info.max_threads == 1024
    assert 0 < info.registers < 256
