# SPDX-License-Identifier: Apache-2.0
"""Host threads that share a grid's blocks."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

ADD = """
extern "C" __global__ void accumulate(double* x, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  double v = x[i];
  for (int k = 0; k < rounds; ++k) v = v * 0.5 + i;
  x[i] = v;
}"""


def expected(n: int, rounds: int) -> np.ndarray:
    v = np.zeros(n)
    for _ in range(rounds):
        v = v * 0.5 + np.arange(n)
    return v


def test_many_workers_give_the_same_result(cuda):
    n = 64 * 256
    for workers in (1, 2, 3, 8):
        x = np.zeros(n)
        cuda(ADD).run("accumulate", 64, 256, x, np.int32(20), workers=workers)
        np.testing.assert_array_equal(x, expected(n, 20))


def test_grids_at_the_same_time(cuda):
    module = cuda(ADD)
    n = 64 * 256
    arrays = [np.zeros(n) for _ in range(6)]

    def run(x: np.ndarray) -> None:
        module.run("accumulate", 64, 256, x, np.int32(50), workers=2)

    threads = [threading.Thread(target=run, args=(x,)) for x in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for x in arrays:
        np.testing.assert_array_equal(x, expected(n, 50))


FORK = f"""
import os, sys
import numpy as np
from driver.virtual.ptx.compiler import compile_ptx
from driver.virtual.ptx.harness import Module

module = Module(compile_ptx({ADD!r}))

def total():
    x = np.zeros(64 * 256)
    module.run("accumulate", 64, 256, x, np.int32(30), workers=2)
    return x.sum()

before = total()
child = os.fork()
if child == 0:
    os._exit(0 if total() == before else 3)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status) or int(total() != before))
"""


def test_a_forked_child_has_workers_of_its_own():
    folder = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", FORK], cwd=folder, timeout=60, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
