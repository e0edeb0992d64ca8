# SPDX-License-Identifier: Apache-2.0
"""Initialisation happens once per process, so each of these runs in a process of its own."""

from __future__ import annotations

from support import TWO_VIRTUAL, run_script

PRELUDE = """
import os, threading
from flambeau.driver.errors import DeferredCudaCallError
from flambeau.runtime import _allocator, _state, lazy_init
from flambeau.runtime.lazy_init import is_initialized, lazy_call
from flambeau.runtime._stream import Stream, current_stream

def in_child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def run(source: str, env: dict[str, str | None] | None = None) -> list[str]:
    return run_script(source, env, prelude=PRELUDE).lines


def test_nothing_is_started_by_import() -> None:
    run(
        """
        from flambeau import driver
        assert not is_initialized()
        assert driver.peek() is None
        assert _allocator.allocated_bytes(0) == 0
        assert _allocator.memory_stats_raw(0) == {}
        assert _allocator.memory_snapshot_raw() == []
        _allocator.empty_cache()
        assert driver.peek() is None
        lazy_init.lazy_init()
        assert is_initialized()
        assert _state.count_devices() >= 1
        lazy_init.lazy_init()
        """
    )


def test_only_the_newest_seed_calls_survive_and_run_last() -> None:
    assert run(
        """
        lazy_call(lambda: print("seed_all 1"), seed_all=True)
        lazy_call(lambda: print("first"))
        lazy_call(lambda: print("seed 2"), seed=True)
        lazy_call(lambda: print("second"))
        lazy_init.lazy_init()
        lazy_call(lambda: print("now"))
        """
    ) == ["first", "second", "seed_all 1", "seed 2", "now"]


def test_the_latest_call_of_a_seed_decides_its_place() -> None:
    assert run(
        """
        lazy_call(lambda: print("seed_all 1"), seed_all=True)
        lazy_call(lambda: print("seed 2"), seed=True)
        lazy_call(lambda: print("seed_all 3"), seed_all=True)
        lazy_init.lazy_init()
        """
    ) == ["seed 2", "seed_all 3"]


def test_a_failing_queued_call_names_its_origin_and_is_tried_again() -> None:
    run(
        """
        calls = []
        def fail():
            calls.append(1)
            if len(calls) == 1:
                raise KeyError("x")
        def the_culprit():
            lazy_call(fail)
        the_culprit()
        try:
            lazy_init.lazy_init()
        except DeferredCudaCallError as error:
            text = str(error)
            assert "CUDA call failed lazily at initialization with error: 'x'" in text
            assert "the_culprit" in text
            assert isinstance(error.__cause__, KeyError)
        else:
            raise AssertionError("nothing was raised")
        assert not is_initialized()
        lazy_init.lazy_init()
        assert is_initialized() and len(calls) == 2
        """
    )


def test_queued_calls_may_use_cuda() -> None:
    assert run(
        """
        def use():
            lazy_call(lambda: print("inner"))
            print(_state.current_device(), is_initialized())
            Stream()
        lazy_call(use)
        lazy_init.lazy_init()
        """
    ) == ["inner", "0 False"]


def test_threads_initialise_once() -> None:
    assert run(
        """
        lazy_call(lambda: print("once"))
        threads = [threading.Thread(target=_state.current_device) for _ in range(8)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert is_initialized()
        """
    ) == ["once"]


def test_a_child_of_an_initialised_process_is_told_to_spawn() -> None:
    run(
        """
        def where_it_was_initialised():
            lazy_init.lazy_init()
        where_it_was_initialised()
        block = _allocator.allocate(1000, 0)
        side = Stream()
        pinned = _allocator.allocate_on_host(100, pin=True)
        block.record_stream(side.cuda_stream)
        def child():
            assert not is_initialized() and lazy_init.in_bad_fork()
            assert _allocator.allocated_bytes(0) == 0
            _allocator.empty_cache()
            snapshot = _allocator.memory_snapshot_raw()
            assert [b["state"] for b in snapshot[0]["blocks"]] == ["active_allocated", "inactive"]
            for use in (lazy_init.lazy_init, lambda: _allocator.allocate(1, 0), current_stream,
                        Stream, _state.current_device, side.query, side.synchronize,
                        lambda: _allocator.allocate_on_host(1, pin=True)):
                try:
                    use()
                except RuntimeError as error:
                    assert "Cannot re-initialize CUDA in forked subprocess" in str(error)
                    assert "'spawn' start method" in str(error)
                    assert "where_it_was_initialised" in str(error)
                else:
                    raise AssertionError(use)
            block.close()
            pinned.close()
        assert in_child(child) == 0
        assert is_initialized()
        assert _allocator.allocated_bytes(0) == 1024
        assert _allocator.allocate(1, 0).address
        """
    )


def test_a_child_forked_before_first_use_may_initialise() -> None:
    run(
        """
        def child():
            lazy_init.lazy_init()
            assert is_initialized()
        assert in_child(child) == 0
        assert not is_initialized()
        lazy_init.lazy_init()
        assert _allocator.allocate(1, 0).address
        """
    )


def test_a_fork_while_another_thread_uses_the_allocator() -> None:
    run(
        """
        lazy_init.lazy_init()
        stop = False
        def churn():
            while not stop:
                held = [_allocator.allocate(3_000_000, 0) for _ in range(4)]
                _allocator.empty_cache()
        threads = [threading.Thread(target=churn) for _ in range(2)]
        for t in threads: t.start()
        try:
            for _ in range(10):
                kept = _allocator.allocate(512, 0)
                assert in_child(kept.close) == 0
        finally:
            stop = True
        for t in threads: t.join()
        """
    )


def test_a_replaced_driver_voids_all_handles() -> None:
    run(
        """
        from flambeau import virtual
        from flambeau.runtime._event import Event
        lazy_init.lazy_init()
        block, pinned = _allocator.allocate(1000, 0), _allocator.allocate_on_host(10, pin=True)
        side, event = Stream(), Event()
        event.record(side)
        block.record_stream(side.cuda_stream)
        virtual.reset()
        assert not is_initialized()
        assert _allocator.memory_snapshot_raw() == []
        assert not _allocator.is_pinned(pinned.address)
        assert current_stream().stream_id == 0
        assert is_initialized() and not lazy_init.in_bad_fork()
        other = _allocator.allocate(1 << 20, 0)
        block.close()
        pinned.close()
        del event
        assert _allocator.allocated_bytes(0) == 1 << 20
        fresh = Event()
        fresh.record(Stream())
        fresh.synchronize()
        """,
        env=TWO_VIRTUAL,
    )
