# SPDX-License-Identifier: Apache-2.0
"""Callbacks cannot be taken back, so each test has a process of its own."""

from __future__ import annotations

from support import TWO_VIRTUAL, run_script

PRELUDE = """
import flambeau as torch
from flambeau.cuda import _gpu_trace

KINDS = [name.removeprefix("register_callback_for_") for name in _gpu_trace.__all__[1:]]
seen = []

def listen():
    for kind in KINDS:
        getattr(_gpu_trace, "register_callback_for_" + kind)(
            lambda *a, kind=kind: seen.append((kind, *a)))
    torch._C._activate_gpu_trace()

def expect(*calls):
    found = list(seen)
    seen.clear()
    assert found == list(calls), found
"""


def run(script: str) -> str:
    done = run_script(script, TWO_VIRTUAL, prelude=PRELUDE)
    return done.stderr


def test_events() -> None:
    run(
        """
        listen()
        torch.cuda.init()
        e = torch.cuda.Event()
        expect()
        e.record()
        h = e.cuda_event
        expect(("event_creation", h), ("event_record", h, 0))
        side = torch.cuda.Stream(1)
        seen.clear()
        e.wait(side)
        e.query()
        e.synchronize()
        expect(("event_wait", h, side.cuda_stream), ("event_synchronization", h))
        del e
        expect(("event_deletion", h))
        """
    )


def test_streams() -> None:
    run(
        """
        listen()
        s = torch.cuda.Stream()
        made = [a for kind, *a in seen]
        assert {kind for kind, *a in seen} == {"stream_creation"} and len(made) == 128
        assert [s.cuda_stream] in made and all(len(a) == 1 for a in made)
        seen.clear()
        t = torch.cuda.Stream()
        s.query()
        s.synchronize()
        torch.cuda.synchronize(1)
        expect(("stream_synchronization", s.cuda_stream), ("device_synchronization",))
        s.wait_stream(t)
        kinds = [kind for kind, *a in seen]
        assert kinds == ["event_creation", "event_record", "event_wait", "event_deletion"], kinds
        assert seen[1][2] == t.cuda_stream and seen[2][2] == s.cuda_stream
        """
    )


def test_memory() -> None:
    run(
        """
        listen()
        x = torch.empty(100, device="cuda")
        p = x.data_ptr()
        expect(("memory_allocation", p))
        y = x[10:]
        x.record_stream(torch.cuda.current_stream())
        del x
        expect()
        del y
        expect(("memory_deallocation", p))
        """
    )


def test_blocking_copies_wait_for_the_stream() -> None:
    run(
        """
        x = torch.ones(3, device="cuda")
        s = torch.cuda.Stream()
        pinned = torch.ones(3).pin_memory()
        torch.cuda.synchronize()
        listen()
        x.cpu()
        expect(("stream_synchronization", 0))
        with torch.cuda.stream(s):
            x.copy_(torch.zeros(3))
            x[0].item()
        expect(*[("stream_synchronization", s.cuda_stream)] * 2)
        x.copy_(pinned, non_blocking=True)
        expect()
        """
    )


def test_all_callbacks_are_called_in_order_whatever_they_raise() -> None:
    log = run(
        """
        calls = []
        def first(event):
            calls.append("first")
            raise ValueError("tool broken")
        _gpu_trace.register_callback_for_event_creation(first)
        _gpu_trace.register_callback_for_event_creation(lambda event: calls.append("second"))
        torch.cuda.Event().record()
        assert calls == []
        torch._C._activate_gpu_trace()
        torch._C._activate_gpu_trace()
        torch.cuda.Event().record()
        assert calls == ["first", "second"]
        _gpu_trace.register_callback_for_event_creation(lambda event: calls.append("third"))
        torch.cuda.Event().record()
        assert calls == ["first", "second", "first", "second", "third"]
        """
    )
    assert "tool broken" in log
    assert "an observer of event_creation failed" in log


def test_what_torch_has_and_flambeau_has_not() -> None:
    run(
        """
        import flambeau._C
        try:
            torch._C._nothing
        except AttributeError as error:
            assert "flambeau._C" in str(error)
        else:
            raise AssertionError
        assert not torch.cuda.is_initialized()
        """
    )
