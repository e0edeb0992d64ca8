# SPDX-License-Identifier: Apache-2.0
"""Graphs: capturing, replaying, what is refused, whose memory and random numbers they use."""

from __future__ import annotations

import gc
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from support import TWO_VIRTUAL, run_script

if TYPE_CHECKING:
    from collections.abc import Callable

cuda = torch.cuda
GIB = 1 << 30


def captured(work: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
    """A graph of some work, and what the work returned."""
    g = cuda.CUDAGraph()
    with cuda.graph(g, **options):
        made = work()
    return g, made


def reserved() -> int:
    return int(cuda.memory_reserved())


@pytest.fixture(autouse=True)
def _own_capture_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of the pool come round: another test's capturing stream may be this one's side."""
    monkeypatch.setattr(cuda.graph, "default_capture_stream", None)


@pytest.fixture
def ones() -> Any:
    return torch.ones(1000, device="cuda")


# --- capturing and replaying --------------------------------------------------------------------


def test_a_replay_does_what_was_captured(ones: Any, schedule: str) -> None:
    def work() -> Any:
        b = ones
        for _ in range(10):
            b = b + 1
        return b

    g, b = captured(work)
    g.replay()
    assert b.sum().item() == 11000
    ones.fill_(5)
    g.replay()
    assert b.sum().item() == 15000


def test_a_replay_runs_on_the_current_stream(ones: Any, schedule: str) -> None:
    g, b = captured(lambda: ones * 2)
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        ones.fill_(3)
        g.replay()
        total = b.sum()
    cuda.current_stream().wait_stream(side)
    assert total.item() == 6000


def test_the_default_stream_cannot_be_captured() -> None:
    with pytest.raises(RuntimeError, match="non-default stream"):
        cuda.CUDAGraph().capture_begin()


def test_an_empty_capture_warns() -> None:
    with pytest.warns(UserWarning, match="The CUDA Graph is empty"):
        captured(lambda: None)


def test_what_was_never_captured_can_do_nothing() -> None:
    g = cuda.CUDAGraph()
    calls: list[Callable[[], object]] = [g.replay, g.instantiate]
    for call in calls:
        with pytest.raises(RuntimeError, match=r"capture_end\(\) must have been called"):
            call()
    calls = [g.pool, g.pools]
    for call in calls:
        with pytest.raises(RuntimeError, match="without a preceding successful capture"):
            call()
    with pytest.raises(RuntimeError, match="No cudaGraph_t is available"):
        g.raw_cuda_graph()
    with pytest.raises(RuntimeError, match=r"until instantiate\(\)"):
        g.raw_cuda_graph_exec()
    with pytest.raises(RuntimeError, match="capture_begin"):
        g.capture_end()


def test_capturing_twice(ones: Any) -> None:
    g, _ = captured(lambda: ones + 1)
    before = cuda.current_stream()
    with pytest.raises(RuntimeError, match="already owns a captured graph"), cuda.graph(g):
        pass
    assert cuda.current_stream() == before
    g.reset()
    with cuda.graph(g):
        b = ones + 2
    g.replay()
    assert b[0].item() == 3


def test_an_unknown_mode(ones: Any) -> None:
    with (
        pytest.raises(RuntimeError, match="Unknown capture error mode"),
        cuda.graph(cuda.CUDAGraph(), capture_error_mode="lax"),
    ):
        pass


def test_kept_graphs(ones: Any) -> None:
    g = cuda.CUDAGraph(keep_graph=True)
    with cuda.graph(g):
        b = ones + 1
    assert g.raw_cuda_graph()
    with pytest.raises(RuntimeError, match=r"until instantiate\(\)"):
        g.raw_cuda_graph_exec()
    g.instantiate()
    first = g.raw_cuda_graph_exec()
    g.instantiate()
    assert g.raw_cuda_graph_exec() != first
    g.replay()
    assert b[0].item() == 2
    other = cuda.CUDAGraph(keep_graph=True)
    with cuda.graph(other):
        c = ones + 2
    other.replay()  # instantiates
    assert c[0].item() == 3
    plain, _ = captured(lambda: ones + 1)
    with pytest.raises(RuntimeError, match="only when keep_graph=true"):
        plain.instantiate()


def test_a_capture_ends_where_it_began(ones: Any) -> None:
    g, first, second = cuda.CUDAGraph(), cuda.Stream(), cuda.Stream()
    cuda.synchronize()
    with cuda.stream(first):
        g.capture_begin()
        b = ones + 1
        with cuda.stream(second), pytest.raises(RuntimeError, match="same stream it began on"):
            g.capture_end()
        g.capture_end()
    g.replay()
    assert b[0].item() == 2


def test_a_capture_ends_on_its_thread(ones: Any) -> None:
    g, stream = cuda.CUDAGraph(), cuda.Stream()

    def end_elsewhere() -> None:
        with cuda.stream(stream):
            g.capture_end()

    cuda.synchronize()
    with cuda.stream(stream):
        g.capture_begin()
        _ = ones + 1
        assert in_thread(end_elsewhere).error_code == 908
        assert not cuda.is_current_stream_capturing()
        with pytest.raises(RuntimeError, match="must be preceded"):
            g.capture_end()
    g, b = captured(lambda: ones + 1)
    g.replay()
    assert b[0].item() == 2


def test_is_current_stream_capturing(ones: Any) -> None:
    assert not cuda.is_current_stream_capturing()
    with cuda.graph(cuda.CUDAGraph()):
        assert cuda.is_current_stream_capturing()
        assert cuda.current_stream().is_capturing()
        _ = ones + 1
    assert not cuda.is_current_stream_capturing()


def test_which_graph_is_capturing(ones: Any) -> None:
    g = cuda.CUDAGraph()
    assert cuda.CUDAGraph.get_currently_capturing_graph() is None
    with cuda.graph(g):
        assert cuda.CUDAGraph.get_currently_capturing_graph() is g
        _ = ones + 1
    assert cuda.CUDAGraph.get_currently_capturing_graph() is None


def test_the_capture_stream_is_shared(ones: Any) -> None:
    with cuda.graph(cuda.CUDAGraph()):
        first = cuda.current_stream()
        _ = ones + 1
    with cuda.graph(cuda.CUDAGraph()):
        assert cuda.current_stream() == first == cuda.graph.default_capture_stream
        _ = ones + 1


def test_a_graph_that_dies_in_another_capture(ones: Any) -> None:
    g, _ = captured(lambda: ones + 1)
    other = cuda.CUDAGraph()
    with cuda.graph(other):
        b = ones + 2
        del g
        c = b + 1
    other.replay()
    assert c[0].item() == 4


# --- what is refused -----------------------------------------------------------------------------


def broken(work: Callable[[], Any], **options: Any) -> Any:
    """The error that comes out of a capture; afterwards everything works again."""
    before = cuda.current_stream()
    with pytest.raises(cuda.AcceleratorError) as caught, cuda.graph(cuda.CUDAGraph(), **options):
        work()
    assert cuda.current_stream() == before
    cuda.synchronize()
    g, b = captured(lambda: torch.ones(3, device="cuda") + 1)
    g.replay()
    assert b.tolist() == [2.0, 2.0, 2.0]
    return caught.value


def test_reading_a_value_names_the_call(ones: Any) -> None:
    def work() -> None:
        b = ones + 1
        b.sum().item()

    error = broken(work)
    assert error.error_code == 900
    assert "b.sum().item()" in str(error)
    assert "test_graphs.py" in str(error)


def test_the_call_itself_fails_too(ones: Any) -> None:
    def work() -> None:
        with pytest.raises(cuda.AcceleratorError) as caught:
            (ones + 1).sum().item()
        assert caught.value.error_code == 900

    assert broken(work).error_code == 900


@pytest.mark.parametrize(
    "call",
    [
        lambda x: cuda.synchronize(),
        lambda x: cuda.current_stream().synchronize(),
        lambda x: cuda.Stream().query(),
        lambda x: x.nonzero(),
        lambda x: cuda.graph(cuda.CUDAGraph()).__enter__(),
    ],
    ids=["synchronize", "stream.synchronize", "query", "nonzero", "nested graph"],
)
def test_waiting_is_refused(ones: Any, call: Callable[[Any], object]) -> None:
    ones.nonzero()
    assert broken(lambda: call(ones + 1)).error_code == 900


def test_older_events_are_refused(ones: Any) -> None:
    event = cuda.Event()
    event.record()
    assert broken(event.query).error_code == 900


def test_the_first_error_is_told_at_the_end(ones: Any) -> None:
    def work() -> None:
        for call in (lambda: cuda.Stream().query(), lambda: ones + 1):
            try:
                call()
            except cuda.AcceleratorError:
                continue

    error = broken(work)
    assert error.error_code == 900
    assert "cuda.Stream().query()" in str(error)
    assert isinstance(error.__cause__, cuda.AcceleratorError)


def test_the_first_error_goes_before_a_later_exception(ones: Any) -> None:
    def work() -> None:
        try:
            cuda.synchronize()
        except cuda.AcceleratorError:
            raise KeyError("later") from None

    error = broken(work)
    assert error.error_code == 900
    assert isinstance(error.__cause__, cuda.AcceleratorError)


def test_harmless_exceptions_leave_a_graph(ones: Any) -> None:
    g = cuda.CUDAGraph()
    made = []

    def work() -> None:
        made.append(ones + 1)
        raise KeyError("x")

    with pytest.raises(KeyError), cuda.graph(g):
        work()
    g.replay()
    assert made[0][0].item() == 2


def test_copies_of_host_memory(ones: Any) -> None:
    host, pinned = torch.zeros(1000), torch.zeros(1000).pin_memory()
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        b = ones + 1
        with pytest.raises(RuntimeError, match="unless the CPU tensor is pinned"):
            b.copy_(host)
        with pytest.raises(RuntimeError, match="Cannot copy between CPU and CUDA tensors"):
            torch.tensor([1.0], device="cuda")
        pinned.copy_(b, non_blocking=True)
    g.replay()
    cuda.synchronize()
    assert pinned[0].item() == 2
    assert broken(lambda: ones.copy_(pinned)).error_code == 900


def test_pinned_memory_of_a_graph_is_kept(ones: Any) -> None:
    pinned = torch.full((1000,), 7.0).pin_memory()

    def work() -> None:
        nonlocal pinned
        ones.copy_(pinned, non_blocking=True)
        del pinned
        torch.empty(1000, pin_memory=True).fill_(-1)

    g, _ = captured(work)
    others = [torch.empty(1000, pin_memory=True).fill_(-1) for _ in range(4)]
    g.replay()
    assert ones[0].item() == 7
    assert len(others) == 4


def test_waiting_for_work_outside(ones: Any) -> None:
    def work() -> None:
        cuda.current_stream().wait_stream(cuda.default_stream())

    assert broken(work).error_code == 905


def test_waiting_for_an_event_of_the_capture(ones: Any) -> None:
    def work() -> None:
        event = cuda.Event()
        event.record()
        event.synchronize()

    assert broken(work).error_code == 907


def test_the_default_stream_waiting_for_captured_work(ones: Any) -> None:
    def work() -> None:
        cuda.default_stream().wait_stream(cuda.current_stream())

    assert broken(work).error_code == 906


def test_forks_are_joined(ones: Any) -> None:
    side = cuda.Stream()

    def work() -> None:
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            ones.add_(1)

    error = broken(work)
    assert error.error_code == 904
    assert "side.wait_stream(cuda.current_stream())" in str(error)


@pytest.mark.finds("race")
def test_work_beside_the_capture_is_told(ones: Any) -> None:
    side = cuda.Stream()

    def work() -> Any:
        with cuda.stream(side):
            ones.add_(1)
        return ones * 2

    with pytest.warns(UserWarning, match="no part of it") as caught:
        g, b = captured(work)
    assert "ones.add_(1)" in str(caught[0].message)
    g.replay()
    cuda.synchronize()
    assert b[0].item() == 4


def in_thread(call: Callable[[], Any]) -> Any:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except cuda.AcceleratorError as error:
            found.append(error)

    thread = threading.Thread(target=run, name="meddler")
    thread.start()
    thread.join()
    return found[0]


def test_other_threads_break_global_captures(ones: Any) -> None:
    side, seen = cuda.Stream(), []

    def work() -> None:
        _ = ones + 1
        seen.append(in_thread(side.query))

    error = broken(work)
    assert (error.error_code, seen[0].error_code) == (900, 900)
    assert "meddler" in str(error)
    assert "side.query" in str(error) or "call()" in str(error)


def test_other_threads_and_thread_local_captures(ones: Any) -> None:
    side, seen = cuda.Stream(), []

    def work() -> Any:
        seen.append(in_thread(side.query))
        return ones + 1

    g, b = captured(work, capture_error_mode="thread_local")
    assert seen == [True]
    g.replay()
    assert b[0].item() == 2


def test_relaxed_captures_may_ask_but_not_wait(ones: Any) -> None:
    side = cuda.Stream()
    g, b = captured(lambda: (ones + 1, side.query()), capture_error_mode="relaxed")
    g.replay()
    assert (b[0][0].item(), b[1]) == (2, True)
    assert broken(lambda: (ones + 1).sum().item(), capture_error_mode="relaxed").error_code == 900


def test_an_executable_is_not_made_in_a_capture(ones: Any) -> None:
    g = cuda.CUDAGraph(keep_graph=True)
    with cuda.graph(g):
        b = ones + 1
    error = broken(lambda: (ones + 1, g.instantiate()))
    assert error.error_code == 900
    assert "g.instantiate()" in str(error)
    g.instantiate()
    g.replay()
    assert b[0].item() == 2


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_other_threads_may_allocate(ones: Any, mode: str) -> None:
    def work() -> Any:
        b = ones + 1
        other = in_thread(lambda: torch.empty(300 << 20, dtype=torch.uint8, device="cuda"))
        assert pool_of(other) == [(0, 0)]
        return b * 2

    gc.collect()
    cuda.empty_cache()
    g, b = captured(work, capture_error_mode=mode)
    g.replay()
    assert b[0].item() == 4


def test_what_is_allowed(ones: Any) -> None:
    def work() -> Any:
        cuda.empty_cache()
        cuda.mem_get_info()
        cuda.memory_stats()
        return torch.empty(GIB, dtype=torch.uint8, device="cuda").fill_(1)

    g, b = captured(work)
    g.replay()
    assert b[-1].item() == 1
    del g, b
    cuda.empty_cache()


def test_running_out_of_memory_ends_a_capture_cleanly(ones: Any) -> None:
    def work() -> Any:
        _ = ones + 1
        return torch.empty(4096 * GIB, dtype=torch.uint8, device="cuda")

    with pytest.raises(cuda.OutOfMemoryError):
        captured(work)
    g, b = captured(lambda: ones + 1)
    g.replay()
    assert b[0].item() == 2


@pytest.mark.parametrize(
    "entry",
    [
        "cuStreamBeginCapture",
        "cuStreamGetCaptureInfo",
        "cuStreamEndCapture",
        "cuGraphGetNodes",
        "cuGraphInstantiateWithFlags",
        "cuGraphDestroy",
        "cuGraphLaunch",
    ],
)
def test_a_driver_that_fails(ones: Any, fault: Callable[..., None], entry: str) -> None:
    def attempt() -> None:
        g, b = captured(lambda: (ones + 1) * 2)
        g.replay()
        assert b[0].item() == 4

    def code() -> int:
        """The error of an attempt; as an exception it would keep tensors alive."""
        try:
            attempt()
        except cuda.AcceleratorError as error:
            return int(error.error_code)
        return 0

    attempt()
    gc.collect()
    before, stream = cuda.memory_allocated(), cuda.current_stream()
    fault(entry, status=999)
    assert code() == (0 if entry == "cuGraphDestroy" else 999)  # its owner is gone
    assert cuda.current_stream() == stream
    attempt()
    gc.collect()
    cuda.synchronize()
    assert cuda.memory_allocated() == before


# --- events --------------------------------------------------------------------------------------


def test_plain_events_are_void_after_the_capture(ones: Any) -> None:
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))

    def work() -> Any:
        start.record()
        b = ones + 1
        end.record()
        return b

    g, _ = captured(work)
    g.replay()
    with pytest.raises(cuda.AcceleratorError) as caught:
        end.query()
    assert caught.value.error_code == 1
    end.record()
    end.synchronize()


def test_external_events_are_part_of_the_graph(ones: Any) -> None:
    start, end = (cuda.Event(enable_timing=True, external=True) for _ in range(2))

    def work() -> Any:
        start.record()
        b = ones + 1
        end.record()
        return b

    g, _ = captured(work)
    with pytest.raises(cuda.AcceleratorError) as caught:
        start.elapsed_time(end)
    assert caught.value.error_code == 400
    for _ in range(2):
        g.replay()
        cuda.synchronize()
        assert start.elapsed_time(end) > 0


# --- memory --------------------------------------------------------------------------------------


def pool_of(t: Any) -> list[tuple[int, int]]:
    return [
        tuple(segment["segment_pool_id"])
        for segment in cuda.memory_snapshot()
        if segment["address"] <= t.data_ptr() < segment["address"] + segment["total_size"]
    ]


def test_forked_streams_allocate_from_the_graphs_pool() -> None:
    g, side = cuda.CUDAGraph(), cuda.Stream()
    x = torch.ones(1 << 20, device="cuda")
    with cuda.graph(g):
        main = cuda.current_stream()
        z = x + 1
        side.wait_stream(main)
        with cuda.stream(side):
            w = x * 3
        main.wait_stream(side)
    assert pool_of(z) == pool_of(w) == [tuple(g.pool())]
    assert tuple(g.pool()) != (0, 0)
    g.replay()
    assert (z[0].item(), w[0].item()) == (2.0, 3.0)


def test_pools_are_numbered(ones: Any) -> None:
    first, second = cuda.graph_pool_handle(), cuda.graph_pool_handle()
    assert first[0] == second[0] == 0
    assert second[1] == first[1] + 1
    own, _ = captured(lambda: ones + 1)
    assert own.pool()[0] > 0
    assert own.pool()[1] == 0
    for pool in (own.pool(), first):
        shared, _ = captured(lambda: ones + 1, pool=pool)
        assert shared.pool() == pool
        assert shared.pools() == [pool]


def test_pools_of_users(ones: Any) -> None:
    pool, other = cuda.MemPool(), cuda.MemPool()

    def work() -> Any:
        with cuda.use_mem_pool(other):
            a = ones + 1
        return a, a * 2

    g, (a, b) = captured(work, pool=pool)
    assert g.pool() == pool.id
    assert g.pools() == [pool.id, other.id]
    assert (pool_of(a), pool_of(b)) == ([other.id], [pool.id])
    assert (pool.use_count(), other.use_count()) == (2, 2)
    g.replay()
    assert b[0].item() == 4
    g.reset()
    assert (pool.use_count(), other.use_count()) == (1, 1)


def test_outputs_outlive_their_graph() -> None:
    x = torch.ones(32 << 20, device="cuda")
    g, b = captured(lambda: x + 1)
    g.replay()
    cuda.synchronize()
    with_graph = reserved()
    del g
    cuda.empty_cache()
    assert reserved() == with_graph
    assert b[-1].item() == 2
    del b
    cuda.empty_cache()
    assert reserved() < with_graph


def test_a_reset_gives_the_memory_back() -> None:
    x = torch.ones(32 << 20, device="cuda")
    g, b = captured(lambda: x + 1)
    del b
    cuda.empty_cache()
    before = reserved()
    g.reset()
    cuda.empty_cache()
    assert reserved() <= before - (32 << 20) * 4


def test_inputs_that_died_are_told() -> None:
    inputs = {name: torch.ones(1000, device="cuda") for name in "xy"}
    g, b = captured(lambda: (inputs["x"] + 1) * 2 + inputs["y"], check_input_liveness=True)
    g.replay()
    assert b[0].item() == 5
    view = inputs.pop("x")[1:]
    g.replay()
    del view
    with pytest.raises(RuntimeError, match=r"detected 1 dead tensor\(s\)") as caught:
        g.replay()
    assert 'inputs["x"] + 1' in str(caught.value)
    inputs.clear()
    with pytest.raises(RuntimeError, match=r"detected 2 dead tensor\(s\)"):
        g.replay()
    g.reset()


def test_what_a_capture_makes_is_no_input(ones: Any) -> None:
    handle = cuda.graph_pool_handle()
    first, b = captured(lambda: ones + 1, pool=handle, check_input_liveness=True)
    made = [b]
    second, c = captured(lambda: made[0] * 2, pool=handle, check_input_liveness=True)
    made.clear()
    del b
    first.replay()
    second.replay()
    assert c[0].item() == 4


# --- random numbers ------------------------------------------------------------------------------


@pytest.fixture
def generator() -> Any:
    return torch.Generator("cuda")


def test_offsets_move_with_replays() -> None:
    generator = cuda.default_generators[0]
    cuda.manual_seed(0)
    g, (a, b) = captured(lambda: (torch.rand(1000, device="cuda"), torch.rand(10, device="cuda")))
    offsets = [generator.get_offset()]
    drawn = []
    for _ in range(2):
        g.replay()
        offsets.append(generator.get_offset())
        drawn.append((a.tolist(), b.tolist()))
    assert offsets == [0, 8, 16]
    cuda.manual_seed(0)
    eager = [
        (torch.rand(1000, device="cuda").tolist(), torch.rand(10, device="cuda").tolist())
        for _ in range(2)
    ]
    assert drawn == eager


def test_the_seed_before_a_replay_counts() -> None:
    g = cuda.CUDAGraph()
    cuda.manual_seed(0)
    with cuda.graph(g):
        x = torch.rand(64, device="cuda")
    cuda.manual_seed(5)
    g.replay()
    first = x.clone()
    g.replay()
    second = x.clone()
    cuda.manual_seed(5)
    assert torch.equal(first, torch.rand(64, device="cuda"))
    assert torch.equal(second, torch.rand(64, device="cuda"))
    assert not torch.equal(first, second)


def test_generators_join_by_themselves(generator: Any, schedule: str) -> None:
    generator.manual_seed(11)
    g, x = captured(lambda: torch.rand(8, device="cuda", generator=generator))
    side = cuda.Stream()
    generator.manual_seed(3)
    g.replay()
    first = x.clone()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        g.replay()
        second = x.clone()
    cuda.current_stream().wait_stream(side)
    generator.manual_seed(3)
    for drawn in (first, second):
        assert torch.equal(drawn, torch.rand(8, device="cuda", generator=generator))


def test_graphs_share_a_generator(generator: Any) -> None:
    def draw(*counts: int) -> list[Any]:
        return [torch.rand(n, device="cuda", generator=generator) for n in counts]

    first, a = captured(lambda: draw(10))
    second, b = captured(lambda: draw(5, 5))
    generator.manual_seed(5)
    drawn = []
    for g, made in ((first, a), (second, b), (first, a)):
        g.replay()
        drawn += [x.tolist() for x in made]
    assert generator.get_offset() == 16
    generator.manual_seed(5)
    assert drawn == [x.tolist() for x in draw(10, 5, 5, 10)]


def test_seeding_all_devices_in_a_capture() -> None:
    torch.manual_seed(7)
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        x = torch.rand(8, device="cuda")
        for seed in (cuda.manual_seed, cuda.manual_seed_all, torch.manual_seed):
            seed(7)
            with pytest.raises(RuntimeError, match="only if new seed is the same"):
                seed(8)
        assert cuda.initial_seed() == 7
        assert cuda.get_rng_state().tolist()[:9] == [7, *[0] * 8]
        for call in (
            cuda.seed,
            lambda: cuda.set_rng_state(torch.zeros(16, dtype=torch.uint8)),
            lambda: cuda.default_generators[0].set_offset(4),
        ):
            with pytest.raises(RuntimeError, match="during CUDA graph capture"):
                call()
    torch.manual_seed(7)
    g.replay()
    torch.manual_seed(7)
    assert torch.equal(x, torch.rand(8, device="cuda"))


def test_graphs_without_random_numbers_leave_the_offset(ones: Any) -> None:
    generator = cuda.default_generators[0]
    cuda.manual_seed(1)
    torch.rand(3, device="cuda")
    before = generator.get_offset()
    g, _ = captured(lambda: ones + 1)
    g.replay()
    assert generator.get_offset() == before


def test_generators_in_a_capture(generator: Any) -> None:
    generator.manual_seed(4)
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        torch.rand(8, device="cuda", generator=generator)
        generator.manual_seed(4)
        assert generator.initial_seed() == 4
        with pytest.raises(RuntimeError, match="only if new seed is the same"):
            generator.manual_seed(5)
        for call in (generator.get_offset, generator.seed, generator.clone_state):
            with pytest.raises(RuntimeError, match="during CUDA graph capture"):
                call()
    assert generator.get_offset() == 0


def test_a_failed_capture_lets_generators_go(generator: Any) -> None:
    generator.manual_seed(4)

    def work() -> None:
        torch.rand(8, device="cuda", generator=generator)
        cuda.synchronize()

    assert broken(work).error_code == 900
    assert generator.get_offset() == 0
    torch.rand(8, device="cuda", generator=generator)
    assert generator.get_offset() == 4


# --- void handles, several devices, speed --------------------------------------------------------


def test_graphs_of_a_machine_that_is_gone() -> None:
    done = run_script(
        """
        import gc
        graphs = [torch.cuda.CUDAGraph() for _ in range(3)]
        x = torch.ones(3, device="cuda")
        with torch.cuda.graph(graphs[0]):
            y = x + 1
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            graphs[1].capture_begin()
        torch.virtual.reset()
        assert torch.ones(3, device="cuda").sum().item() == 3
        try:
            graphs[0].replay()
        except torch.cuda.AcceleratorError as error:
            print(error.error_code)
        del graphs, x, y
        gc.collect()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            z = torch.ones(3, device="cuda")
        print(torch.cuda.is_current_stream_capturing())
        """,
        TWO_VIRTUAL,
    )
    assert done.lines == ["1", "False"]


def test_graphs_of_another_device(gpus: Callable[[int], list[Any]]) -> None:
    second = gpus(2)[1]
    x = torch.ones(4, device=second)
    g = cuda.CUDAGraph()
    stream = cuda.Stream(device=second)
    with cuda.device(second), cuda.graph(g, stream=stream):
        y = x + 1
    assert cuda.current_device() == 0
    g.replay()
    assert cuda.current_device() == 0
    assert y.tolist() == [2.0] * 4


def test_many_replays_are_cheap(ones: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        g, _ = captured(lambda: ones.add_(1))
        g.replay()
        cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            g.replay()
        took = time.perf_counter() - start
        cuda.synchronize()
    assert ones[0].item() == 202
    assert took < 1


def test_a_capture_may_end_in_two_parts(ones: Any) -> None:
    g, stream = cuda.CUDAGraph(), cuda.Stream()
    cuda.synchronize()
    with cuda.stream(stream):
        g.capture_begin()
        b = ones + 1
        g.capture_end_pre()
        assert not cuda.is_current_stream_capturing()
        assert g.raw_cuda_graph()
        g.instantiate()
        g.capture_end_post()
    with pytest.raises(RuntimeError, match="No cudaGraph_t is available"):
        g.raw_cuda_graph()
    ones.fill_(4)
    g.replay()
    assert b[0].item() == 5


def test_the_first_part_of_an_end_needs_a_capture() -> None:
    with pytest.raises(RuntimeError, match="capture_begin"):
        cuda.CUDAGraph().capture_end_pre()
