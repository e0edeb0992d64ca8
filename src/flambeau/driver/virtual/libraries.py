# SPDX-License-Identifier: Apache-2.0
"""The math libraries of virtual GPUs: the host's, queued on streams, with modelled times.

Every call says which bytes it reads and writes, so that the checks see a library as they see a
kernel; in graphs and traces it is one kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.driver.libraries import Algorithm
from flambeau.driver.virtual import _machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.driver.host_libraries import HostPlan, HostSolver
    from flambeau.driver.libraries import Call, GemmProblem, Transform

__all__ = ["VirtualBlas", "VirtualFft", "VirtualLibraries", "VirtualSolver"]

_ITEM = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
_REAL_ITEM = {"float32": 4, "float64": 8, "complex64": 4, "complex128": 8}


class _Ranges:
    """What a call touches: ``(address, bytes, whether it writes)``."""

    def __init__(self) -> None:
        self.all: list[tuple[int, int, bool]] = []

    def reads(self, address: int, size: int) -> _Ranges:
        self.all.append((address, size, False))
        return self

    def writes(self, address: int, size: int) -> _Ranges:
        self.all.append((address, size, True))
        return self

    def updates(self, address: int, size: int) -> _Ranges:
        return self.reads(address, size).writes(address, size)

    def bytes(self) -> int:
        return sum(size for _, size, _ in self.all)


def _queue(
    name: str, call: Call, ranges: _Ranges, operations: float, function: Callable[[], object]
) -> None:
    _machine.submit_library_call(
        name, function, ranges.all, ranges.bytes(), operations, call.stream
    )


class VirtualSolver:
    """See `flambeau.driver.libraries.Solver`."""

    def __init__(self) -> None:
        from flambeau.driver.host_libraries import HostSolver

        self._host: HostSolver = HostSolver()

    def handle(self, stream: int) -> int:
        """A number of its own for each thread and device."""
        return _handle_of(self)

    def _submit(
        self, name: str, call: Call, ranges: _Ranges, operations: float, *arguments: Any
    ) -> None:
        method = getattr(self._host, name)
        _queue(f"solver_{name}", call, ranges, operations, lambda: method(call, *arguments))

    def lu_factor(
        self, call: Call, dtype: str, m: int, n: int, batch: int, a: int, pivots: int, info: int
    ) -> None:
        """``getrf``."""
        k = min(m, n)
        ranges = _Ranges().updates(a, batch * m * n * _ITEM[dtype])
        ranges.writes(pivots, 4 * batch * k if pivots else 0).writes(info, 4 * batch)
        arguments = (dtype, m, n, batch, a, pivots, info)
        self._submit("lu_factor", call, ranges, 2 / 3 * batch * m * n * k, *arguments)

    def lu_solve(
        self,
        call: Call,
        dtype: str,
        n: int,
        columns: int,
        batch: int,
        lu: int,
        pivots: int,
        b: int,
        operation: str,
    ) -> None:
        """``getrs``."""
        item = _ITEM[dtype]
        ranges = _Ranges().reads(lu, batch * n * n * item).reads(pivots, 4 * batch * n)
        ranges.updates(b, batch * n * columns * item)
        arguments = (dtype, n, columns, batch, lu, pivots, b, operation)
        self._submit("lu_solve", call, ranges, 2 * batch * n * n * columns, *arguments)

    def cholesky(
        self, call: Call, dtype: str, n: int, batch: int, a: int, info: int, upper: bool
    ) -> None:
        """``potrf``."""
        ranges = _Ranges().updates(a, batch * n * n * _ITEM[dtype]).writes(info, 4 * batch)
        arguments = (dtype, n, batch, a, info, upper)
        self._submit("cholesky", call, ranges, batch * n**3 / 3, *arguments)

    def qr_factor(
        self, call: Call, dtype: str, m: int, n: int, batch: int, a: int, tau: int
    ) -> None:
        """``geqrf``."""
        item = _ITEM[dtype]
        ranges = _Ranges().updates(a, batch * m * n * item)
        ranges.writes(tau, batch * min(m, n) * item)
        arguments = (dtype, m, n, batch, a, tau)
        self._submit("qr_factor", call, ranges, 2 * batch * m * n * min(m, n), *arguments)

    def qr_form(
        self, call: Call, dtype: str, m: int, n: int, k: int, batch: int, a: int, tau: int
    ) -> None:
        """``orgqr`` and ``ungqr``."""
        item = _ITEM[dtype]
        ranges = _Ranges().reads(a, batch * m * k * item).writes(a, batch * m * n * item)
        ranges.reads(tau, batch * k * item)
        arguments = (dtype, m, n, k, batch, a, tau)
        self._submit("qr_form", call, ranges, 2 * batch * m * n * k, *arguments)

    def svd(
        self,
        call: Call,
        dtype: str,
        m: int,
        n: int,
        batch: int,
        a: int,
        s: int,
        u: int,
        vh: int,
        info: int,
        job: str,
        method: str,
    ) -> bool:
        """``gesvd``."""
        item = _ITEM[dtype]
        columns = {"A": m, "S": n, "N": 0}[job]
        ranges = _Ranges().updates(a, batch * m * n * item)
        ranges.writes(s, batch * n * _REAL_ITEM[dtype]).writes(info, 4 * batch)
        if columns:
            ranges.writes(u, batch * m * columns * item).writes(vh, batch * n * n * item)
        arguments = (dtype, m, n, batch, a, s, u, vh, info, job, method)
        self._submit("svd", call, ranges, 12 * batch * m * n * n, *arguments)
        return False

    def eigh(
        self,
        call: Call,
        dtype: str,
        n: int,
        batch: int,
        a: int,
        values: int,
        info: int,
        upper: bool,
        vectors: bool,
    ) -> None:
        """``syevd`` and ``heevd``."""
        ranges = _Ranges().updates(a, batch * n * n * _ITEM[dtype])
        ranges.writes(values, batch * n * _REAL_ITEM[dtype]).writes(info, 4 * batch)
        arguments = (dtype, n, batch, a, values, info, upper, vectors)
        self._submit("eigh", call, ranges, (9 if vectors else 4 / 3) * batch * n**3, *arguments)

    def eig(
        self,
        call: Call,
        dtype: str,
        n: int,
        batch: int,
        a: int,
        values: int,
        vectors: int,
        info: int,
    ) -> None:
        """``geev``."""
        item = _ITEM[dtype]
        ranges = _Ranges().updates(a, batch * n * n * item).writes(values, batch * n * item)
        ranges.writes(info, 4 * batch)
        if vectors:
            ranges.writes(vectors, batch * n * n * item)
        arguments = (dtype, n, batch, a, values, vectors, info)
        self._submit("eig", call, ranges, 25 * batch * n**3, *arguments)

    def triangular_solve(
        self,
        call: Call,
        dtype: str,
        n: int,
        columns: int,
        batch: int,
        a: int,
        b: int,
        upper: bool,
        operation: str,
        unit: bool,
    ) -> None:
        """``trsm``."""
        item = _ITEM[dtype]
        ranges = _Ranges().reads(a, batch * n * n * item).updates(b, batch * n * columns * item)
        arguments = (dtype, n, columns, batch, a, b, upper, operation, unit)
        self._submit("triangular_solve", call, ranges, batch * n * n * columns, *arguments)


class _VirtualPlan:
    """A transform of the host, queued."""

    workspace_bytes = 0

    def __init__(self, host: HostPlan) -> None:
        self._host = host

    def execute(self, call: Call, input: int, output: int, forward: bool) -> None:
        """Queue the transform."""
        from math import log2, prod

        transform = self._host.transform
        given, made = self._host.arrays()
        read, written = self._host.item_bytes()
        ranges = _Ranges().reads(input, transform.batch * prod(given) * read)
        ranges.writes(output, transform.batch * prod(made) * written)
        count = prod(transform.sizes)
        operations = 5 * transform.batch * count * log2(max(2, count))
        _queue(
            f"fft_{transform.kind}",
            call,
            ranges,
            operations,
            lambda: self._host.execute(call, input, output, forward),
        )

    def destroy(self) -> None:
        """Nothing is kept."""


class VirtualFft:
    """See `flambeau.driver.libraries.Fft`."""

    def plan(self, transform: Transform) -> _VirtualPlan:
        """Make a plan."""
        from flambeau.driver.host_libraries import HostPlan

        return _VirtualPlan(HostPlan(transform))


_TILES = (64, 128, 256)
_SPLITS = (1, 2, 4, 8)
_FIRST = 2  # 0 is the default, 1 cuBLAS's own choice on NVIDIA GPUs
_NAME = "Gemm_Cublaslt_id_{}_tile_{}_stages_4_splitk_{}_red_{}_swizzle_0_custom_0_inner_0_cluster_0"


class VirtualBlas:
    """Algorithms that differ in their tiles and in how k is split, and so in their modelled times.

    They compute the same. A product's default algorithm has tiles of 128 x 128 and does not split.
    """

    def handle(self, stream: int) -> int:
        """A number of its own for each thread and device."""
        return _handle_of(self)

    def version(self) -> str:
        """The version of cuBLASLt that is imitated."""
        return "130500"

    def algorithms(
        self, problem: GemmProblem, requested: int, workspace_bytes: int
    ) -> list[Algorithm]:
        """At most `requested` that fit, fewer splits first."""
        fitting = (
            _algorithm(problem, tile, split)
            for split in range(len(_SPLITS))
            for tile in range(len(_TILES))
            if problem.k >= 32 * _SPLITS[split]
        )
        return [one for one in fitting if one.workspace_bytes <= workspace_bytes][:requested]

    def algorithm(self, problem: GemmProblem, name: str, workspace_bytes: int) -> Algorithm | None:
        """The algorithm of this name, if it can be used."""
        wanted = self.algorithms(problem, len(_TILES) * len(_SPLITS), workspace_bytes)
        return next((one for one in wanted if one.name == name), None)


def _algorithm(problem: GemmProblem, tile: int, split: int) -> Algorithm:
    number = _FIRST + split * len(_TILES) + tile
    parts = _SPLITS[split]
    scratch = 4 * problem.m * problem.n * problem.batch * parts if parts > 1 else 0
    name = _NAME.format(number, tile + 15, parts, 2 if parts > 1 else 0)
    return Algorithm(name, number, scratch)


def _handle_of(library: object) -> int:
    import threading

    from flambeau.driver.virtual import _calls

    return (hash((id(library), threading.get_ident(), _calls.ctx_get_device())) & 0x7FFFFFFF) << 4


class VirtualLibraries:
    """Each is loaded at first use."""

    def __init__(self) -> None:
        self.blas = VirtualBlas()
        self.fft = VirtualFft()
        self.solver = VirtualSolver()
