# SPDX-License-Identifier: Apache-2.0
"""Processes that end with memory in use: silently, and with status 0."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import flambeau as torch
torch._C._accelerator_setAllocatorSettings(f"expandable_segments:{int(sys.argv[1]) % 2 == 1}")
side = torch.cuda.Stream()
pool = torch.cuda.MemPool()
keep = [torch.ones(1000, device="cuda") for _ in range(5)]
with torch.cuda.stream(side):
    keep.append(torch.ones(3 << 20, device="cuda"))
    torch.cuda._sleep(100_000)
keep[0].record_stream(side)
with torch.cuda.use_mem_pool(pool):
    keep.append(torch.ones(10, device="cuda"))
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out = keep[1] + 1
graph.replay()
pinned = torch.ones(100).pin_memory()
keep.append(pinned.to("cuda", non_blocking=True))
del keep[0]
class Cycle: pass
cycle = Cycle()
cycle.me, cycle.tensor = cycle, torch.ones(10, device="cuda")
"""


def end_processes(numbers: range, at_once: int = 4) -> None:
    """Run the program once for each number, some at a time."""
    waiting = list(numbers)
    while waiting:
        batch, waiting = waiting[:at_once], waiting[at_once:]
        running = [
            subprocess.Popen(
                [sys.executable, "-W", "error", "-c", PROGRAM, str(number)],
                env=dict(os.environ),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for number in batch
        ]
        for process in running:
            text, _ = process.communicate(timeout=120)
            assert (process.returncode, text) == (0, "")


def test_an_end_with_memory_in_use(gpu: object) -> None:
    end_processes(range(2), 2)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("batch", range(10))
def test_many_ends(gpu: object, batch: int) -> None:
    end_processes(range(20 * batch, 20 * batch + 20))
