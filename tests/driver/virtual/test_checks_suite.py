# SPDX-License-Identifier: Apache-2.0
"""Tests of the library's own operations under all checks: nothing is found.

``make check-all`` runs the whole suite so; here are a part that takes seconds and, with ``--slow``,
those that launch most kernels, streams and graphs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
QUICK = ["cuda/test_graph_conditional.py", "runtime/test_streams.py"]
PARTS = [
    ["ops/test_reductions.py", "ops/test_indexing.py", "ops/test_elementwise.py"],
    ["ops/test_sorting.py", "ops/test_shapes.py", "ops/test_foreach.py", "ops/test_embedding.py"],
    ["runtime/test_reduce.py", "runtime/test_tensor_views.py", "ops/test_softmax.py"],
    ["runtime/test_allocator_streams.py", "runtime/test_allocator_walk.py"],
    ["cuda/test_graphs.py", "cuda/test_graphed_callables.py", "cuda/test_memory_async.py"],
    ["cuda/test_comm.py", "cuda/test_nccl.py", "multiprocessing"],
    ["autograd", "nn", "optim", "amp"],
    ["linalg", "fft", "ops/test_matmul.py"],
]


def look_for_findings(*files: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--check=all", *files],
        cwd=TESTS,
        env={**os.environ, "FLAMBEAU_VIRTUAL": "h200:2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


pytestmark = pytest.mark.unchecked("runs other tests with checks on")


def test_a_part_of_the_suite_is_clean() -> None:
    look_for_findings(*QUICK)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("files", PARTS, ids="+".join)
def test_the_suite_is_clean(files: list[str]) -> None:
    look_for_findings(*files)
