# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes

import pytest

import flambeau as torch
from support import needs_two


def test_a_new_event_is_no_driver_event_yet() -> None:
    event = torch.cuda.Event()
    assert event.device is None
    assert event.cuda_event == 0
    assert event.query() is True
    assert event.synchronize() is None
    assert event.wait() is None
    assert repr(event) == "<torch.cuda.Event uninitialized>"
    assert isinstance(event, torch.Event)


@needs_two
def test_the_first_record_makes_it_on_the_stream_s_device() -> None:
    event = torch.cuda.Event()
    event.record(torch.cuda.Stream(1))
    assert event.device == torch.device("cuda:1")
    assert event.cuda_event != 0
    assert event.event_id == event.cuda_event
    assert event._as_parameter_.value == event.cuda_event
    assert isinstance(event._as_parameter_, ctypes.c_void_p)
    assert "uninitialized" not in repr(event)
    assert f"{event.cuda_event:#x}" in repr(event)


def test_recording_takes_streams_only() -> None:
    for call in (torch.cuda.Event().record, torch.cuda.Event().wait):
        with pytest.raises(RuntimeError, match=r"expected stream to be a torch\.Stream"):
            call(3)


@needs_two
def test_an_event_belongs_to_one_device() -> None:
    event = torch.cuda.Event()
    event.record()
    text = "Event device 0 does not match recording stream's device 1."
    with pytest.raises(RuntimeError, match=text):
        event.record(torch.cuda.Stream(1))
    event.wait(torch.cuda.Stream(1))
    assert event.device == torch.device("cuda:0")


def test_elapsed_time_needs_timing_then_records_then_completion() -> None:
    timed = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    plain = torch.cuda.Event()
    with pytest.raises(ValueError, match="must be created with argument 'enable_timing=True'"):
        timed[0].elapsed_time(plain)
    with pytest.raises(ValueError, match="Both events must be recorded"):
        timed[0].elapsed_time(timed[1])
    timed[0].record()
    torch.cuda._sleep(100_000_000)
    timed[1].record()
    with pytest.raises(RuntimeError, match="Both events must be completed"):
        timed[0].elapsed_time(timed[1])
    timed[1].synchronize()
    assert timed[0].elapsed_time(timed[1]) > 0


def test_elapsed_time_has_a_sign() -> None:
    a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    a.record()
    torch.cuda._sleep(1_000_000)
    b.record()
    b.synchronize()
    assert b.elapsed_time(a) < 0
    assert a.elapsed_time(b) == -b.elapsed_time(a)
    assert a.elapsed_time(a) == 0.0


def test_recording_again_moves_the_event() -> None:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    end.record()
    end.synchronize()
    before = start.elapsed_time(end)
    torch.cuda._sleep(10_000_000)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > before


def test_interprocess_handles() -> None:
    event = torch.cuda.Event(interprocess=True)
    handle = event.ipc_handle()
    assert isinstance(handle, bytes)
    assert len(handle) == 64
    assert event.device == torch.device("cuda:0")
    plain = torch.cuda.Event()
    plain.record()
    for refused in (plain, torch.cuda.Event()):
        with pytest.raises(torch.cuda.AcceleratorError) as caught:
            refused.ipc_handle()
        assert caught.value.error_code == 400


def test_an_interprocess_event_cannot_be_timed() -> None:
    event = torch.cuda.Event(enable_timing=True, interprocess=True)
    with pytest.raises(torch.cuda.AcceleratorError) as caught:
        event.record()
    assert caught.value.error_code == 1


def test_opening_a_handle_checks_it() -> None:
    with pytest.raises(RuntimeError, match="expects byte-like object of size 64"):
        torch.cuda.Event.from_ipc_handle(0, b"short")
    with pytest.raises((RuntimeError, ValueError)):
        torch.cuda.Event.from_ipc_handle("cpu", bytes(64))


def test_a_process_cannot_open_its_own_event() -> None:
    event = torch.cuda.Event(interprocess=True)
    handle = event.ipc_handle()
    with pytest.raises(torch.cuda.AcceleratorError) as caught:
        torch.cuda.Event.from_ipc_handle(0, handle)
    assert caught.value.error_code == 201


def test_events_order_streams(schedule: str) -> None:
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    event = torch.cuda.Event()
    x = torch.zeros(100, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(producer):
        torch.cuda._sleep(1_000_000)
        x.fill_(4)
        event.record()
    event.wait(consumer)
    with torch.cuda.stream(consumer):
        y = x + 1
    consumer.synchronize()
    assert y.tolist() == [5.0] * 100
