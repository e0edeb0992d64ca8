# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flambeau as torch
from flambeau.cuda._memory_summary import format_summary
from support import TWO_VIRTUAL, needs_no_driver, needs_two, run_script

MIB = 1 << 20


def pointer_of(size: int, **arguments: object) -> int:
    return torch.cuda.caching_allocator_alloc(size, **arguments)


# --- before initialisation ----------------------------------------------------------------------


def test_questions_before_the_first_use_answer_and_do_not_initialise() -> None:
    run_script("""
        c = torch.cuda
        for device in (None, 0, 99, "cpu", "cuda:0"):
            assert c.memory_stats(device) == {} == c.memory_stats_as_nested_dict(device)
            for ask in (c.memory_allocated, c.max_memory_allocated, c.memory_reserved,
                        c.max_memory_reserved):
                assert ask(device) == 0
        assert c.host_memory_stats() == {} == c.host_memory_stats_as_nested_dict()
        assert c.empty_cache() is None
        assert c.reset_peak_host_memory_stats() is None
        assert c.reset_accumulated_host_memory_stats() is None
        assert c.memory_snapshot() == []
        assert c.get_allocator_backend() == "native"
        try:
            c.caching_allocator_delete(512)
        except RuntimeError as error:
            assert "invalid device pointer" in str(error)
        else:
            raise AssertionError
        assert not c.is_initialized()
    """)


@pytest.mark.parametrize(
    "call",
    [
        "mem_get_info()",
        "memory_summary()",
        "reset_peak_memory_stats(0)",
        "reset_accumulated_memory_stats()",
        "get_per_process_memory_fraction()",
        "caching_allocator_alloc(1)",
    ],
)
def test_what_needs_the_device_initialises(call: str) -> None:
    run_script(f"""
        torch.cuda.{call}
        assert torch.cuda.is_initialized()
    """)


def test_a_device_may_be_named_before_the_first_use() -> None:
    run_script("""
        assert not torch.cuda.is_initialized()
        assert torch.cuda.memory_allocated(0) == 0
        for dev in (0, "cuda:0", torch.device("cuda", 0)):
            torch.cuda.reset_peak_memory_stats(dev)
            assert "GPU reserved memory" in torch.cuda.memory_summary(dev)
        x = torch.empty(1 << 20, dtype=torch.uint8, device="cuda:0")
        assert torch.cuda.memory_allocated("cuda:0") == 1 << 20
        assert torch.cuda.max_memory_allocated(0) == 1 << 20
        del x
        torch.cuda.reset_peak_memory_stats("cuda:0")
        assert torch.cuda.max_memory_allocated(0) == 0
    """)


def test_pinning_before_the_first_use_really_pins() -> None:
    run_script("""
        t = torch.full((1024,), 2.0)
        assert not torch.cuda.is_initialized() and not t.is_pinned()
        p = t.pin_memory()
        assert p.is_pinned() and p.data_ptr() != t.data_ptr()
        assert p[10:20].is_pinned()
        assert p.pin_memory().data_ptr() == p.data_ptr()
        d = p.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
        assert d.sum().item() == 2048.0
    """)


def test_no_bytes_are_not_pinned() -> None:
    for empty in (torch.empty(0).pin_memory(), torch.empty(3, 0, pin_memory=True)):
        assert empty.numel() == 0
        assert not empty.is_pinned()


@needs_no_driver
def test_without_a_device_there_are_zeros_and_reasons() -> None:
    run_script(
        """
        assert torch.cuda.memory_allocated() == 0 and torch.cuda.memory_stats() == {}
        assert "Allocated memory" in torch.cuda.memory_summary()
        assert torch.cuda.empty_cache() is None
        for call in (torch.cuda.mem_get_info, torch.cuda.reset_peak_memory_stats,
                     torch.cuda.get_per_process_memory_fraction):
            try:
                call()
            except RuntimeError as error:
                assert "Found no NVIDIA driver" in str(error)
            else:
                raise AssertionError
        """,
        {"FLAMBEAU_VIRTUAL": None, "LD_LIBRARY_PATH": "/nonexistent"},
    )


# --- device arguments ---------------------------------------------------------------------------

STATISTICS = [
    torch.cuda.memory_allocated,
    torch.cuda.max_memory_allocated,
    torch.cuda.memory_reserved,
    torch.cuda.max_memory_reserved,
    torch.cuda.memory_stats,
    torch.cuda.reset_peak_memory_stats,
    torch.cuda.reset_accumulated_memory_stats,
    torch.cuda.memory_summary,
]


@needs_two
@pytest.mark.parametrize("ask", STATISTICS, ids=lambda f: f.__name__)
def test_device_arguments_of_statistics(ask: object) -> None:
    torch.cuda.init()
    for device in (None, 0, "cuda", "cuda:1", torch.device("cuda"), torch.cuda.device(1)):
        ask(device)
    for device in (-1, 2, 99, True):
        with pytest.raises(RuntimeError, match=f"Invalid device argument {device}"):
            ask(device)
    with pytest.raises(ValueError, match="Expected a cuda device"):
        ask("cpu")
    with pytest.raises(TypeError):
        ask(0.0)


@needs_two
def test_device_arguments_of_driver_questions() -> None:
    with torch.cuda.device(1):
        assert torch.cuda.mem_get_info(-1) == torch.cuda.mem_get_info(1)
    with pytest.raises(torch.cuda.AcceleratorError) as caught:
        torch.cuda.mem_get_info(99)
    assert caught.value.error_code == 101
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory


# --- statistics ---------------------------------------------------------------------------------


def test_statistics_have_the_names_that_programs_use() -> None:
    torch.cuda.init()
    stats = torch.cuda.memory_stats()
    assert len([name for name in stats if "private_pools" not in name]) == 123
    assert list(stats) == sorted(stats)
    for kind in ("allocation", "segment", "active", "inactive_split", "requested_bytes"):
        for pool in ("all", "large_pool", "small_pool"):
            for figure in ("current", "peak", "allocated", "freed"):
                assert isinstance(stats[f"{kind}.{pool}.{figure}"], int)
    nested = torch.cuda.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == stats["allocated_bytes.all.current"]
    assert stats["max_split_size"] == -1


def test_allocations_move_the_figures() -> None:
    run_script(
        """
        import gc
        c = torch.cuda
        a = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
        b = torch.empty(1, dtype=torch.uint8, device="cuda")
        del a
        s = c.memory_stats()
        assert s["allocated_bytes.all.current"] == 512 == c.memory_allocated()
        assert s["allocated_bytes.all.peak"] == 5243392 == c.max_memory_allocated()
        assert s["allocated_bytes.all.allocated"] == 5243392
        assert s["allocated_bytes.all.freed"] == 5242880
        assert s["reserved_bytes.all.current"] == 23068672 == c.memory_reserved()
        assert s["inactive_split.all.current"] == 1 and s["inactive_split.all.peak"] == 2
        assert s["inactive_split_bytes.all.peak"] == 17825280
        c.reset_accumulated_memory_stats(); c.reset_peak_memory_stats()
        del b
        s = c.memory_stats()
        assert s["allocated_bytes.all.freed"] == 512 == s["allocated_bytes.all.peak"]
        assert s["allocated_bytes.all.allocated"] == 0 == s["num_device_alloc"]
        assert c.max_memory_reserved() == 23068672
        c.empty_cache()
        assert c.memory_reserved() == 0 == c.memory_reserved(1)
        assert c.memory_snapshot() == []
    """,
        TWO_VIRTUAL,
    )


@needs_two
def test_devices_are_counted_apart() -> None:
    gc.collect()
    before = [torch.cuda.memory_allocated(index) for index in range(2)]
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda:1")
    after = [torch.cuda.memory_allocated(index) for index in range(2)]
    assert after == [before[0], before[1] + 3 * MIB]
    del x


def test_old_names_warn_and_work() -> None:
    torch.cuda.init()
    with pytest.warns(FutureWarning, match="memory_reserved"):
        assert torch.cuda.memory_cached() == torch.cuda.memory_reserved()
    with pytest.warns(FutureWarning, match="max_memory_reserved"):
        assert torch.cuda.max_memory_cached() == torch.cuda.max_memory_reserved()
    for old in (torch.cuda.reset_max_memory_allocated, torch.cuda.reset_max_memory_cached):
        x = torch.empty(MIB, device="cuda")
        del x
        with pytest.warns(FutureWarning, match="reset_peak_memory_stats"):
            old()
        assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
        assert torch.cuda.max_memory_reserved() == torch.cuda.memory_reserved()


def test_pinned_memory_is_counted() -> None:
    p = torch.empty(5000, dtype=torch.uint8).pin_memory()
    stats = torch.cuda.host_memory_stats()
    assert len(stats) == 28
    assert stats["active_requests.current"] >= 1
    assert stats["active_bytes.current"] >= 5000
    assert torch.cuda.host_memory_stats_as_nested_dict()["allocations"]["current"] >= 1
    del p
    torch.cuda.reset_accumulated_host_memory_stats()
    torch.cuda.reset_peak_host_memory_stats()
    stats = torch.cuda.host_memory_stats()
    assert stats["num_host_alloc"] == 0
    assert stats["active_bytes.peak"] == stats["active_bytes.current"]


# --- the summary --------------------------------------------------------------------------------


@needs_two
def test_the_summary_is_a_table_of_fixed_width() -> None:
    torch.cuda.init()
    for abbreviated, rows in ((False, 29), (True, 11)):
        text = torch.cuda.memory_summary(abbreviated=abbreviated)
        assert text.endswith("\n")
        lines = text.splitlines()
        assert {len(line) for line in lines} == {77}
        assert all(line[0] == line[-1] == "|" for line in lines)
        assert len([line for line in lines[6:] if line.count("|") == 6]) == rows
    assert "device ID 1 " in torch.cuda.memory_summary("cuda:1")


def test_a_row_of_the_summary() -> None:
    stats = {f"allocated_bytes.all.{c}": 3 * MIB for c in ("current", "peak", "allocated")}
    stats["num_ooms"] = 7
    lines = format_summary(stats, 0, abbreviated=True).splitlines()
    row = " Allocated memory      |   3072 KiB |   3072 KiB |   3072 KiB |      0 B   "
    assert f"|{row}|" in lines
    ooms = "            CUDA OOMs: 7            |        cudaMalloc retries: 0         "
    assert lines[3] == f"|{ooms}|"


@given(st.integers(0, 1 << 58))
def test_a_figure_of_the_summary_keeps_three_digits(value: int) -> None:
    """The unit steps up at 768 times 1024, so what is left has three to six digits."""
    text = format_summary({"allocated_bytes.all.current": value}, 0, abbreviated=True)
    row = next(line for line in text.splitlines() if "Allocated memory" in line)
    number, unit = re.search(r"\| +(\d+) (B  |[KMGTP]iB) \|", row).groups()
    scale = 1024 ** ["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"].index(unit)
    assert int(number) == value // scale
    assert int(number) < 768 * 1024 or unit == "PiB"
    assert scale == 1 or int(number) >= 768


# --- snapshots ----------------------------------------------------------------------------------


@needs_two
def test_a_snapshot_lists_segments_and_their_blocks() -> None:
    tensors = [torch.empty(MIB, device=f"cuda:{index}") for index in (1, 0)]
    snapshot = torch.cuda.memory_snapshot()
    assert snapshot == sorted(snapshot, key=lambda s: (s["device"], s["address"]))
    for tensor in tensors:
        (segment,) = [
            s
            for s in snapshot
            if s["address"] <= tensor.data_ptr() < s["address"] + s["total_size"]
        ]
        assert segment["device"] == tensor.device.index
        assert segment["segment_type"] == "large"
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
        (block,) = [b for b in segment["blocks"] if b["address"] == tensor.data_ptr()]
        assert block["state"] == "active_allocated"
        assert block["requested_size"] == 4 * MIB
        assert tuple(segment["segment_pool_id"]) == (0, 0)
    assert torch.cuda.memory_snapshot((0, 0)) == snapshot
    assert torch.cuda.memory_snapshot((5, 5)) == []


# --- limits -------------------------------------------------------------------------------------


def test_a_fraction_limits_one_device() -> None:
    run_script(
        """
        c = torch.cuda
        assert c.get_per_process_memory_fraction() == 1.0
        c.set_per_process_memory_fraction(0.5, "cuda:1")
        assert c.get_per_process_memory_fraction(1) == 0.5
        assert c.get_per_process_memory_fraction(0) == 1.0
        c.set_per_process_memory_fraction(0.0)
        try:
            torch.empty(1, device="cuda")
        except c.OutOfMemoryError:
            pass
        else:
            raise AssertionError
        c.set_per_process_memory_fraction(1.0)
        torch.empty(1, device="cuda")
    """,
        TWO_VIRTUAL,
    )


def test_bad_fractions_are_refused() -> None:
    limit = torch.cuda.set_per_process_memory_fraction
    with pytest.raises(TypeError, match="must be `float`"):
        limit(1)
    for fraction in (1.5, -0.1):
        with pytest.raises(ValueError, match="Invalid fraction value"):
            limit(fraction)
    with pytest.raises(RuntimeError, match="nan"):
        limit(math.nan)
    for call in (lambda d: limit(0.5, d), torch.cuda.get_per_process_memory_fraction):
        with pytest.raises(ValueError, match="specified index or an integer"):
            call("cuda")
        with pytest.raises(RuntimeError, match="Allocator not initialized for device 99"):
            call(99)
    assert torch.cuda.get_per_process_memory_fraction() == 1.0


# --- memory by address --------------------------------------------------------------------------


def test_memory_by_address() -> None:
    before = torch.cuda.memory_allocated()
    pointer = pointer_of(1)
    assert pointer != 0
    assert torch.cuda.memory_allocated() == before + 512
    torch.cuda.caching_allocator_delete(pointer)
    assert torch.cuda.memory_allocated() == before
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        torch.cuda.caching_allocator_delete(pointer)
    assert pointer_of(0) == 0
    assert torch.cuda.memory_allocated() == before


@needs_two
def test_memory_by_address_belongs_to_a_device_and_a_stream() -> None:
    stream = torch.cuda.Stream(1)
    pointers = [
        pointer_of(64, device=1),
        pointer_of(64, device="cuda:1", stream=stream),
        pointer_of(64, device=torch.device("cuda:1"), stream=stream.cuda_stream),
    ]
    assert torch.cuda.current_device() == 0
    segments = torch.cuda.memory_snapshot()
    found = {
        pointer: (s["device"], s["stream"])
        for pointer in pointers
        for s in segments
        if s["address"] <= pointer < s["address"] + s["total_size"]
    }
    assert [found[pointer] for pointer in pointers] == [(1, 0)] + [(1, stream.cuda_stream)] * 2
    for pointer in pointers:
        torch.cuda.caching_allocator_delete(pointer)


def test_bad_arguments_of_memory_by_address() -> None:
    for size in (-1, "a", 1.5):
        with pytest.raises(ValueError, match="Invalid memory size"):
            pointer_of(size)
    with pytest.raises(TypeError, match="Invalid type for stream argument"):
        pointer_of(1, stream="x")
    with pytest.raises(ValueError, match="specified index"):
        pointer_of(1, device="cuda")
    with pytest.raises(torch.cuda.AcceleratorError):
        pointer_of(1, device=99)
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        torch.cuda.caching_allocator_delete(12345)


def test_the_allocator_of_pinned_memory_is_one_object() -> None:
    run_script("""
        first = torch.cuda.memory._host_allocator()
        assert isinstance(first, int) and first != 0 and torch.cuda.is_initialized()
        assert torch.cuda.memory._host_allocator() == first
    """)
