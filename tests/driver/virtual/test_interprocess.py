# SPDX-License-Identifier: Apache-2.0
"""Events and memory between real processes."""

from __future__ import annotations

from driver.virtual.scripts import run

# The parent starts the machine after the fork, so that both processes have one.
TWO_PROCESSES = """
def talk(parent, child):
    down, up = os.pipe(), os.pipe()
    pid = os.fork()
    for end in (down[1], up[0]) if pid == 0 else (down[0], up[1]):
        os.close(end)
    if pid == 0:
        code = 1
        try:
            start()
            child(lambda: os.read(down[0], 64), lambda data: os.write(up[1], data))
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    start()
    parent(lambda data: os.write(down[1], data), lambda: os.read(up[0], 64))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


def run_two(source: str, **env: str) -> None:
    run(TWO_PROCESSES + "\n".join(line[4:] for line in source.splitlines()), **env)


def test_memory_is_shared() -> None:
    run_two("""
    def parent(send, receive):
        pointer = calls.mem_alloc(5 << 20)
        small = calls.mem_alloc(100)
        calls.memset_d8_async(pointer, 1, 5 << 20)
        calls.memset_d8_async(small, 2, 100)
        calls.ctx_synchronize()
        send(calls.ipc_get_mem_handle(pointer + 4096))
        send(calls.ipc_get_mem_handle(small)) if receive() == b"next" else None
        assert receive() == b"done"
        assert ctypes.string_at(pointer, 5 << 20) == b"\\3" * (5 << 20)

    def child(receive, send):
        handle = receive()
        before = calls.mem_get_info()
        big = calls.ipc_open_mem_handle(handle)
        assert calls.mem_get_info() == before            # counted where it was allocated
        assert calls.pointer_attribute(12, big) == 5 << 20
        send(b"next")
        small = calls.ipc_open_mem_handle(receive())
        assert ctypes.string_at(big, 5 << 20) == b"\\1" * (5 << 20)
        assert ctypes.string_at(small, 100) == b"\\2" * 100
        again = calls.ipc_open_mem_handle(handle)
        assert again == big                              # counted, not mapped twice
        calls.ipc_close_mem_handle(again)
        calls.memset_d8_async(big, 3, 5 << 20)
        assert status_of(calls.mem_free, big) == 1
        assert status_of(calls.ipc_get_mem_handle, big) == 1
        calls.ipc_close_mem_handle(big)                  # waits for the fill
        assert status_of(calls.ipc_close_mem_handle, big) == 1
        assert status_of(calls.memset_d8_async, big, 0, 1) == 1
        send(b"done")

    talk(parent, child)
    """)


def test_an_event_orders_two_processes() -> None:
    run_two("""
    def parent(send, receive):
        event, stream = calls.event_create(6), calls.stream_create()
        pointer = calls.mem_alloc(64)
        calls.launch_host_function(stream, lambda: time.sleep(0.3))
        calls.memset_d8_async(pointer, 9, 64, stream)
        calls.event_record(event, stream)
        send(calls.ipc_get_event_handle(event))
        assert receive() == b"next"
        send(calls.ipc_get_mem_handle(pointer))
        assert receive() == b"done"                      # nothing here waits for the stream

    def child(receive, send):
        event = calls.ipc_open_event_handle(receive())
        send(b"next")
        shared = calls.ipc_open_mem_handle(receive())
        assert not calls.event_query(event)
        stream, seen = calls.stream_create(), []
        calls.stream_wait_event(stream, event)
        calls.launch_host_function(stream, lambda: seen.append(ctypes.string_at(shared, 64)))
        assert not calls.stream_query(stream) and seen == []
        calls.stream_synchronize(stream)
        assert seen == [b"\\x09" * 64]
        assert calls.event_query(event)
        calls.event_synchronize(event)
        send(b"done")

    talk(parent, child)
    """)


def test_an_event_recorded_by_the_process_that_opened_it() -> None:
    run_two("""
    def parent(send, receive):
        event = calls.event_create(6)
        send(calls.ipc_get_event_handle(event))
        assert receive() == b"recorded"
        assert not calls.event_query(event)
        send(b"go")
        calls.event_synchronize(event)
        assert receive() == b"ran"

    def child(receive, send):
        event = calls.ipc_open_event_handle(receive())
        stream = calls.stream_create()
        calls.launch_host_function(stream, lambda: (receive(), send(b"ran")))
        virtual.set_progress(False)
        calls.event_record(event, stream)
        send(b"recorded")
        calls.stream_synchronize(stream)

    talk(parent, child)
    """)


def test_a_process_that_died_holds_nobody_up() -> None:
    run_two("""
    def parent(send, receive):
        event = calls.event_create(6)
        send(calls.ipc_get_event_handle(event))
        receive()
        calls.event_synchronize(event)

    def child(receive, send):
        event = calls.ipc_open_event_handle(receive())
        stream = calls.stream_create()
        calls.launch_host_function(stream, lambda: time.sleep(60))
        calls.event_record(event, stream)
        send(b"recorded")
        os._exit(0)

    talk(parent, child)
    """)


def test_what_is_refused() -> None:
    run("""
        start()
        interprocess, plain = calls.event_create(6), calls.event_create(2)
        handle = calls.ipc_get_event_handle(interprocess)
        assert len(handle) == 64
        assert status_of(calls.ipc_get_event_handle, plain) == 400
        assert status_of(calls.ipc_open_event_handle, handle) == 201
        assert status_of(calls.event_create, 4) == 1
        pointer = calls.mem_alloc(1 << 20)
        memory = calls.ipc_get_mem_handle(pointer)
        assert status_of(calls.ipc_open_mem_handle, memory) == 201
        assert status_of(calls.ipc_open_mem_handle, handle) == 1
        assert status_of(calls.ipc_open_mem_handle, bytes(64)) == 1
        assert status_of(calls.ipc_get_mem_handle, pointer + (1 << 20)) == 1
        assert status_of(calls.ipc_close_mem_handle, pointer) == 1
    """)


def test_a_handle_of_a_process_that_ended() -> None:
    run_two("""
    def parent(send, receive):
        handle = receive()
        send(b"end")
        while status_of(calls.ipc_open_mem_handle, handle) == 0:
            time.sleep(0.01)
        assert status_of(calls.ipc_open_mem_handle, handle) == 400

    def child(receive, send):
        send(calls.ipc_get_mem_handle(calls.mem_alloc(1 << 20)))
        receive()

    talk(parent, child)
    """)
