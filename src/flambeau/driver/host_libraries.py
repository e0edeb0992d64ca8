# SPDX-License-Identifier: Apache-2.0
"""The libraries of the contract on memory of the host, with NumPy and SciPy.

Host tensors use them as they are: work is done when a call returns. Virtual GPUs, whose memory is
the host's too, queue the same calls.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from flambeau.driver.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from flambeau.driver.libraries import Call, Transform

__all__ = ["HostFft", "HostPlan", "HostSolver", "memory"]

Array = np.ndarray[Any, np.dtype[Any]]
_REAL_OF = {"complex64": "float32", "complex128": "float64"}


def memory(address: int, dtype: str, *shape: int) -> Array:
    """Memory at an address as a row-major array."""
    of = np.dtype(dtype)
    count = prod(shape)
    if count == 0 or address == 0:
        return np.empty(shape, of)
    data = (ctypes.c_char * (count * of.itemsize)).from_address(address)
    return np.ndarray(shape, of, buffer=memoryview(data))


def _matrices(address: int, dtype: str, batch: int, rows: int, columns: int) -> Array:
    """Column-major matrices as (batch, rows, columns)."""
    return memory(address, dtype, batch, columns, rows).swapaxes(1, 2)


def _lapack() -> Any:
    try:
        from scipy.linalg import lapack
    except ImportError as error:
        raise MissingExtraError(
            "This factorization needs SciPy. Install it with: pip install 'flambeau[virtual]'"
        ) from error
    return lapack


def _routine(name: str, dtype: str) -> Any:
    letter = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}[dtype]
    return getattr(_lapack(), letter + name)


def _each(*arrays: Array) -> Iterator[tuple[Any, ...]]:
    return zip(*arrays, strict=True)


def _eliminate(matrix: Array) -> int:
    """Factor in place without row exchanges; the number of the first pivot that is 0, or 0."""
    failed = 0
    with np.errstate(all="ignore"):
        for k in range(min(matrix.shape)):
            if matrix[k, k] == 0:
                failed = failed or k + 1
                continue
            matrix[k + 1 :, k] /= matrix[k, k]
            matrix[k + 1 :, k + 1 :] -= np.outer(matrix[k + 1 :, k], matrix[k, k + 1 :])
    return failed


class HostSolver:
    """See `flambeau.driver.libraries.Solver`; streams mean nothing here."""

    def handle(self, stream: int) -> int:
        """There is none."""
        return 0

    def lu_factor(
        self, call: Call, dtype: str, m: int, n: int, batch: int, a: int, pivots: int, info: int
    ) -> None:
        """``getrf``, or elimination without exchanges, which LAPACK does not have."""
        getrf = _routine("getrf", dtype)
        at, failed = memory(pivots, "int32", batch, min(m, n)), memory(info, "int32", batch)
        for i, matrix in enumerate(_matrices(a, dtype, batch, m, n)):
            if not pivots:
                failed[i] = _eliminate(matrix)
                continue
            matrix[...], found, status = getrf(np.array(matrix, order="F"))
            at[i], failed[i] = found + 1, max(0, status)

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
        getrs = _routine("getrs", dtype)
        factors, at = _matrices(lu, dtype, batch, n, n), memory(pivots, "int32", batch, n)
        for one, order, side in _each(factors, at, _matrices(b, dtype, batch, n, columns)):
            side[...] = getrs(one, order - 1, side, trans="NTC".index(operation))[0]

    def cholesky(
        self, call: Call, dtype: str, n: int, batch: int, a: int, info: int, upper: bool
    ) -> None:
        """``potrf``."""
        potrf = _routine("potrf", dtype)
        failed = memory(info, "int32", batch)
        for i, matrix in enumerate(_matrices(a, dtype, batch, n, n)):
            matrix[...], failed[i] = potrf(
                np.array(matrix, order="F"), lower=not upper, clean=False
            )

    def qr_factor(
        self, call: Call, dtype: str, m: int, n: int, batch: int, a: int, tau: int
    ) -> None:
        """``geqrf``."""
        geqrf = _routine("geqrf", dtype)
        factors = memory(tau, dtype, batch, min(m, n))
        for matrix, factor in _each(_matrices(a, dtype, batch, m, n), factors):
            matrix[...], factor[...] = geqrf(np.array(matrix, order="F"))[:2]

    def qr_form(
        self, call: Call, dtype: str, m: int, n: int, k: int, batch: int, a: int, tau: int
    ) -> None:
        """``orgqr`` and, for complex matrices, ``ungqr``."""
        form = _routine("ungqr" if dtype in _REAL_OF else "orgqr", dtype)
        factors = memory(tau, dtype, batch, k)
        for matrix, factor in _each(_matrices(a, dtype, batch, m, n), factors):
            matrix[...] = form(np.array(matrix, order="F"), factor)[0]

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
        """``gesdd``."""
        values, failed = (
            memory(s, _REAL_OF.get(dtype, dtype), batch, n),
            memory(info, "int32", batch),
        )
        failed[...] = 0
        columns = {"A": m, "S": n, "N": 0}[job]
        left, right = _matrices(u, dtype, batch, m, columns), _matrices(vh, dtype, batch, n, n)
        for i, matrix in enumerate(_matrices(a, dtype, batch, m, n)):
            try:
                if job == "N":
                    values[i] = np.linalg.svd(matrix, compute_uv=False)
                else:
                    left[i], values[i], right[i] = np.linalg.svd(matrix, full_matrices=job == "A")
            except np.linalg.LinAlgError:
                failed[i] = n
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
        """``syevd`` and, for complex matrices, ``heevd``."""
        found, failed = (
            memory(values, _REAL_OF.get(dtype, dtype), batch, n),
            memory(info, "int32", batch),
        )
        failed[...] = 0
        triangle = "U" if upper else "L"
        for i, matrix in enumerate(_matrices(a, dtype, batch, n, n)):
            try:
                if vectors:
                    found[i], matrix[...] = np.linalg.eigh(matrix, triangle)  # type: ignore[call-overload]
                else:
                    found[i] = np.linalg.eigvalsh(matrix, triangle)  # type: ignore[call-overload]
            except np.linalg.LinAlgError:
                failed[i] = n

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
        found, failed = memory(values, dtype, batch, n), memory(info, "int32", batch)
        failed[...] = 0
        right = _matrices(vectors, dtype, batch, n, n)
        for i, matrix in enumerate(_matrices(a, dtype, batch, n, n)):
            try:
                if vectors:
                    found[i], right[i] = np.linalg.eig(matrix)
                else:
                    found[i] = np.linalg.eigvals(matrix)
            except np.linalg.LinAlgError:
                failed[i] = n

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
        _lapack()
        from scipy.linalg import blas

        letter = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}[dtype]
        trsm = getattr(blas, f"{letter}trsm")
        trans = "NTC".index(operation)
        for matrix, side in _each(
            _matrices(a, dtype, batch, n, n), _matrices(b, dtype, batch, n, columns)
        ):
            side[...] = trsm(1, matrix, side, lower=not upper, trans_a=trans, diag=unit)


_COMPLEX_OF = {"float16": "complex64", "float32": "complex64", "float64": "complex128"}


class HostPlan:
    """A transform with NumPy; half numbers are computed in single precision.

    Parameters
    ----------
    transform
        What to transform.
    """

    workspace_bytes = 0

    def __init__(self, transform: Transform) -> None:
        self.transform = transform

    def arrays(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of one input and one output."""
        full = self.transform.sizes
        half = (*full[:-1], full[-1] // 2 + 1)
        return {"c2c": (full, full), "r2c": (full, half), "c2r": (half, full)}[self.transform.kind]

    def item_bytes(self) -> tuple[int, int]:
        """Bytes of an input's and an output's element."""
        real = np.dtype(self.transform.precision).itemsize
        kind = self.transform.kind
        return (real if kind == "r2c" else 2 * real), (real if kind == "c2r" else 2 * real)

    def execute(self, call: Call, input: int, output: int, forward: bool) -> None:
        """Transform now."""
        t = self.transform
        given, made = self.arrays()
        source = self._view(input, given, t.kind != "r2c")
        target = self._view(output, made, t.kind != "c2r")
        axes = tuple(range(1, len(t.sizes) + 1))
        found = _TRANSFORMS[t.kind](self._wide(source), t.sizes, axes, forward)
        target[...] = self._narrow(found, target) if t.precision == "float16" else found

    def _view(self, address: int, shape: tuple[int, ...], is_complex: bool) -> Array:
        t = self.transform
        if t.precision == "float16" and is_complex:
            return memory(address, "float16", t.batch, *shape, 2)
        dtype = _COMPLEX_OF[t.precision] if is_complex else t.precision
        return memory(address, dtype, t.batch, *shape)

    def _wide(self, values: NDArray[Any]) -> Array:
        t = self.transform
        if t.precision != "float16":
            return values
        wide = values.astype(np.float32)
        return wide.view(np.complex64)[..., 0] if t.kind != "r2c" else wide

    def _narrow(self, values: NDArray[Any], target: Array) -> Array:
        if self.transform.kind == "c2r":
            return values.astype(np.float16)
        single = np.ascontiguousarray(values.astype(np.complex64))
        return single.view(np.float32).reshape(target.shape).astype(np.float16)

    def destroy(self) -> None:
        """Nothing is kept."""


def _c2c(values: Array, sizes: tuple[int, ...], axes: tuple[int, ...], forward: bool) -> Array:
    return (
        np.fft.fftn(values, sizes, axes)
        if forward
        else np.fft.ifftn(values, sizes, axes, norm="forward")
    )


def _r2c(values: Array, sizes: tuple[int, ...], axes: tuple[int, ...], forward: bool) -> Array:
    return np.fft.rfftn(values, sizes, axes)


def _c2r(values: Array, sizes: tuple[int, ...], axes: tuple[int, ...], forward: bool) -> Array:
    return np.fft.irfftn(values, sizes, axes, norm="forward")


_TRANSFORMS = {"c2c": _c2c, "r2c": _r2c, "c2r": _c2r}


class HostFft:
    """See `flambeau.driver.libraries.Fft`."""

    def plan(self, transform: Transform) -> HostPlan:
        """Make a plan."""
        return HostPlan(transform)
