# SPDX-License-Identifier: Apache-2.0
"""The allocators' C++ under the compiler's sanitizers, from several threads."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import flambeau

COMPILER = shutil.which(os.environ.get("CXX", "c++"))
SOURCE = Path(__file__).parent / "native" / "allocator_stress.cpp"


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_threads_leave_the_books_in_balance(sanitizer: str, tmp_path: Path) -> None:
    program = tmp_path / "stress"
    include = Path(flambeau.__file__).parents[1]
    build = [str(COMPILER), "-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
    build += [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", f"-I{include}"]
    subprocess.run([*build, str(SOURCE), "-o", str(program)], check=True)
    environment = {
        **os.environ,
        "ASAN_OPTIONS": "detect_leaks=0",
        "TSAN_OPTIONS": "halt_on_error=1",
    }
    for arguments in ([], ["whole"], ["expanding"]):
        done = subprocess.run(
            [str(program), *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
