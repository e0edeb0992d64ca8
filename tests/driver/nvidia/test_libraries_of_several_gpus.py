# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's NCCL, cuFile and green contexts are asked, and what their answers become.

The libraries are stood in for; tests of the same calls on real GPUs are in ``tests/cuda``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flambeau.driver.contract import MultiprocessorSet, SplitRequest
from flambeau.driver.errors import AcceleratorError, CollectiveError
from flambeau.driver.nvidia import cufile, green_context, nccl


class FakeNccl:
    """NCCL with one communicator whose states are given; the calls are kept."""

    class NCCLError(Exception):
        pass

    class Config:
        blocking, ptr = None, 7

    def __init__(self, *states: int) -> None:
        self.states = list(states)
        self.calls: list[str] = []
        self.UniqueId = SimpleNamespace(from_buffer=lambda data: SimpleNamespace(ptr=len(data)))

    def comm_init_rank_config(self, ranks: int, identity: int, rank: int, config: int) -> object:
        assert (identity, config) == (128, 7)
        self.calls.append(f"init {rank} of {ranks}")
        return "handle"

    def comm_init_all(self, count: int, devices: list[int]) -> list[object]:
        return [f"handle of {device}" for device in devices]

    def comm_get_async_error(self, handle: object) -> int:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def get_error_string(self, state: int) -> str:
        return f"error {state}"

    def get_last_error(self, handle: object) -> str:
        return " the cable is out\n"

    def comm_abort(self, handle: object) -> None:
        self.calls.append("abort")

    def comm_destroy(self, handle: object) -> None:
        self.calls.append("destroy")

    def group_start(self) -> None:
        self.calls.append("start")

    def group_end(self) -> None:
        self.calls.append("end")

    def all_reduce(self, *arguments: object) -> None:
        if arguments[2] == 13:
            raise self.NCCLError("InvalidArgument (4)")
        self.calls.append(f"all_reduce {arguments}")

    def get_version(self) -> int:
        return 22809


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNccl:
    made = FakeNccl(0)
    monkeypatch.setattr(nccl, "_bindings", lambda: made)
    return made


def join(timeout: float = 5.0, ranks: int = 2) -> nccl.NvidiaCommunicator:
    return nccl.NvidiaCollectives().join(ranks, b"x" * 128, 1, 0, timeout)


def test_versions(fake: FakeNccl) -> None:
    assert nccl.NvidiaCollectives().version() == (2, 28, 9)


def test_joining_waits_for_the_others(fake: FakeNccl) -> None:
    fake.states = [7, 7, 7, 0]
    made = join()
    assert (made.rank, made.ranks, made.device, made.failure()) == (1, 2, 0, None)
    assert fake.calls == ["init 1 of 2"]


def test_joining_does_not_wait_for_ever(fake: FakeNccl, capsys: pytest.CaptureFixture[str]) -> None:
    fake.states = [7]
    with pytest.raises(CollectiveError, match=r"rank 1 of 2 timed out: .* within 0\.05 s"):
        join(0.05)
    assert fake.calls == ["init 1 of 2", "abort"]
    assert "communicator aborted" in capsys.readouterr().err


def test_a_failure_is_told_with_its_reason_and_again(fake: FakeNccl) -> None:
    made = join()
    fake.states = [6]
    assert made.failure() == "NCCL reported: error 6 (the cable is out)"
    with pytest.raises(CollectiveError, match="cannot be used any more: NCCL reported: error 6"):
        made.all_reduce(1, 2, 3, 7, 0, 0)
    made.abort()
    assert fake.calls.count("abort") == 1


def test_a_group_ends_whatever_happens(fake: FakeNccl) -> None:
    library = nccl.NvidiaCollectives()
    first, second = library.join_all([3, 5], 5.0)
    with library.group():
        first.all_reduce(1, 2, 3, 7, 0, 0)
        second.all_reduce(4, 5, 3, 7, 0, 9)
    assert fake.calls == [
        "start",
        "all_reduce (1, 2, 3, 7, 0, 'handle of 3', 0)",
        "all_reduce (4, 5, 3, 7, 0, 'handle of 5', 9)",
        "end",
    ]
    with (
        pytest.raises(CollectiveError, match=r"all_reduce of rank 0 of 2 failed: Invalid"),
        library.group(),
    ):
        first.all_reduce(1, 2, 13, 7, 0, 0)
    assert fake.calls[-2:] == ["start", "end"]


def test_a_communicator_is_destroyed_once(fake: FakeNccl) -> None:
    (made,) = nccl.NvidiaCollectives().join_all([0], 5.0)
    made.destroy()
    made.destroy()
    assert fake.calls == ["destroy"]
    with pytest.raises(CollectiveError, match="it was destroyed"):
        made.all_reduce(1, 2, 3, 7, 0, 0)


# -- cuFile ----------------------------------------------------------------------------------------


class FakeCufile:
    class cuFileError(Exception):  # noqa: N801 - the library's name
        def __init__(self, status: int) -> None:
            super().__init__(f"STATUS ({status})")
            self.status = status

    def op_status_error(self, status: int) -> str:
        if status < 5000:
            raise ValueError(status)
        return f"text of {status}"

    def buf_register(self, address: int, size: int, flags: int) -> None:
        raise self.cuFileError(5027 if size == 1 else 28)

    def read(self, *arguments: int) -> int:
        return arguments[2]


@pytest.fixture
def files() -> cufile.NvidiaFiles:
    made = cufile.NvidiaFiles()
    made._library = FakeCufile()
    return made


def test_what_cufile_says_is_told(files: cufile.NvidiaFiles) -> None:
    with pytest.raises(RuntimeError, match="text of 5027"):
        files.register_buffer(16, 1)
    with pytest.raises(RuntimeError, match="No space left on device"):
        files.register_buffer(16, 2)


def test_what_cufile_moves_is_counted(files: cufile.NvidiaFiles) -> None:
    assert files.read(1, 2, 4096, 0) == 4096
    with pytest.raises(RuntimeError, match="text of 5008"):
        files.read(1, 2, -5008, 0)
    with pytest.raises(RuntimeError, match="the system refused"):
        files.read(1, 2, -1, 0)


# -- green contexts --------------------------------------------------------------------------------


def resource(count: int) -> Any:
    about = SimpleNamespace(smCount=count, smCoscheduledAlignment=8, minSmPartitionSize=8)
    return SimpleNamespace(sm=about)


@pytest.fixture
def old_driver(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A driver that splits equally only; what it was asked."""
    asked: list[tuple[Any, ...]] = []

    def split(groups: int, whole: Any, flags: int, minimum: int) -> tuple[Any, ...]:
        asked.append((groups, flags, minimum))
        size = -(-minimum // 8) * 8
        made = min(groups, whole.sm.smCount // size)
        rest = resource(whole.sm.smCount - made * size)
        return 0, [resource(size)] * made, made, rest

    bindings = SimpleNamespace(
        cuDevSmResourceSplitByCount=split,
        cuGreenCtxDestroy=lambda context: (201,),
    )
    monkeypatch.setattr(green_context, "_bindings", lambda: bindings)
    monkeypatch.setattr(green_context, "_nvidia", SimpleNamespace(driver_version=lambda: 13000))
    return asked


def whole() -> MultiprocessorSet:
    return MultiprocessorSet(0, 132, 8, 8, resource(132))


def test_equal_groups_on_an_older_driver(old_driver: list[tuple[Any, ...]]) -> None:
    contexts = green_context.NvidiaGreenContexts()
    parts, rest = contexts.split(whole(), [SplitRequest(60)] * 2)
    assert [part.count for part in parts] == [64, 64]
    assert rest is not None
    assert (rest.count, rest.alignment, rest.minimum) == (4, 8, 8)
    assert old_driver == [(2, 0, 60)]
    with pytest.raises(RuntimeError, match=r"3 groups of 64 multiprocessors .* 132 give 2"):
        contexts.split(whole(), [SplitRequest(64)] * 3)


@pytest.mark.parametrize(
    "groups",
    [
        [SplitRequest(64), SplitRequest(32)],
        [SplitRequest(0)],
        [SplitRequest(64, coscheduled=8)],
        [SplitRequest(64, backfill=True)],
    ],
)
def test_what_an_older_driver_cannot_do(
    groups: list[SplitRequest], old_driver: list[tuple[Any, ...]]
) -> None:
    with pytest.raises(RuntimeError, match=r"driver 13\.1"):
        green_context.NvidiaGreenContexts().split(whole(), groups)
    assert old_driver == []


def test_a_refusal_of_the_driver_names_the_call(old_driver: list[tuple[Any, ...]]) -> None:
    with pytest.raises(AcceleratorError, match="cuGreenCtxDestroy"):
        green_context.NvidiaGreenContexts().destroy(3)
