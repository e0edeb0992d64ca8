# SPDX-License-Identifier: Apache-2.0
"""How launches reach NVIDIA's driver."""

import pytest

import flambeau as torch
from flambeau import driver
from flambeau.driver import _table
from support import run_script

pytestmark = pytest.mark.gpu

# What drivers before 13.1 lack.
LATER = {"cuGraphGetId", "cuGraphExecGetId", "cuGraphNodeGetToolsId", "cuGraphNodeGetLocalId"}


def test_the_driver_has_every_entry_of_the_table(gpu):
    done = run_script(
        """
        from flambeau.driver.nvidia import _nvidia
        outcome, reason, missing = _nvidia.load("libcuda.so.1")
        assert outcome == 0, reason
        print(missing)
        """
    )
    missing = {name for name in done.stdout.strip().split(", ") if name}
    assert missing <= LATER


def test_own_kernels_may_overlap_the_end_of_their_predecessors(gpu):
    a = torch.ones(1024, device=gpu)
    m = torch.ones(64, 64, device=gpu)
    for _ in range(2):
        _table.start_trace()
        try:
            _ = a + a, a.sum(), a.view(32, 32).t() + 1, torch.rand(1024, device=gpu), m @ m
        finally:
            calls = [name for name, _ in _table.stop_trace()]
    overlap = driver.current().supports("programmatic_launch")
    assert overlap == (torch.cuda.get_device_capability(gpu) >= (9, 0))
    assert calls.count("cuLaunchKernelEx" if overlap else "cuLaunchKernel") == 5
    assert "cuGemm" not in calls
