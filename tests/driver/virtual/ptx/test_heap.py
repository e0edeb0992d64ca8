# SPDX-License-Identifier: Apache-2.0
"""``malloc``, ``free``, ``new`` and ``delete`` in kernels."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from driver.virtual.checked import Launcher

HEAP = """
struct Node { int value; Node* next; };
extern "C" __global__ void lists(int* out, int n) {
  Node* head = nullptr;
  for (int i = 0; i < n; ++i) head = new Node{i + (int)threadIdx.x, head};
  int sum = 0;
  while (head) { sum += head->value; Node* next = head->next; delete head; head = next; }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
extern "C" __global__ void take(void** out, unsigned long long bytes) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = malloc(bytes);
}
extern "C" __global__ void fill(int** blocks, int n) {
  for (int i = 0; i < n; ++i) blocks[threadIdx.x][i] = threadIdx.x + i;
}
extern "C" __global__ void sum(int** blocks, int n, int* out) {
  int total = 0;
  for (int i = 0; i < n; ++i) total += blocks[threadIdx.x][i];
  out[threadIdx.x] = total;
}
extern "C" __global__ void give_back(void** blocks) { free(blocks[threadIdx.x]); }
"""
OTHER = 'extern "C" __global__ void elsewhere(void** p, void* x) { free(*p); *p = malloc(0); }'


@pytest.mark.parametrize("workers", [1, 2])
def test_lists_of_every_thread(cuda, workers):
    out = np.zeros(256, np.int32)
    cuda(HEAP).run("lists", 4, 64, out, np.int32(10), workers=workers)
    np.testing.assert_array_equal(out, np.tile(np.arange(64) * 10 + 45, 4))


def test_blocks_outlive_the_kernel_and_do_not_overlap(cuda):
    module, blocks, out = cuda(HEAP), np.zeros(33, np.uint64), np.zeros(33, np.int32)
    module.run("take", 1, 33, blocks, np.uint64(4 * 7))
    assert not (blocks % 16).any()
    assert np.diff(np.sort(blocks)).min() >= 28
    module.run("fill", 1, 33, blocks, np.int32(7))
    module.run("sum", 1, 33, blocks, np.int32(7), out)
    np.testing.assert_array_equal(out, np.arange(33) * 7 + 21)
    module.run("give_back", 1, 33, blocks)


def test_an_exhausted_heap_gives_null_until_something_is_freed(cuda):
    module, blocks = cuda(HEAP), np.zeros(12, np.uint64)
    module.run("take", 1, 12, blocks, np.uint64(1 << 20))
    assert np.count_nonzero(blocks) == 7  # the eighth lacks room for the headers
    for wanted in (1 << 20, 1 << 40, 2**64 - 1):
        more = np.ones(1, np.uint64)
        module.run("take", 1, 1, more, np.uint64(wanted))
        assert more[0] == 0
    module.run("give_back", 1, 12, blocks)
    module.run("take", 1, 1, blocks, np.uint64(7 << 20))  # what was freed is one piece again
    assert blocks[0] != 0
    module.run("give_back", 1, 1, blocks)


def test_nothing_bad_comes_of_leaks(cuda):
    module, blocks = cuda(HEAP + "// leaks"), np.zeros(64, np.uint64)
    for _ in range(10):
        module.run("take", 1, 64, blocks, np.uint64(100_000))
    assert not blocks.any()


def test_another_module_frees(cuda):
    module, other, block = cuda(HEAP), cuda(OTHER), np.zeros(1, np.uint64)
    module.run("take", 1, 1, block, np.uint64(64))
    heap = np.zeros(0, np.uint8)
    other.memory.ranges.extend(module.memory.ranges)
    other.run("elsewhere", 1, 1, block, heap)
    assert block[0] != 0


@pytest.mark.parametrize("kind", ["twice", "inside", "elsewhere", "nonsense"])
def test_what_malloc_did_not_give(cuda, kind):
    module, block = cuda(HEAP), np.zeros(4, np.uint64)
    module.run("take", 1, 1, block, np.uint64(64))
    if kind == "twice":
        module.run("give_back", 1, 1, block)
    else:
        shift = {"inside": int(block[0]) + 16, "elsewhere": block.ctypes.data + 16, "nonsense": 99}
        block[0] = shift[kind]
    outcome = module.launch("give_back", 1, 1, block)
    assert outcome.status == 719
    assert "free was called on an address that malloc did not give" in outcome.message


def test_a_heap_that_was_overwritten_gives_null(cuda):
    module, block = cuda(HEAP + "// overwritten"), np.zeros(1, np.uint64)
    module.run("take", 1, 1, block, np.uint64(16))
    module.run("fill", 1, 1, block, np.int32(16))  # past its end, over the next header
    module.run("take", 1, 1, block, np.uint64(16))
    assert block[0] == 0


def test_blocks_that_threads_use_one_after_another_do_not_race():
    kernel, out = Launcher(HEAP, "lists", "Pi"), torch.zeros(64, dtype=torch.int32, device="cuda")
    with torch.virtual.checks(mode="raise"):
        kernel(1, 64, out, 10)
        torch.cuda.synchronize()
    assert out.tolist() == [10 * n + 45 for n in range(64)]
