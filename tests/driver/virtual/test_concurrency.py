# SPDX-License-Identifier: Apache-2.0
"""Kernels that wait for each other, for copies and for the host, from streams side by side."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from driver.virtual.scripts import run
from flambeau import virtual

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE = """
extern "C" __global__ void await(volatile int* flag, int wanted, int* out) {
  while (*flag != wanted) {}
  __threadfence();
  if (blockIdx.x == 0 && threadIdx.x == 0) *out = wanted;
}
extern "C" __global__ void put(volatile int* flag, int value) { *flag = value; }
extern "C" __global__ void relay(volatile int* flags, int from) {
  while (flags[from] == 0) {}
  flags[from + 1] = flags[from] + 1;
}
extern "C" __global__ void rally(volatile int* ball, int me, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    while (*ball % 2 != me) {}
    *ball = *ball + 1;
  }
}
extern "C" __global__ void locked(int* lock, int* count) {
  while (atomicCAS(lock, 0, 1) != 0) {}
  *(volatile int*)count = *(volatile int*)count + 1;
  __threadfence();
  atomicExch(lock, 0);
}
extern "C" __global__ void fault(int* nowhere) { *nowhere = 1; }
"""


pytestmark = pytest.mark.timeout(20, method="thread")


@pytest.fixture(scope="module")
def kernels() -> Callable[..., None]:
    """Launch a kernel of `SOURCE` by name on a stream."""
    made: dict[str, Any] = {}

    def launch(name: str, stream: Any, *args: Any, grid: int = 1, block: int = 1) -> None:
        if name not in made:
            made[name] = torch.cuda._compile_kernel(SOURCE, name)
        made[name](grid=(grid, 1, 1), block=(block, 1, 1), args=list(args), stream=stream)

    return launch


@pytest.fixture
def flags() -> Iterator[Any]:
    cells = torch.zeros(16, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    yield cells
    torch.cuda.synchronize()


def streams(count: int) -> list[Any]:
    return [torch.cuda.Stream() for _ in range(count)]


@pytest.mark.parametrize("progress", [True, False])
def test_a_kernel_of_another_stream_ends_the_wait(schedule, kernels, flags, progress):
    a, b = streams(2)
    virtual.set_progress(progress)
    try:
        kernels("await", a, flags, 7, flags[1:], grid=3, block=40)
        kernels("put", b, flags, 7)
        a.synchronize()
        b.synchronize()
        assert flags[:2].tolist() == [7, 7]
    finally:
        virtual.set_progress(True)


def test_a_kernel_that_is_launched_later_ends_the_wait(schedule, kernels, flags):
    a, b = streams(2)
    kernels("await", a, flags, 7, flags[1:])
    time.sleep(0.04)  # it runs by now
    assert not a.query()
    kernels("put", b, flags, 7)
    b.synchronize()
    a.synchronize()
    assert flags[1].item() == 7


@pytest.mark.finds("race")
def test_a_copy_ends_the_wait(schedule, kernels, flags):
    a, b = streams(2)
    seven = torch.full((1,), 7, dtype=torch.int32).pin_memory()
    kernels("await", a, flags, 7, flags[1:])
    with torch.cuda.stream(b):
        flags[:1].copy_(seven, non_blocking=True)
    a.synchronize()
    assert flags[1].item() == 7


def test_the_host_ends_the_wait(kernels, flags):
    (a,) = streams(1)
    pinned = torch.zeros(1, dtype=torch.int32).pin_memory()
    kernels("await", a, pinned, 5, flags[1:])
    timer = threading.Timer(0.05, lambda: pinned.fill_(5))
    timer.start()
    a.synchronize()
    timer.join()
    assert flags[1].item() == 5


def test_a_chain_of_kernels_in_reverse(schedule, kernels, flags):
    for place, stream in enumerate(reversed(streams(8))):
        kernels("relay", stream, flags, 7 - place)
    kernels("put", torch.cuda.Stream(), flags, 1)
    torch.cuda.synchronize()
    assert flags[:9].tolist() == list(range(1, 10))


def test_two_kernels_play_ball(schedule, kernels, flags):
    a, b = streams(2)
    kernels("rally", a, flags, 1, 20)
    kernels("rally", b, flags, 0, 20)
    torch.cuda.synchronize()
    assert flags[0].item() == 40


def test_locks_that_threads_spin_on(kernels, flags):
    a, b = streams(2)
    for stream in (a, b):
        kernels("locked", stream, flags, flags[1:], grid=4, block=64)
    torch.cuda.synchronize()
    assert flags[:2].tolist() == [0, 512]


def test_a_graph_waits_for_a_stream(kernels, flags):
    (b,) = streams(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels("await", torch.cuda.current_stream(), flags, 3, flags[1:])
    graph.replay()
    kernels("put", b, flags, 3)
    torch.cuda.synchronize()
    assert flags[1].item() == 3


def test_the_wait_ends_behind_what_it_waited_for(kernels, flags):
    a, b = streams(2)
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    kernels("await", a, flags, 7, flags[1:])
    ends[0].record(a)
    for _ in range(50):
        kernels("put", b, flags[2:], 1)
    kernels("put", b, flags, 7)
    ends[1].record(b)
    torch.cuda.synchronize()
    assert ends[1].elapsed_time(ends[0]) > -0.01  # ms; the last launch alone takes as long


def test_an_error_elsewhere_ends_the_wait():
    done = run(
        f"""
        import flambeau as torch
        kernels = {{n: torch.cuda._compile_kernel({SOURCE!r}, n) for n in ("await", "fault")}}
        flag = torch.zeros(2, dtype=torch.int32, device="cuda")
        a, b = torch.cuda.Stream(), torch.cuda.Stream()
        torch.cuda.synchronize()
        kernels["await"](args=[flag, 1, flag[1:]], stream=a)
        kernels["fault"](args=[0], stream=b)
        try:
            a.synchronize()
        except torch.AcceleratorError as error:
            print(error.error_code)
        """
    )
    assert done.stdout.split() == ["700"]


@pytest.mark.parametrize("waits", [True, False])
def test_a_process_ends_while_a_kernel_waits(waits):
    start = time.monotonic()
    done = run(
        f"""
        import flambeau as torch
        kernel = torch.cuda._compile_kernel({SOURCE!r}, "await")
        flag = torch.zeros(2, dtype=torch.int32, device="cuda")
        kernel(args=[flag, 1, flag[1:]])
        time.sleep(0.06)
        if {waits}:
            threading.Thread(target=torch.cuda.synchronize, daemon=True).start()
            time.sleep(0.02)
        print("end")
        """
    )
    assert done.stdout.split() == ["end"]
    assert time.monotonic() - start < 20


def test_checks_see_one_thing_at_a_time(kernels, flags):
    a, b = streams(2)
    torch.cuda.synchronize()
    with virtual.checks("memory", mode="collect") as found:
        kernels("rally", a, flags, 1, 5)
        kernels("rally", b, flags, 0, 5)
        torch.cuda.synchronize()
    assert flags[0].item() == 10
    assert found.reports == []
