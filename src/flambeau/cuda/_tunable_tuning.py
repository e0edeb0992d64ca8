# SPDX-License-Identifier: Apache-2.0
"""Timing the algorithms of one product, and choosing for every product that comes.

Candidates are timed with events around several runs. A busy kernel before them gives the host time
to queue all runs, so that it is the device which is measured.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from flambeau.cuda import _tunable_keys as keys
from flambeau.cuda._tunable_results import DEFAULT, Entry, results
from flambeau.cuda._tunable_settings import say, settings
from flambeau.driver.libraries import Algorithm, GemmProblem
from flambeau.runtime import _cuda_device, _dtype, _matmul
from flambeau.runtime._stream import current_stream
from flambeau.runtime._tensor import empty

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._tensor import Tensor

__all__ = ["choose", "rotating_bytes", "tune"]

AS_GIVEN, ALGORITHM_SHIFT = 0x40, 8  # of gemm_options.hpp
WORKSPACE = 32 << 20
_CYCLES_PER_CALL = 40_000  # 20 us at 2 GHz, more than a call takes the host
_LONG = 2.0  # seconds of tuning after which people want to see how far it is
_ROUNDS = 5  # in which the best few are compared
_NOISE = 1.005  # times that differ by less are the same
_LIBRARY_CHOOSES = 2  # algorithms with smaller numbers are what the library takes by itself


def rotating_bytes(device: int) -> int:
    """Bytes that are cycled through so that no run finds its matrices in the cache."""
    asked = settings.get("rotating_buffer")
    if asked is not None:
        return int(asked)
    l2_cache_size = 38  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
    return _cuda_device.attribute(device, l2_cache_size)


def _span(rows: int, columns: int, leading: int, stride: int, batch: int) -> int:
    return (batch - 1) * stride + (rows - 1) * leading + columns


class Bench:
    """Matrices for one product, several times over, and how long algorithms take with them."""

    def __init__(self, problem: GemmProblem, device: int) -> None:
        self.problem, self.device = problem, device
        p = problem
        a = (p.k, p.m) if p.transpose_a else (p.m, p.k)
        b = (p.n, p.k) if p.transpose_b else (p.k, p.n)
        sizes = (
            _span(*a, p.lda, p.stride_a, p.batch),
            _span(*b, p.ldb, p.stride_b, p.batch),
            _span(p.m, p.n, p.ldc, p.stride_c, p.batch),
        )
        item = _dtype.dtype_from_code(p.dtype).itemsize
        copies = rotating_bytes(device) // max(1, sum(sizes) * item) + 1
        self.copies = [tuple(self._matrix(n) for n in sizes) for _ in range(copies)]
        self.bias = self._matrix(p.n) if p.bias else None
        self._turn = 0
        self._wall = 0.0  # milliseconds of the host's time that a run took last

    def _matrix(self, elements: int) -> Tensor:
        of = _dtype.dtype_from_code(self.problem.dtype)
        made = empty((elements,), dtype=of, device=f"cuda:{self.device}")
        real = made.view(dtype=_dtype.dtypes[_REAL[of.name]]) if of.name in _REAL else made
        real.uniform_(-0.5, 0.5, generator=_generator(self.device))
        return made

    def run(self, algorithm: Algorithm, copy: Sequence[Tensor] | None = None) -> None:
        """Queue one product."""
        if copy is None:
            copy = self.copies[self._turn % len(self.copies)]
            self._turn += 1
        a, b, c = copy
        p = self.problem
        done = _matmul.gemm(
            a,
            b,
            c,
            (p.m, p.n, p.k, p.batch),
            (p.lda, p.ldb, p.ldc),
            (p.stride_a, p.stride_b, p.stride_c),
            bool(p.transpose_a),
            bool(p.transpose_b),
            1.0,
            0.0,
            p.compute | AS_GIVEN | algorithm.number << ALGORITHM_SHIFT,
            algorithm.workspace_bytes,
            self.bias,
        )
        if not done:
            raise RuntimeError("the library cannot add this bias")

    def mean(self, algorithm: Algorithm, runs: int, warm: bool = False) -> float:
        """Milliseconds of a run. Waits for the device. A warm run finds its matrices in caches."""
        from flambeau.cuda.streams import Event

        first, last = Event(enable_timing=True), Event(enable_timing=True)
        stream = current_stream(self.device)
        copy = self.copies[0] if warm else None
        began = time.perf_counter()
        _cuda_device.spin(_CYCLES_PER_CALL * (min(runs, 100) + 2))
        if warm:
            self.run(algorithm, copy)
        first.record(stream)
        for _ in range(runs):
            self.run(algorithm, copy)
        last.record(stream)
        last.synchronize()
        self._wall = (time.perf_counter() - began) * 1e3 / runs
        return first.elapsed_time(last) / runs

    def affordable(self, runs: int) -> int:
        """So many of the runs as fit into the time for one candidate, at least one.

        The device's clock and the host's differ where devices are slower than they claim to be.
        """
        duration = settings.get("max_tuning_duration")
        if not duration or not self._wall:
            return runs
        return max(1, min(runs, int(duration / self._wall)))

    def is_right(self, algorithm: Algorithm, tolerances: tuple[float, float]) -> bool:
        """Whether it computes what the default algorithm does, within tolerances."""
        from flambeau.ops.statistics import allclose

        a, b, c = self.copies[0]
        expected = c.clone()
        self.run(_DEFAULT_ALGORITHM, (a, b, expected))
        self.run(algorithm, (a, b, c))
        atol, rtol = tolerances
        return allclose(c, expected, rtol, atol)


_REAL = {"complex64": "float32", "complex128": "float64"}
_DEFAULT_ALGORITHM = Algorithm(DEFAULT, 0, 0)
_generators: dict[int, Any] = {}


def _generator(device: int) -> Any:
    """Random numbers of its own: tuning must not move the program's."""
    from flambeau.runtime._generator import Generator

    if device not in _generators:
        _generators[device] = Generator(f"cuda:{device}")
    return _generators[device]


def _failures() -> tuple[type[Exception], ...]:
    from flambeau.driver.errors import AcceleratorError

    return (AcceleratorError, RuntimeError)


class Race:
    """The candidates for one product, fewer and fewer."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.best = float("inf")
        self.times: dict[Algorithm, float] = {}

    def enter(self, algorithm: Algorithm) -> str:
        """Time a candidate; why it is out, or ``""``."""
        try:
            self.bench.run(algorithm)
            probe = self.bench.mean(algorithm, 1)
        except _failures() as error:
            _raise_if_lost(error)
            return f"it cannot run: {str(error).splitlines()[0]}"
        for runs, allowed in ((2, 0.0), (3, 1.5), (10, 1.15)):
            if allowed and probe > 3 * self.best:
                return "its first run was slow"
            mean = self.bench.mean(algorithm, self.bench.affordable(runs))
            if allowed and mean > allowed * self.best:
                return f"{mean:.6g} ms, the best has {self.best:.6g} ms"
        tolerances = settings.get("tolerances")
        if tolerances and algorithm.number and not self.bench.is_right(algorithm, tolerances):
            return "its result is not close enough to the default's"
        self._warm_up(algorithm, mean)
        mean = self.bench.mean(algorithm, self._runs(mean))
        self.times[algorithm] = mean
        self.best = min(self.best, mean)
        return ""

    def _runs(self, mean: float) -> int:
        duration, iterations = (
            settings.get(f"max_tuning_{what}") for what in ("duration", "iterations")
        )
        limits = [int(duration / mean)] if duration and mean > 0 else []
        limits += [iterations] if iterations else []
        return self.bench.affordable(max(1, min(limits, default=100)))

    def _warm_up(self, algorithm: Algorithm, mean: float) -> None:
        duration, iterations = (
            settings.get(f"max_warmup_{what}") for what in ("duration", "iterations")
        )
        limits = [int(duration / mean)] if duration and mean > 0 else []
        limits += [iterations] if iterations else []
        for _ in range(min(limits, default=0)):
            self.bench.run(algorithm)

    def winner(self) -> tuple[Algorithm, float]:
        """The fastest: the best few run against each other once more, in turns.

        With matrices that no cache holds and with warm ones, it is no slower than what the library
        takes by itself; else that is the winner.
        """
        ranked = sorted(self.times, key=self.times.__getitem__)
        finalists = ranked[:4] + [one for one in ranked[4:] if one.number < _LIBRARY_CHOOSES]
        if len(finalists) == 1:
            return finalists[0], self.times[finalists[0]]
        cold, warm = self._turns(finalists)
        usual = [one for one in finalists if one.number < _LIBRARY_CHOOSES] or finalists
        cold_limit, warm_limit = (
            _NOISE * min(times[one] for one in usual) for times in (cold, warm)
        )
        safe = [one for one in finalists if cold[one] <= cold_limit and warm[one] <= warm_limit]
        best = min(safe or usual, key=lambda one: cold[one] * warm[one])
        return best, cold[best]

    def _turns(self, algorithms: list[Algorithm]) -> list[dict[Algorithm, float]]:
        """Medians of each algorithm's times in several rounds, cold ones and warm ones."""
        taken: dict[Algorithm, tuple[list[float], list[float]]] = {a: ([], []) for a in algorithms}
        for turn in range(_ROUNDS):
            for one in algorithms[:: 1 - 2 * (turn % 2)]:
                runs = min(20, self._runs(self.times[one]))
                for warm in (False, True):
                    taken[one][warm].append(self.bench.mean(one, runs, warm))
        return [
            {one: sorted(times[warm])[_ROUNDS // 2] for one, times in taken.items()}
            for warm in (False, True)
        ]


def _raise_if_lost(error: Exception) -> None:
    """A lost context is no property of a candidate."""
    if "context is lost" in str(error):
        raise error


def tune(problem: GemmProblem, device: int) -> Entry:
    """Time the algorithms of a product on the current stream and keep the fastest.

    Waits for the device, and takes up to ``max_tuning_duration`` for each candidate.
    """
    from flambeau import driver

    key = keys.key_of(problem)
    blas = driver.current().libraries.blas
    requested = settings.get("requested_algorithms")
    candidates = [_DEFAULT_ALGORITHM, *blas.algorithms(problem, requested, WORKSPACE)]
    say(2, f"tuning {key[0]} {key[1]}: {len(candidates)} candidates")
    race = Race(Bench(problem, device))
    with Progress(f"{key[0]} {key[1]}", len(candidates)) as progress:
        for candidate in candidates:
            out = race.enter(candidate)
            say(3, f"  {candidate.name}: {out or f'{race.times[candidate]:.6g} ms'}")
            progress.step()
    if not race.times:  # the product itself will say why
        return Entry(DEFAULT, 0.0)
    algorithm, milliseconds = race.winner()
    say(2, f"found {algorithm.name} with {milliseconds:.6g} ms")
    return Entry(algorithm.name, milliseconds)


class Progress:
    """A bar on the terminal, if there is one and tuning takes long; only then rich is loaded."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._done, self._began = 0, time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        return self

    def step(self) -> None:
        """One more is done."""
        self._done += 1
        if self._bar is None and sys.stderr.isatty() and time.monotonic() - self._began > _LONG:
            self._show()
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)

    def _show(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import Progress as Bar
        except ImportError:
            self._began = float("inf")  # never again
            return
        self._bar = Bar(console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(f"tuning {self._what}", total=self._total)
        self._bar.start()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def choose(device: int, fields: tuple[int, ...]) -> tuple[int, int] | None:
    """Answer `_matmul` which algorithm a product gets: its number and scratch bytes.

    None leaves the question open: while a graph is captured nothing can be timed.
    """
    problem = GemmProblem(*fields)
    key = keys.key_of(problem)
    log = keys.describe(problem) if settings.get("blas_log") else ""
    with results.lock:
        results.load_once(device)
        entry = results.find(key)
        if entry is None and settings.get("tuning"):
            if _cuda_device.capture_status():
                return None
            entry = _tune_and_keep(problem, device, key, log)
        elif entry is None:
            if settings.get("record_untuned"):
                results.record(key, device, log)
            if settings.get("wildcard_fallback"):
                entry = results.find_wild(key)
    return _algorithm(problem, entry)


def _tune_and_keep(
    problem: GemmProblem, device: int, key: tuple[str, str], log: str
) -> Entry | None:
    """Tune; without memory for the matrices, have the default algorithm and keep nothing."""
    from flambeau.driver.errors import OutOfMemoryError

    try:
        entry = tune(problem, device)
    except OutOfMemoryError as error:
        say(1, f"{key[0]} {key[1]} is not tuned: {str(error).splitlines()[0]}")
        return None
    results.add(key, entry, log)
    if settings.mask:
        results.add(keys.wild_key_of(problem, settings.mask), entry, log)
    return entry


def _algorithm(problem: GemmProblem, entry: Entry | None) -> tuple[int, int]:
    from flambeau import driver

    if entry is None or entry.solution == DEFAULT:
        return 0, 0
    blas = driver.current().libraries.blas
    found = blas.algorithm(problem, entry.solution, WORKSPACE)
    if found is None:
        say(1, f"{entry.solution} cannot be used here; the default algorithm is")
        return 0, 0
    return found.number, found.workspace_bytes
