# SPDX-License-Identifier: Apache-2.0
"""Fault injection and tracing in front of the active driver table."""

import pytest

import flambeau as torch
from flambeau.driver import _table
from flambeau.driver.errors import AcceleratorError


@pytest.fixture(autouse=True)
def _untouched_table():
    yield
    _table.clear_faults()
    _table.stop_trace()


def test_entries_are_named_as_the_driver_api_names_them():
    names = _table.entries()
    assert len(names) == len(set(names))
    assert {"cuInit", "cuLaunchKernel", "cuStreamWaitEvent", "cuMemcpyHtoDAsync"} <= set(names)


def test_only_the_planned_calls_fail():
    torch.cuda.synchronize()
    _table.inject("cuCtxSynchronize", status=999, nth=2, times=2)
    torch.cuda.synchronize()
    for _ in range(2):
        with pytest.raises(AcceleratorError, match="unknown error") as caught:
            torch.cuda.synchronize()
        assert caught.value.error_code == 999
    torch.cuda.synchronize()


def test_cleared_plans_no_longer_fail():
    torch.cuda.synchronize()
    _table.inject("cuCtxSynchronize", status=999)
    _table.clear_faults()
    torch.cuda.synchronize()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"entry": "cuNothing", "status": 1}, "no driver entry is called 'cuNothing'"),
        ({"entry": "cuInit", "status": 1, "nth": 0}, "count from 1"),
        ({"entry": "cuInit", "status": 1, "times": 0}, "count from 1"),
    ],
)
def test_bad_plans_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        _table.inject(**arguments)


def test_trace_lists_calls_in_order_with_their_status():
    event = torch.cuda.Event()
    event.record()
    _table.start_trace()
    event.record()
    event.synchronize()
    calls = _table.stop_trace()
    names = [name for name, _ in calls]
    assert names.index("cuEventRecord") < names.index("cuEventSynchronize")
    assert all(status == 0 for _, status in calls)
    event.record()
    assert _table.stop_trace() == []
