# SPDX-License-Identifier: Apache-2.0
"""Every Python block of the documentation runs on virtual GPUs, and its output is checked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNNER = Path(__file__).with_name("run_blocks.py")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
WITH_CODE = [page for page in PAGES if re.search(r"^```(python|pycon)$", page.read_text(), re.M)]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run_blocks(page: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(RUNNER), str(page)],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env={**os.environ, "FLAMBEAU_VIRTUAL": "h200:2"},
    )


# Pages that show what a missing wait does.
WITH_RACES = {"docs/sanitizer.md", "docs/streams.md"}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.finds("race")] if name_of(page) in WITH_RACES else [])
        for page in WITH_CODE
    ],
    ids=name_of,
)
def test_blocks_run(page: Path) -> None:
    done = run_blocks(page)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", ["```pycon\n>>> 1 + 1\n3\n```\n", "```python\n1 / 0\n```\n"])
def test_a_wrong_block_is_noticed(tmp_path: Path, block: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{block}")
    assert run_blocks(page).returncode == 1


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []
