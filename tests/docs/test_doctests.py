# SPDX-License-Identifier: Apache-2.0
"""The examples in docstrings run on a virtual GPU."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "flambeau"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

pytestmark = pytest.mark.skipif(
    os.environ.get("FLAMBEAU_TEST_DEVICE") == "real", reason="examples show virtual GPUs"
)


def modules_with_examples() -> list[str]:
    """Modules whose text has an example, and the packages that re-export such objects."""
    names = {"flambeau", "flambeau.cuda"}
    for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyx")]:
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if ">>> " in path.read_text() and "path" not in parts:
            names.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(names)


# Modules whose examples show what a missing wait does.
WITH_RACES = {"flambeau.cuda._sanitizer"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.finds("race")] if name in WITH_RACES else [])
        for name in modules_with_examples()
    ],
)
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for test in doctest.DocTestFinder().find(module):
        runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)


PUBLIC = [
    "accelerator", "accelerator.memory", "accelerator.random", "amp", "backends.cuda",
    "backends.cudnn", "cuda", "cuda.amp", "cuda.comm", "cuda.gds", "cuda.graph_annotations",
    "cuda.graphs", "cuda.green_contexts", "cuda.jiterator", "cuda.memory", "cuda.nccl",
    "cuda.nvtx", "cuda.profiler", "cuda.random", "cuda.streams", "cuda.tunable", "profiler",
]  # fmt: skip
OF_ANOTHER_RUN = {"mgpu_tune_gemm_in_file", "tune_gemm_in_file"}
"""They need a file that another run has written."""


@pytest.mark.parametrize("name", PUBLIC)
def test_public_functions_have_an_example(name: str) -> None:
    module = importlib.import_module(f"flambeau.{name}")
    without = {
        public
        for public in module.__all__
        if inspect.isfunction(found := inspect.unwrap(getattr(module, public)))
        and ">>> " not in (inspect.getdoc(found) or "")
    }
    assert without <= OF_ANOTHER_RUN
