# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flambeau as torch
from conftest import REAL
from flambeau.cuda import nccl
from flambeau.driver.errors import CollectiveError
from support import TWO_VIRTUAL, needs_two, run_script

virtual_only = pytest.mark.skipif(REAL, reason="about virtual GPUs, or a script that needs them")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail, rather than wait for minutes."""
    monkeypatch.setenv("FLAMBEAU_NCCL_TIMEOUT", "20")


REDUCTIONS = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum}
DTYPES = (
    torch.int8, torch.uint8, torch.int32, torch.uint32, torch.int64, torch.uint64, torch.float16,
    torch.float32, torch.float64, torch.bfloat16,
)  # fmt: skip


def pair(values: Any, dtype: Any = torch.float32) -> list[Any]:
    """The values on device 0, and their double plus one on device 1."""
    host = np.asarray(values)
    return [torch.tensor((host * (1 + i) + i).tolist(), device=i).to(dtype) for i in range(2)]


def settle() -> None:
    for device in range(2):
        torch.cuda.synchronize(device)


# -- one GPU ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("gpu")
class TestOneRank:
    def test_version_and_unique_id(self) -> None:
        assert nccl.version() >= (2, 18, 0)
        first, second = nccl.unique_id(), nccl.unique_id()
        assert len(first) == len(second) == 128
        assert first != second

    def test_they_initialise_nothing(self) -> None:
        source = """
        nccl = torch.cuda.nccl
        print(len(nccl.version()), len(nccl.unique_id()), torch.cuda.is_initialized())
        """
        assert run_script(source).lines == ["3 128 False"]

    def test_every_collective(self) -> None:
        x, y = torch.arange(10, device="cuda").float(), torch.empty(10, device="cuda")
        for op in range(5):
            y.zero_()
            nccl.all_reduce([x], [y], op=op)
            assert torch.equal(x, y)
        for call in (
            lambda: nccl.reduce([x], y),
            lambda: nccl.all_gather([x], [y]),
            lambda: nccl.reduce_scatter([x], [y]),
        ):
            y.zero_()
            call()
            assert torch.equal(x, y)
        nccl.broadcast([x])
        assert x.tolist() == list(range(10))

    def test_a_communicator_of_ones_own(self) -> None:
        comm = nccl.init_rank(1, nccl.unique_id(), 0)
        assert (comm.rank, comm.ranks, comm.device, comm.failure()) == (0, 1, 0, None)
        x = torch.ones(5, device="cuda")
        nccl.all_reduce([x], comms=[comm])
        assert x.tolist() == [1.0] * 5
        comm.destroy()
        with pytest.raises(CollectiveError, match="destroyed"):
            nccl.all_reduce([x], comms=[comm])

    def test_collectives_can_be_captured(self) -> None:
        comm = nccl.init_rank(1, nccl.unique_id(), 0)
        x, y = torch.ones(8, device="cuda"), torch.zeros(8, device="cuda")
        nccl.all_reduce([x], [y], comms=[comm])
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            nccl.all_reduce([x], [y], comms=[comm])
            z = y + 1
        x.fill_(4.0)
        graph.replay()
        assert z.tolist() == [5.0] * 8

    def test_an_absent_rank_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLAMBEAU_NCCL_TIMEOUT", "1.5" if REAL else "0.05")
        with pytest.raises(CollectiveError, match="timed out") as caught:
            nccl.init_rank(2, nccl.unique_id(), 0)
        assert "FLAMBEAU_NCCL_TIMEOUT" in str(caught.value)
        if not REAL:
            assert "rank 1 of 2 did not call init_rank within 0.05 s of rank 0" in str(caught.value)

    @pytest.mark.parametrize(
        ("arguments", "kind", "text"),
        [
            ((0, b"x" * 128, 0), RuntimeError, "at least one rank"),
            ((2, b"x" * 128, 2), RuntimeError, "they are 0 to 1"),
            ((2, b"x" * 127, 0), RuntimeError, "128 bytes"),
            ((2, "x" * 128, 0), TypeError, "bytes of unique_id"),
            ((2.0, b"x" * 128, 0), TypeError, "integer"),
        ],
    )
    def test_bad_ranks(self, arguments: Any, kind: type[Exception], text: str) -> None:
        with pytest.raises(kind, match=text):
            nccl.init_rank(*arguments)

    @virtual_only
    def test_an_id_from_elsewhere(self) -> None:
        with pytest.raises(CollectiveError, match="was not made by unique_id"):
            nccl.init_rank(1, b"x" * 128, 0)

    @pytest.mark.parametrize("seconds", ["soon", "0", "-1", "nan", "inf"])
    def test_a_bad_timeout(self, seconds: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLAMBEAU_NCCL_TIMEOUT", seconds)
        with pytest.raises(ValueError, match="FLAMBEAU_NCCL_TIMEOUT"):
            nccl.init_rank(1, nccl.unique_id(), 0)


@pytest.mark.usefixtures("gpu")
class TestChecks:
    def test_what_is_available(self) -> None:
        x = torch.ones(4, 4, device="cuda")
        assert nccl.is_available([])
        assert nccl.is_available([x])
        assert not nccl.is_available([torch.ones(4)])
        assert not nccl.is_available([x.t()[:2]])
        assert not nccl.is_available([x, x])
        assert not nccl.is_available([3])  # type: ignore[list-item]

    @pytest.mark.parametrize("inputs", [torch.ones(3), "ab", 3, {1: 2}])
    def test_inputs_are_a_collection_of_tensors(self, inputs: Any) -> None:
        with pytest.raises(TypeError, match="Inputs should be a collection of tensors"):
            nccl.all_reduce(inputs)
        with pytest.raises(TypeError, match="at index 0 is a int"):
            nccl.broadcast([3])  # type: ignore[list-item]

    def test_every_refusal(self) -> None:
        x = torch.ones(4, device="cuda")
        comm = nccl.init_rank(1, nccl.unique_id(), 0)
        for call, text in (
            (lambda: nccl.all_reduce([]), "input sequence can't be empty"),
            (lambda: nccl.reduce([]), "input sequence can't be empty"),
            (lambda: nccl.broadcast([]), "input sequence can't be empty"),
            (lambda: nccl.all_gather([], []), "input sequence can't be empty"),
            (lambda: nccl.reduce_scatter([], []), "input sequence can't be empty"),
            (lambda: nccl.all_reduce([x], [x, x]), "same length"),
            (lambda: nccl.all_reduce([torch.ones(4)]), "cuda dense Tensors"),
            (lambda: nccl.all_reduce([x], [x.double()]), "same Tensor dtype"),
            (lambda: nccl.all_reduce([torch.ones(4, 4, device="cuda").t()]), "to be contiguous"),
            (
                lambda: nccl.all_reduce([x], [torch.ones(5, device="cuda")]),
                "output must be of size",
            ),
            (lambda: nccl.all_gather([x], [torch.ones(8, device="cuda")]), "must be of size 4"),
            (lambda: nccl.all_reduce([x, x]), "unique devices"),
            (lambda: nccl.broadcast([x], root=1), "invalid root 1"),
            (lambda: nccl.reduce([x], root=-1), "invalid root -1"),
            (lambda: nccl.all_reduce([x], streams=[]), "number of streams is not equal"),
            (lambda: nccl.all_reduce([x], comms=[comm, comm]), "number of communicators is not"),
            (lambda: nccl.all_reduce([x], op=5), "invalid op 5"),
            (lambda: nccl.all_reduce([x.short()]), "Unconvertible NCCL type torch.int16"),
            (lambda: nccl.all_reduce([x.to(torch.complex64)]), "Unconvertible NCCL type"),
            (lambda: nccl.all_reduce([x > 0], op=4), r"invalid op 4 \(avg\)"),
        ):
            with pytest.raises(RuntimeError, match=text):
                call()
        with pytest.raises(TypeError, match="op is a number"):
            nccl.all_reduce([x], op="sum")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="init_rank makes them"):
            nccl.all_reduce([x], comms=[3])  # type: ignore[list-item]

    def test_the_deprecated_forms_of_reduce(self) -> None:
        x, y = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
        with pytest.warns(FutureWarning, match="output tensor list"):
            nccl.reduce([x], outputs=[y])
        assert y.tolist() == [1.0] * 4
        with pytest.warns(FutureWarning, match="output tensor list"):
            nccl.reduce([x + 1], [y])
        assert y.tolist() == [2.0] * 4
        with pytest.raises(ValueError, match="can not be both specified"):
            nccl.reduce([x], y, outputs=[y])

    @needs_two
    def test_refusals_of_two_devices(self) -> None:
        a, b = pair([1.0, 2.0])
        comm = nccl.init_rank(1, nccl.unique_id(), 0)
        for call, text in (
            (lambda: nccl.all_reduce([a, b[:1]]), "same number of elements"),
            (lambda: nccl.all_reduce([a], [b]), "on the same device"),
            (lambda: nccl.reduce_scatter([a[:1], b[:1]], [a, b]), "2 equal parts"),
            (lambda: nccl.all_reduce([a, b], streams=[None, torch.cuda.Stream(0)]), "stream 1 is"),
            (lambda: nccl.all_reduce([b], comms=[comm]), "communicator 0 is of cuda:0"),
        ):
            with pytest.raises(RuntimeError, match=text):
                call()


# -- two GPUs --------------------------------------------------------------------------------------


@needs_two
class TestTwoRanks:
    @pytest.mark.parametrize("op", [0, 1, 2, 3])
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_all_reduce(self, dtype: Any, op: int) -> None:
        values = pair(np.arange(11) % 5, dtype)
        expected = REDUCTIONS[op](*[v.cpu().double().numpy() for v in values])
        nccl.all_reduce(values, op=op)
        for value in values:
            assert value.cpu().double().numpy().tolist() == expected.tolist()

    def test_averages(self) -> None:
        a, b = pair([1.0, -4.0])
        nccl.all_reduce([a, b], op=4)
        assert a.tolist() == b.tolist() == [2.0, -5.5]
        a, b = pair([1, -4], torch.int32)
        nccl.all_reduce([a, b], op=4)
        assert a.tolist() == [2, -5]

    def test_truth_values(self) -> None:
        a, b = torch.tensor([True, False, False], device=0), torch.tensor([1, 1, 0], device=1) > 0
        x, y = a.clone(), b.clone()
        nccl.all_reduce([a, b])
        assert a.tolist() == b.tolist() == [True, True, False]
        nccl.all_reduce([x, y], op=1)
        assert x.tolist() == [True, False, False]

    def test_results_into_other_tensors(self) -> None:
        a, b = pair(np.arange(6))
        outputs = [torch.empty(2, 3, device=i) for i in range(2)]
        nccl.all_reduce([a, b], outputs)
        assert outputs[0].flatten().tolist() == outputs[1].flatten().tolist()
        assert outputs[1].flatten().tolist() == [1, 4, 7, 10, 13, 16]
        assert a.tolist() == list(range(6))

    @pytest.mark.parametrize("root", [0, 1])
    def test_reduce_and_broadcast(self, root: int) -> None:
        a, b = pair([1.0, 2.0])
        total = torch.empty(2, device=root)
        nccl.reduce([a, b], total, root=root)
        assert total.tolist() == [4.0, 7.0]
        before = [a.tolist(), b.tolist()]
        nccl.broadcast([a, b], root=root)
        assert a.tolist() == b.tolist() == before[root]

    def test_gather_and_scatter(self) -> None:
        a, b = pair([1.0, 2.0, 3.0])
        joined = [torch.empty(2, 3, device=i) for i in range(2)]
        nccl.all_gather([a, b], joined)
        for whole in joined:
            assert whole.tolist() == [[1, 2, 3], [3, 5, 7]]
        parts = [torch.empty(3, device=i) for i in range(2)]
        nccl.reduce_scatter(joined, parts, op=2)
        assert parts[0].tolist() == [1, 2, 3]
        assert parts[1].tolist() == [3, 5, 7]

    def test_the_order_of_the_inputs_is_the_order_of_the_ranks(self) -> None:
        a, b = pair([1.0])
        joined = [torch.empty(2, device=i) for i in (1, 0)]
        nccl.all_gather([b, a], joined)
        assert joined[0].tolist() == joined[1].tolist() == [3.0, 1.0]

    def test_nothing_to_do(self) -> None:
        nccl.all_reduce([torch.empty(0, device=i) for i in range(2)])
        settle()

    @virtual_only
    @pytest.mark.schedule
    def test_collectives_are_ordered_with_the_current_streams(self, schedule: str) -> None:
        streams = [torch.cuda.Stream(i) for i in range(2)]
        values = []
        for device, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                values.append(torch.full((1000,), float(device + 1), device=device))
                values[-1].mul_(10)
        with torch.cuda.stream(streams[0]), torch.cuda.stream(streams[1]):
            nccl.all_reduce(values)
        for value, stream in zip(values, streams, strict=True):
            with torch.cuda.stream(stream):
                assert (value + 1).sum().item() == 31_000

    def test_given_streams_are_used(self) -> None:
        streams = [torch.cuda.Stream(i) for i in range(2)]
        values = [torch.ones(10, device=i) for i in range(2)]
        settle()
        for stream, value in zip(streams, values, strict=True):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(100_000)
                value.fill_(5.0)
        nccl.all_reduce(values, streams=streams)
        settle()
        assert values[0].tolist() == [10.0] * 10

    def test_many_in_a_row(self) -> None:
        values = [torch.ones(100, device=i) for i in range(2)]
        for _ in range(20):
            nccl.all_reduce(values, op=4)
            values[0].add_(2.0)
        settle()
        assert values[0].tolist() == [22.0 + 1] * 100 or values[1][0].item() == 20.0
        assert values[1].tolist() == [20.0] * 100

    @settings(
        deadline=None,
        max_examples=15,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(count=st.integers(0, 300), op=st.integers(0, 3), seed=st.integers(0, 99))
    def test_floats_are_combined_alike_on_all_ranks(self, count: int, op: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        host = [random.standard_normal(count).astype(np.float32) for _ in range(2)]
        values = [torch.from_numpy(h).to(f"cuda:{i}") for i, h in enumerate(host)]
        nccl.all_reduce(values, op=op)
        expected = REDUCTIONS[op](*host)
        assert np.array_equal(values[0].cpu().numpy(), expected)
        assert np.array_equal(values[1].cpu().numpy(), expected)


# -- threads as ranks ------------------------------------------------------------------------------


def in_threads(ranks: int, work: Any) -> list[Any]:
    """Run ``work(rank, unique_id)`` in a thread each; results, or the exceptions."""
    found: list[Any] = [None] * ranks
    identity = nccl.unique_id()

    def run(rank: int) -> None:
        try:
            with torch.cuda.device(rank):
                found[rank] = work(rank, identity)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return found


@needs_two
@virtual_only
def test_threads_are_ranks() -> None:
    def work(rank: int, identity: bytes) -> list[Any]:
        comm = nccl.init_rank(2, identity, rank)
        x = torch.full((5,), float(rank), device="cuda")
        joined = torch.empty(2, 5, device="cuda")
        nccl.all_gather([x], [joined], comms=[comm])
        nccl.all_reduce([x], comms=[comm])
        part = torch.empty(5, device="cuda")
        nccl.reduce_scatter([joined], [part], comms=[comm])
        nccl.broadcast([x], root=1, comms=[comm])
        total = torch.zeros(5, device="cuda")
        nccl.reduce([x], total, root=1, comms=[comm])
        torch.cuda.synchronize()
        return [joined[:, 0].tolist(), x[0].item(), part[0].item(), total[0].item()]

    assert in_threads(2, work) == [[[0, 1], 1.0, 0.0, 0.0], [[0, 1], 1.0, 2.0, 2.0]]


@needs_two
@virtual_only
def test_two_ranks_on_one_gpu_are_refused() -> None:
    def work(rank: int, identity: bytes) -> object:
        with torch.cuda.device(1):
            return nccl.init_rank(2, identity, rank)

    for error in in_threads(2, work):
        assert isinstance(error, CollectiveError)
    assert any("ranks 0 and 1 are both on GPU 1" in str(error) for error in in_threads(2, work))


@needs_two
@virtual_only
def test_a_rank_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_NCCL_TIMEOUT", "0.3")

    def work(rank: int, identity: bytes) -> object:
        return nccl.init_rank(2, identity, 0)

    found = in_threads(2, work)
    assert any("rank 0 of this communicator is taken by" in str(error) for error in found)


@needs_two
@virtual_only
def test_ranks_that_count_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(rank: int, identity: bytes) -> object:
        return nccl.init_rank(2 + rank, identity, rank)

    monkeypatch.setenv("FLAMBEAU_NCCL_TIMEOUT", "0.5")
    found = in_threads(2, work)
    assert "rank 0 was told of 2 ranks, rank 1 of 3" in " ".join(map(str, found))


# -- what goes wrong on virtual GPUs; a device is lost, so in processes of their own ---------------

TWO_RANKS = """
import os, sys, threading
from flambeau.cuda import nccl
from flambeau.driver.errors import AcceleratorError, CollectiveError
identity = nccl.unique_id()
def both(work):
    found = [None, None]
    def run(rank):
        try:
            with torch.cuda.device(rank):
                comm = nccl.init_rank(2, identity, rank)
                found[rank] = work(rank, comm)
                torch.cuda.synchronize()
        except Exception as error:
            found[rank] = error
    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return found
"""


def run_two_ranks(source: str, **env: str) -> list[str]:
    script = TWO_RANKS + textwrap.dedent(source)
    return run_script(script, {**TWO_VIRTUAL, "FLAMBEAU_NCCL_TIMEOUT": "0.5", **env}).lines


def test_a_rank_that_does_not_call_is_named_after_the_timeout() -> None:
    lines = run_two_ranks("""
    def work(rank, comm):
        x = torch.ones(3, device="cuda")
        nccl.all_reduce([x], comms=[comm])
        if rank == 0:
            nccl.all_reduce([x], comms=[comm])
    found = both(work)
    print(type(found[0]).__name__, found[0].error_code, found[1])
    print(str(found[0]).splitlines()[1])
    """)
    assert lines[0] == "AcceleratorError 702 None"
    assert "rank 1 of 2 did not come to collective 2" in lines[1]
    assert "within 0.5 s" in lines[1]


def test_ranks_that_disagree_are_told_both_calls() -> None:
    lines = run_two_ranks("""
    def work(rank, comm):
        nccl.all_reduce([torch.ones(3 + rank, device="cuda")], comms=[comm])
    for error in both(work):
        print(str(error).splitlines()[1])
    """)
    assert any(
        "rank 0 called AllReduce of 3 elements of float32 (Sum), but rank 1 called AllReduce of 4"
        in line
        for line in lines
    )
    assert all("ranks disagree" in line or "gave up" in line for line in lines)


def test_a_rank_that_destroys_its_communicator() -> None:
    lines = run_two_ranks("""
    def work(rank, comm):
        if rank == 1:
            comm.destroy()
        else:
            nccl.all_reduce([torch.ones(3, device="cuda")], comms=[comm])
    found = both(work)
    print(str(found[0]).splitlines()[1])
    """)
    assert "waits for rank 1, which has destroyed its communicator" in lines[0]


def test_a_rank_that_aborts_fails_the_others_at_once() -> None:
    lines = run_two_ranks(
        """
    import time
    def work(rank, comm):
        if rank == 1:
            comm.abort()
            return comm
        nccl.all_reduce([torch.ones(3, device="cuda")], comms=[comm])
    start = time.monotonic()
    found = both(work)
    print(str(found[0]).splitlines()[-1] if isinstance(found[0], CollectiveError) else
          str(found[0]).splitlines()[1])
    print(found[1].failure(), time.monotonic() - start < 20)
    """,
        FLAMBEAU_NCCL_TIMEOUT="60",
    )
    assert "rank 1 gave up: it was aborted" in lines[0] or "rank 1, which gave up" in lines[0]
    assert lines[1].endswith("it was aborted True")


def test_a_lost_device_fails_the_other_rank() -> None:
    lines = run_two_ranks(
        """
    from flambeau import virtual
    barrier = threading.Barrier(2)
    def work(rank, comm):
        x = torch.ones(3, device="cuda")
        torch.cuda.synchronize()
        barrier.wait()
        if rank == 1:
            virtual.lose_device(1)
            return
        nccl.all_reduce([x], comms=[comm])
    found = both(work)
    print(type(found[0]).__name__, "rank 1" in str(found[0]))
    """
    )
    assert lines == ["AcceleratorError True"]


RANKS = 2 if REAL else 4
PROCESS = """
import os, sys
from flambeau.cuda import nccl
rank, ranks = int(os.environ["RANK"]), int(os.environ["RANKS"])
with open(os.environ["IDENTITY"], "rb") as file:
    identity = file.read()
torch.cuda.set_device(rank)
comm = nccl.init_rank(ranks, identity, rank)
if os.environ.get("DIES") == str(rank):
    os._exit(3)
x = torch.arange(1000, device="cuda").float() + rank
nccl.all_reduce([x], comms=[comm])
joined = torch.empty(ranks, device="cuda")
nccl.all_gather([torch.full((1,), float(rank), device="cuda")], [joined], comms=[comm])
y = torch.full((4,), float(rank), device="cuda")
nccl.broadcast([y], root=1, comms=[comm])
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    print("failed:", str(error).splitlines()[1])
    sys.exit(0)
contexts = torch.cuda._primary_context_devices()
print(rank, x[1].item(), joined.tolist(), y.tolist(), contexts, getattr(comm, "sent_bytes", None))
"""


def processes(tmp_path: Any, **env: str) -> list[str]:
    """Run ranks as processes, each with a GPU of its own; what each printed."""
    (tmp_path / "identity").write_bytes(nccl.unique_id())
    common = {
        **os.environ,
        "IDENTITY": str(tmp_path / "identity"),
        "FLAMBEAU_NCCL_TIMEOUT": "60",
        "RANKS": str(RANKS),
        **env,
    }
    if not REAL:
        common["FLAMBEAU_VIRTUAL"] = f"h200:{RANKS}"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", "import flambeau as torch\n" + PROCESS],
            env={**common, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    found = [process.communicate(timeout=120) for process in running]
    for process, (_, trouble) in zip(running, found, strict=True):
        assert process.returncode in {0, 3}, trouble
    return [out.strip() for out, _ in found]


@needs_two
def test_processes_are_ranks(tmp_path: Any) -> None:
    everyone = [float(rank) for rank in range(RANKS)]
    for rank, line in enumerate(processes(tmp_path)):
        expected = f"{rank} {RANKS + sum(everyone)} {everyone} {[1.0] * 4} [{rank}]"
        assert line.startswith(expected), line
        if (
            not REAL
        ):  # two rounds of three quarters, three numbers, four unless the next is the root
            sent = 2 * 3 * 1000 + 3 * 4 + (0 if rank == 0 else 16)
            assert line.endswith(f" {sent}"), line


@virtual_only
@pytest.mark.usefixtures("gpu")
def test_a_process_that_ends_fails_the_others(tmp_path: Any) -> None:
    lines = processes(tmp_path, DIES="3")
    assert lines[3] == ""
    for line in lines[:3]:
        assert line.startswith("failed: "), line
        assert "rank 3, whose process" in line or "gave up" in line
    assert any("has ended" in line for line in lines)


# -- graphs and checks -----------------------------------------------------------------------------


@needs_two
def test_two_ranks_in_one_graph() -> None:
    first, second = (torch.cuda.Stream(i) for i in range(2))
    values = [torch.ones(100, device=i) for i in range(2)]
    nccl.all_reduce(values)
    settle()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=first):
        second.wait_stream(first)
        nccl.all_reduce(values, streams=[first, second])
        first.wait_stream(second)
    with torch.cuda.stream(first):
        for _ in range(3):
            graph.replay()
    settle()
    assert values[0].tolist() == values[1].tolist() == [16.0] * 100


@needs_two
@virtual_only
@pytest.mark.parametrize("waits", [True, False])
def test_checks_see_what_collectives_touch(waits: bool) -> None:
    values = [torch.ones(100, device=i) for i in range(2)]
    settle()
    with torch.virtual.checks(mode="collect") as found:
        nccl.all_reduce(values)
        other = torch.cuda.Stream(0)
        if waits:
            other.wait_stream(torch.cuda.current_stream(0))
        with torch.cuda.stream(other):
            _ = values[0] + 1
        settle()
    assert [report.check for report in found.reports] == ([] if waits else ["race"])
    if not waits:
        assert "ncclDevKernel_AllReduce_Sum_RING" in str(found.reports[0])


# -- time, links, contexts -------------------------------------------------------------------------


@needs_two
@virtual_only
def test_bytes_over_the_links_and_time_on_the_clock() -> None:
    from flambeau.driver.virtual.collectives import link_traffic

    size = 64 << 20
    values = [torch.ones(size // 4, device=i) for i in range(2)]
    settle()
    before = link_traffic()
    start = torch.virtual.clock()
    nccl.all_reduce(values)
    settle()
    nanoseconds = torch.virtual.clock() - start
    for link in ((0, 1), (1, 0)):
        assert link_traffic()[link] - before.get(link, 0) == size
    on_the_link = size / torch.virtual.models()["h200"].peer_bandwidth * 1e9
    assert on_the_link < nanoseconds < 1.2 * on_the_link + 20_000


@virtual_only
@pytest.mark.parametrize("count", [1, 8])
def test_collectives_of_one_and_of_eight_gpus(count: int) -> None:
    lines = run_script(
        """
    import numpy as np
    from flambeau.cuda import nccl
    n = torch.cuda.device_count()
    host = [np.random.default_rng(i).integers(0, 9, 64) for i in range(n)]
    total, joined = sum(host), np.concatenate(host)
    def inputs():
        return [torch.from_numpy(v).to(i) for i, v in enumerate(host)]
    def room(size):
        return [torch.empty(size, dtype=torch.int64, device=i) for i in range(n)]
    def same(tensors, expected):
        return all(np.array_equal(t.cpu().numpy(), expected) for t in tensors)
    x, parts, everything = inputs(), room(64 // n), room(64 * n)
    nccl.reduce_scatter(x, parts)
    nccl.all_gather(x, everything)
    print(same([torch.cuda.comm.gather(parts)], total), same(everything, joined))
    nccl.all_reduce(x)
    y, z = inputs(), inputs()
    nccl.reduce(y, root=n // 2)
    nccl.broadcast(z, root=n - 1)
    print(same(x, total), same([y[n // 2]], total), same(z, host[-1]))
    links = torch.virtual.link_traffic()
    print(sorted(links) == [(i, (i + 1) % n) for i in range(n)] if n > 1 else links == {})
    """,
        {"FLAMBEAU_VIRTUAL": f"h200:{count}"},
    ).lines
    assert lines == ["True True", "True True True", "True"]


def test_no_context_is_made_on_a_device_that_nobody_named() -> None:
    lines = run_script(
        """
    from flambeau.cuda import nccl
    nccl.all_reduce([torch.ones(3, device=f"cuda:{i}") for i in (1, 3)])
    print(torch.cuda._primary_context_devices())
    with torch.cuda.device(2):
        nccl.init_rank(1, nccl.unique_id(), 0)
    print(torch.cuda._primary_context_devices())
    """,
        {"FLAMBEAU_VIRTUAL": "h200:4"},
    ).lines
    assert lines == ["[1, 3]", "[1, 2, 3]"]


def test_blocking_launches_do_not_wait_for_ranks_that_come_later() -> None:
    lines = run_script(
        """
    from flambeau.cuda import nccl
    values = [torch.ones(3, device=f"cuda:{i}") for i in range(2)]
    nccl.all_reduce(values)
    print(values[0].tolist())
    """,
        {**TWO_VIRTUAL, "CUDA_LAUNCH_BLOCKING": "1"},
    ).lines
    assert lines == ["[2.0, 2.0, 2.0]"]


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau.driver.errors import MissingExtraError
    from flambeau.driver.nvidia import nccl as own

    own._bindings.cache_clear()
    monkeypatch.setitem(sys.modules, "nccl", None)
    monkeypatch.setitem(sys.modules, "nccl.bindings", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'flambeau\[nccl\]'"):
        own.NvidiaCollectives().version()
    own._bindings.cache_clear()
