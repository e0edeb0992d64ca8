# SPDX-License-Identifier: Apache-2.0
"""Device memory without the cache."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

import flambeau as torch
from flambeau.driver import _table
from support import run_script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20
c = torch.cuda


@pytest.fixture(autouse=True)
def _caching() -> Iterator[None]:
    c.init()
    gc.collect()
    c.empty_cache()
    yield
    c.caching_allocator_enable(True)


def driver_calls(entry: str, run: Callable[[], object]) -> int:
    _table.start_trace()
    run()
    return [name for name, _ in _table.stop_trace()].count(entry)


def test_without_caching_every_tensor_is_the_drivers() -> None:
    reserved, allocated = c.memory_reserved(), c.memory_allocated()
    with c.caching_allocator_disabled():
        tensors: list[object] = []
        make = lambda: tensors.append(torch.ones(1000, device="cuda"))  # noqa: E731
        assert driver_calls("cuMemAlloc", make) == 1
        assert driver_calls("cuMemAlloc", make) == 1
        assert (c.memory_reserved(), c.memory_allocated()) == (reserved, allocated)
        assert float(tensors[0].sum()) == 1000.0  # type: ignore[attr-defined]
        tensors.clear()
        assert driver_calls("cuMemFree", c.mem_get_info) >= 2
    assert c.memory_snapshot() == [] or c.memory_reserved() == reserved


def test_memory_from_before_and_after_goes_back_where_it_came_from() -> None:
    cached = torch.empty(MIB, device="cuda")
    held = c.memory_allocated()
    c.caching_allocator_enable(False)
    direct = torch.empty(MIB, device="cuda")
    del cached
    assert c.memory_allocated() == held - 4 * MIB
    c.caching_allocator_enable(True)
    del direct
    assert driver_calls("cuMemFree", c.mem_get_info) == 1
    assert c.memory_allocated() == held - 4 * MIB


def test_the_context_manager_restores_what_was() -> None:
    for before in (False, True):
        c.caching_allocator_enable(before)
        with pytest.raises(KeyError), c.caching_allocator_disabled():
            raise KeyError
        reserved = c.memory_reserved()
        x = torch.empty(30 * MIB, device="cuda")
        assert (c.memory_reserved() > reserved) is before
        del x


def test_the_switch_is_a_bool() -> None:
    for value in (1, None, "True"):
        with pytest.raises(RuntimeError, match="takes a bool"):
            c.caching_allocator_enable(value)  # type: ignore[arg-type]


def test_by_address_either_way() -> None:
    cached = c.caching_allocator_alloc(1000)
    with c.caching_allocator_disabled():
        direct = c.caching_allocator_alloc(1000)
        c.caching_allocator_delete(cached)  # looked up, not given to the driver
    for pointer in (cached, direct):
        if pointer == direct:
            c.caching_allocator_delete(pointer)
        with pytest.raises(RuntimeError, match="invalid device pointer"):
            c.caching_allocator_delete(pointer)
    assert c.caching_allocator_delete(0) is None


def test_the_cache_is_given_up_before_the_driver_says_no(fault: Callable[..., None]) -> None:
    x = torch.empty(30 * MIB, device="cuda")
    del x
    with c.caching_allocator_disabled():
        fault("cuMemAlloc", status=2, times=1)
        y = torch.empty(30 * MIB, device="cuda")
        assert y.numel() == 30 * MIB
        assert c.memory_reserved() == 0
        fault("cuMemAlloc", status=2, times=2)
        with pytest.raises(c.OutOfMemoryError, match=r"Tried to allocate 120\.00 MiB") as caught:
            torch.empty(30 * MIB, device="cuda")
        assert caught.value.refused_by == "driver"


def test_work_on_it_is_finished_before_it_goes() -> None:
    with c.caching_allocator_disabled():
        x = torch.full((MIB,), 3.0, device="cuda")
        y = x * 2
        del x
        assert float(y.sum()) == 6.0 * MIB


def test_the_end_of_the_program_is_quiet() -> None:
    done = run_script("""
        import sys
        c = torch.cuda
        class Keeper: pass
        kept = sys.modules["kept"] = Keeper()
        kept.itself = kept
        with c.caching_allocator_disabled():
            kept.direct = torch.ones(1000, device="cuda")
        kept.pool = c.MemPool()
        with c.use_mem_pool(kept.pool):
            kept.pooled = torch.ones(1000, device="cuda")
        kept.pinned = torch.empty(1000).pin_memory()
        kept.copy = kept.pinned.cuda(non_blocking=True)
        c.memory._record_memory_history(record_pinned_host_memory=True)
        kept.recorded = torch.ones(1000, device="cuda")
        mine = c.CUDAPluggableAllocator.from_functions(lambda *a: None, lambda *a: None)
        kept.mine = c.MemPool(mine.allocator())
    """)
    assert (done.stdout, done.stderr) == ("", "")
