# SPDX-License-Identifier: Apache-2.0
"""The init check: kernels that compute with memory that nobody has written."""

from __future__ import annotations

import pytest

import flambeau as torch
from driver.virtual.checked import Launcher, only, scale
from flambeau.driver.virtual import _calls as calls
from flambeau.driver.virtual import _memory_calls as memory

pytestmark = pytest.mark.unchecked("turns on the checks that it is about")


HALVES = """
extern "C" __global__ void halves(const float *in, float *out, int n) {
  __shared__ float kept[64];
  int i = threadIdx.x;
  if (i < n) kept[i] = in[i];
  __syncthreads();
  out[i] = kept[63 - i];
}
"""


def init(mode: str = "collect"):
    return torch.virtual.checks("init", mode=mode)


def test_read_of_an_empty_tensor():
    kernel = scale()
    y = torch.zeros(64, device="cuda")
    with init() as found:
        x = torch.empty(10, device="cuda")
        address = x.data_ptr()
        kernel(1, 32, y, x, 10)
    report = only(found.reports)
    assert (report.check, report.problem) == ("init", "that nobody has written")
    assert report.address == address
    assert report.count == 10
    assert report.block.size == 40
    assert report.block.distance == 0
    assert report.block.allocated[0].function == "test_read_of_an_empty_tensor"
    assert report.access.kind == "read"
    assert report.access.source.endswith(":4")
    assert "read 4 bytes" in str(report)


def test_only_what_was_written_may_be_read():
    kernel = scale()
    y = torch.zeros(64, device="cuda")
    with init() as found:
        x = torch.empty(10, device="cuda")
        x[:6].fill_(1)
        kernel(1, 32, y, x, 6)
        assert found.collect() == []
        kernel(1, 32, y, x, 8)
    report = only(found.reports)
    assert report.access.thread == (6, 0, 0)
    assert report.count == 2


def test_a_kernel_that_writes_makes_it_good():
    kernel = scale()
    with init("raise"):
        x, y = torch.empty(10, device="cuda"), torch.empty(10, device="cuda")
        x.copy_(torch.arange(10.0))
        kernel(1, 32, y, x, 10)
        kernel(1, 32, x, y, 10)
        assert (x + y).tolist() == [6.0 * i for i in range(10)]
        del x
        z = torch.zeros(10, device="cuda", dtype=torch.uint8)
        z[3] = 1
        assert z.sum().item() == 1


@pytest.mark.parametrize("policy", ["fifo", "random:3", "adversarial"])
def test_reused_memory_is_new_memory(policy: str):
    """A block that was handed out again is unwritten, whatever ran and whenever it runs."""
    kernel = scale()
    y = torch.zeros(100, device="cuda")
    torch.cuda.synchronize()
    with torch.virtual.schedule(policy), init() as found:
        x = torch.ones(100, device="cuda")
        address = x.data_ptr()
        kernel(1, 128, y, x, 100)
        del x
        x = torch.empty(100, device="cuda")
        assert x.data_ptr() == address
        kernel(1, 128, y, x, 50)
    report = only(found.reports)
    assert report.count == 50
    assert report.access.submitted[1].line > report.block.allocated[0].line


def test_copying_is_allowed_and_passes_it_on():
    kernel = scale()
    y = torch.zeros(64, device="cuda")
    from flambeau.driver.virtual import _calls

    with init() as found:
        x = torch.empty(10, device="cuda")
        x[:5].fill_(1)
        z = torch.zeros(10, device="cuda")
        _calls.memcpy_dtod_async(z.data_ptr(), x.data_ptr(), 40, 0)
        assert found.collect() == []
        kernel(1, 32, y, z, 10)
    assert only(found.reports).count == 5


def test_matrix_products():
    with init() as found:
        a, b = torch.ones(4, 5, device="cuda"), torch.empty(5, 6, device="cuda")
        b[:4].fill_(1)
        c = a @ b
        assert found.collect()
        assert only(found.reports).access.work == "a matrix product"
        found.reports.clear()
        assert c.shape == (4, 6)
        (c + 1).sum().item()
    assert found.reports == []


def test_shared_memory():
    kernel = Launcher(HALVES, "halves", "PPi")
    with init() as found:
        x, y = torch.ones(64, device="cuda"), torch.empty(64, device="cuda")
        kernel(1, 64, x, y, 64)
        assert found.collect() == []
        kernel(2, 64, x, y, 48)
    report = only(found.reports)
    assert report.space == "shared"
    assert report.address == 63 * 4
    assert report.count == 2 * 16
    assert report.access.source.endswith(":7")
    assert report.access.thread == (0, 0, 0)
    assert report.block is None
    assert "offset 252 of shared memory" in str(report)


def test_shared_memory_is_new_in_each_block():
    source = """
    extern "C" __global__ void once(int *out) {
      __shared__ volatile int kept;
      if (blockIdx.x == 0) kept = 1;
      out[blockIdx.x] = kept;
    }
    """
    kernel = Launcher(source, "once", "P")
    with init() as found:
        kernel(4, 1, torch.zeros(4, dtype=torch.int32, device="cuda"))
    report = only(found.reports)
    assert report.access.block == (1, 0, 0)
    assert report.count == 3


def test_memory_from_before_counts_as_written():
    kernel = scale()
    x, y = torch.empty(10, device="cuda"), torch.zeros(10, device="cuda")
    with init("raise"):
        kernel(1, 32, y, x, 10)


def test_memory_at_two_addresses():
    """What is written by one address is written at the other; memory of one address is watched."""
    kernel = scale()
    page = 2 << 20
    with init() as found:
        base, handle = memory.address_reserve(3 * page), memory.create(page)
        for index in range(2):
            memory.map_(base + index * page, page, handle)
        alone = memory.create(page)
        memory.map_(base + 2 * page, page, alone)
        memory.set_access(base, 3 * page)
        calls.memset_d32_async(base, 0x3F800000, 16, 0)
        y = torch.empty(16, device="cuda")
        kernel(1, 16, y, base + page, 16)
        assert y.tolist() == [2.0] * 16
        assert found.collect() == []
        kernel(1, 16, y, base + 2 * page, 16)
    torch.cuda.synchronize()
    memory.unmap(base, 3 * page)
    memory.release(handle)
    memory.release(alone)
    memory.address_free(base, 3 * page)
    assert only(found.reports).address == base + 2 * page
