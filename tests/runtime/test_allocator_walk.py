# SPDX-License-Identifier: Apache-2.0
"""Long random programs, with the virtual GPU as the judge.

Each program uses memory on several streams as CUDA's rules allow. If the allocator gave memory
away too early, the check for races would find two uses of it without an order, or a value would be
wrong. On real GPUs only the values judge.
"""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from flambeau.driver import _table
from flambeau.runtime import _allocator, _allocator_settings

from .conftest import Books

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
LIMIT = 400 * MIB
SIZES = (1, 100, 1 << 12, 1 << 17, 1 << 18, 3 << 18, 1 << 20, 3 << 20, 6 << 20)
FAILING = ("cuMemAlloc", "cuMemCreate", "cuMemMap", "cuMemAddressReserve", "cuMemSetAccess")


def ends(x: Any) -> list[Any]:
    """Where the programs use a tensor: all of a small one, the ends of a large one."""
    return [x] if len(x) <= 512 else [x[:256], x[-256:]]


def fill(x: Any, value: int) -> None:
    for part in ends(x):
        part.fill_(value)


class Walk:
    """A program that goes on step by step; `check` may be asked at any time."""

    def __init__(self, seed: int, growing: bool) -> None:
        self.draw = random.Random(seed)
        self.streams = [torch.cuda.current_stream(), *(torch.cuda.Stream() for _ in range(3))]
        self.live: list[tuple[Any, int, int]] = []  # tensor of int32, its value, its stream
        self.graphs: list[tuple[Any, Any, int, int]] = []  # graph, output, value, stream
        self.pools = [torch.cuda.MemPool() for _ in range(2)]
        self.growing = growing
        self.books = Books(torch.cuda.current_device())
        steps = (
            (30, self.allocate), (24, self.free), (12, self.use_elsewhere), (8, self.write),
            (8, self.read), (2, self.wait), (1, self.empty_cache), (1, self.switch_growing),
            (3, self.allocate_in_pool), (2, self.capture), (4, self.replay), (2, self.drop_graph),
            (2, self.fail), (1, self.renew_pool),
        )  # fmt: skip
        self.weights = [weight for weight, _ in steps]
        self.steps = [step for _, step in steps]

    def go(self, count: int) -> None:
        for number in range(count):
            step = self.draw.choices(self.steps, self.weights)[0]
            with contextlib.suppress(torch.OutOfMemoryError):
                step()
            if number % 100 == 0:
                self.books.check()
        self.books.check()

    def end(self) -> None:
        _table.clear_faults()
        while self.live:
            self.read()
            self.free()
        self.graphs.clear()
        self.pools.clear()
        gc.collect()
        torch.cuda.synchronize()

    def _pick(self) -> tuple[Any, int, int] | None:
        return self.draw.choice(self.live) if self.live else None

    def _where(self, x: Any) -> int:
        return next(at for at, one in enumerate(self.live) if one[0] is x)

    def allocate(self) -> None:
        at = self.draw.randrange(len(self.streams))
        value = self.draw.randrange(1000)
        count = self.draw.choice(SIZES) + self.draw.randrange(64)
        with torch.cuda.stream(self.streams[at]):
            x = torch.empty(count, dtype=torch.int32, device="cuda")
            fill(x, value)
        self.live.append((x, value, at))

    def free(self) -> None:
        if self.live:
            self.live.pop(self.draw.randrange(len(self.live)))

    def use_elsewhere(self) -> None:
        """Another stream reads it, and it may be freed before that is done."""
        if (picked := self._pick()) is None:
            return
        x, value, home = picked
        other = self.draw.randrange(len(self.streams))
        if other == home:
            return
        self.streams[other].wait_stream(self.streams[home])
        with torch.cuda.stream(self.streams[other]):
            y = torch.empty_like(x)
            for to, of in zip(ends(y), ends(x), strict=True):
                to.copy_(of)
        x.record_stream(self.streams[other])
        if self.draw.random() < 0.5:
            self.streams[home].wait_event(self.streams[other].record_event())
        else:  # the home stream does not wait, so nobody may write it any more
            self.live.pop(self._where(x))
        self.live.append((y, value, other))

    def write(self) -> None:
        if (picked := self._pick()) is None:
            return
        x, _, home = picked
        value = self.draw.randrange(1000)
        with torch.cuda.stream(self.streams[home]):
            fill(x, value)
        self.live[self._where(x)] = (x, value, home)

    def read(self) -> None:
        if (picked := self._pick()) is None:
            return
        x, value, home = picked
        with torch.cuda.stream(self.streams[home]):
            assert x[-1].item() == value
            assert x[0].item() == value

    def wait(self) -> None:
        self.draw.choice(self.streams).synchronize()

    def empty_cache(self) -> None:
        torch.cuda.empty_cache()

    def switch_growing(self) -> None:
        if self.growing:
            on = self.draw.random() < 0.7
            _allocator_settings.set_(f"expandable_segments:{on}")

    def allocate_in_pool(self) -> None:
        with torch.cuda.use_mem_pool(self.draw.choice(self.pools)):
            self.allocate()

    def renew_pool(self) -> None:
        self.pools[self.draw.randrange(2)] = torch.cuda.MemPool()

    def capture(self) -> None:
        if len(self.graphs) > 4:
            return
        at = self.draw.randrange(1, len(self.streams))
        value = self.draw.randrange(1000)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=self.streams[at]):
            parts = [
                torch.empty(self.draw.choice(SIZES[:6]), dtype=torch.int32, device="cuda")
                for _ in range(3)
            ]
            for part in parts:
                fill(part, value)
            out = torch.empty_like(parts[0])
            for to, of in zip(ends(out), ends(parts[0]), strict=True):
                to.copy_(of)
            if self.draw.random() < 0.5:
                self.free()  # something from outside dies meanwhile
            del parts, part
        self.graphs.append((graph, out, value, at))

    def replay(self) -> None:
        if not self.graphs:
            return
        graph, out, value, at = self.draw.choice(self.graphs)
        with torch.cuda.stream(self.streams[at]):
            graph.replay()
            assert out[-1].item() == value

    def drop_graph(self) -> None:
        if self.graphs:
            torch.cuda.synchronize()
            self.graphs.pop(self.draw.randrange(len(self.graphs)))

    def fail(self) -> None:
        _table.inject(self.draw.choice(FAILING), status=2, times=self.draw.randrange(1, 3))
        try:
            self.allocate()
        finally:
            _table.clear_faults()


@pytest.fixture
def device(gpu: torch.device) -> Iterator[torch.device]:
    torch.cuda.init()
    gc.collect()
    torch.cuda.empty_cache()
    _allocator.set_memory_limit(0, LIMIT)
    yield gpu
    _allocator.set_memory_limit(0, None)
    _allocator_settings.set_("expandable_segments:False")
    gc.collect()
    torch.cuda.empty_cache()


def judged() -> Any:
    """The checks of races, freed memory and unwritten memory, where GPUs are virtual."""
    virtual = sys.modules.get("flambeau.virtual")
    if virtual is None or not virtual.is_enabled():
        return contextlib.nullcontext()
    return virtual.checks("all")


def run(seed: int, count: int, growing: bool) -> None:
    with judged():
        walk = Walk(seed, growing)
        walk.go(count)
        walk.end()
        torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == 0
    assert torch.cuda.memory_reserved() == 0


@pytest.mark.schedule("adversarial", "random:3")
@pytest.mark.parametrize("growing", [False, True])
def test_a_walk(device: torch.device, schedule: str, growing: bool) -> None:
    run(11, 1500, growing)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.schedule("adversarial")
@pytest.mark.parametrize("seed", range(10))
def test_a_long_walk(device: torch.device, schedule: str, seed: int) -> None:
    """100,000 steps in all."""
    run(seed, 10_000, growing=seed % 2 == 1)


@pytest.mark.parametrize("growing", [False, True])
def test_threads_use_the_allocator_at_once(device: torch.device, growing: bool) -> None:
    _allocator_settings.set_(f"expandable_segments:{growing}")
    failures: list[str] = []
    stop = threading.Event()

    def work(seed: int) -> None:
        draw = random.Random(seed)
        try:
            stream = torch.cuda.Stream()
            others = [torch.cuda.Stream() for _ in range(2)]
            held: list[Any] = []
            with torch.cuda.stream(stream):
                for _ in range(150):
                    x = torch.empty(draw.choice(SIZES[:7]), dtype=torch.int32, device="cuda")
                    x.fill_(seed)
                    x.record_stream(draw.choice(others))
                    held.append(x)
                    if len(held) > 5:
                        y = held.pop(draw.randrange(len(held)))
                        assert y[-1].item() == seed
        except Exception as error:  # noqa: BLE001 - shown in the test's own thread
            failures.append(repr(error))

    def disturb() -> None:
        while not stop.wait(0.002):
            torch.cuda.empty_cache()
            torch.cuda.memory_stats()
            torch.cuda.memory_snapshot()

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    other = threading.Thread(target=disturb)
    for thread in (*workers, other):
        thread.start()
    for thread in workers:
        thread.join()
    stop.set()
    other.join()
    assert failures == []
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == 0
