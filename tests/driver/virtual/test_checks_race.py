# SPDX-License-Identifier: Apache-2.0
"""The race check: accesses that no barrier, fence, stream or event orders."""

from __future__ import annotations

import pytest

import flambeau as torch
from driver.virtual.checked import Launcher, only, scale

pytestmark = pytest.mark.unchecked("turns on the checks that it is about")


def race(mode: str = "collect"):
    return torch.virtual.checks("race", mode=mode)


def shared_kernel(middle: str, name: str = "exchange") -> Launcher:
    """Threads write a word of shared memory each, and read their mirror's behind `middle`."""
    source = f"""
    extern "C" __global__ void {name}(float *out) {{
      __shared__ float kept[128];
      kept[threadIdx.x] = threadIdx.x;
      {middle}
      out[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
    }}
    """
    return Launcher(source, name, "P")


def test_missing_barrier():
    kernel = shared_kernel("")
    out = torch.zeros(64, device="cuda")
    with race() as found:
        kernel(1, 64, out)
    report = only(found.reports)
    assert (report.check, report.space) == ("race", "shared")
    assert report.problem == "that nothing orders with another thread's access"
    assert {report.access.kind, report.other.kind} == {"read", "write"}
    assert sorted([report.access.source[-2:], report.other.source[-2:]]) == [":4", ":6"]
    assert report.access.block == report.other.block == (0, 0, 0)
    assert report.access.thread[0] + report.other.thread[0] == 63
    assert "first: kernel exchange" in str(report)
    assert "then:  kernel exchange" in str(report)


@pytest.mark.parametrize("middle", ["__syncthreads();", "__syncthreads(); __syncwarp();"])
def test_barriers_order(middle: str):
    kernel = shared_kernel(middle)
    with race("raise"):
        kernel(3, 64, torch.zeros(64, device="cuda")[:64])
        torch.cuda.synchronize()


def test_a_warp_may_synchronise_alone():
    kernel = shared_kernel("__syncwarp();")
    out = torch.zeros(64, device="cuda")
    with race("raise"):
        kernel(1, 32, out)
    with race() as found:
        kernel(1, 64, out)  # the mirror is in another warp
    assert only(found.reports).space == "shared"


def test_part_of_a_warp():
    source = """
    extern "C" __global__ void part(float *out) {
      __shared__ float kept[32];
      unsigned half = threadIdx.x < 16 ? 0xffffu : 0xffff0000u;
      kept[threadIdx.x] = threadIdx.x;
      __syncwarp(half);
      out[threadIdx.x] = kept[threadIdx.x ^ MASK];
    }
    """
    good = Launcher(source.replace("MASK", "1"), "part", "P")
    bad = Launcher(source.replace("MASK", "16"), "part", "P")
    out = torch.zeros(64, device="cuda")
    with race("raise"):
        good(1, 32, out)
    with race() as found:
        bad(1, 32, out)
    assert only(found.reports).other.kind == "write"


def test_shuffles_do_not_order_memory():
    kernel = shared_kernel("__shfl_sync(0xffffffffu, 1, 0);")
    with race() as found:
        kernel(1, 32, torch.zeros(64, device="cuda"))
    assert only(found.reports).space == "shared"


def test_reuse_of_shared_memory_in_a_loop():
    source = """
    extern "C" __global__ void loop(float *out) {
      __shared__ float kept;
      for (int i = 0; i < 3; ++i) {
        if (threadIdx.x == i) kept = i;
        __syncthreads();
        out[threadIdx.x] += kept;
        SECOND
      }
    }
    """
    good = Launcher(source.replace("SECOND", "__syncthreads();"), "loop", "P")
    bad = Launcher(source.replace("SECOND", ""), "loop", "P")
    out = torch.zeros(64, device="cuda")
    with race("raise"):
        good(1, 64, out)
    with race() as found:
        bad(1, 64, out)
    report = only(found.reports)
    assert {report.other.kind, report.access.kind} == {"read", "write"}


def test_neighbouring_bytes_are_apart():
    source = """
    extern "C" __global__ void bytes(unsigned char *out) {
      __shared__ unsigned char kept[64];
      kept[threadIdx.x] = threadIdx.x;
      out[blockIdx.x * 64 + threadIdx.x] = kept[threadIdx.x];
    }
    """
    out = torch.zeros(128, dtype=torch.uint8, device="cuda")
    with race("raise"):
        Launcher(source, "bytes", "P")(2, 64, out)


def test_blocks_that_write_the_same_word():
    source = """
    extern "C" __global__ void last(int *out, int *flag) {
      *flag = 1;
      *out = VALUE;
    }
    """
    kernel = Launcher(source.replace("VALUE", "blockIdx.x"), "last", "PP")
    out = torch.zeros(2, dtype=torch.int32, device="cuda")
    with race() as found:
        kernel(4, 1, out, out[1:])
    report = only(found.reports)  # all write the same into the flag, which harms nobody
    assert report.problem == "that another block touches at the same time"
    assert report.access.source.endswith(":4")
    assert (report.other.block, report.access.block) == ((0, 0, 0), (1, 0, 0))
    assert report.count == 3
    with race("raise"):
        Launcher(source.replace("VALUE", "7"), "last", "PP")(4, 1, out, out[1:])


def test_atomics_do_not_race():
    source = """
    extern "C" __global__ void count(int *total, float *sum) {
      atomicAdd(total, 1);
      unsigned *word = (unsigned *)sum, seen = *word, before;
      do {
        before = seen;
        seen = atomicCAS(word, before, __float_as_uint(__uint_as_float(before) + 1));
      } while (seen != before);
    }
    """
    total, value = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(1, device="cuda")
    with race("raise"):
        Launcher(source, "count", "PP")(4, 64, total, value)
        assert (total.item(), value.item()) == (256, 256)


LAST_BLOCK = """
extern "C" __global__ void total(const float *in, float *parts, float *out, unsigned *done) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = in[blockIdx.x];
    FENCE
    last = atomicAdd(done, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 1) {
    float sum = 0;
    for (int i = 0; i < gridDim.x; ++i) sum += parts[i];
    *out = sum;
  }
}
"""


def test_the_last_block_sums_up():
    good = Launcher(LAST_BLOCK.replace("FENCE", "__threadfence();"), "total", "PPPP")
    bad = Launcher(LAST_BLOCK.replace("FENCE", ""), "total", "PPPP")
    x, out = torch.ones(8, device="cuda"), torch.zeros(1, device="cuda")
    with race("raise"):
        good(8, 32, x, torch.zeros(8, device="cuda"), out, torch.zeros(1, device="cuda"))
    assert out.item() == 8
    with race() as found:
        bad(8, 32, x, torch.zeros(8, device="cuda"), out, torch.zeros(1, device="cuda"))
    report = only(found.reports)
    assert (report.other.kind, report.access.kind) == ("write", "read")
    assert report.problem == "that another block touches at the same time"


def test_a_flag_between_threads():
    source = """
    extern "C" __global__ void flag(int *out) {
      __shared__ int data;
      __shared__ volatile int ready;
      if (threadIdx.x == 0) ready = 0;
      __syncthreads();
      if (threadIdx.x == 40) { data = out[1] + 7; FENCE ready = 1; }
      if (threadIdx.x == 0) { while (!ready) {} __threadfence_block(); *out = data; }
    }
    """
    good = Launcher(source.replace("FENCE", "__threadfence_block();"), "flag", "P")
    out = torch.zeros(2, dtype=torch.int32, device="cuda")
    with race("raise"):
        good(1, 64, out)
        assert out[0].item() == 7
    bad = Launcher(source.replace("FENCE", ""), "flag", "P")
    with race() as found:
        bad(1, 64, out)
    assert only(found.reports).space == "shared"


def two_streams() -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    return torch.cuda.Stream(), torch.cuda.Stream()


@pytest.mark.parametrize("policy", ["fifo", "random:2", "adversarial"])
def test_streams_without_order(policy: str):
    """Found in every schedule: it is the missing order that counts, not what happened to run."""
    kernel = scale()
    a, b = two_streams()
    x, y, z = (torch.zeros(64, device="cuda") for _ in range(3))
    torch.cuda.synchronize()
    with torch.virtual.schedule(policy), race() as found:
        with torch.cuda.stream(a):
            kernel(1, 64, x, y, 64)
        with torch.cuda.stream(b):
            kernel(1, 64, z, x, 64)
    report = only(found.reports)
    assert report.problem == "that other work touches at the same time"
    assert {report.access.kind, report.other.kind} == {"read", "write"}
    assert report.access.stream != report.other.stream
    assert report.count == 64
    assert report.block.size == 256
    assert report.access.submitted[1].line != report.other.submitted[1].line


def test_streams_with_order():
    kernel = scale()
    a, b = two_streams()
    x, y, z = (torch.zeros(64, device="cuda") for _ in range(3))
    torch.cuda.synchronize()
    with race("raise"):
        for order in ("event", "wait_stream", "stream", "device", "query"):
            with torch.cuda.stream(a):
                kernel(1, 64, x, y, 64)
                done = torch.cuda.Event()
                done.record()
            if order == "event":
                b.wait_event(done)
            elif order == "wait_stream":
                b.wait_stream(a)
            elif order == "stream":
                a.synchronize()
            elif order == "device":
                torch.cuda.synchronize()
            else:
                while not done.query():
                    pass
            with torch.cuda.stream(b):
                kernel(1, 64, z, x, 64)
            a.wait_stream(b)


def test_an_event_of_before_orders_nothing_after():
    kernel = scale()
    a, b = two_streams()
    x, y, z = (torch.zeros(64, device="cuda") for _ in range(3))
    torch.cuda.synchronize()
    with race() as found:
        with torch.cuda.stream(a):
            done = torch.cuda.Event()
            done.record()
            kernel(1, 64, x, y, 64)
        b.wait_event(done)
        with torch.cuda.stream(b):
            kernel(1, 64, z, x, 64)
    assert only(found.reports).count == 64


def test_readers_do_not_race():
    kernel = scale()
    a, b = two_streams()
    x, y, z = (torch.zeros(64, device="cuda") for _ in range(3))
    torch.cuda.synchronize()
    with race("raise"):
        with torch.cuda.stream(a):
            kernel(1, 64, y, x, 64)
        with torch.cuda.stream(b):
            kernel(1, 64, z, x, 64)
        torch.cuda.synchronize()
    with race() as found:
        with torch.cuda.stream(a):
            kernel(1, 64, y, x, 64)
        with torch.cuda.stream(b):
            kernel(1, 64, z, x, 64)
            x.fill_(1)  # races with a's read, not with b's own
    report = only(found.reports)
    assert (report.other.kind, report.access.kind) in {("read", "write"), ("write", "read")}


def test_copies_and_fills_on_streams():
    a, b = two_streams()
    x = torch.zeros(64, device="cuda")
    host = torch.zeros(64).pin_memory()
    torch.cuda.synchronize()
    with race() as found:
        with torch.cuda.stream(a):
            x.copy_(host, non_blocking=True)
        with torch.cuda.stream(b):
            x.fill_(2)
    report = only(found.reports)
    assert sorted([report.access.work, report.other.work])[0] == "a copy"
    torch.cuda.synchronize()
    with race("raise"):
        with torch.cuda.stream(a):
            x.copy_(host, non_blocking=True)
        b.wait_stream(a)
        with torch.cuda.stream(b):
            x.fill_(2)


def test_the_default_stream_waits_for_blocking_ones_only():
    from flambeau.driver.virtual import _calls

    x = torch.zeros(64, device="cuda")
    blocking, free = _calls.stream_create(0, 0), _calls.stream_create(1, 0)
    torch.cuda.synchronize()
    with race("raise"):
        _calls.memset_d8_async(x.data_ptr(), 1, 64, blocking)
        _calls.memset_d8_async(x.data_ptr(), 2, 64, 0)
        _calls.memset_d8_async(x.data_ptr(), 3, 64, blocking)
    with race() as found:
        _calls.memset_d8_async(x.data_ptr(), 1, 64, free)
        _calls.memset_d8_async(x.data_ptr(), 2, 64, 0)
    assert only(found.reports).access.work == "a fill"
    for stream in (blocking, free):
        _calls.stream_destroy(stream)


def test_memory_that_another_stream_still_reads():
    """Freed and handed out again while a side stream reads it: what record_stream is for."""
    kernel = scale()
    side = torch.cuda.Stream()
    y = torch.zeros(64, device="cuda")
    torch.cuda.synchronize()
    for recorded in (False, True):
        with race() as found:
            x = torch.ones(64, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                kernel(1, 64, y, x, 64)
            if recorded:
                x.record_stream(side)
            del x
            z = torch.full((64,), 3.0, device="cuda")
        torch.cuda.synchronize()
        assert bool(found.reports) is not recorded
        if found.reports:
            assert {r.block.address for r in found.reports} == {z.data_ptr()}
        del z


def test_copies_between_pageable_memory_and_another_device_are_in_order():
    """They go to the default stream of the device, not of the one that is current."""
    host = torch.arange(20, dtype=torch.int32)
    torch.zeros(1, device="cuda:1")
    torch.cuda.synchronize(1)
    with race("raise"):
        x = torch.empty(20, device="cuda:1")
        x.copy_(host, non_blocking=True)
        back = (x + 1).to("cpu", non_blocking=True)
    torch.cuda.synchronize(1)
    assert back.tolist() == [i + 1.0 for i in range(20)]


def test_graphs_that_are_launched_again():
    x = torch.zeros(64, device="cuda")
    side = torch.cuda.Stream()
    with torch.virtual.checks(mode="raise"):
        y = torch.ones(64, device="cuda")
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            part = y * 2
            x += part
            del part
        for _ in range(3):
            graph.replay()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            assert x.sum().item() == 3 * 128
    with race() as found:
        graph.replay()
        with torch.cuda.stream(side):
            x.zero_()
    assert only(found.reports).access.stream != only(found.reports).other.stream


@pytest.mark.parametrize("waits", [True, False])
def test_branches_of_a_graph(waits: bool):
    """A fork in a capture orders nothing between its branches, and its join does."""
    x, side = torch.zeros(64, device="cuda"), torch.cuda.Stream()
    y = torch.zeros(64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y += 1
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x *= 2
        if waits:
            torch.cuda.current_stream().wait_stream(side)
        x += 1
        y += 1
        torch.cuda.current_stream().wait_stream(side)
        y += x
    torch.cuda.synchronize()
    with race() as found:
        for _ in range(3):
            graph.replay()
        z = x + y
    torch.cuda.synchronize()
    assert bool(found.reports) is not waits, found.reports
    assert all(0 <= r.address - x.data_ptr() < 256 for r in found.reports)
    assert z.shape == x.shape
