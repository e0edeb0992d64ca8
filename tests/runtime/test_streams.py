# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from flambeau.driver.errors import AcceleratorError
from flambeau.runtime import _cuda_device, _state, lazy_init, sync_debug
from flambeau.runtime._event import BaseEvent, Event
from flambeau.runtime._stream import (
    BaseStream,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)
from support import run_script

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _default() -> Iterator[None]:
    lazy_init.lazy_init()
    yield
    for device in reversed(range(_state.count_devices())):
        set_stream(default_stream(device))


@pytest.fixture
def two_devices() -> None:
    if _state.count_devices() < 2:
        pytest.skip("needs two GPUs")


def test_the_pool_goes_round() -> None:
    run_script(
        """
        from flambeau.runtime._stream import Stream
        streams = [Stream() for _ in range(34)]
        ids = [s.stream_id for s in streams]
        assert ids == [(i << 5) | 3 for i in range(32)] + [3, 35], ids
        assert streams[0] == streams[32] and hash(streams[0]) == hash(streams[32])
        assert streams[0] is not streams[32] and streams[0] != streams[1]
        assert len({s.cuda_stream for s in streams}) == 32
        """,
        prelude="",
    )


@pytest.mark.parametrize(
    ("asked", "given"), [(-1, -1), (-2, -2), (-3, -3), (-4, -3), (-100, -3), (1, 0), (5, 0)]
)
def test_priorities_are_clamped(asked: int, given: int) -> None:
    lowest, highest = Stream.priority_range()
    assert (lowest, highest) == (0, -3)
    made = Stream(priority=asked)
    assert made.priority == given
    assert (made.stream_id >> 1) & 15 == 1 - given


def test_the_default_stream() -> None:
    default = default_stream()
    assert (default.stream_id, default.cuda_stream, default.native_handle) == (0, 0, 0)
    assert default.__cuda_stream__() == (0, 0)
    assert repr(default) == "<torch.cuda.Stream device=cuda:0 cuda_stream=0x0>"
    assert default.device_type == 1
    assert default.device_index == 0
    assert default.priority == 0
    assert default == current_stream()
    assert default != None  # noqa: E711
    assert default != 0


def test_rebuilding_from_the_id() -> None:
    made = Stream(priority=-2)
    again = Stream(stream_id=made.stream_id, device_index=0, device_type=1)
    assert again == made
    assert again.stream_id == made.stream_id
    assert Stream(stream_id=0, device_index=0) == default_stream()
    with pytest.raises(RuntimeError, match="invalid StreamId"):
        Stream(stream_id=(40 << 5) | 3, device_index=0)
    with pytest.raises(RuntimeError, match="device_type 2"):
        Stream(stream_id=3, device_index=0, device_type=2)


def test_streams_of_others() -> None:
    made = Stream()
    external = ExternalStream(made.cuda_stream)
    assert external == made
    assert external.stream_id == made.cuda_stream
    assert repr(external) == repr(made)
    assert isinstance(external, Stream)
    assert ExternalStream(0) == default_stream()
    assert ExternalStream(None) == default_stream()
    assert get_stream_from_external(0) == default_stream()
    assert type(get_stream_from_external(made.cuda_stream)) is Stream
    with pytest.raises(RuntimeError, match="Priority was explicitly set for an external stream"):
        ExternalStream(made.cuda_stream, priority=-1)
    with pytest.raises(TypeError, match="wrong"):
        ExternalStream(made.cuda_stream, wrong=1)


def test_unknown_devices() -> None:
    with pytest.raises(AcceleratorError, match="invalid device ordinal") as caught:
        Stream(device=99)
    assert caught.value.error_code == 101
    text = rf"Device index value 99 is out of index range \[0, {_state.count_devices()}\)"
    for ask in (current_stream, default_stream):
        with pytest.raises(RuntimeError, match=text):
            ask(99)
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        Stream(device="cpu")


@pytest.mark.usefixtures("two_devices")
def test_contexts_that_cross_devices_put_everything_back() -> None:
    a, b = Stream(device=0), Stream(device=1)
    with stream(a):
        with stream(b):
            assert _state.current_device() == 1
            assert current_stream() == b
            assert current_stream(0) == a
        assert _state.current_device() == 0
        assert current_stream() == a
        assert current_stream(1) == default_stream(1)
    with pytest.raises(KeyError), stream(b):
        raise KeyError
    assert _state.current_device() == 0
    assert current_stream(0) == default_stream(0)


@pytest.mark.usefixtures("two_devices")
def test_a_stream_set_inside_is_undone_too() -> None:
    a, b, c = Stream(device=0), Stream(device=1), Stream(device=0)
    set_stream(c)
    with stream(b):
        set_stream(a)
        assert _state.current_device() == 0
    assert current_stream(0) == c
    assert _state.current_device() == 0
    assert current_stream(1) == default_stream(1)


@pytest.mark.usefixtures("two_devices")
def test_setting_a_stream_makes_its_device_current() -> None:
    set_stream(None)
    other = Stream(device=1)
    set_stream(other)
    assert _state.current_device() == 1
    assert current_stream() == other


def test_a_thread_starts_on_the_default_stream() -> None:
    found = []
    with stream(Stream()):
        thread = threading.Thread(target=lambda: found.append(current_stream().stream_id))
        thread.start()
        thread.join()
    assert found == [0]


def test_a_stream_is_a_context_manager() -> None:
    made = Stream()
    with made as inside:
        assert inside is made
        with made:
            assert current_stream() == made
        assert current_stream() == made
    assert current_stream() == default_stream()


def test_a_stream_entered_in_two_threads() -> None:
    made = Stream()
    inside, go = threading.Event(), threading.Event()
    found = []

    def work() -> None:
        with made:
            inside.set()
            go.wait()
        found.append(current_stream().stream_id)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    with stream(Stream()) as nothing, made:
        assert nothing is None
        go.set()
        thread.join()
        assert current_stream() == made
    assert found == [0]
    assert current_stream() == default_stream()


def test_no_stream_changes_nothing() -> None:
    made = Stream()
    with stream(made), stream(None):
        assert current_stream() == made
    assert isinstance(stream(None), StreamContext)
    run_script(
        """
        from flambeau.runtime import _state
        from flambeau.runtime._stream import stream
        stream(None)
        assert _state.is_initialized()
        """,
        prelude="",
    )


class Foreign:
    def __init__(self, pointer: int) -> None:
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.pointer)


def test_streams_of_other_libraries_are_taken() -> None:
    made = Stream(device=_state.count_devices() - 1)
    foreign = Foreign(made.cuda_stream)
    with stream(foreign):
        assert current_stream() == made
    event = Event()
    event.record(foreign)
    assert event.device == made.device
    Stream().wait_stream(foreign)
    event.wait(foreign)
    for wrong in (3, "s", object()):
        with pytest.raises(RuntimeError, match=r"expected stream to be a torch\.Stream"):
            event.record(wrong)


def test_order_between_streams() -> None:
    a, b = Stream(), Stream()
    with stream(a):
        _cuda_device.spin(1_000_000)
    mark = a.record_event()
    assert a.record_event(mark) is mark
    b.wait_stream(a)
    b.wait_event(mark)
    b.synchronize()
    assert mark.query()
    assert a.query()
    assert not a.is_capturing()


def test_both_bases_are_public() -> None:
    assert isinstance(Stream(), BaseStream)
    assert isinstance(Event(), BaseEvent)
    generic = BaseStream("cuda", priority=-1)
    assert generic.priority == -1
    assert (Stream.__module__, Stream.__name__) == ("flambeau.cuda.streams", "Stream")
    assert (Event.__module__, BaseEvent.__module__) == ("flambeau.cuda.streams", "flambeau")
    event = BaseEvent("cuda", enable_timing=True)
    event.record(generic)
    event.synchronize()
    assert event.elapsed_time(event) == 0.0
    with pytest.raises(RuntimeError, match="only CUDA devices have events"):
        BaseEvent("cpu")


def test_subclasses_and_attributes() -> None:
    class Named(Stream):
        def __new__(cls, name: str) -> Named:
            made = super().__new__(cls, priority=-1)
            made.name = name
            return made

        def __init__(self, name: str) -> None:
            pass

    named = Named("copies")
    assert (named.name, named.priority) == ("copies", -1)
    with stream(named):
        assert current_stream() == named


def test_waiting_is_reported() -> None:
    made = Stream()
    sync_debug._announced = True
    try:
        sync_debug.set_mode("error")
        with pytest.raises(RuntimeError, match=r"called a synchronizing CUDA operation.*"):
            made.synchronize()
        _state.synchronize()
        made.record_event().synchronize()
        assert made.query()
    finally:
        sync_debug.set_mode(0)
