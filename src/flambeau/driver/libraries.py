# SPDX-License-Identifier: Apache-2.0
"""The contract's libraries: matrix products' algorithms, solvers and Fourier transforms.

Matrices are column-major without gaps, batches of them one after the other, as LAPACK and cuSOLVER
want them. All addresses are of device memory. Every call is queued on the call's stream, in the
context of the calling thread, and returns at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["Algorithm", "Blas", "Call", "Fft", "GemmProblem", "Libraries", "Solver", "Transform"]

RealOrComplex = Literal["float32", "float64", "complex64", "complex128"]


class Call(Protocol):
    """Where a library works, and memory that lives until its work is done."""

    @property
    def stream(self) -> int:
        """The ``CUstream`` of the current context that takes the work."""

    def scratch(self, size: int, use: str = "work") -> int:
        """Address of `size` bytes of device memory; the same memory again for the same use."""

    def addresses(self, first: int, step: int, count: int) -> int:
        """Address of `count` pointers, `step` bytes apart, in device memory."""


class Solver(Protocol):
    """Factorizations (cuSOLVER's dense part, and what of it cuBLAS has).

    `dtype` is that of the matrices; ``info`` has an int32 for each: 0, or LAPACK's positive number
    of the pivot, minor or value that failed.
    """

    def handle(self, stream: int) -> int:
        """The thread's ``cusolverDnHandle_t`` for the current device, set to a stream."""

    def lu_factor(
        self, call: Call, dtype: str, m: int, n: int, batch: int, a: int, pivots: int, info: int
    ) -> None:
        """Factor (m, n) matrices in place with row exchanges; int32 pivots count from 1.

        Where `pivots` is 0 no rows are exchanged.
        """

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
        """Solve in place of `b` with `lu_factor`'s result: ``"N"``, ``"T"`` or ``"C"``."""

    def cholesky(
        self, call: Call, dtype: str, n: int, batch: int, a: int, info: int, upper: bool
    ) -> None:
        """Factor Hermitian matrices in place; the other triangle is left as it was."""

    def qr_factor(
        self, call: Call, dtype: str, m: int, n: int, batch: int, a: int, tau: int
    ) -> None:
        """Replace by R and Householder vectors, with min(m, n) factors in `tau`."""

    def qr_form(
        self, call: Call, dtype: str, m: int, n: int, k: int, batch: int, a: int, tau: int
    ) -> None:
        """Make the first n columns of Q, in place of the k Householder vectors."""

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
        """Decompose (m, n) matrices with m >= n, which are destroyed.

        `job` is ``"A"`` for all of U (m, m), ``"S"`` for its first n columns, ``"N"`` for values.
        `method` is ``"gesvd"`` (QR iteration), ``"gesvdj"`` (Jacobi) or ``"gesvda"``
        (approximate, for batches of narrow matrices); where there is only one way it means nothing.

        Returns
        -------
        bool
            Whether `vh` got V itself rather than its conjugate transpose.
        """

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
        """Eigenvalues of Hermitian matrices, ascending; eigenvectors in place of the matrices."""

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
        """Complex eigenvalues and right eigenvectors of complex matrices, which are destroyed.

        `vectors` is 0 where only values are wanted.
        """

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
        """Solve ``op(A) X = B`` in place of B; `operation` is ``"N"``, ``"T"`` or ``"C"``."""


@dataclass(frozen=True, slots=True)
class Transform:
    """What a plan transforms: batches of contiguous arrays, the last dimensions of each.

    Parameters
    ----------
    kind
        ``"c2c"``, ``"r2c"`` or ``"c2r"``; complex arrays of real ones have n // 2 + 1 in the last
        dimension.
    precision
        Of the real numbers: ``"float16"``, ``"float32"`` or ``"float64"``.
    sizes
        1 to 3 lengths, of the real or the full array.
    batch
        How many.
    """

    kind: Literal["c2c", "r2c", "c2r"]
    precision: str
    sizes: tuple[int, ...]
    batch: int


class Plan(Protocol):
    """A prepared transform (a ``cufftHandle``)."""

    @property
    def workspace_bytes(self) -> int:
        """Scratch memory for one execution."""

    def execute(self, call: Call, input: int, output: int, forward: bool) -> None:
        """Transform without scaling; ``"c2r"`` may destroy its input.

        Real input always goes forward and real output comes from going backward.
        """

    def destroy(self) -> None:
        """Give the plan back; work that it queued still runs."""


class Fft(Protocol):
    """Fourier transforms (cuFFT)."""

    def plan(self, transform: Transform) -> Plan:
        """Make a plan on the current device."""


@dataclass(frozen=True, slots=True)
class GemmProblem:
    """A matrix product without its addresses and factors, as ``GemmArgs`` has it."""

    m: int
    n: int
    k: int
    batch: int
    lda: int
    ldb: int
    ldc: int
    stride_a: int
    stride_b: int
    stride_c: int
    transpose_a: int
    transpose_b: int
    dtype: int
    compute: int
    bias: int = 0  # whether a vector is added to every row


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to compute a matrix product.

    Parameters
    ----------
    name
        The same in every process with this library on this kind of GPU.
    number
        What ``GemmArgs::compute`` carries, in this process: 0 for what the table's Gemm takes when
        nothing is asked for, 1 for what the library's plainest function would take.
    workspace_bytes
        Scratch memory it needs.
    """

    name: str
    number: int
    workspace_bytes: int


class Blas(Protocol):
    """Matrix products beside the table's Gemm (cuBLAS and cuBLASLt)."""

    def handle(self, stream: int) -> int:
        """The thread's ``cublasHandle_t`` for the current device, set to a stream."""

    def version(self) -> str:
        """The version of the library that chooses algorithms."""

    def algorithms(
        self, problem: GemmProblem, requested: int, workspace_bytes: int
    ) -> list[Algorithm]:
        """Algorithms for a product, the library's favourites first."""

    def algorithm(self, problem: GemmProblem, name: str, workspace_bytes: int) -> Algorithm | None:
        """The algorithm of this name; None if this library or GPU cannot use it."""


class Libraries(Protocol):
    """The math libraries of one driver, each loaded at first use."""

    @property
    def blas(self) -> Blas:
        """Matrix products."""

    @property
    def solver(self) -> Solver:
        """Factorizations."""

    @property
    def fft(self) -> Fft:
        """Fourier transforms."""
