# SPDX-License-Identifier: Apache-2.0
"""The example project of the documentation, made in a folder and run as the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
FILES = re.compile(r"^```(?:python|ini)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_project_passes_as_the_page_says(tmp_path: Path) -> None:
    page = PAGE.read_text()
    files = dict(FILES.findall(page))
    assert sorted(files) == ["pytest.ini", "test_pipeline.py", "test_saxpy.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = re.search(r"^pytest (.*)$", page, re.MULTILINE)
    assert command is not None
    # The second file's tests need two GPUs, which the configuration file gives.
    for options, name, passed in (
        (shlex.split(command[1]), "test_saxpy.py", 4),
        ([], "test_pipeline.py", 6),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "flambeau.testing.plugin", *options, name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert f" {passed} passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.unchecked("checks find the missing wait under each order")
def test_without_the_line_that_the_page_names_the_adversarial_order_fails(tmp_path: Path) -> None:
    text = dict(FILES.findall(PAGE.read_text()))["test_pipeline.py"]
    lines = [line for line in text.splitlines() if "without this line" not in line]
    assert len(lines) == len(text.splitlines()) - 1
    (tmp_path / "test_pipeline.py").write_text("\n".join(lines))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "flambeau.testing.plugin", "--gpus=virtual:2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert re.search(r"FAILED .*\[adversarial\]", done.stdout), done.stdout + done.stderr
    assert "[fifo]" not in done.stdout.split("short test summary")[1]
