# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import mmap
import pickle

import pytest

import flambeau as torch
from flambeau.driver import _table
from support import needs_two


def test_check_error_raises_for_everything_but_success() -> None:
    torch.cuda.check_error(0)
    torch.cuda.check_error(torch.cuda.cudart().cudaError.success)
    with pytest.raises(torch.cuda.CudaError, match=r"^out of memory \(2\)$") as caught:
        torch.cuda.check_error(2)
    assert isinstance(caught.value, RuntimeError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == "out of memory (2)"


def test_statuses() -> None:
    error = torch.cuda.cudart().cudaError
    assert error.success == 0
    assert error(0) is error.success
    assert error(101) == 101
    assert error(101).name == "cudaErrorInvalidDevice"
    assert torch.cuda.cudart().cudaGetErrorString(error(101)) == "invalid device ordinal"
    assert (torch.cuda.cudaStatus.SUCCESS, torch.cuda.cudaStatus.ERROR_NOT_READY) == (0, 34)


def test_host_memory_is_pinned_and_unpinned() -> None:
    runtime = torch.cuda.cudart()
    buffer = mmap.mmap(-1, 1 << 16)
    view = (ctypes.c_char * len(buffer)).from_buffer(buffer)
    address = ctypes.addressof(view)
    assert runtime.cudaHostRegister(address, len(buffer), 0) == runtime.cudaError.success
    assert runtime.cudaHostRegister(address, len(buffer), 0) == 712
    assert runtime.cudaHostUnregister(address) == runtime.cudaError.success
    assert runtime.cudaHostUnregister(address) == 713
    del view
    buffer.close()


def test_a_failed_call_leaves_no_error_behind() -> None:
    assert torch.cuda.cudart().cudaHostUnregister(64) != 0
    assert torch.cuda.cudart().cudaStreamDestroy(0) == 400
    assert (torch.ones(2, device="cuda") + 1).tolist() == [2.0, 2.0]
    torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStop())


@needs_two
def test_memory_figures() -> None:
    free, total = torch.cuda.cudart().cudaMemGetInfo(1)
    assert 0 < free <= total == torch.cuda.get_device_properties(1).total_memory
    with pytest.raises(torch.cuda.AcceleratorError) as caught:
        torch.cuda.cudart().cudaMemGetInfo(99)
    assert caught.value.error_code == 101


@pytest.fixture
def calls() -> object:
    _table.start_trace()
    yield lambda: [name for name, _ in _table.stop_trace() if "Profiler" in name]
    _table.stop_trace()


def test_the_profiler_is_started_and_stopped(calls: object) -> None:
    torch.cuda.profiler.start()
    torch.cuda.profiler.stop()
    with pytest.raises(KeyError), torch.cuda.profiler.profile():
        raise KeyError
    assert calls() == ["cuProfilerStart", "cuProfilerStop"] * 2


def test_a_profiler_that_refuses_is_an_error(fault: object) -> None:
    fault("cuProfilerStart", status=8)
    with pytest.raises(torch.cuda.CudaError, match=r"\(8\)$"):
        torch.cuda.profiler.start()
    torch.cuda.profiler.start()
    torch.cuda.profiler.stop()
    assert "conckerneltrace" in torch.cuda.profiler.DEFAULT_FLAGS
