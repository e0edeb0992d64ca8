# SPDX-License-Identifier: Apache-2.0
"""Forks, the end of the process, a fresh machine, failures on demand."""

from __future__ import annotations

import time

import pytest

from driver.virtual.scripts import run


def test_a_child_of_a_running_machine_is_refused() -> None:
    run("""
        start()
        stream = calls.stream_create()
        calls.launch_host_function(stream, lambda: time.sleep(0.2))
        pid = os.fork()
        if pid == 0:
            answers = {status_of(calls.init), status_of(calls.device_count),
                       status_of(calls.mem_alloc, 1), status_of(calls.stream_synchronize, stream),
                       status_of(calls.ctx_get_current), status_of(calls.spin, 1)}
            virtual.reset()
            answers.add(status_of(calls.init))
            os._exit(0 if answers == {3} else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        calls.stream_synchronize(stream)
    """)


def test_a_child_forked_before_the_start_has_its_own_machine() -> None:
    run("""
        driver.current()
        pid = os.fork()
        if pid == 0:
            start()
            stream = calls.stream_create()
            calls.spin(10, stream)
            calls.stream_synchronize(stream)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        start()
    """)


@pytest.mark.parametrize(
    "work",
    [
        "calls.memset_d8_async(calls.mem_alloc(1 << 20), 1, 1 << 20, stream)",
        "calls.launch_host_function(stream, lambda: print('never'))",
        "[calls.spin(1, stream) for _ in range(100_000)]",
        "calls.launch_host_function(stream, lambda: time.sleep(0.5)); calls.stream_query(stream)",
    ],
)
@pytest.mark.unchecked("checks have pending work run when the process ends, to see it")
@pytest.mark.parametrize("progress", [True, False])
def test_exit_with_pending_work(work: str, progress: bool) -> None:
    done = run(f"""
        start()
        virtual.set_progress({progress})
        stream = calls.stream_create()
        {work}
    """)
    assert (done.stdout, done.stderr) == ("", "")


def test_exit_while_another_thread_waits() -> None:
    done = run("""
        start()
        stream = calls.stream_create()
        calls.launch_host_function(stream, lambda: time.sleep(0.5))
        answers = []
        threading.Thread(
            target=lambda: answers.append(status_of(calls.stream_synchronize, stream)), daemon=True
        ).start()
        time.sleep(0.05)
    """)
    assert done.stderr == ""


def test_exit_is_quick() -> None:
    began = time.monotonic()
    run("start(); calls.spin(1, calls.stream_create())")
    assert time.monotonic() - began < 10


def test_after_the_end() -> None:
    run("""
        start()
        driver.current().shutdown()
        driver.current().shutdown()
        assert status_of(calls.mem_alloc, 1) == 4
        assert status_of(calls.init) == 4
    """)


def test_reset() -> None:
    run("""
        start()
        calls.mem_alloc(1 << 30)
        stream = calls.stream_create()
        calls.memset_d8_async(calls.mem_alloc(64), 1, 64, stream)
        virtual.lose_device(0)
        virtual.reset()
        assert status_of(calls.stream_query, stream) == 3
        start()
        assert status_of(calls.stream_query, stream) == 400
        free, total = calls.mem_get_info()
        assert total - free < 1 << 30
        calls.ctx_synchronize()
    """)


def test_reset_with_much_pending_work() -> None:
    run("""
        start()
        virtual.set_progress(False)
        stream = calls.stream_create()
        for _ in range(200_000):
            calls.spin(1, stream)
        virtual.reset()
        start()
        calls.ctx_synchronize()
    """)


def test_injected_failures() -> None:
    run("""
        start()
        virtual.inject("cuMemAlloc", 2, nth=2, times=2)
        assert [status_of(calls.mem_alloc, 64) for _ in range(5)] == [0, 2, 2, 0, 0]
        virtual.inject("cuStreamSynchronize", 719)
        assert status_of(calls.stream_synchronize, 0) == 719
        calls.stream_synchronize(0)          # the device itself is fine
        virtual.inject("cuEventRecord", 999, times=100)
        virtual.clear_faults()
        calls.event_record(calls.event_create())
        for entry in ("cuNothing", "MemAlloc"):
            try:
                virtual.inject(entry, 1)
            except ValueError as error:
                assert entry in str(error)
            else:
                raise AssertionError("no such entry")
    """)


def test_a_lost_device_and_its_neighbour() -> None:
    run(
        """
        contexts = start(2)
        stream = calls.stream_create()
        event = calls.event_create()
        ran = []
        calls.launch_host_function(stream, lambda: ran.append(0))
        calls.event_record(event, stream)
        calls.ctx_set_current(contexts[1])
        other = calls.stream_create()
        calls.stream_wait_event(other, event)
        calls.launch_host_function(other, lambda: ran.append(1))
        virtual.lose_device(0)
        calls.stream_synchronize(other)      # what waited for the lost device goes on
        assert ran == [1]
        for call, args in ((calls.stream_synchronize, (stream,)), (calls.event_query, (event,)),
                           (calls.event_destroy, (event,)), (calls.stream_destroy, (stream,))):
            assert status_of(call, *args) == 999
        calls.ctx_set_current(contexts[0])
        try:
            calls.mem_alloc(1)
        except AcceleratorError as error:
            assert error.error_code == 999 and "Device 0 was lost" in str(error)
        else:
            raise AssertionError("the device is lost")
        assert status_of(virtual.lose_device, 2) == 101
        """,
        machine="h200:2",
    )


def test_losing_a_device_wakes_who_waits_for_it() -> None:
    run("""
        context, = start()
        stream = calls.stream_create()
        release = threading.Event()
        calls.launch_host_function(stream, lambda: release.wait(10))
        calls.spin(10, stream)
        answers = []

        def wait():
            calls.ctx_set_current(context)
            answers.append(status_of(calls.stream_synchronize, stream))

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)
        virtual.lose_device(0, 719)
        thread.join(5)
        release.set()
        assert answers == [719]
    """)


def test_a_host_function_that_raises_is_reported() -> None:
    done = run("""
        start()
        stream = calls.stream_create()
        calls.launch_host_function(stream, lambda: 1 / 0)
        calls.stream_synchronize(stream)
    """)
    assert "ZeroDivisionError" in done.stderr
