# SPDX-License-Identifier: Apache-2.0
"""Options of the pinned cache."""

from __future__ import annotations

import ctypes
import gc
import time
from typing import TYPE_CHECKING, Any

import pytest

from flambeau.driver import _table
from flambeau.driver.errors import AcceleratorError
from flambeau.runtime import _allocator, _state, lazy_init
from support import run_script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(autouse=True)
def _defaults() -> Iterator[None]:
    lazy_init.lazy_init()
    gc.collect()
    _allocator.empty_host_cache()
    assert current("active_requests") == 0, "an earlier test left pinned memory behind"
    yield
    _allocator.configure_host()
    _allocator.empty_host_cache()


def current(name: str) -> int:
    found: int = _allocator.host_memory_stats_raw()[name]["current"]
    return found


def pin(nbytes: int) -> _allocator.Allocation:
    return _allocator.allocate_on_host(nbytes, pin=True)


def driver_calls(run: Callable[[], Any]) -> list[str]:
    _table.start_trace()
    run()
    return [name for name, _ in _table.stop_trace()]


def test_large_sizes_may_be_exact() -> None:
    base = current("allocated_bytes")
    _allocator.configure_host(max_round_threshold=MIB)
    block = pin(3 * MIB + 5)
    assert current("allocated_bytes") - base == 3 * MIB + 5
    address = block.address
    block.close()
    assert pin(3 * MIB).address == address  # a smaller one of the same bucket
    small = pin(MIB)
    odd = pin(MIB - 5)
    assert current("allocated_bytes") - base == 3 * MIB + 5 + 2 * MIB
    assert (small.nbytes, odd.nbytes) == (MIB, MIB - 5)


def test_large_blocks_may_be_freed_at_once() -> None:
    _allocator.configure_host(max_cached_size=MIB)
    base = current("allocated_bytes")
    block, kept = pin(3 * MIB + 5), pin(MIB)
    assert current("allocated_bytes") - base == 4 * MIB + 5
    block.close()
    kept.close()
    assert current("allocated_bytes") - base == MIB
    assert "cuMemFreeHost" in driver_calls(_state.note_pending)
    assert current("active_bytes") == 0


def test_a_large_block_in_use_is_freed_when_it_is_free() -> None:
    _allocator.configure_host(max_cached_size=MIB)
    block = pin(3 * MIB)
    block.record_stream(0)
    block.close()
    _state.synchronize()
    pin(1).close()  # looks at what has passed
    assert current("active_bytes") == 0
    assert current("allocated_bytes") == 1


@pytest.mark.parametrize(("size", "threads"), [(100, 1), (5000, 8), (MIB, 4), (MIB + 12345, 8)])
def test_memory_may_be_registered(size: int, threads: int) -> None:
    _allocator.configure_host(use_register=True, register_threads=threads)
    blocks: list[_allocator.Allocation] = []
    calls = driver_calls(lambda: blocks.append(pin(size)))
    assert "cuMemHostRegister" in calls
    assert "cuMemHostAlloc" not in calls
    (block,) = blocks
    assert block.address % 4096 == 0
    ctypes.memset(block.address, 7, size)
    assert ctypes.string_at(block.address, size) == b"\x07" * size
    assert _allocator.is_pinned(block.address + size - 1)
    _allocator.configure_host()  # each block remembers where it is from
    blocks.clear()
    del block
    assert "cuMemHostUnregister" in driver_calls(_allocator.empty_host_cache)
    assert current("allocations") == 0


def test_a_failing_registration() -> None:
    _allocator.configure_host(use_register=True)
    _table.inject("cuMemHostRegister", status=2)
    try:
        with pytest.raises(RuntimeError, match="memory"):
            pin(MIB)
    finally:
        _table.clear_faults()
    assert current("allocations") == 0


def test_failures_of_freeing_may_be_swallowed() -> None:
    for catch_all in (False, True):
        _allocator.configure_host(free_catch_all=catch_all)
        pin(MIB).close()
        _table.inject("cuMemFreeHost", status=1)
        try:
            if catch_all:
                with pytest.warns(RuntimeWarning, match="pinned_free_catch_all"):
                    _allocator.empty_host_cache()
            else:
                with pytest.raises(RuntimeError):
                    _allocator.empty_host_cache()
        finally:
            _table.clear_faults()
        assert current("allocations") == 0


def test_a_reserve_is_pinned_once_and_cut() -> None:
    run_script(
        """
        from flambeau.driver import _table
        import flambeau as torch
        torch.cuda.init()
        stats = lambda name: torch.cuda.host_memory_stats()[name + ".current"]
        _table.start_trace()
        a, b = (torch.empty(n, dtype=torch.uint8, pin_memory=True) for n in (5000, 100))
        c = torch.empty(2 << 20, dtype=torch.uint8, pin_memory=True)  # no room left for it
        calls = [name for name, _ in _table.stop_trace()]
        assert calls.count("cuMemHostAlloc") == 2
        assert b.data_ptr() - a.data_ptr() == 8192
        pointer = a.data_ptr()
        del a, b, c
        torch.cuda.memory.empty_host_cache()
        assert stats("allocations") == 2            # the parts of the reserve stay
        again = torch.empty(4097, dtype=torch.uint8, pin_memory=True)
        assert again.data_ptr() == pointer
        again.fill_(3)
        assert int(again.cuda().cpu()[4096]) == 3
        """,
        {"PYTORCH_CUDA_ALLOC_CONF": "pinned_reserve_segment_size_mb:2"},
        prelude="",
    )


def test_a_block_that_a_graph_uses_is_nobody_elses() -> None:
    run_script(
        """
        import flambeau as torch
        source = torch.full((1000,), 2.0).pin_memory()
        target = torch.zeros(1000, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            target.copy_(source, non_blocking=True)
        pointer = source.data_ptr()
        del source
        others = [torch.full((1000,), 3.0).pin_memory() for _ in range(3)]
        assert pointer not in [other.data_ptr() for other in others]
        torch.cuda.memory.empty_host_cache()
        graph.replay()
        assert float(target.sum()) == 2000.0
        """,
        prelude="",
    )


def test_a_thread_may_look_for_uses_that_have_ended() -> None:
    _allocator.configure_host(background=True)
    block = pin(300)
    address = block.address
    block.record_stream(0)
    block.close()
    _state.synchronize()
    deadline = time.monotonic() + 60
    while current("active_requests") and time.monotonic() < deadline:
        time.sleep(0.001)
    assert current("active_requests") == 0
    assert "cuEventQuery" not in driver_calls(lambda: pin(300).close())
    assert pin(300).address == address
    _allocator.configure_host()
    assert pin(300).address == address


def test_what_the_thread_finds_is_raised_at_the_next_allocation(
    fault: Callable[..., None],
) -> None:
    _allocator.configure_host(background=True)
    fault("cuEventQuery", status=719, times=1_000_000)
    block = pin(300)
    block.record_stream(0)
    block.close()
    deadline = time.monotonic() + 60
    raised = None
    while raised is None and time.monotonic() < deadline:
        try:
            pin(1).close()
        except AcceleratorError as error:
            raised = error.error_code
    _table.clear_faults()
    assert raised == 719
    _allocator.configure_host()
    pin(1).close()


def test_the_thread_survives_neither_the_end_nor_a_fork() -> None:
    run_script(
        """
        import os
        import flambeau as torch
        p = torch.empty(1000).pin_memory()
        x = p.cuda(non_blocking=True)
        del p
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        q = torch.empty(1000).pin_memory()
        """,
        {"PYTORCH_CUDA_ALLOC_CONF": "pinned_use_background_threads:True"},
        prelude="",
    )


def test_the_cache_is_given_up_before_memory_is_refused(fault: Callable[..., None]) -> None:
    pin(MIB).close()
    fault("cuMemHostAlloc", status=2, times=1)
    block = pin(4 * MIB)
    assert block.nbytes == 4 * MIB
    assert current("allocations") == 1
    fault("cuMemHostAlloc", status=2, times=1)  # with nothing cached there is no second attempt
    with pytest.raises(RuntimeError, match="This process has 4194304 bytes of pinned memory"):
        pin(4 * MIB)


def test_a_block_whose_use_cannot_be_marked_is_retired_with_one_warning() -> None:
    run_script(
        """
        import warnings
        from flambeau import virtual
        from flambeau.runtime import _allocator, lazy_init
        from flambeau.runtime._stream import Stream

        lazy_init.lazy_init()
        side = Stream().cuda_stream

        def lose():
            block = _allocator.allocate_on_host(5000, pin=True)
            address = block.address
            block.record_stream(side)
            virtual.inject("cuEventRecord", 1)
            block.close()
            virtual.clear_faults()
            return address

        lost = lose()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            again = _allocator.allocate_on_host(5000, pin=True)
            lose()
            more = _allocator.allocate_on_host(5000, pin=True)  # warned of before
        assert lost not in (again.address, more.address)
        (only,) = caught
        assert only.category is RuntimeWarning and "never used again" in str(only.message)
        """
    )
