# SPDX-License-Identifier: Apache-2.0
"""Histories and snapshots."""

from __future__ import annotations

import gc
import inspect
import pickle
import pickletools
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from support import run_script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20
c = torch.cuda
m = torch.cuda.memory


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    c.init()
    gc.collect()
    c.empty_cache()
    yield
    m._set_memory_metadata("")
    m._record_memory_history(None)


def of_bytes(size: int) -> Any:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def trace() -> list[dict[str, Any]]:
    return m._snapshot()["device_traces"][0]


def actions() -> list[str]:
    return [entry["action"] for entry in trace()]


def block_of(tensor: Any) -> dict[str, Any]:
    (found,) = [
        block
        for segment in c.memory_snapshot()
        for block in segment["blocks"]
        if block["address"] == tensor.data_ptr()
    ]
    return found


def allocate_here() -> Any:
    return of_bytes(MIB)


def test_a_trace_tells_what_happened() -> None:
    m._record_memory_history()
    before = time.time()
    x = allocate_here()
    pointer = x.data_ptr()
    del x
    c.empty_cache()
    entries = trace()
    assert [entry["action"] for entry in entries] == [
        "segment_alloc", "alloc", "free_requested", "free_completed", "segment_free",
    ]  # fmt: skip
    segment, alloc, *_ = entries
    assert segment["size"] == 2 * MIB
    assert (alloc["addr"], alloc["size"], alloc["stream"]) == (pointer, MIB, 0)
    assert alloc["pool_id"] == (0, 0)
    assert alloc["compile_context"] == "N/A"
    assert alloc["user_metadata"] == ""
    assert before - 60 < alloc["time_us"] / 1e6 < time.time() + 60
    names = [frame["name"] for frame in alloc["frames"]]
    assert names[:3] == ["of_bytes", "allocate_here", "test_a_trace_tells_what_happened"]
    assert alloc["frames"][0]["filename"] == __file__
    line = inspect.getsourcelines(allocate_here)[1] + 1
    assert alloc["frames"][1]["line"] == line


@pytest.mark.parametrize("context", [None, "state", "alloc", "all"])
def test_whose_stacks_are_kept(context: str | None) -> None:
    m._record_memory_history(context=context)
    x = allocate_here()
    block = block_of(x)
    held = bool(block["frames"])
    traceback = m._allocation_traceback(x.data_ptr())
    assert (traceback is not None) == held
    if held:
        assert traceback == block["frames"]
        assert traceback[1]["name"] == "allocate_here"
        assert m._allocation_traceback(x.data_ptr() + 1) is None
    del x
    entries = {entry["action"]: entry for entry in trace()}
    in_trace = "frames" in entries["alloc"]
    where = [f["name"] for f in entries["free_requested"].get("frames", [])]
    at_free = bool(where) and where[0].startswith("test_")
    assert (held, in_trace, at_free) == {
        None: (False, False, False),
        "state": (True, False, False),
        "alloc": (True, True, False),
        "all": (True, True, True),
    }[context]
    if context == "alloc":
        assert where[1] == "allocate_here"


def test_the_newest_entries_stay() -> None:
    m._record_memory_history(max_entries=3)
    held = [of_bytes(1) for _ in range(5)]
    del held[-1]
    assert actions() == ["alloc", "free_requested", "free_completed"]
    assert actions() == ["free_requested", "free_completed", "snapshot"]
    m._record_memory_history(max_entries=1)
    assert len(trace()) == 1
    m._record_memory_history(max_entries=0)
    assert len(trace()) == 1
    m._record_memory_history("state")
    assert len(trace()) == 1


def test_a_snapshot_shows_in_the_next_one() -> None:
    m._record_memory_history()
    x = of_bytes(5 * MIB)
    assert "snapshot" not in actions()
    entry = trace()[-1]
    assert (entry["action"], entry["addr"], entry["size"]) == ("snapshot", 0, 5 * MIB)
    assert x.numel() == 5 * MIB


def test_some_actions_may_be_left_out() -> None:
    kept = of_bytes(1)
    m._record_memory_history(skip_actions=["free_requested", "snapshot"])
    x = of_bytes(1)
    del x
    assert actions() == ["alloc", "free_completed"]
    assert actions() == ["alloc", "free_completed"]
    assert kept.numel() == 1


def test_starting_over_and_stopping() -> None:
    m._record_memory_history()
    x = allocate_here()
    assert actions()
    m._record_memory_history(clear_history=True)
    assert actions() == []
    m._record_memory_history(None)
    y = of_bytes(1)
    assert actions() == []
    assert block_of(x)["frames"]  # what lives keeps its stack
    assert not block_of(y)["frames"]


def test_the_old_form() -> None:
    m._record_memory_history(True, trace_alloc_max_entries=2, trace_alloc_record_context=True)
    x = of_bytes(1)
    entries = trace()
    assert len(entries) == 2
    assert all("frames" in entry for entry in entries)
    m._record_memory_history(True, False)
    y = of_bytes(1)
    assert block_of(x)["frames"]
    assert not block_of(y)["frames"]
    m._record_memory_history(False)
    assert actions() == []


@pytest.mark.parametrize(
    ("arguments", "error", "problem"),
    [
        ({"enabled": "x"}, RuntimeError, "expected state to be"),
        ({"context": "x"}, RuntimeError, "expected context to be"),
        ({"stacks": None}, RuntimeError, "expected stacks to be"),
        ({"max_entries": -1}, TypeError, "max_entries"),
        ({"skip_actions": ["x"]}, RuntimeError, "Unknown TraceEntry action"),
        ({"enabled": None, "record_pinned_host_memory": True}, RuntimeError, "needs a history"),
    ],
)
def test_bad_arguments_change_nothing(
    arguments: dict[str, Any], error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        m._record_memory_history(**arguments)
    x = of_bytes(1)
    assert actions() == []
    assert x.numel() == 1


def test_a_shortage_is_in_the_trace() -> None:
    m._record_memory_history()
    with pytest.raises(c.OutOfMemoryError, match=r"test_memory_history\.py|What to do"):
        of_bytes((1 << 41) + 1)
    (entry,) = [entry for entry in trace() if entry["action"] == "oom"]
    assert entry["size"] == (1 << 41) + 512
    assert 0 < entry["device_free"] <= c.mem_get_info()[1]
    assert "addr" not in entry
    assert entry["frames"][0]["name"] == "of_bytes"


@pytest.mark.parametrize("everywhere", [False, True])
def test_named_ranges_are_noted(everywhere: bool) -> None:
    def ranges() -> list[tuple[str, str, int]]:
        entries = m._snapshot()["external_annotations"]
        assert [e["time_us"] for e in entries] == sorted(e["time_us"] for e in entries)
        return [(e["stage"], e["name"], e["device"]) for e in entries]

    def work() -> None:
        with torch.profiler.record_function("elsewhere"):
            pass

    m._record_memory_history(max_entries=6, global_record_annotations=everywhere)
    with torch.profiler.record_function("step"):
        x = of_bytes(1)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    inner = [("START", "elsewhere", 0), ("END", "elsewhere", 0)] if everywhere else []
    seen = [("START", "step", 0), *inner, ("END", "step", 0)]
    assert ranges() == seen
    for _ in range(2):
        with torch.profiler.record_function("more"):
            pass
    assert ranges() == [*seen, *[("START", "more", 0), ("END", "more", 0)] * 2][-6:]
    m._record_memory_history(None)
    with torch.profiler.record_function("off"):
        pass
    assert ranges() == []
    assert x.numel() == 1


def test_a_thread_may_add_a_text() -> None:
    m._record_memory_history()
    m._set_memory_metadata({"step": 1, "part": "a"})
    assert m._get_memory_metadata() == '{"step":1,"part":"a"}'
    x = of_bytes(1)
    others: list[str] = []
    thread = threading.Thread(target=lambda: others.append(m._get_memory_metadata()))
    thread.start()
    thread.join()
    assert others == [""]
    m._set_memory_metadata("")
    y = of_bytes(1)
    texts = [entry["user_metadata"] for entry in trace() if entry["action"] == "alloc"]
    assert texts == ['{"step":1,"part":"a"}', ""]
    with pytest.raises(TypeError, match="str or a dict"):
        m._set_memory_metadata(1)  # type: ignore[arg-type]
    assert m._memory_metadata_supported()
    assert x.numel() == y.numel()


def test_a_tensor_may_get_an_entry() -> None:
    x = of_bytes(1000)
    m._annotate_tensor(x, "off: nothing happens")
    m._record_memory_history()
    m._annotate_tensor(x[10:], {"role": "weights"})
    (entry,) = trace()
    assert (entry["action"], entry["addr"], entry["size"]) == ("annotate", x.data_ptr(), 1000)
    assert entry["user_metadata"] == '{"role":"weights"}'
    assert entry["frames"][0]["name"] == "_annotate_tensor"
    with pytest.raises(ValueError, match="CUDA tensor"):
        m._annotate_tensor(torch.ones(1), "x")
    with pytest.raises(RuntimeError, match="empty"):
        m._annotate_tensor(of_bytes(0), "x")


def test_pinned_memory_may_be_recorded() -> None:
    m.empty_host_cache()
    m._record_memory_history(record_pinned_host_memory=True, record_cuda=False)
    p = torch.empty(5000, dtype=torch.uint8, pin_memory=True)
    snapshot = m._snapshot()
    assert snapshot["device_traces"][0] == []
    segment, alloc = snapshot["host_traces"]
    assert (segment["action"], segment["size"]) == ("segment_alloc", 8192)
    assert (alloc["action"], alloc["size"], alloc["device"]) == ("alloc", 5000, -1)
    assert alloc["compile_context"] == ""
    assert alloc["frames"][0]["name"] == "test_pinned_memory_may_be_recorded"
    (mine,) = [s for s in snapshot["host_segments"] if s["address"] == p.data_ptr()]
    assert mine["segment_type"] == "small"
    assert [b["state"] for b in mine["blocks"]] == ["active_allocated"]
    assert mine["blocks"][0]["requested_size"] == 5000
    del p
    assert [e["action"] for e in m._snapshot()["host_traces"]][2:] == [
        "free_requested", "free_completed",
    ]  # fmt: skip
    m._record_memory_history(None, record_cuda=False)
    assert m._snapshot()["host_traces"] == []


def test_a_dump_is_plain_containers_in_protocol_4(tmp_path: Path) -> None:
    m._record_memory_history()
    pool = c.MemPool()
    with c.use_mem_pool(pool):
        held = [allocate_here() for _ in range(20)]
    held.pop()
    path = tmp_path / "snapshot.pickle"
    m._dump_snapshot(str(path))
    data = path.read_bytes()
    assert data[:2] == b"\x80\x04"
    for opcode, _, _ in pickletools.genops(data):
        assert opcode.name not in {"GLOBAL", "STACK_GLOBAL", "REDUCE", "NEWOBJ", "BUILD"}
    loaded = pickle.loads(data)
    assert set(loaded) == {
        "segments", "device_traces", "allocator_settings", "external_annotations",
        "host_segments", "host_traces",
    }  # fmt: skip
    assert len(loaded["device_traces"]) == c.device_count()
    stacks = {id(e["frames"]) for e in loaded["device_traces"][0] if e["action"] == "alloc"}
    assert len(stacks) == 1, "equal stacks are one list"


def test_before_the_first_use_there_is_nothing() -> None:
    run_script("""
        snapshot = torch.cuda.memory._snapshot()
        assert snapshot["segments"] == snapshot["device_traces"] == snapshot["host_traces"] == []
        assert torch.cuda.memory._allocation_traceback(4096) is None
        torch.cuda.memory._set_memory_metadata("x")
        assert not torch.cuda.is_initialized()
        torch.cuda.memory._record_memory_history()
        assert torch.cuda.is_initialized()
    """)


def test_a_device_that_is_used_later_is_recorded_too() -> None:
    run_script(
        """
        m = torch.cuda.memory
        m._record_memory_history()
        x = torch.empty(1, device="cuda:1")
        assert [e["action"] for e in m._snapshot()["device_traces"][1]] == [
            "segment_alloc", "alloc"]
        assert m._snapshot()["device_traces"][0] == []
        """,
        {"FLAMBEAU_VIRTUAL": "h200:2"},
    )


def test_deep_and_many_stacks() -> None:
    m._record_memory_history(max_entries=100_000)

    def deep(level: int) -> Any:
        return of_bytes(1) if level == 0 else deep(level - 1)

    for level in range(200):
        deep(level)
    lengths = [len(e["frames"]) for e in trace() if e["action"] == "alloc"]
    assert [length - lengths[0] for length in lengths] == list(range(200))


def test_threads_record_while_snapshots_are_taken() -> None:
    m._record_memory_history(max_entries=500)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for index in range(200):
                held = [of_bytes(512 * (index % 7 + 1)) for _ in range(3)]
                held.clear()
        except BaseException as error:  # noqa: BLE001 - shown by the assertion
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        assert len(trace()) <= 500
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.parametrize("stacks", [False, True])
def test_older_flags(stacks: bool) -> None:
    m._record_memory_history_legacy(
        True, trace_alloc_max_entries=2, trace_alloc_record_context=stacks, clear_history=True
    )
    held = [of_bytes(size * MIB) for size in (13, 14, 15)]
    newest = trace()  # itself an entry of the next one
    assert [entry["action"] for entry in newest] == ["segment_alloc", "alloc"]
    assert newest[-1]["size"] == held[-1].numel()
    assert bool(newest[-1].get("frames")) == stacks
    assert block_of(held[0])["frames"]
    m._record_memory_history_legacy(False)
    before = trace()
    held.append(of_bytes(30 * MIB))
    assert trace() == before
    with pytest.raises(RuntimeError, match="record_pinned_host_memory"):
        m._record_memory_history_legacy(False, record_pinned_host_memory=True)
