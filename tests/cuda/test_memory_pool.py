# SPDX-License-Identifier: Apache-2.0
"""Private pools."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from support import needs_two, run_script

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
c = torch.cuda


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    c.init()
    gc.collect()
    c.empty_cache()
    yield
    c.set_per_process_memory_fraction(1.0)


def of_bytes(size: int, device: str = "cuda") -> Any:
    return torch.empty(size, dtype=torch.uint8, device=device)


def segments(pool_id: tuple[int, int]) -> list[int]:
    return [segment["total_size"] for segment in c.memory_snapshot(pool_id)]


def limit(mebibytes: int) -> None:
    total = c.get_device_properties(0).total_memory
    c.set_per_process_memory_fraction(mebibytes * MIB / total)


def test_ids_count_from_one() -> None:
    run_script("""
        assert torch.cuda.graph_pool_handle() == (0, 1)
        assert not torch.cuda.is_initialized()
        pools = [torch.cuda.MemPool(), torch.cuda.MemPool()]
        assert [pool.id for pool in pools] == [(0, 2), (0, 3)]
        assert torch.cuda.graph_pool_handle() == (0, 4)
        from flambeau.runtime import _allocator_pools
        assert [_allocator_pools.new_graph_id() for _ in range(2)] == [(1, 0), (2, 0)]
    """)
    run_script("""
        x = torch.ones(3, device="cuda")
        graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
        for g in graphs:
            with torch.cuda.graph(g):
                y = x + 1
        assert [g.pool() for g in graphs] == [(1, 0), (2, 0)]
    """)


def test_a_pool_keeps_its_memory_to_itself() -> None:
    pool = c.MemPool()
    with c.use_mem_pool(pool):
        held = [of_bytes(MIB) for _ in range(3)]
    assert segments(pool.id) == [2 * MIB] * 2
    addresses = [t.data_ptr() for t in held]
    held.clear()
    outside = [of_bytes(MIB) for _ in range(3)]
    assert not {t.data_ptr() for t in outside} & set(addresses)
    c.empty_cache()
    assert segments(pool.id) == [2 * MIB] * 2
    with c.use_mem_pool(pool):
        again = of_bytes(MIB)
    assert again.data_ptr() == addresses[0]
    assert pool.snapshot() == c.memory_snapshot(pool.id)
    del again
    identity = pool.id
    del pool
    assert segments(identity) == []


def test_who_uses_a_pool_is_counted() -> None:
    pool = c.MemPool()
    assert pool.use_count() == 1
    with c.use_mem_pool(pool):
        assert pool.use_count() == 2
        with pytest.raises(RuntimeError, match="already recording to mempool_id"):
            c.use_mem_pool(pool).__enter__()
        assert pool.use_count() == 2
    assert pool.use_count() == 1
    with pytest.raises(KeyError), c.use_mem_pool(pool):
        raise KeyError
    assert pool.use_count() == 1


def test_the_innermost_pool_counts() -> None:
    outer, inner = c.MemPool(), c.MemPool()
    with c.use_mem_pool(outer):
        with c.use_mem_pool(inner):
            a = of_bytes(MIB)
        b = of_bytes(MIB)
    d = of_bytes(MIB)
    assert (segments(inner.id), segments(outer.id)) == ([2 * MIB], [2 * MIB])
    assert len({a.data_ptr(), b.data_ptr(), d.data_ptr()}) == 3


def test_other_threads_are_not_affected_and_may_share_a_pool() -> None:
    pool = c.MemPool()
    found: list[list[int]] = []
    entered = threading.Barrier(2, timeout=60)

    def work() -> None:
        x = of_bytes(2 * MIB)
        found.append(segments(pool.id))
        with c.use_mem_pool(pool):
            entered.wait()
            y = of_bytes(2 * MIB)
            entered.wait()
        del x, y

    with c.use_mem_pool(pool):
        thread = threading.Thread(target=work)
        thread.start()
        entered.wait()
        entered.wait()
        thread.join()
        assert pool.use_count() == 2
    assert found == [[]]
    assert segments(pool.id) == [20 * MIB]
    assert pool.use_count() == 1


def test_a_dead_pool_keeps_what_tensors_hold() -> None:
    pool = c.MemPool()
    with c.use_mem_pool(pool):
        held, other = of_bytes(MIB), of_bytes(2 * MIB)
    identity = pool.id
    del other, pool
    assert segments(identity) == [2 * MIB]
    del held
    assert segments(identity) == [2 * MIB]
    c.empty_cache()
    assert segments(identity) == []


def test_a_shortage_takes_the_memory_of_dead_pools() -> None:
    limit(100)
    pool = c.MemPool()
    with c.use_mem_pool(pool):
        held = of_bytes(60 * MIB)
    del pool
    del held
    x = of_bytes(80 * MIB)
    assert x.numel() == 80 * MIB


def test_without_splitting_every_request_gets_a_segment() -> None:
    pool = c.MemPool(no_split=True)
    before = c.memory_allocated()
    with c.use_mem_pool(pool):
        large = of_bytes(2 * MIB)
        assert c.memory_allocated() - before == 20 * MIB
        small = of_bytes(100)
        assert c.memory_allocated() - before == 22 * MIB
    assert sorted(segments(pool.id)) == [2 * MIB, 20 * MIB]
    assert (large.numel(), small.numel()) == (2 * MIB, 100)


def test_a_pool_may_lend_its_free_memory() -> None:
    gc.collect()
    pools = {lends: c.MemPool(use_on_oom=lends) for lends in (False, True)}
    limit(100)
    for lends, pool in pools.items():
        with c.use_mem_pool(pool):
            x = of_bytes(80 * MIB)
        pointer = x.data_ptr()
        del x
        c.reset_accumulated_memory_stats()
        if lends:
            y = of_bytes(60 * MIB)
            assert y.data_ptr() == pointer
            assert c.memory_stats()["num_alloc_retries"] == 0
            (segment,) = pool.snapshot()
            assert [block["size"] // MIB for block in segment["blocks"]] == [60, 20]
        else:
            with pytest.raises(c.OutOfMemoryError, match="allocated in private pools") as caught:
                of_bytes(60 * MIB)
            assert caught.value.pool_bytes == 80 * MIB
            assert f"pool {pool.id}" in str(caught.value)
            del caught
            pools[False] = None  # type: ignore[assignment]
            del pool
            c.empty_cache()


def test_streams_do_not_share_in_a_pool_either() -> None:
    pool, side = c.MemPool(), c.Stream()
    with c.use_mem_pool(pool):
        a = of_bytes(MIB)
        with c.stream(side):
            b = of_bytes(MIB)
    assert {s["stream"] for s in pool.snapshot()} == {0, side.cuda_stream}
    assert (a.numel(), b.numel()) == (MIB, MIB)


def test_every_pool_that_was_used_has_figures() -> None:
    run_script("""
        c = torch.cuda
        c.init()
        assert len(c.memory_stats()) == 123
        pool = c.MemPool()
        with c.use_mem_pool(pool):
            x = torch.empty(1, device="cuda")
        stats = c.memory_stats()
        assert len(stats) == 135
        name = "reserved_bytes_by_private_pools.0_1"
        assert stats[f"{name}.all.current"] == stats[f"{name}.small_pool.peak"] == 2097152
        nested = c.memory_stats_as_nested_dict()["reserved_bytes_by_private_pools"]
        assert list(nested) == [(0, 1)]
        del x, pool
        c.empty_cache()
        stats = c.memory_stats()
        assert len(stats) == 135 and stats[f"{name}.all.current"] == 0
        c.reset_peak_memory_stats()
        c.reset_accumulated_memory_stats()
        stats = c.memory_stats()
        assert stats[f"{name}.all.peak"] == stats[f"{name}.all.freed"] == 0
    """)


@needs_two
def test_a_pool_belongs_to_a_device() -> None:
    pool = c.MemPool()
    with c.device(1):
        other = c.MemPool()
    assert (pool.device, other.device) == (0, 1)
    with pytest.raises(ValueError, match="belongs to device 0"):
        c.use_mem_pool(pool, 1).__enter__()
    with pytest.raises(ValueError, match="specified index"):
        c.use_mem_pool(pool, "cuda").__enter__()
    with c.use_mem_pool(pool, "cuda:0"), c.use_mem_pool(other, torch.device("cuda:1")):
        x, y = of_bytes(MIB), of_bytes(MIB, "cuda:1")
    assert [s["device"] for s in pool.snapshot() + other.snapshot()] == [0, 1]
    assert (x.numel(), y.numel()) == (MIB, MIB)


def test_bad_arguments() -> None:
    for wrong in (1, "x", object()):
        with pytest.raises(TypeError, match="CUDAPluggableAllocator"):
            c.MemPool(wrong)  # type: ignore[arg-type]
    for wrong in (None, (0, 1)):
        with pytest.raises(AttributeError):
            c.use_mem_pool(wrong).__enter__()  # type: ignore[arg-type]
    assert c.MemPool().allocator is None


def test_events_and_flushes_work_inside() -> None:
    pool, side = c.MemPool(), c.Stream()
    with c.use_mem_pool(pool):
        x = of_bytes(5 * MIB)
        pointer = x.data_ptr()
        with c.stream(side):
            c._sleep(1_000_000)
        x.record_stream(side)
        del x
        states = [b["state"] for s in pool.snapshot() for b in s["blocks"]]
        assert states[0] == "active_pending_free"  # whether or not the stream has come that far
        side.synchronize()
        assert of_bytes(5 * MIB).data_ptr() == pointer
        c.empty_cache()


def test_memory_freed_while_a_capture_runs_waits_for_its_end() -> None:
    run_script("""
        from flambeau.runtime import _allocator_pools
        c = torch.cuda
        side = c.Stream()
        blocks = [torch.empty(5 << 20, dtype=torch.uint8, device="cuda") for _ in range(2)]
        blocks[0].record_stream(side)
        pool = _allocator_pools.new_graph_id()
        _allocator_pools.begin_for_this_thread(0, pool, capturing=True)
        blocks[1].record_stream(side)       # this use is a part of the graph
        inside = torch.empty(1, device="cuda")
        blocks.clear()
        side.synchronize()
        states = lambda: [b["state"] for s in c.memory_snapshot((0, 0)) for b in s["blocks"]]
        assert states().count("active_pending_free") == 2
        c.empty_cache()                     # waits for nothing
        assert states().count("active_pending_free") == 2
        _allocator_pools.end_for_this_thread(0, pool, capturing=True)
        x = torch.empty(1, device="cuda")
        assert "active_pending_free" not in states()
        assert len(c.memory_snapshot(pool)) == 1
        assert _allocator_pools.pool_users(0, pool) == 1    # the graph's, until it drops it
        assert _allocator_pools.drop_pool(0, pool)
        del inside
        c.empty_cache()
        assert c.memory_snapshot(pool) == []
    """)


# --- with graphs --------------------------------------------------------------------------------


def test_a_capture_becomes_a_user_of_the_pools_that_it_enters() -> None:
    pool, graph = c.MemPool(), c.CUDAGraph()
    x = torch.ones(1000, device="cuda")
    with c.graph(graph):
        y = x * 2
        with c.use_mem_pool(pool):
            z = x * 3
    assert pool.id in graph.pools()
    assert pool.use_count() == 2
    graph.replay()
    assert (float(y[0]), float(z[0])) == (2.0, 3.0)
    graph.reset()
    assert pool.use_count() == 1


def test_graphs_may_share_a_pool() -> None:
    x = torch.ones(2 * MIB, device="cuda")
    graphs = [c.CUDAGraph(), c.CUDAGraph()]
    shared = c.graph_pool_handle()
    for graph in graphs:
        with c.graph(graph, pool=shared):
            y = x + 1
        graph.replay()
        del y
    assert segments(shared) == [20 * MIB]
    for graph in graphs:
        c.empty_cache()
        assert segments(shared) == [20 * MIB]
        graph.reset()
    c.empty_cache()
    assert segments(shared) == []


def test_a_pool_may_go_while_a_capture_runs() -> None:
    pool, graph = c.MemPool(), c.CUDAGraph()
    x = torch.ones(1000, device="cuda")
    with c.use_mem_pool(pool):
        of_bytes(MIB)
    identity = pool.id
    with c.graph(graph):
        y = x * 2
        del pool
        z = y + 1
    graph.replay()
    assert float(z[0]) == 3.0
    c.empty_cache()
    assert segments(identity) == []


def test_managed_memory_is_one_for_host_and_device() -> None:
    with c.memory._use_uvm() as pool:
        x = torch.arange(1000, device="cuda")
    outside = torch.ones(3, device="cuda")
    assert segments(pool.id) == [2 * MIB]
    assert (x + 1).sum().item() == 500 * 1001
    c.synchronize()
    import ctypes

    values = (ctypes.c_int64 * 1000).from_address(x.data_ptr())
    assert list(values[:3]) == [0, 1, 2]
    values[0] = 7
    assert x[0].item() == 7
    assert outside.sum().item() == 3
    address = x.data_ptr()
    del x
    with c.use_mem_pool(pool):
        assert torch.empty(1000, dtype=torch.int64, device="cuda").data_ptr() == address
