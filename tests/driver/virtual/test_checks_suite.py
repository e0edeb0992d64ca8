# SPDX-License-Identifier: Apache-2.0
"""The library's own operations under all checks: no false alarm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "files",
    [
        ("ops/test_reductions.py", "ops/test_softmax.py"),
        ("ops/test_sorting.py", "ops/test_shapes.py"),
        ("runtime/test_streams.py", "runtime/test_reduce.py", "runtime/test_tensor_views.py"),
    ],
    ids="/".join,
)
def test_the_suite_is_clean(files: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=TESTS,
        env={**os.environ, "FLAMBEAU_CHECK": "all", "FLAMBEAU_VIRTUAL": "h200:2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "flambeau: " not in done.stderr, done.stderr[-4000:]
