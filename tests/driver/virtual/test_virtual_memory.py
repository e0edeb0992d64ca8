# SPDX-License-Identifier: Apache-2.0
"""Addresses and memory apart, and memory in the order of streams."""

from __future__ import annotations

import ctypes
import os
import time
from typing import TYPE_CHECKING

import pytest

from driver.virtual.device_memory import status_of
from flambeau.driver.errors import OutOfMemoryError
from flambeau.driver.virtual import _calls as calls
from flambeau.driver.virtual import _memory_calls as memory

if TYPE_CHECKING:
    from driver.virtual.device_memory import Bench

MIB = 1 << 20
PAGE = 2 * MIB
RESERVED, RESERVED_HIGH, USED, USED_HIGH, THRESHOLD = 5, 6, 7, 8, 4


def free() -> int:
    return calls.mem_get_info()[0]


def test_pages_come_and_go(bench: Bench) -> None:
    assert memory.granularity() == PAGE
    at_start = free()
    base = memory.address_reserve(8 * PAGE)
    assert base % PAGE == 0
    assert free() == at_start  # addresses cost nothing
    handles = [memory.create(PAGE) for _ in range(2)]
    assert at_start - free() == 2 * PAGE
    for index, handle in enumerate(handles):
        memory.map_(base + index * PAGE, PAGE, handle)
        memory.release(handle)
    assert at_start - free() == 2 * PAGE  # mapped memory stays
    assert status_of(calls.memset_d8_async, base, 1, 16) == 1  # nobody may use it yet
    memory.set_access(base, 2 * PAGE)
    calls.memset_d8_async(base, 7, 2 * PAGE)  # across both
    calls.ctx_synchronize()
    assert ctypes.string_at(base + PAGE - 2, 4) == b"\7" * 4
    assert calls.pointer_attribute(12, base + 5) == 2 * PAGE
    assert status_of(memory.address_free, base, 8 * PAGE) == 1  # something is mapped
    memory.unmap(base, PAGE)
    assert status_of(calls.memset_d8_async, base, 1, 1) == 1
    memory.unmap(base + PAGE, PAGE)
    assert free() == at_start
    memory.address_free(base, 8 * PAGE)


def test_one_memory_at_two_addresses(bench: Bench) -> None:
    base, handle = memory.address_reserve(2 * PAGE), memory.create(PAGE)
    for index in range(2):
        memory.map_(base + index * PAGE, PAGE, handle)
    memory.set_access(base, 2 * PAGE)
    calls.memset_d8_async(base, 9, 8)
    calls.ctx_synchronize()
    assert ctypes.string_at(base + PAGE, 8) == b"\x09" * 8
    memory.unmap(base, 2 * PAGE)
    memory.release(handle)
    memory.address_free(base, 2 * PAGE)


def test_what_is_refused(bench: Bench) -> None:
    base, handle = memory.address_reserve(2 * PAGE), memory.create(PAGE)
    assert status_of(memory.address_reserve, 100) == 1
    assert status_of(memory.create, 100) == 1
    assert status_of(memory.create, PAGE, 77) == 101
    assert status_of(memory.map_, base + 512, PAGE, handle) == 1
    assert status_of(memory.map_, base + 2 * PAGE, PAGE, handle) == 1
    assert status_of(memory.unmap, base, PAGE) == 1
    assert status_of(memory.set_access, base, PAGE) == 1
    memory.map_(base, PAGE, handle)
    assert status_of(memory.map_, base, PAGE, handle) == 1
    memory.set_access(base, PAGE)
    assert status_of(calls.mem_free, base) == 1
    assert status_of(calls.ipc_get_mem_handle, base) == 1
    memory.unmap(base, PAGE)
    memory.release(handle)
    assert status_of(memory.release, handle) == 1
    assert status_of(memory.map_, base, PAGE, handle) == 1
    memory.address_free(base, 2 * PAGE)
    with pytest.raises(OutOfMemoryError):
        memory.create(1 << 40)


def test_a_descriptor_stands_for_the_memory(bench: Bench) -> None:
    at_start = free()
    base, handle = memory.address_reserve(2 * PAGE), memory.create(PAGE)
    descriptor = memory.export_descriptor(handle)
    again = memory.import_descriptor(descriptor)
    os.close(descriptor)
    memory.map_(base, PAGE, handle)
    memory.map_(base + PAGE, PAGE, again)
    memory.set_access(base, 2 * PAGE)
    calls.memset_d8_async(base, 3, 8)
    calls.ctx_synchronize()
    assert ctypes.string_at(base + PAGE, 8) == b"\3" * 8
    memory.release(handle)
    memory.unmap(base, 2 * PAGE)
    assert at_start - free() == PAGE  # the other handle holds it
    memory.release(again)
    assert free() == at_start
    memory.address_free(base, 2 * PAGE)
    assert status_of(memory.import_descriptor, 0) == 1


def test_a_pool_keeps_chunks_until_it_is_trimmed(bench: Bench) -> None:
    pool = memory.default_pool()
    at_start, reserved = free(), memory.pool_attribute(pool, RESERVED)
    assert reserved == 0
    one = memory.alloc_async(1)
    assert memory.pool_attribute(pool, USED) == 1
    assert memory.pool_attribute(pool, RESERVED) == at_start - free() == 32 * MIB
    big = memory.alloc_async(40 * MIB)
    assert memory.pool_attribute(pool, RESERVED) == 96 * MIB
    memory.free_async(big)
    memory.free_async(one)
    assert memory.pool_attribute(pool, USED) == 0
    assert memory.pool_attribute(pool, USED_HIGH) == 40 * MIB + 1
    calls.ctx_synchronize()
    memory.pool_trim(pool, 64 * MIB)
    assert memory.pool_attribute(pool, RESERVED) == 64 * MIB
    memory.pool_trim(pool)
    assert free() == at_start
    for attribute in (RESERVED_HIGH, USED_HIGH):
        memory.set_pool_attribute(pool, attribute, 0)
        assert memory.pool_attribute(pool, attribute) == 0
        assert status_of(memory.set_pool_attribute, pool, attribute, 5) == 1
    memory.set_pool_attribute(pool, THRESHOLD, 123)
    assert memory.pool_attribute(pool, THRESHOLD) == 123
    assert status_of(memory.pool_attribute, pool, 99) == 1
    assert status_of(memory.pool_trim, 12345) == 1
    assert status_of(memory.free_async, big) == 1
    memory.graph_trim()


def test_memory_is_reused_in_the_order_of_streams(bench: Bench) -> None:
    first, second = calls.stream_create(), calls.stream_create()
    block = memory.alloc_async(4 * MIB, first)
    calls.launch_host_function(first, lambda: time.sleep(0.2))
    memory.free_async(block, first)
    other = memory.alloc_async(4 * MIB, second)  # the free has not been reached
    assert other != block
    assert memory.alloc_async(4 * MIB, first) == block  # in order behind it
    for stream in (first, second):
        calls.stream_synchronize(stream)
    memory.free_async(block, second)
    memory.free_async(other, second)
    calls.stream_synchronize(second)
    memory.pool_trim(memory.default_pool())
    assert memory.pool_attribute(memory.default_pool(), RESERVED) == 0


def test_managed_memory(bench: Bench) -> None:
    pointer = memory.alloc_managed(1000)
    assert calls.pointer_attribute(8, pointer) == 1
    ctypes.memset(pointer, 5, 1000)
    assert ctypes.string_at(pointer, 3) == b"\5\5\5"
    assert status_of(memory.alloc_managed, 1000, 0) == 1
    calls.mem_free(pointer)
