# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from flambeau.driver import _table
from flambeau.driver.errors import AcceleratorError
from flambeau.runtime import _cuda_device, _state, lazy_init
from flambeau.runtime._event import Event
from flambeau.runtime._stream import Stream, stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def _initialised() -> Iterator[None]:
    lazy_init.lazy_init()
    yield
    _state.synchronize()


def test_before_the_first_record() -> None:
    event = Event()
    assert event.query() is True
    assert event.device is None
    assert event.cuda_event == 0
    assert repr(event) == "<torch.cuda.Event uninitialized>"
    event.synchronize()
    event.wait()


def test_times_have_a_sign() -> None:
    a, b = Event(enable_timing=True), Event(enable_timing=True)
    side = Stream()
    a.record(side)
    with stream(side):
        _cuda_device.spin(1_000_000)
    b.record(side)
    b.synchronize()
    assert a.elapsed_time(b) > 0
    assert b.elapsed_time(a) == -a.elapsed_time(b)
    assert a.elapsed_time(a) == 0.0


def test_what_a_time_needs(keep_busy: Callable[[Stream], None]) -> None:
    a, b = Event(enable_timing=True), Event(enable_timing=True)
    with pytest.raises(ValueError, match="must be created with argument 'enable_timing=True'"):
        a.elapsed_time(Event())
    with pytest.raises(ValueError, match="Both events must be recorded"):
        a.elapsed_time(b)
    side = Stream()
    a.record(side)
    keep_busy(side)
    b.record(side)
    with pytest.raises(RuntimeError, match="Both events must be completed"):
        a.elapsed_time(b)
    with pytest.raises(TypeError):
        a.elapsed_time(None)  # type: ignore[arg-type]


def test_recording_again_moves_the_mark(keep_busy: Callable[[Stream], None]) -> None:
    side, event = Stream(), Event()
    event.record(side)
    event.synchronize()
    assert event.query()
    keep_busy(side)
    event.record(side)
    assert not event.query()
    event.synchronize()
    assert event.query()


def test_an_event_belongs_to_one_device() -> None:
    if _state.count_devices() < 2:
        pytest.skip("needs two GPUs")
    event = Event()
    event.record(Stream(device=0))
    other = Stream(device=1)
    with pytest.raises(
        RuntimeError, match=r"Event device 0 does not match recording stream's device 1\."
    ):
        event.record(other)
    event.wait(other)
    other.synchronize()


def test_handles_for_other_processes() -> None:
    event = Event(interprocess=True)
    handle = event.ipc_handle()
    assert len(handle) == 64
    assert event.cuda_event != 0
    with pytest.raises(AcceleratorError) as caught:
        Event().ipc_handle()
    assert caught.value.error_code == 400
    with pytest.raises(AcceleratorError) as caught:
        Event(interprocess=True, enable_timing=True).ipc_handle()
    assert caught.value.error_code == 1
    for wrong in (b"short", 64, None):
        with pytest.raises(RuntimeError, match="expects byte-like object of size 64"):
            Event.from_ipc_handle("cuda:0", wrong)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="only CUDA devices"):
        Event.from_ipc_handle("cpu", handle)


def test_events_are_destroyed_by_the_next_call_not_by_the_finalizer() -> None:
    event = Event()
    event.record()
    gc.collect()
    _state.note_pending()
    _table.start_trace()
    try:
        del event
        _state.note_pending()
        calls = _table.stop_trace()
    finally:
        _table.stop_trace()
    assert calls == [("cuEventDestroy", 0)]


def test_a_host_error_is_raised_by_the_next_call() -> None:
    _state.defer_error(KeyError("from a callback"))
    with pytest.raises(KeyError, match="from a callback"):
        _state.synchronize()
    _state.synchronize()


def test_deferred_calls_run_once() -> None:
    made = []
    _state.defer_call(lambda: made.append(1))
    _state.synchronize()
    _state.synchronize()
    assert made == [1]
