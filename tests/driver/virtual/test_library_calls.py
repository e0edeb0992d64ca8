# SPDX-License-Identifier: Apache-2.0
"""Library calls on virtual GPUs: order, checks, faults, graphs, modelled time."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.driver.virtual import _machine
from flambeau.ops.library_call import LibraryCall


@pytest.mark.parametrize("policy", ["fifo", "random:5", "adversarial"])
def test_results_under_every_schedule(policy: str) -> None:
    rng = np.random.default_rng(2)
    a = rng.normal(size=(3, 6, 6)) + 6 * np.eye(6)
    with torch.virtual.schedule(policy), torch.virtual.checks():
        x = torch.from_numpy(a).to("cuda", non_blocking=True)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            spectrum = torch.fft.rfft(x)
        inverse = torch.linalg.inv(x)
        q, r = torch.linalg.qr(x)
        torch.cuda.current_stream().wait_stream(side)
        np.testing.assert_allclose(inverse.cpu().numpy(), np.linalg.inv(a), atol=1e-9)
        np.testing.assert_allclose((q @ r).cpu().numpy(), a, atol=1e-9)
        np.testing.assert_allclose(spectrum.cpu().numpy(), np.fft.rfft(a), atol=1e-9)


def test_missing_wait_is_found() -> None:
    with torch.virtual.checks("race", mode="collect") as found:
        x = torch.ones(64, dtype=torch.complex64, device="cuda")
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        x.mul_(2)
        with torch.cuda.stream(side):
            torch.fft.fft(x)
        assert any("fft_c2c" in str(one) for one in found.collect())


def test_unwritten_memory_is_found() -> None:
    with torch.virtual.checks("init", mode="collect") as found:
        torch.fft.fft(torch.empty(8, dtype=torch.complex64, device="cuda"))
        assert any("fft_c2c" in str(one) for one in found.collect())


def _submit(name: str, function: Any, ranges: list[tuple[int, int, bool]]) -> None:
    with LibraryCall(0) as call:
        _machine.submit_library_call(name, function, ranges, 0.0, 0.0, call.stream)


def test_functions_are_let_go() -> None:
    class Work:
        def __call__(self) -> None:
            pass

    torch.ones(1, device="cuda")
    work = Work()
    alive = weakref.ref(work)
    _submit("work", work, [])
    del work
    assert alive() is not None
    torch.cuda.synchronize()
    _submit("next", print, [(0, 0, False)])  # forgets those that have run
    gc.collect()
    assert alive() is None
    torch.cuda.synchronize()


def test_captured_calls_run_at_every_replay_and_are_one_node() -> None:
    x = torch.ones(4, 4, device="cuda") + 3 * torch.eye(4, device="cuda")
    torch.linalg.cholesky_ex(x)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        factors, info = torch.linalg.cholesky_ex(x)
    x.fill_(0).diagonal().fill_(4)
    graph.replay()
    assert factors.diagonal().tolist() == [2.0] * 4
    x.diagonal().fill_(9)
    graph.replay()
    assert factors.diagonal().tolist() == [3.0] * 4
    assert info.item() == 0


def test_time_is_modelled() -> None:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def milliseconds(n: int) -> float:
        x = torch.eye(n, device="cuda")
        torch.cuda.synchronize()
        start.record()
        torch.linalg.lu_factor_ex(x)
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end))

    milliseconds(8)
    small, large = milliseconds(16), milliseconds(256)
    assert 0 < small < large
    assert milliseconds(256) == pytest.approx(large, rel=0.2)


_FAULT = """
import flambeau as torch
from flambeau.driver.virtual import _machine
from flambeau.ops.library_call import LibraryCall
torch.ones(1, device="cuda")
with LibraryCall(0) as call:
    _machine.submit_library_call("solver_x", {function}, {ranges}, 0.0, 0.0, call.stream)
try:
    torch.cuda.synchronize()
except torch.AcceleratorError as error:
    print(error.error_code, error)
"""


@pytest.mark.parametrize(
    ("function", "ranges", "code", "text"),
    [
        ("print", "[(4096, 8, True)]", "700", "solver_x's write of 8 bytes at 0x1000"),
        ("(lambda: 1 / 0)", "[]", "719", "solver_x failed: ZeroDivisionError"),
    ],
)
def test_faults_lose_the_context(function: str, ranges: str, code: str, text: str) -> None:
    program = _FAULT.format(function=function, ranges=ranges)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(code)
    assert text in done.stdout
