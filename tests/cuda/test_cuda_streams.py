# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import threading

import pytest

import flambeau as torch
from support import needs_two, run_script


def test_pool_streams_come_round_robin_and_are_shared() -> None:
    run_script("""
        streams = [torch.cuda.Stream() for _ in range(34)]
        assert [s.stream_id for s in streams] == [32 * (i % 32) + 3 for i in range(34)]
        first, again = streams[0], streams[32]
        assert first == again and hash(first) == hash(again) and first is not again
        assert not first != again
        assert len({s.cuda_stream for s in streams}) == 32 and 0 not in {
            s.cuda_stream for s in streams}
    """)


def test_priorities_are_clamped_into_the_range() -> None:
    assert torch.cuda.Stream.priority_range() == (0, -3)
    asked = (-1, -2, -3, -4, -100, 1, 5)
    assert [torch.cuda.Stream(priority=p).priority for p in asked] == [-1, -2, -3, -3, -3, 0, 0]


@needs_two
def test_the_default_stream() -> None:
    stream = torch.cuda.default_stream()
    assert (stream.stream_id, stream.cuda_stream, stream.priority) == (0, 0, 0)
    assert stream.__cuda_stream__() == (0, 0)
    assert stream == torch.cuda.current_stream()
    assert torch.cuda.default_stream(1) != stream
    assert torch.cuda.default_stream("cuda:1").device == torch.device("cuda:1")
    assert repr(stream) == "<torch.cuda.Stream device=cuda:0 cuda_stream=0x0>"


@needs_two
def test_what_a_stream_tells() -> None:
    stream = torch.cuda.Stream(device="cuda:1", priority=-1)
    assert stream.device == torch.device("cuda", 1)
    assert (stream.device_index, stream.device_type) == (1, 1)
    assert stream.__cuda_stream__() == (0, stream.cuda_stream)
    assert stream.native_handle == stream.cuda_stream
    assert isinstance(stream._as_parameter_, ctypes.c_void_p)
    assert stream._as_parameter_.value == stream.cuda_stream
    assert repr(stream) == f"<torch.cuda.Stream device=cuda:1 cuda_stream={stream.cuda_stream:#x}>"
    assert isinstance(stream, torch.Stream)
    assert stream.query() is True
    assert stream.is_capturing() is False
    assert stream.synchronize() is None


@needs_two
def test_a_stream_is_rebuilt_from_its_numbers() -> None:
    stream = torch.cuda.Stream(1, priority=-2)
    again = torch.cuda.Stream(
        stream_id=stream.stream_id, device_index=1, device_type=stream.device_type
    )
    assert again == stream
    assert again.cuda_stream == stream.cuda_stream
    assert again.priority == -2


@needs_two
def test_equality_is_of_pointer_and_device() -> None:
    stream = torch.cuda.Stream()
    external = torch.cuda.ExternalStream(stream.cuda_stream)
    assert external == stream
    assert hash(external) == hash(stream)
    assert (stream == None) is False  # noqa: E711 - the operator is what is tested
    assert (stream != None) is True  # noqa: E711
    assert stream != 3
    assert torch.cuda.default_stream(0) != torch.cuda.default_stream(1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.cuda.Stream(device=99),
        lambda: torch.cuda.Stream(device="cuda:99"),
        lambda: torch.cuda.set_device(99),
    ],
)
def test_a_stream_on_a_device_that_is_not_there(call: object) -> None:
    with pytest.raises(torch.cuda.AcceleratorError) as caught:
        call()
    assert caught.value.error_code == 101


@pytest.mark.parametrize("ask", [torch.cuda.current_stream, torch.cuda.default_stream])
def test_asking_for_the_stream_of_a_device_that_is_not_there(ask: object) -> None:
    count = torch.cuda.device_count()
    text = rf"Device index value 99 is out of index range \[0, {count}\)"
    with pytest.raises(RuntimeError, match=text):
        ask(99)
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        ask("cpu")


@needs_two
def test_set_stream_makes_its_device_current() -> None:
    stream = torch.cuda.Stream(1)
    torch.cuda.set_stream(stream)
    assert torch.cuda.current_device() == 1
    assert torch.cuda.current_stream() == stream == torch.cuda.current_stream(1)
    assert torch.cuda.current_stream(0) == torch.cuda.default_stream(0)
    assert torch.cuda.set_stream(None) is None
    assert torch.cuda.current_stream() == stream


@needs_two
def test_a_stream_context_on_another_device_puts_everything_back() -> None:
    stream = torch.cuda.Stream(1)
    with torch.cuda.stream(stream) as entered:
        assert entered is None
        assert torch.cuda.current_device() == 1
        assert torch.cuda.current_stream() == stream
    assert torch.cuda.current_device() == 0
    for index in range(2):
        assert torch.cuda.current_stream(index) == torch.cuda.default_stream(index)


@needs_two
def test_nested_stream_contexts_across_devices() -> None:
    a, b = torch.cuda.Stream(device=0), torch.cuda.Stream(device=1)
    torch.cuda.set_device(0)
    with torch.cuda.stream(a):
        with torch.cuda.stream(b):
            assert torch.cuda.current_device() == 1
            assert torch.cuda.current_stream() == b
            assert torch.cuda.current_stream(0) == a
        assert torch.cuda.current_device() == 0
        assert torch.cuda.current_stream() == a
        assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)
    with pytest.raises(KeyError), torch.cuda.stream(b):
        raise KeyError
    assert torch.cuda.current_device() == 0
    assert torch.cuda.current_stream(0) == torch.cuda.default_stream(0)
    assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)


@needs_two
def test_a_device_context_inside_a_stream_context() -> None:
    a, b = torch.cuda.Stream(0), torch.cuda.Stream(1)
    with torch.cuda.stream(a), torch.cuda.device(1), torch.cuda.stream(b):
        assert torch.cuda.current_stream(0) == a
        assert torch.cuda.current_stream(1) == b
    assert torch.cuda.current_device() == 0
    assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)


def test_with_a_stream_itself_gives_the_stream() -> None:
    stream = torch.cuda.Stream()
    with stream as entered:
        assert entered is stream
        assert torch.cuda.current_stream() == stream
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


@needs_two
def test_the_context_of_no_stream_changes_nothing() -> None:
    stream = torch.cuda.Stream(1)
    with torch.cuda.stream(stream), torch.cuda.stream(None):
        assert torch.cuda.current_stream() == stream
        assert torch.cuda.current_device() == 1
    assert isinstance(torch.cuda.stream(None), torch.cuda.StreamContext)


def test_each_thread_begins_on_the_default_streams() -> None:
    seen: list[int] = []
    with torch.cuda.stream(torch.cuda.Stream()):
        thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_stream().stream_id))
        thread.start()
        thread.join()
    assert seen == [0]


def test_external_streams() -> None:
    stream = torch.cuda.Stream()
    external = torch.cuda.ExternalStream(stream.cuda_stream)
    assert external.cuda_stream == stream.cuda_stream != 0
    assert isinstance(external, torch.cuda.Stream)
    assert repr(external) == repr(stream)
    with pytest.raises(RuntimeError, match="Priority was explicitly set for an external stream"):
        torch.cuda.ExternalStream(stream.cuda_stream, priority=-1)
    assert torch.cuda.ExternalStream(0) == torch.cuda.default_stream()
    assert torch.cuda.get_stream_from_external(0) == torch.cuda.default_stream()
    again = torch.cuda.get_stream_from_external(stream.cuda_stream, 0)
    assert again == stream
    assert type(again) is torch.cuda.Stream


def test_a_stream_that_the_runtime_made() -> None:
    runtime = torch.cuda.cudart()
    handle = ctypes.c_uint64()
    assert runtime.cudaStreamCreate(ctypes.addressof(handle)) == runtime.cudaError.success
    external = torch.cuda.ExternalStream(handle.value)
    with torch.cuda.stream(external):
        x = torch.ones(4, device="cuda") + 1
        assert torch.cuda.current_stream().cuda_stream == handle.value
    external.synchronize()
    assert x.tolist() == [2.0] * 4
    torch.cuda.synchronize()
    assert runtime.cudaStreamDestroy(handle.value) == runtime.cudaError.success


def test_work_on_an_external_stream_is_timed() -> None:
    stream = torch.cuda.Stream()
    external = torch.cuda.ExternalStream(stream.cuda_stream)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(external):
        start.record()
        x = torch.ones(4, device="cuda") * 3
        end.record()
        assert torch.cuda.current_stream().cuda_stream == stream.cuda_stream
    stream.synchronize()
    assert x.tolist() == [3.0] * 4
    assert end.query()
    assert start.elapsed_time(end) >= 0.0


def test_a_stream_waits_for_another_and_for_no_later_work(schedule: str) -> None:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(first):
        torch.cuda._sleep(1_000_000)
        x.add_(1)
    second.wait_stream(first)
    with torch.cuda.stream(second):
        y = x * 10
    second.synchronize()
    assert y.tolist() == [10.0] * 1000


def test_record_event_makes_or_takes_an_event() -> None:
    stream = torch.cuda.Stream()
    event = torch.cuda.Event()
    assert stream.record_event(event) is event
    made = stream.record_event()
    assert isinstance(made, torch.cuda.Event)
    torch.cuda.current_stream().wait_event(made)
    stream.synchronize()
    assert made.query()
    assert event.query()


@needs_two
def test_query_and_synchronize_see_the_stream_alone() -> None:
    busy, idle = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(busy):
        torch.cuda._sleep(100_000_000)
    assert idle.query() is True
    assert busy.query() is False
    with torch.cuda.device(1):
        busy.synchronize()
    assert busy.query() is True


@needs_two
def test_numbers_make_a_stream_and_its_device_current() -> None:
    side = torch.cuda.Stream(1)
    before = torch.cuda.current_stream()
    try:
        torch.cuda._set_stream_by_id(side.stream_id, side.device_index, side.device_type)
        assert torch.cuda.current_device() == 1
        assert torch.cuda.current_stream() == side
        assert torch.cuda.current_stream(0) == before
    finally:
        torch.cuda.set_stream(torch.cuda.default_stream(1))
        torch.cuda.set_stream(before)
    assert torch.cuda.current_stream() == before
    with pytest.raises((RuntimeError, ValueError)):
        torch.cuda._set_stream_by_id(0, torch.cuda.device_count(), 1)
    with pytest.raises((RuntimeError, ValueError)):
        torch.cuda._set_stream_by_id(0, 0, 0)  # a stream of the host
    assert torch.cuda.current_stream() == before
