# SPDX-License-Identifier: Apache-2.0
"""Out of memory, explained."""

from __future__ import annotations

import gc
import pickle
import re
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from flambeau.runtime import _allocator
from flambeau.runtime.out_of_memory import Figures, FreeMemory, error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1 << 20
c = torch.cuda
m = torch.cuda.memory


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    c.init()
    gc.collect()
    c.empty_cache()
    assert c.memory_reserved() == 0, "an earlier test left memory behind"
    yield
    _allocator.set_memory_limit(0, None)


def of_bytes(size: int) -> Any:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def fail(mebibytes: float) -> c.OutOfMemoryError:
    with pytest.raises(c.OutOfMemoryError) as caught:
        of_bytes(int(mebibytes * MIB))
    result = caught.value
    result.__traceback__ = None  # its frames hold memory
    return result


def limit(mebibytes: int) -> None:
    _allocator.set_memory_limit(0, mebibytes * MIB)


def check_balance(figures: Any) -> None:
    free_parts = figures.idle_segments + figures.split_remainders + figures.pool_bytes
    assert figures.reserved == figures.allocated + figures.pending + free_parts
    kinds = (figures.own, figures.other_stream, figures.other_pool, figures.other_kind)
    assert sum(kind.bytes for kind in kinds) == free_parts
    rows = {
        name.strip(): int(amount)
        for amount, name in re.findall(r"^ +(\d+)  ([a-z,. ]+)$", str(figures), re.M)
    }
    above = ["free", "other processes", "context, modules and other allocations"]
    above += ["reserved by this allocator"]
    assert sum(rows.get(name, 0) for name in above) == figures.total
    below = ["held by tensors", "freed, waiting for other streams"]
    below += ["idle segments, kept for reuse", "free parts of segments in use"]
    below += ["free in private pools"]
    assert sum(rows.get(name, 0) for name in below) == figures.reserved


def test_the_parts_add_up_when_memory_is_short() -> None:
    limit(120)
    pool = c.MemPool()
    with c.use_mem_pool(pool):
        of_bytes(30 * MIB)
    held = [of_bytes(5 * MIB), of_bytes(1)]
    short = fail(90)
    check_balance(short)
    assert short.pool_bytes == 30 * MIB
    assert (short.requested, short.rounded, short.segment_size) == (90 * MIB,) * 3
    assert (short.device, short.stream, short.pool, short.refused_by) == (0, 0, (0, 0), "limit")
    assert short.largest_free_block == 30 * MIB
    assert 0 < short.fragmentation < 1
    assert len(held) == 2


def test_the_error_pickles_with_all_figures() -> None:
    limit(100)
    short = fail(101)
    again = pickle.loads(pickle.dumps(short))
    assert type(again) is c.OutOfMemoryError
    assert str(again) == str(short)
    assert vars(again) == vars(short)
    assert again.segment_size == 102 * MIB


def test_the_phrases_that_programs_look_for() -> None:
    limit(100)
    pool = c.MemPool()
    with c.use_mem_pool(pool):
        of_bytes(30 * MIB)
    held = of_bytes(5 * MIB)
    text = str(fail(101))
    phrases = [
        "CUDA out of memory. Tried to allocate 102.00 MiB",
        "GPU 0 has a total capacity of", "of which", "is free.",
        "100.00 MiB allowed;",
        "Of the allocated memory 35.00 MiB is allocated by PyTorch",
        "with 30.00 MiB allocated in private pools",
        "15.00 MiB is reserved by PyTorch but unallocated.",
        "Balance of", "Stopped by: the limit of this process", "What to do: ",
    ]  # fmt: skip
    positions = [text.find(phrase) for phrase in phrases]
    assert -1 not in positions, text
    assert positions == sorted(positions)
    assert held.numel() == 5 * MIB


def test_the_limit_is_named_if_it_is_the_reason() -> None:
    limit(100)
    text = str(fail(150))
    assert "Stopped by: the limit of this process, 104857600 bytes" in text
    assert "set_per_process_memory_fraction" in text.split("What to do:")[1]


def test_the_driver_is_named_if_it_is_the_reason(fault: Callable[..., None]) -> None:
    fault("cuMemAlloc", status=2, times=2)
    short = fail(30)
    assert short.refused_by == "driver"
    assert "Stopped by: the driver" in str(short)
    assert short.limit is None
    assert "allowed;" not in str(short)


def test_more_than_the_device_has() -> None:
    total = c.mem_get_info()[1]
    short = fail(total / MIB + 2)
    assert "larger than the whole device" in str(short).split("What to do:")[1]


@pytest.mark.parametrize(
    ("shape", "dtype", "amount"),
    [
        (1 << 60, "uint8", "more than 1EB memory."),
        ((1 << 60) - 1, "uint8", "1073741824.00 GiB"),
        ((1 << 30, 1 << 30), "bool", "more than 1EB memory."),
        (1 << 58, "float32", "more than 1EB memory."),
        ((1 << 58) - 1, "float32", "1073741824.00 GiB"),
        (1 << 60, "float32", "more than 1EB memory."),
        ((1 << 63) - 1, "int8", "more than 1EB memory."),
    ],
)
def test_shapes_beyond_reason(shape: Any, dtype: str, amount: str) -> None:
    made = getattr(torch, dtype)
    for make in (torch.empty, torch.zeros, torch.ones(1, device="cuda").new_empty):
        with pytest.raises(c.OutOfMemoryError) as caught:
            make(shape, dtype=made, device="cuda")
        assert f"Tried to allocate {amount}" in str(caught.value)


def test_a_free_block_of_another_stream() -> None:
    limit(60)
    side = c.Stream()
    with c.stream(side):
        keep, large = of_bytes(2 * MIB), of_bytes(15 * MIB)
        del large
    other = of_bytes(30 * MIB)
    short = fail(15)
    assert short.other_stream.largest == 18 * MIB
    assert f"belongs to stream {side.cuda_stream:#x}" in str(short)
    assert "stream" in str(short).split("What to do:")[1]
    assert (keep.numel(), other.numel()) == (2 * MIB, 30 * MIB)


def test_a_free_block_of_a_pool() -> None:
    limit(100)
    pool = c.MemPool()
    with c.use_mem_pool(pool):
        of_bytes(80 * MIB)
    short = fail(60)
    assert f"but it belongs to pool {pool.id}" in str(short)
    assert f"drop pool {pool.id}" in str(short)
    del pool
    assert of_bytes(60 * MIB).numel() == 60 * MIB  # the advice was good


def test_fragmented_memory() -> None:
    limit(40)
    held = [of_bytes(5 * MIB) for _ in range(8)]
    del held[1::2]
    short = fail(12)
    assert short.own.bytes == 20 * MIB
    assert short.own.largest < 12 * MIB
    assert "which is too small" in str(short)
    assert "fragmented" in str(short).split("What to do:")[1]
    assert len(held) == 4


def test_who_holds_most_is_named_if_a_history_is_on() -> None:
    limit(100)
    m._record_memory_history(context="state")
    try:
        large = torch.empty(50 * MIB, dtype=torch.uint8, device="cuda")
        small = of_bytes(1)
        text = str(fail(80))
        figures = str(c.memory_explain())
    finally:
        m._record_memory_history(None)
    sites = re.findall(rf"^ +(\d+)  {re.escape(__file__)}:\d+$", text, re.M)
    assert [int(size) for size in sites] == [50 * MIB, 512]
    assert "Most is held by what these lines allocated:" in figures
    assert (large.numel(), small.numel()) == (50 * MIB, 1)


def test_a_report_at_any_time() -> None:
    side = c.Stream()
    held, freed = of_bytes(5 * MIB), of_bytes(2 * MIB)
    freed.record_stream(side)
    del freed
    pinned = torch.empty(5000, dtype=torch.uint8, pin_memory=True)
    figures = c.memory_explain()
    check_balance(figures)
    assert figures.allocated == 5 * MIB == held.numel()
    assert figures.pending == 2 * MIB
    assert figures.cached == 13 * MIB
    assert "Memory of GPU 0" in str(figures)
    assert "Pinned host memory:" in str(figures)
    for bad in (99, "cpu"):
        with pytest.raises((RuntimeError, ValueError)):
            c.memory_explain(bad)
    assert pinned.numel() == 5000


# --- observers ----------------------------------------------------------------------------------


def test_observers_hear_of_it_before_it_is_raised() -> None:
    heard: list[tuple[int, ...]] = []
    observer = lambda *figures: heard.append(figures)  # noqa: E731
    m._attach_out_of_memory_observer(observer)
    try:
        free, total = c.mem_get_info()
        fail(2 << 20)
        assert [figures[:3] for figures in heard] == [(0, 2 << 40, total)]
        limit(100)
        fail(150)
        assert heard[1][:3] == (0, 150 * MIB, 100 * MIB)
        others = 0 if torch.virtual.is_enabled() else 4 << 30  # other processes come and go
        assert all(abs(figures[3] - free) <= others for figures in heard)
    finally:
        m._detach_out_of_memory_observer(observer)
    fail(150)
    assert len(heard) == 2


def test_observers_can_be_attached_under_the_name_of_torchs_module() -> None:
    import flambeau._C

    heard: list[tuple[int, ...]] = []
    observer = lambda *figures: heard.append(figures)  # noqa: E731
    flambeau._C._cuda_attach_out_of_memory_observer(observer)
    try:
        fail(2 << 20)
    finally:
        m._detach_out_of_memory_observer(observer)
    assert [figures[:2] for figures in heard] == [(0, 2 << 40)]


def test_what_an_observer_raises_is_raised() -> None:
    def observer(*figures: int) -> None:
        raise KeyError("mine")

    m._attach_out_of_memory_observer(observer)
    try:
        with pytest.raises(KeyError, match="mine") as caught:
            of_bytes(2 << 40)
        assert isinstance(caught.value.__cause__, c.OutOfMemoryError)
    finally:
        m._detach_out_of_memory_observer(observer)
    with pytest.raises(TypeError, match="callable"):
        m._attach_out_of_memory_observer(None)  # type: ignore[arg-type]


def test_other_processes_are_advised_about_if_they_are_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flambeau.driver.contract import ProcessInfo
    from flambeau.runtime import out_of_memory

    monkeypatch.setattr(
        out_of_memory, "_processes", lambda device: [ProcessInfo(pid=1, used_bytes=600 * MIB)]
    )
    figures = Figures(
        device=0, requested=300 * MIB, rounded=300 * MIB, segment_size=300 * MIB,
        total=1000 * MIB, free=100 * MIB, limit=None, allocated=250 * MIB, reserved=250 * MIB,
        own=FreeMemory(),
    )  # fmt: skip
    text = str(error(figures))
    assert "Process 1 has 600.00 MiB memory in use." in text
    assert "end other processes: they hold 600.00 MiB" in text
    check_balance(figures)
