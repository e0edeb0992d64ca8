# SPDX-License-Identifier: Apache-2.0
"""The sanitizer against a plain account of which work is ordered after which."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

import flambeau
from flambeau import cuda
from flambeau.runtime.sanitizer import Watcher

ELEMENTS, STREAMS, EVENTS = 24, 3, 2


def random_steps(dice: random.Random, count: int) -> list[tuple[Any, ...]]:
    """Uses of parts of a tensor, each with a stream, and what orders streams."""

    def stream() -> int:
        return dice.randrange(STREAMS)

    def event() -> int:
        return dice.randrange(EVENTS)

    def step() -> tuple[Any, ...]:
        first = dice.randrange(ELEMENTS)
        use = (first, dice.randint(1, 12), dice.randint(1, 3), dice.random() < 0.5)
        return dice.choices(
            [
                ("use", stream(), *use),
                ("record", event(), stream()),
                ("wait", event(), stream()),
                ("wait_stream", stream(), stream()),
                ("finish_event", event()),
                ("finish_stream", stream()),
                ("finish_device",),
            ],
            [50, 10, 10, 10, 3, 3, 2],
        )[0]

    return [step() for _ in range(count)]


class Account:
    """For each stream, event and the host: the set of uses that are ordered before what is next."""

    def __init__(self) -> None:
        self.known: list[set[int]] = [set() for _ in range(STREAMS)]
        self.events: list[set[int]] = [set() for _ in range(EVENTS)]
        self.host: set[int] = set()
        self.uses: list[tuple[set[int], bool]] = []

    def races(self, where: int, elements: set[int], write: bool) -> bool:
        before = self.known[where] | self.host
        number = len(self.uses)
        self.uses.append((elements, write))
        self.known[where] = before | {number}
        return any(
            (write or other_write) and not elements.isdisjoint(others)
            for earlier, (others, other_write) in enumerate(self.uses[:-1])
            if earlier not in before
        )

    def order(self, kind: str, *which: int) -> None:
        if kind == "record":
            self.events[which[0]] = set(self.known[which[1]])
        elif kind == "wait":
            self.known[which[1]] |= self.events[which[0]]
        elif kind == "wait_stream":
            self.known[which[0]] |= self.known[which[1]]
        elif kind == "finish_event":
            self.host |= self.events[which[0]]
        elif kind == "finish_stream":
            self.host |= self.known[which[0]]
        else:
            self.host.update(*self.known)


@pytest.fixture(scope="module")
def streams() -> list[Any]:
    return [cuda.Stream(0) for _ in range(STREAMS)]


def do(kind: str, which: tuple[int, ...], streams: list[Any], events: list[Any]) -> None:
    if kind == "record":
        events[which[0]].record(streams[which[1]])
    elif kind == "wait":
        events[which[0]].wait(streams[which[1]])
    elif kind == "wait_stream":
        streams[which[0]].wait_stream(streams[which[1]])
    elif kind == "finish_event":
        events[which[0]].synchronize()
    elif kind == "finish_stream":
        streams[which[0]].synchronize()
    else:
        cuda.synchronize()


@pytest.mark.finds("race")
@pytest.mark.parametrize("seed", range(40))
def test_each_race_is_found_at_its_operation_and_nothing_else(
    streams: list[Any], seed: int
) -> None:
    steps = random_steps(random.Random(seed), 60)
    x = flambeau.zeros(ELEMENTS, device="cuda")
    events = [cuda.Event() for _ in range(EVENTS)]
    cuda.synchronize()
    account, found = Account(), []
    outcomes: set[bool] = set()
    watcher = Watcher(found.append)
    watcher.start()
    try:
        for kind, *which in steps:
            found.clear()
            if kind != "use":
                do(kind, tuple(which), streams, events)
                account.order(kind, *which)
                assert found == []
                continue
            where, first, count, distance, write = which
            elements = set(range(ELEMENTS)[first : first + count : distance])
            part = x[first : first + count : distance]
            with cuda.stream(streams[where]):
                part.mul_(1) if write else part + 1
            expected = account.races(where, elements, write)
            outcomes.add(expected)
            assert bool(found) == expected
        assert outcomes == {True, False}
    finally:
        watcher.stop()
        cuda.synchronize()


def test_memory_of_long_programs_is_forgotten() -> None:
    watcher = Watcher(lambda errors: None)
    side = cuda.Stream(0)
    watcher.start()
    try:
        for i in range(3000):
            t = flambeau.zeros(1 + i % 700, device="cuda")
            side.wait_stream(cuda.current_stream())
            with cuda.stream(side):
                t.add_(1)
            t.record_stream(side)
            del t
            if i % 50 == 0:
                cuda.synchronize()
        cuda.synchronize()
        watcher._memory.sweep()
        kept = [cell for cell in watcher._memory._cells.values() if cell.writes or cell.reads]
    finally:
        watcher.stop()
    assert len(kept) <= 1


def test_threads_with_their_own_tensors() -> None:
    found: list[object] = []
    watcher = Watcher(found.append)
    sums: list[float] = []

    def work() -> None:
        side = cuda.Stream(0)
        with cuda.stream(side):
            for _ in range(50):
                x = flambeau.ones(100, device="cuda")
                x.add_(1)
                sums.append((x * 2).sum().item())

    watcher.start()
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        watcher.stop()
    assert found == []
    assert sums == [400.0] * 200
