# SPDX-License-Identifier: Apache-2.0
"""What graphs cost to capture and to replay: ``python -m benchmarks.graphs``."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.compare import TURNS, Row, Worker, ensure_device

if TYPE_CHECKING:
    from collections.abc import Sequence

NODES = 1000
IN_A_ROW = 16  # launches; more would wait for the GPU

_VECTORS = "a, b = (xp.ones(1024, device='cuda') for _ in range(2))"
_CAPTURE = """
def fill(n):
    for _ in range(n):
        a.add_(b)

def captured(n, **options):
    g = xp.cuda.CUDAGraph()
    with xp.cuda.graph(g, **options):
        fill(n)
    return g

def captured_by_hand(n, fill=fill):
    g = xp.cuda.CUDAGraph()
    with xp.cuda.stream(side):
        g.capture_begin()
        fill(n)
        g.capture_end()
    return g

def chain(n):
    c = a
    for _ in range(n):
        c = c + b
    return c

side = xp.cuda.Stream()
fill(3)
"""
_BARE = "\nfrom flambeau.runtime._graph import CapturedGraph, launch_seconds"
_MARKS = "\nfrom flambeau.cuda.graph_annotations import mark_kernels"
_HOOK = "\ng.register_replay_start_hook(id)"
_SETUP = _VECTORS + _CAPTURE
_ONE, _MANY = "\ng = captured(1)", f"\ng = captured({NODES})"
_WITHOUT_HOOKS = """
g = CapturedGraph()
with xp.cuda.stream(side):
    g.capture_begin()
    fill(1)
    g.capture_end_pre()
    g._instantiate()
"""
_LOOP = """
going, left = xp.ones((), dtype=xp.bool, device='cuda'), xp.zeros((), device='cuda')
g = xp.cuda.CUDAGraph()
with xp.cuda.graph(g):
    left.fill_(100)
    going.fill_(True)
    g.begin_capture_to_while_node(going)
    left.sub_(1)
    xp.gt(left, 0, out=going)
    g.set_conditional_handle_for_current_node(going)
    g.end_capture_to_conditional_node()
"""
_BRANCH = """
wanted = xp.zeros((), dtype=xp.bool, device='cuda')
g = xp.cuda.CUDAGraph()
with xp.cuda.graph(g):
    g.begin_capture_to_if_node(wanted)
    a.add_(b)
    g.end_capture_to_conditional_node()
"""


@dataclass(frozen=True)
class Figure:
    """One line of a table.

    Parameters
    ----------
    name
        What people read.
    row
        What is measured.
    clock
        Of `worker.Library`.
    who
        Which workers measure it: ``b``oth libraries, flambeau alone (``f``), or a process of
        flambeau's that has imported ``graph_annotations`` (``a``).
    calls
        How many calls make one measurement.
    each
        How many things one call of the statement does.
    """

    name: str
    statement: str
    setup: str
    clock: str = "host"
    who: str = "b"
    calls: int = IN_A_ROW
    each: int = 1

    @property
    def row(self) -> Row:
        """For a worker."""
        return Row(self.name, self.statement, self.setup, calls=self.calls)


def _bare(name: str, graph: str, count: int = IN_A_ROW) -> Figure:
    """The driver's call in a compiled loop, without anything of ours."""
    setup = _SETUP + _BARE + graph
    return Figure(name, f"launch_seconds(g, {count})", setup, "host", "f", 1, count)


def _capture(name: str, statement: str, setup: str = "", who: str = "b") -> Figure:
    return Figure(name, statement, _SETUP + setup, "wall", who, calls=3)


TABLES = {
    "Replay, µs": [
        Figure("one node, host", "g.replay()", _SETUP + _ONE, calls=200),
        _bare("one node, cuGraphLaunch alone", _ONE, 200),
        Figure(f"{NODES:,} nodes, host", "g.replay()", _SETUP + _MANY),
        _bare(f"{NODES:,} nodes, cuGraphLaunch alone", _MANY),
        Figure(f"{NODES:,} nodes, until done", "g.replay()", _SETUP + _MANY, "wall"),
        Figure("if node, not taken, until done", "g.replay()", _SETUP + _BRANCH, "wall", "f"),
        Figure("while node, 100 times, until done", "g.replay()", _SETUP + _LOOP, "wall", "f"),
    ],
    f"Capture and instantiation of {NODES:,} nodes, µs": [
        _capture("with graph(g)", f"captured({NODES})"),
        _capture("capture_begin, capture_end", f"captured_by_hand({NODES})"),
        _capture("the same, a new tensor each", f"captured_by_hand({NODES}, chain)"),
    ],
    "Hooks and annotations, µs": [
        Figure("replay of one node", "g.replay()", _SETUP + _ONE, "host", "f", 200),
        Figure(
            "replay, of a class without hooks", "g.replay()", _SETUP + _BARE + _WITHOUT_HOOKS,
            "host", "f", 200,
        ),
        Figure(
            "replay, graph_annotations imported", "g.replay()", _SETUP + _MARKS + _ONE,
            "host", "a", 200,
        ),
        Figure(
            "replay, with a hook of its own", "g.replay()", _SETUP + _ONE + _HOOK, "host", "f", 200
        ),
        _capture(f"capture of {NODES:,} nodes", f"captured({NODES})", who="f"),
        _capture("capture, graph_annotations imported", f"captured({NODES})", _MARKS, "a"),
        _capture(
            "capture, in a scope, without enable_annotations",
            f"\n        with mark_kernels('x'): captured({NODES})", _MARKS, "a",
        ),
        _capture(
            "capture, annotated", f"captured({NODES}, enable_annotations=True)", _MARKS, "a"
        ),
    ],
}  # fmt: skip


class Bench:
    """The processes that measure, by the letters of `Figure.who`."""

    def __init__(self) -> None:
        self.ours, self.theirs = Worker("flambeau"), Worker("torch")
        self.annotated = Worker("flambeau")

    def close(self) -> None:
        """End them."""
        for worker in (self.ours, self.theirs, self.annotated):
            worker.close()

    def print_table(self, title: str, figures: Sequence[Figure]) -> None:
        """Let the processes measure all lines in turn; print the medians."""
        found: dict[tuple[str, bool], list[float | str]] = {}
        for _ in range(TURNS):
            for figure in figures:
                worker = self.annotated if figure.who == "a" else self.ours
                for one in (worker, self.theirs) if figure.who == "b" else (worker,):
                    answer = one.measure(figure.row, figure.clock)
                    key = figure.name, one is self.theirs
                    found.setdefault(key, []).append(answer)
        print(f"### {title}\n\nOn {self.ours.device}; medians of {TURNS} turns.\n")
        print(f"| | flambeau {self.ours.version} | torch {self.theirs.version} | ratio |")
        print("|---|---|---|---|")
        for figure in figures:
            both = [_median(found.get((figure.name, who), [])) for who in (False, True)]
            cells = [v if isinstance(v, str) else f"{v / figure.each * 1e6:.2f}" for v in both]
            if isinstance(both[0], float) and isinstance(both[1], float):
                cells.append(f"{both[0] / both[1]:.3f}")
            else:
                cells.append("")
            print("|", " | ".join([figure.name, *cells]), "|")
        print(flush=True)


def _median(answers: Sequence[float | str]) -> float | str:
    """The median of a line's turns; what went wrong, if something did."""
    wrong = [answer for answer in answers if isinstance(answer, str)]
    if wrong or not answers:
        return wrong[0] if wrong else ""
    return statistics.median(answer for answer in answers if not isinstance(answer, str))


if __name__ == "__main__":
    ensure_device()
    bench = Bench()
    try:
        for heading, lines in TABLES.items():
            bench.print_table(heading, lines)
    finally:
        bench.close()
