# SPDX-License-Identifier: Apache-2.0
"""The commands that describe and check."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import flambeau
from flambeau.kernels.cache import DiskCache

if TYPE_CHECKING:
    from pathlib import Path

REAL = os.environ.get("FLAMBEAU_TEST_DEVICE") == "real"
virtual_only = pytest.mark.skipif(REAL, reason="describes virtual GPUs")


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flambeau", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


@virtual_only
def test_info_shows_devices_and_libraries() -> None:
    done = command("info", FLAMBEAU_VIRTUAL="a100:2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"flambeau {flambeau.__version__} in ")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row for row in rows if row[:1] == ["cuda:1"]]
    assert "A100" in done.stdout
    (nvrtc,) = [row for row in rows if row[:1] == ["libnvrtc"]]
    assert float(nvrtc[1]) >= 13.0
    assert nvrtc[2].startswith("/")


def test_info_without_a_device_points_to_the_doctor() -> None:
    done = command("info", FLAMBEAU_VIRTUAL="h200:1", CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stderr) == (0, "")
    assert "flambeau doctor" in done.stdout


@virtual_only
def test_doctor_finds_nothing_wrong_with_virtual_gpus() -> None:
    done = command("doctor", FLAMBEAU_VIRTUAL="h200:2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "CUDA is available: 2 x Virtual NVIDIA H200" in done.stdout


@virtual_only
def test_doctor_names_cause_and_remedy() -> None:
    done = command("doctor", FLAMBEAU_VIRTUAL="h200:2", CUDA_VISIBLE_DEVICES="7")
    assert (done.returncode, done.stderr) == (1, "")
    first, *findings = done.stdout.splitlines()
    assert first == "CUDA is not available."
    assert any(line.startswith("- CUDA_VISIBLE_DEVICES is '7'") for line in findings)


def test_cache_is_described_and_cleared(tmp_path: Path) -> None:
    where = {"FLAMBEAU_CACHE_DIR": str(tmp_path)}
    assert "holds nothing yet" in command("cache", "info", **where).stdout
    DiskCache(tmp_path / "kernels").put("abcdef", b"code")
    row = command("cache", "info", **where).stdout.splitlines()[-2].split()
    assert row[:2] == [str(tmp_path / "kernels"), "1"]
    assert command("cache", "clear", **where).stdout == f"removed 1 entries from {tmp_path}\n"
    assert DiskCache(tmp_path / "kernels").get("abcdef") is None


def test_version_and_help() -> None:
    assert command("--version").stdout == f"{flambeau.__version__}\n"
    for words in (["--help"], ["run", "--help"], ["cache", "--help"]):
        assert "Usage: flambeau" in command(*words).stdout
    bare = command("run")
    assert bare.returncode == 2
    assert "Usage: flambeau run" in bare.stderr
    wrong = command("no-such")
    assert wrong.returncode == 2
    assert "no-such" in wrong.stderr
