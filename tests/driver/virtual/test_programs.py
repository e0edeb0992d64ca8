# SPDX-License-Identifier: Apache-2.0
"""Random stream programs: synchronised ones have one result, whatever the order of the work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flambeau import virtual
from flambeau.driver.virtual import _calls as calls

if TYPE_CHECKING:
    from driver.virtual.device_memory import Bench

POLICIES = ("fifo", "random:0", "random:1", "random:2", "adversarial")
STREAMS, CELLS = 4, 5

# One step: a stream (the last two are blocking ones, -1 the default stream), and what it does:
# set a cell to the step's number, or copy one cell to another.
Step = tuple[int, tuple[int, int | None]]
steps = st.tuples(
    st.integers(-1, STREAMS - 1),
    st.tuples(st.integers(0, CELLS - 1), st.one_of(st.none(), st.integers(0, CELLS - 1))),
)


def expected(program: list[Step]) -> list[int]:
    """What the cells hold when the steps run one after another."""
    cells = [0] * CELLS
    for number, (_, (target, source)) in enumerate(program, 1):
        cells[target] = number if source is None else cells[source]
    return cells


@dataclass
class Machine:
    """Streams, cells and, per cell, who touched it last."""

    bench: Bench
    streams: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.streams = [self.bench.stream(blocking=index >= 2) for index in range(STREAMS)]
        self.cells = [self.bench.buffer(4) for _ in range(CELLS)]
        self.touched: dict[int, list[int]] = {cell: [] for cell in range(CELLS)}

    def clear(self) -> None:
        calls.ctx_synchronize()
        for cell in self.cells:
            calls.memset_d32_async(cell.address, 0, 1)
        calls.ctx_synchronize()
        self.touched = {cell: [] for cell in range(CELLS)}

    def step(self, number: int, step: Step, *, ordered: bool) -> None:
        index, (target, source) = step
        stream = 0 if index < 0 else self.streams[index]
        used = {target} if source is None else {target, source}
        if ordered:
            for cell in used:
                for event in self.touched[cell]:
                    calls.stream_wait_event(stream, event)
        if source is None:
            calls.memset_d32_async(self.cells[target].address, number, 1, stream)
        else:
            self.cells[source].copy_to(self.cells[target], stream)
        if ordered:
            event = self.bench.event()
            calls.event_record(event, stream)
            for cell in used:
                self.touched[cell].append(event)

    def run(self, program: list[Step], policy: str, *, ordered: bool) -> list[int]:
        self.clear()
        with virtual.schedule(policy):
            for number, step in enumerate(program, 1):
                self.step(number, step, ordered=ordered)
            calls.ctx_synchronize()
        return [int.from_bytes(cell.peek(), "little") for cell in self.cells]


once = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@once
@given(st.lists(steps, max_size=25))
def test_synchronised_programs_have_one_result(bench: Bench, program: list[Step]) -> None:
    machine = Machine(bench)
    for policy in POLICIES:
        assert machine.run(program, policy, ordered=True) == expected(program), policy


@once
@given(st.lists(steps, max_size=25))
def test_one_stream_needs_no_events(bench: Bench, program: list[Step]) -> None:
    machine = Machine(bench)
    single = [(0, work) for _, work in program]
    for policy in POLICIES:
        assert machine.run(single, policy, ordered=False) == expected(program), policy


@once
@given(st.lists(steps, max_size=25))
@example([(2, (0, None)), (-1, (1, 0)), (3, (2, 1))])
def test_the_default_stream_orders_blocking_ones(bench: Bench, program: list[Step]) -> None:
    machine = Machine(bench)
    # Every other step on the default stream: a barrier between the blocking streams' steps.
    fenced: list[Step] = []
    for index, (stream, work) in enumerate(program):
        fenced.append((2 + stream % 2 if index % 2 else -1, work))
    for policy in POLICIES:
        assert machine.run(fenced, policy, ordered=False) == expected(program), policy


@pytest.mark.finds("race")
@once
@given(st.lists(steps, max_size=25))
def test_fifo_hides_missing_waits(bench: Bench, program: list[Step]) -> None:
    assert Machine(bench).run(program, "fifo", ordered=False) == expected(program)


@pytest.mark.finds("race")
def test_a_missing_wait_shows_under_adversarial(bench: Bench) -> None:
    program: list[Step] = [(0, (0, None)), (1, (1, 0))]  # stream 1 reads what stream 0 writes
    machine = Machine(bench)
    assert machine.run(program, "fifo", ordered=False) == [1, 1, 0, 0, 0]
    assert machine.run(program, "adversarial", ordered=False) == [1, 0, 0, 0, 0]
    assert machine.run(program, "adversarial", ordered=True) == [1, 1, 0, 0, 0]


@pytest.mark.finds("race")
def test_a_missing_wait_before_an_overwrite_shows_too(bench: Bench) -> None:
    program: list[Step] = [(0, (0, None)), (0, (1, 0)), (1, (0, None))]  # overwritten while read
    machine = Machine(bench)
    assert machine.run(program, "fifo", ordered=False) == [3, 1, 0, 0, 0]
    assert machine.run(program, "adversarial", ordered=False) == [1, 1, 0, 0, 0]
    assert machine.run(program, "adversarial", ordered=True) == [3, 1, 0, 0, 0]


@pytest.mark.finds("race")
def test_random_finds_a_missing_wait_for_some_seed(bench: Bench) -> None:
    program: list[Step] = [(0, (0, None)), (1, (1, 0))]
    machine = Machine(bench)
    results = [machine.run(program, f"random:{seed}", ordered=False)[1] for seed in range(20)]
    assert set(results) == {0, 1}
