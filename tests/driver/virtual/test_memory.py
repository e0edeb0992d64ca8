# SPDX-License-Identifier: Apache-2.0
"""Memory: what is allocated, what is left, what a pointer is."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driver.virtual.device_memory import status_of
from driver.virtual.scripts import run
from flambeau.driver.errors import OutOfMemoryError
from flambeau.driver.virtual import _calls as calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from driver.virtual.device_memory import Bench

MIB, GIB = 1 << 20, 1 << 30
MEMORY_TYPE, ORDINAL, START, SIZE, MAPPED, MANAGED, DEVICE_POINTER = 2, 9, 11, 12, 13, 8, 3
HOST, DEVICE = 1, 2


@pytest.fixture
def used(bench: Bench) -> Callable[[], int]:
    """How much more is in use than when the test began."""
    at_start = calls.mem_get_info()[0]
    return lambda: at_start - calls.mem_get_info()[0]


def test_total_and_free(bench: Bench) -> None:
    free, total = calls.mem_get_info()
    assert total == calls.device_total_mem(0) == 150_109_880_320
    assert total - free > 0  # the context's own


@pytest.mark.parametrize(
    ("size", "taken"), [(1, 2 * MIB), (MIB, 2 * MIB), (2 * MIB, 2 * MIB), (2 * MIB + 1, 4 * MIB)]
)
def test_memory_is_taken_in_granules(
    bench: Bench, used: Callable[[], int], size: int, taken: int
) -> None:
    pointer = calls.mem_alloc(size)
    assert used() == taken
    calls.mem_free(pointer)
    assert used() == 0


def test_small_allocations_share_a_granule(bench: Bench, used: Callable[[], int]) -> None:
    pointers = [calls.mem_alloc(1000) for _ in range(1000)]
    assert used() == 2 * MIB
    for pointer in pointers:
        calls.mem_free(pointer)
    assert used() == 0


def test_out_of_memory_and_after(bench: Bench) -> None:
    free, total = calls.mem_get_info()
    with pytest.raises(OutOfMemoryError, match=f"{total} bytes were asked for; .* {free} are free"):
        calls.mem_alloc(total)
    pointer = calls.mem_alloc(free)
    assert calls.mem_get_info()[0] == 0
    assert status_of_memory(1) == 2
    calls.mem_free(pointer)
    assert calls.mem_get_info()[0] == free


def status_of_memory(size: int) -> int:
    try:
        calls.mem_free(calls.mem_alloc(size))
    except OutOfMemoryError:
        return 2
    return 0


def test_holes_do_not_keep_memory(bench: Bench, used: Callable[[], int]) -> None:
    free = calls.mem_get_info()[0]
    part = free // 64 // (2 * MIB) * 2 * MIB
    pointers = [calls.mem_alloc(part) for _ in range(64)]
    for pointer in pointers[::2]:
        calls.mem_free(pointer)
    whole = calls.mem_alloc(32 * part)
    calls.mem_free(whole)
    for pointer in pointers[1::2]:
        calls.mem_free(pointer)
    assert used() == 0


def test_sizes_and_pointers_that_are_refused(bench: Bench) -> None:
    pointer = calls.mem_alloc(4096)
    assert status_of(calls.mem_alloc, 0) == 1
    assert status_of(calls.mem_free, pointer + 256) == 1
    calls.mem_free(pointer)
    assert status_of(calls.mem_free, pointer) == 1
    calls.mem_free(0)


def test_the_devices_memories_are_apart(bench: Bench) -> None:
    before = calls.mem_get_info()
    bench.use(1)
    there = bench.buffer(GIB)
    bench.use(0)
    assert calls.mem_get_info() == before
    assert calls.pointer_attribute(ORDINAL, there.address) == 1


def test_freed_memory_is_empty_when_it_comes_back(bench: Bench) -> None:
    pointer = calls.mem_alloc(4 * MIB)
    calls.memset_d8_async(pointer, 1, 4 * MIB)
    calls.mem_free(pointer)
    again = bench.buffer(4 * MIB)
    assert again.peek() == bytes(4 * MIB)


def test_free_waits_for_the_device(bench: Bench, schedule: str) -> None:
    stream, other = bench.stream(), bench.buffer()
    scratch = calls.mem_alloc(64)
    calls.memset_d8_async(scratch, 4, 64, stream)
    calls.memcpy_dtod_async(other.address, scratch, 64, stream)
    calls.mem_free(scratch)
    assert other.peek() == b"\4" * 64


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(
        st.one_of(
            st.integers(1, 8 * MIB),
            st.integers(1, 3000),
            st.integers(-50, -1),  # free the -nth
        ),
        max_size=60,
    )
)
def test_allocations_never_overlap(bench: Bench, steps: list[int]) -> None:
    free = calls.mem_get_info()[0]
    live: dict[int, int] = {}
    for step in steps:
        if step > 0:
            pointer = calls.mem_alloc(step)
            assert pointer % 256 == 0
            assert all(pointer + step <= p or p + n <= pointer for p, n in live.items())
            live[pointer] = step
        elif live:
            pointer = list(live)[-step % len(live)]
            del live[pointer]
            calls.mem_free(pointer)
    assert calls.mem_get_info()[0] <= free - sum(live.values())
    for pointer in live:
        calls.mem_free(pointer)
    assert calls.mem_get_info()[0] == free


def test_what_a_device_pointer_is(bench: Bench) -> None:
    buffer = bench.buffer(5000)
    inside = buffer.address + 4999
    assert calls.pointer_attribute(MEMORY_TYPE, inside) == DEVICE
    assert calls.pointer_attribute(ORDINAL, inside) == 0
    assert calls.pointer_attribute(START, inside) == buffer.address
    assert calls.pointer_attribute(SIZE, inside) == 5000
    assert calls.pointer_attribute(MANAGED, inside) == 0
    assert calls.pointer_attribute(MAPPED, inside) == 1


def test_what_a_pinned_pointer_is(bench: Bench) -> None:
    pinned = bench.pinned(5000)
    inside = pinned.address + 17
    assert calls.pointer_attribute(MEMORY_TYPE, inside) == HOST
    assert calls.pointer_attribute(DEVICE_POINTER, inside) == inside
    assert calls.pointer_attribute(START, inside) == pinned.address
    assert calls.pointer_attribute(SIZE, inside) == 5000


def test_what_other_memory_is(bench: Bench) -> None:
    plain = ctypes.create_string_buffer(64)
    address = ctypes.addressof(plain)
    assert status_of(calls.pointer_attribute, MEMORY_TYPE, address) == 1
    assert calls.pointer_attribute(MAPPED, address) == 0
    buffer = bench.buffer(100)
    assert status_of(calls.pointer_attribute, MEMORY_TYPE, buffer.address + 100) == 1


def test_registered_memory(bench: Bench) -> None:
    plain = ctypes.create_string_buffer(8192)
    address = ctypes.addressof(plain)
    calls.mem_host_register(address, 8192)
    assert calls.pointer_attribute(MEMORY_TYPE, address + 8000) == HOST
    assert status_of(calls.mem_host_register, address + 4096, 8192) == 712
    assert status_of(calls.mem_free_host, address) == 1
    calls.mem_host_unregister(address)
    assert status_of(calls.mem_host_unregister, address) == 713
    assert status_of(calls.pointer_attribute, MEMORY_TYPE, address) == 1


def test_pinned_memory_is_waited_for_before_it_goes(bench: Bench, schedule: str) -> None:
    stream, buffer = bench.stream(), bench.buffer()
    address = calls.mem_host_alloc(64)
    ctypes.memset(address, 6, 64)
    calls.memcpy_htod_async(buffer.address, address, 64, stream)
    calls.mem_free_host(address)
    assert buffer.peek() == b"\6" * 64
    assert status_of(calls.mem_free_host, address) == 1
    assert status_of(calls.mem_host_alloc, 0) == 1


def test_copies_outside_an_allocation_are_refused(bench: Bench) -> None:
    buffer, plain = bench.buffer(100), ctypes.create_string_buffer(200)
    host = ctypes.addressof(plain)
    assert status_of(calls.memcpy_htod_async, buffer.address, host, 101) == 1
    assert status_of(calls.memcpy_dtoh_async, host, buffer.address + 50, 51) == 1
    assert status_of(calls.memcpy_dtod_async, buffer.address, host, 10) == 1
    with pytest.raises(
        RuntimeError, match=r"A fill of 101 bytes .* in the allocation of 100 bytes"
    ):
        calls.memset_d8_async(buffer.address, 0, 101)
    calls.memcpy_htod_async(buffer.address, host, 0)


def test_peer_access(bench: Bench) -> None:
    assert calls.device_can_access_peer(0, 1)
    assert not calls.device_can_access_peer(1, 1)
    peer = bench.contexts[1]
    assert status_of(calls.ctx_disable_peer_access, peer) == 705
    calls.ctx_enable_peer_access(peer)
    assert status_of(calls.ctx_enable_peer_access, peer) == 704
    calls.ctx_disable_peer_access(peer)
    assert status_of(calls.ctx_enable_peer_access, bench.contexts[0]) == 201


def test_a_host_that_is_short_of_memory_says_so() -> None:
    run("""
        import dataclasses
        huge = dataclasses.replace(virtual.models()["h200"], memory_bytes=8 << 40)
        virtual.enable(huge)
        start()
        pointer = calls.mem_alloc(7 << 40)
        calls.memset_d8_async(pointer, 1, 1 << 20)           # what is touched is what counts
        calls.ctx_synchronize()
        calls.memset_d8_async(pointer, 1, 7 << 40)
        try:
            calls.ctx_synchronize()
        except OutOfMemoryError as error:
            assert "host is short of memory, not the virtual device" in str(error)
        else:
            raise AssertionError("this host has 7 TiB of memory to spare")
    """)
