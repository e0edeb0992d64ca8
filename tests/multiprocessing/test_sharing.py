# SPDX-License-Identifier: Apache-2.0
"""Tensors between real processes."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
import flambeau.multiprocessing as mp
import sharing_workers as workers
from flambeau.runtime import _allocator_settings, _sharing
from support import needs_two, run_script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT = 60


class Child:
    """A process that runs a worker, with a queue each way."""

    def __init__(self, worker: Callable[..., None], *args: Any) -> None:
        context = mp.get_context("spawn")
        self.inbox, self.outbox = context.SimpleQueue(), context.SimpleQueue()
        self.process = context.Process(target=worker, args=(self.inbox, self.outbox, *args))
        self.process.start()

    def tell(self, what: Any = None) -> None:
        self.inbox.put(what)

    def hear(self) -> Any:
        assert self.outbox._reader.poll(WAIT), "the child says nothing"
        return self.outbox.get()

    def end(self) -> None:
        self.tell()
        self.process.join(WAIT)
        assert self.process.exitcode == 0


@pytest.fixture(params=[False, True], ids=["plain", "expandable"])
def expandable(request: pytest.FixtureRequest, gpu: torch.device) -> Iterator[bool]:
    torch.cuda.init()
    gc.collect()
    torch.cuda.empty_cache()
    _allocator_settings.set_(f"expandable_segments:{request.param}")
    yield request.param
    _allocator_settings.set_("expandable_segments:False")
    torch.cuda.ipc_collect()
    gc.collect()
    torch.cuda.empty_cache()


def test_device_memory_is_shared_and_counted(expandable: bool) -> None:
    base = torch.cuda.memory_allocated()
    child = Child(workers.add_and_report, 2)
    for values in ([0.0, 1.0, 2.0], [7.0]):
        x = torch.tensor(values, device="cuda")
        child.tell(x)
        assert child.hear() == (values, "cuda:0", 0)
        assert x.tolist() == [value + 1 for value in values]
        del x
        gc.collect()
        torch.cuda.ipc_collect()
        assert torch.cuda.memory_allocated() == base + 512
        assert [size for _, size in _sharing.in_limbo()] == [512]
        child.tell()
        assert child.hear() == "dropped"
        assert torch.cuda.memory_allocated() == base + 512
        torch.cuda.ipc_collect()
        assert torch.cuda.memory_allocated() == base
        assert _sharing.in_limbo() == []
    child.end()


@needs_two
def test_a_tensor_of_another_device(expandable: bool) -> None:
    child = Child(workers.add_and_report, 1)
    x = torch.tensor([3.0, 4.0], device="cuda:1")
    device, _, _, _, *counted, _, _ = x.untyped_storage()._share_cuda_()
    assert device == 1
    _sharing.release_ipc_counter(*counted)
    child.tell(x)
    assert child.hear() == ([3.0, 4.0], "cuda:1", 0)
    assert x.tolist() == [4, 5]
    child.tell()
    assert child.hear() == "dropped"
    child.end()
    del x


def test_views_of_one_block_share_one_mapping(expandable: bool) -> None:
    child = Child(workers.two_views)
    x = torch.zeros(10, device="cuda")
    child.tell((x, x[2:5]))
    assert child.hear() == ([5.0] * 3, True)
    assert x.tolist() == [5.0] * 10
    child.end()


def test_what_lies_across_pages_is_shared(gpu: torch.device) -> None:
    torch.cuda.empty_cache()
    _allocator_settings.set_("expandable_segments:True")
    try:
        lead = torch.zeros(15 << 20, dtype=torch.uint8, device="cuda")
        x = torch.zeros(30 << 20, dtype=torch.uint8, device="cuda")  # on three pages of 20 MiB
        x[-3:] = 9
        _, handle, nbytes, offset, *counted, _, _ = x.untyped_storage()._share_cuda_()
        _sharing.release_ipc_counter(*counted)
        assert handle[:2] == b"\3e"
        assert len(_sharing.descriptor_numbers(handle)) == 3
        assert (nbytes, offset) == (30 << 20, 15 << 20)
        child = Child(workers.add_and_report, 1)
        child.tell(x[-3:])
        assert child.hear()[0] == [9, 9, 9]
        assert x[-3:].tolist() == [10, 10, 10]
        child.tell()
        assert child.hear() == "dropped"
        child.end()
        del lead, x
    finally:
        _allocator_settings.set_("expandable_segments:False")
        torch.cuda.empty_cache()


def test_what_was_received_cannot_be_sent_again(gpu: torch.device) -> None:
    child = Child(workers.refuse_to_send_again)
    child.tell(torch.ones(4, device="cuda"))
    assert "Consider cloning before sending" in child.hear()
    assert child.hear() in {"RuntimeError", "AttributeError"}
    assert child.hear() is False
    assert child.hear() == 4
    child.end()
    torch.cuda.ipc_collect()


def test_an_interprocess_event_travels_with_its_tensor(gpu: torch.device) -> None:
    child = Child(workers.wait_for_event)
    event = torch.cuda.Event(interprocess=True)
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda._sleep(10_000_000)
    x.fill_(1)
    event.record()
    child.tell((event, x))
    assert child.hear() == 1 << 20
    child.end()


@pytest.mark.parametrize("conf", ["expandable_segments:False", "expandable_segments:True"])
def test_the_other_direction(gpu: torch.device, conf: str) -> None:
    """The example of 4000 bytes: less only after drop and collect."""
    context = mp.get_context("spawn")
    inbox, outbox = context.SimpleQueue(), context.SimpleQueue()
    process = context.Process(target=workers.produce, args=(outbox, inbox, conf))
    process.start()
    x = outbox.get()
    assert x.sum().item() == 999 * 500
    assert not x.untyped_storage().resizable()
    assert outbox.get() == (4096, 1)
    del x
    inbox.put(None)
    assert outbox.get() == (0, 0)
    inbox.put(None)
    process.join(WAIT)
    assert process.exitcode == 0


def test_a_queue_back_to_the_same_process(gpu: torch.device) -> None:
    queue = mp.get_context("spawn").SimpleQueue()
    base = torch.cuda.memory_allocated()
    x = torch.arange(4.0, device="cuda")
    address = x.data_ptr()
    queue.put(x)
    again = queue.get()
    assert again.data_ptr() == address
    queue.put(x)
    del x, again  # nobody here holds it while it is in the queue
    gc.collect()
    assert torch.cuda.memory_allocated() == base + 512
    again = queue.get()
    assert again.tolist() == [0, 1, 2, 3]
    del again
    torch.cuda.ipc_collect()
    assert torch.cuda.memory_allocated() == base


def test_memory_in_limbo_is_collected_when_it_is_missed(gpu: torch.device) -> None:
    base = torch.cuda.memory_allocated()
    x = torch.ones(100, device="cuda")
    _, _, _, _, counters, slot, _, _ = x.untyped_storage()._share_cuda_()
    del x
    assert torch.cuda.memory_allocated() == base + 512
    _sharing.release_ipc_counter(counters, slot)  # as a receiver does that needs it no more
    y = torch.ones(30 << 20, device="cuda")  # not in the cache
    assert _sharing.in_limbo() == []
    del y
    assert torch.cuda.memory_allocated() == base


def test_the_tuple(gpu: torch.device) -> None:
    x = torch.ones(1000, device="cuda")
    device, handle, nbytes, offset, counters, slot, event, needs_wait = (
        x.untyped_storage()._share_cuda_()
    )
    assert (device, nbytes) == (0, 4000)
    assert handle[:2] == b"\3c"
    assert len(handle) == 66
    assert offset % 512 == 0
    assert os.path.exists(f"/dev/shm{counters.decode()}")
    assert slot >= 0
    assert (len(event), needs_wait) == (64, True)
    again = x.untyped_storage()._share_cuda_()
    assert again[4:6] == (counters, slot + 1)
    empty = torch.empty(0, device="cuda").untyped_storage()._share_cuda_()
    assert empty == (0, None, 0, 0, None, 0, None, None)
    with pytest.raises(RuntimeError, match="only available on CUDA"):
        torch.ones(3).untyped_storage()._share_cuda_()
    for number in (slot, slot + 1):
        _sharing.release_ipc_counter(counters, number)


def test_expandable_memory_can_be_kept_from_others(
    gpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    _allocator_settings.set_("expandable_segments:True")
    monkeypatch.setenv("TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC", "0")
    torch.cuda.empty_cache()
    try:
        x = torch.ones(100 << 20, dtype=torch.uint8, device="cuda")
        with pytest.raises(RuntimeError, match="TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=0"):
            x.untyped_storage()._share_cuda_()
    finally:
        _allocator_settings.set_("expandable_segments:False")
        del x
        torch.cuda.empty_cache()


def test_descriptors_are_given_back(gpu: torch.device) -> None:
    torch.cuda.empty_cache()
    _allocator_settings.set_("expandable_segments:True")
    try:
        x = torch.ones(100 << 20, dtype=torch.uint8, device="cuda")
        before = len(os.listdir("/proc/self/fd"))
        first = x.untyped_storage()._share_cuda_()
        opened = len(os.listdir("/proc/self/fd")) - before
        assert opened == len(_sharing.descriptor_numbers(first[1]))
        second = x.untyped_storage()._share_cuda_()
        assert second[1] == first[1]
        for shared in (first, second):
            _sharing.release_ipc_counter(shared[4], shared[5])
        torch.cuda.ipc_collect()
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        _allocator_settings.set_("expandable_segments:False")
        del x
        torch.cuda.empty_cache()


def test_a_forked_child_drops_nothing_of_its_parent() -> None:
    run_script(
        """
        from flambeau.runtime import _sharing
        import flambeau.multiprocessing as mp, os
        x = torch.ones(3, device="cuda")
        shared = x.untyped_storage()._share_cuda_()
        del x
        y = torch.ones(3).share_memory_()
        mp.set_sharing_strategy("file_system")
        z = torch.ones(3).share_memory_()
        pid = os.fork()
        if pid == 0:
            del y, z
            os._exit(len(_sharing.in_limbo()))
        assert os.waitpid(pid, 0)[1] == 0
        assert len(_sharing.in_limbo()) == 1
        assert y.tolist() == z.tolist() == [1, 1, 1]
        assert os.path.exists("/dev/shm" + shared[4].decode())
        _sharing.release_ipc_counter(shared[4], shared[5])
        torch.cuda.ipc_collect()
        assert torch.cuda.memory_allocated() == 0
        """
    )


# --- host memory --------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", sorted(mp.get_all_sharing_strategies()))
def test_host_tensors_are_one_memory(strategy: str) -> None:
    before = set(os.listdir("/dev/shm"))
    mp.set_sharing_strategy(strategy)
    try:
        child = Child(workers.echo)
        x = torch.arange(6.0).reshape(2, 3)
        assert not x.is_shared()
        child.tell(x[1])
        back = child.hear()
        assert back.tolist() == [4, 5, 6]
        assert back.is_shared()
        y = torch.zeros(3).share_memory_()
        assert y.is_shared()
        assert y.untyped_storage().share_memory_().is_shared()
        child.end()
        del x, y, back
    finally:
        mp.set_sharing_strategy("file_descriptor")
    gc.collect()
    assert {name for name in set(os.listdir("/dev/shm")) - before if "memory" in name} == set()


def test_a_shared_host_tensor_sees_what_the_other_writes() -> None:
    child = Child(workers.echo)
    x = torch.zeros(5)
    child.tell(x)
    back = child.hear()
    assert x.tolist() == back.tolist() == [1.0] * 5
    x[0] = 9
    assert back[0].item() == 9
    child.end()


def test_storages_and_dtypes() -> None:
    queue = mp.get_context("spawn").SimpleQueue()
    for of in (torch.bool, torch.int8, torch.float16, torch.bfloat16, torch.complex64):
        x = torch.ones(3, 2).to(of).t()
        queue.put(x)
        y = queue.get()
        assert y.dtype == of
        assert y.stride() == x.stride()
        assert y.tolist() == x.tolist()
    x = torch.arange(3).share_memory_()
    queue.put(x.untyped_storage())
    assert queue.get().tolist() == x.untyped_storage().tolist()
    queue.put(x.storage())
    assert queue.get().tolist() == [0, 1, 2]
    queue.put(torch.empty(0))
    assert queue.get().shape == (0,)
    with pytest.raises(RuntimeError, match="share_memory_"):
        torch.arange(3).untyped_storage().share_memory_()
    with pytest.raises(ValueError, match="no sharing strategy"):
        mp.set_sharing_strategy("pigeons")


# --- spawn --------------------------------------------------------------------------------------


def test_spawn_runs_every_process_and_tells_of_failures() -> None:
    queue = mp.get_context("spawn").SimpleQueue()
    assert mp.spawn(workers.note, (queue,), nprocs=2) is None
    assert {queue.get(), queue.get()} == {0, 1}
    with pytest.raises(mp.ProcessRaisedException, match="number 1 is not liked") as raised:
        mp.spawn(workers.fail, (1,), nprocs=2)
    assert raised.value.error_index == 1
    with pytest.raises(mp.ProcessExitedException, match="exit code 3") as exited:
        mp.spawn(workers.leave, (3,))
    assert exited.value.exit_code == 3


# --- the end of a process -----------------------------------------------------------------------


def test_a_sender_that_ends_first_says_so() -> None:
    done = run_script(
        """
        x = torch.ones(3, device="cuda")
        x.untyped_storage()._share_cuda_()
        """
    )
    assert "before all shared CUDA tensors released" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_files_go_with_the_process() -> None:
    done = run_script(
        """
        import flambeau.multiprocessing as mp
        mp.set_sharing_strategy("file_system")
        x = torch.ones(3).share_memory_()
        y = torch.ones(3, device="cuda")
        shared = y.untyped_storage()._share_cuda_()
        torch.UntypedStorage._release_ipc_counter(shared[4], shared[5])
        import os
        print(os.getpid())
        """
    )
    assert done.stderr == ""
    pid = done.lines[-1]
    assert [name for name in os.listdir("/dev/shm") if f"_{pid}_" in name] == []
