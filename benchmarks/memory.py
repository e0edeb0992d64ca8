# SPDX-License-Identifier: Apache-2.0
"""The caching allocator beside torch's: ``python -m benchmarks.memory [TURNS] [--quick]``.

Each library runs in a process of its own, by turns; a ratio is of medians. The traces are made by a
generator with fixed seeds: sizes and lifetimes as of training steps, on four streams. Without
torch the columns of flambeau stand alone. ``--quick`` leaves out what needs a history.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from typing import Any

EVENTS = 100_000
TURNS = 5
# Which of two equal blocks is taken moves the peak of a single trace by 3 % up or down: torch 2.11
# goes by addresses, flambeau by which segment is older, as torch 2.15. Only a mean says something.
SEEDS = range(7, 27)
LIBRARIES = ("flambeau", "torch")
NAMES = {
    "cycle_ns": ("cached allocation and free, ns", 0.12),
    "history_ns": ("the same while a history is kept, ns", None),
    "replay_s": ("a trace of 100,000 events, s", 0.3),
    "peak_mb": ("peak of reserved MB, mean of 20 traces", 1.0),
    "snapshot_s": ("snapshot with 100,000 entries, s", 0.3),
}


def make_trace(events: int = EVENTS, seed: int = 7) -> list[tuple[int, int, int]]:
    """Events ``(index, bytes, stream)``: bytes above 0 allocate under a new index, 0 frees it."""
    draw = random.Random(seed)
    trace: list[tuple[int, int, int]] = []
    live: list[int] = []
    held = made = 0
    sizes: dict[int, int] = {}
    while len(trace) < events:
        if live and (held > 4 << 30 or draw.random() < 0.48):
            # Mostly what is young, as temporaries die; sometimes anything.
            young = draw.random() < 0.8
            at = (
                len(live) - 1 - min(int(draw.expovariate(0.3)), len(live) - 1)
                if young
                else (draw.randrange(len(live)))
            )
            index = live.pop(at)
            held -= sizes.pop(index)
            trace.append((index, 0, 0))
            continue
        kind = draw.random()
        if kind < 0.6:
            nbytes = draw.randint(1, 1 << 16)
        elif kind < 0.9:
            nbytes = draw.choice((1 << 18, 1 << 20, 3 << 20, 6 << 20)) + draw.randint(0, 4096)
        else:
            nbytes = draw.randint(8 << 20, 96 << 20)
        stream = draw.choices(range(4), (0.85, 0.05, 0.05, 0.05))[0]
        trace.append((made, nbytes, stream))
        live.append(made)
        sizes[made] = nbytes
        held += nbytes
        made += 1
    return trace


def replay(xp: Any, trace: list[tuple[int, int, int]], streams: list[int]) -> float:
    """Seconds that the events take by address, and so without the cost of tensors."""
    allocate, delete = xp.cuda.caching_allocator_alloc, xp.cuda.caching_allocator_delete
    at: dict[int, int] = {}
    start = time.perf_counter()
    for index, nbytes, stream in trace:
        if nbytes:
            at[index] = allocate(nbytes, 0, streams[stream])
        else:
            delete(at.pop(index))
    seconds = time.perf_counter() - start
    for address in at.values():
        delete(address)
    return seconds


def cycle(xp: Any, count: int = 20_000) -> float:
    """Nanoseconds of an ``empty`` and its end."""
    empty = xp.empty
    device = xp.device("cuda")
    for _ in range(100):
        empty(1024, device=device)
    start = time.perf_counter()
    for _ in range(count):
        empty(1024, device=device)
    return (time.perf_counter() - start) / count * 1e9


def mean_peak(xp: Any, streams: list[int]) -> float:
    """Megabytes that are reserved at most, the mean of all traces."""
    peaks: list[float] = []
    for seed in SEEDS:
        xp.cuda.empty_cache()
        xp.cuda.reset_peak_memory_stats()
        replay(xp, make_trace(seed=seed), streams)
        peaks.append(xp.cuda.max_memory_reserved() / 1e6)
    return statistics.mean(peaks)


def measure(library: str, options: list[str]) -> dict[str, float]:
    """The figures of a library, in this process."""
    xp = __import__(library)
    xp.cuda.init()
    trace = make_trace()
    streams = [0, *(xp.cuda.Stream().cuda_stream for _ in range(3))]
    figures = {"cycle_ns": min(cycle(xp) for _ in range(5))}
    if "--peak" in options:
        figures["peak_mb"] = mean_peak(xp, streams)
    xp.cuda.empty_cache()
    replay(xp, trace, streams)
    figures["replay_s"] = replay(xp, trace, streams)  # now that the driver has given its memory
    if "--quick" in options:
        return figures
    record = xp.cuda.memory._record_memory_history
    record(max_entries=100_000, stacks="python")
    figures["history_ns"] = cycle(xp)
    replay(xp, trace[:60_000], streams)
    start = time.perf_counter()
    snapshot = xp.cuda.memory._snapshot()
    figures["snapshot_s"] = time.perf_counter() - start
    assert len(snapshot["device_traces"][0]) >= 100_000
    record(enabled=None)
    return figures


def main() -> None:
    """Run the libraries by turns and print a table."""
    found: dict[str, list[dict[str, float]]] = {}
    options = [argument for argument in sys.argv[1:] if argument == "--quick"]
    turns = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    for turn in range(turns[0] if turns else TURNS):
        peak = [] if turn else ["--peak"]  # the same each time
        for library in LIBRARIES:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.memory", "--measure", library, *options, *peak],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0:
                found.setdefault(library, []).append(json.loads(done.stdout.splitlines()[-1]))
            elif library == "flambeau" or "ModuleNotFoundError" not in done.stderr:
                print(f"{library}: {done.stderr.strip().splitlines()[-1:]}")
    print(f"{'':42}{'flambeau':>16}{'torch':>16}{'ratio':>8}{'mark':>6}")
    for name, (words, mark) in NAMES.items():
        if options and name in {"history_ns", "snapshot_s"}:
            continue
        medians = [
            statistics.median(one[name] for one in found[library] if name in one)
            if library in found
            else None
            for library in LIBRARIES
        ]
        ours, theirs = medians
        ratio = f"{ours / theirs:8.3f}" if ours is not None and theirs else f"{'-':>8}"
        cells = "".join(f"{'-' if value is None else f'{value:,.3f}':>16}" for value in medians)
        print(f"{words:42}{cells}{ratio}{'' if mark is None else f'{mark:6.2f}'}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2], sys.argv[3:])))
    else:
        main()
