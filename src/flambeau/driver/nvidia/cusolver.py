# SPDX-License-Identifier: Apache-2.0
"""cuSOLVER's dense part, and cuBLAS where it has the batched form.

Batches of small matrices go to a batched function; large ones are worth a call each.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_byte, c_int, c_int64, c_size_t, c_void_p
from typing import TYPE_CHECKING, NamedTuple

from flambeau.driver.nvidia import _nvidia
from flambeau.driver.nvidia._shared_library import SharedLibrary
from flambeau.driver.nvidia.cublas import CUBLAS

if TYPE_CHECKING:
    from flambeau.driver.libraries import Call

__all__ = ["NvidiaSolver"]

_CUSOLVER = SharedLibrary(
    "cusolver",
    {
        1: "CUSOLVER_STATUS_NOT_INITIALIZED",
        2: "CUSOLVER_STATUS_ALLOC_FAILED",
        3: "CUSOLVER_STATUS_INVALID_VALUE",
        4: "CUSOLVER_STATUS_ARCH_MISMATCH",
        6: "CUSOLVER_STATUS_EXECUTION_FAILED",
        7: "CUSOLVER_STATUS_INTERNAL_ERROR",
        8: "CUSOLVER_STATUS_MATRIX_TYPE_NOT_SUPPORTED",
        9: "CUSOLVER_STATUS_NOT_SUPPORTED",
    },
)


class _Type(NamedTuple):
    letter: str  # of the function's name
    item: int  # bytes
    code: int  # cudaDataType
    real: int  # cudaDataType of its real numbers
    real_item: int


_TYPES = {
    "float32": _Type("S", 4, 0, 0, 4),
    "float64": _Type("D", 8, 1, 1, 8),
    "complex64": _Type("C", 8, 4, 0, 4),
    "complex128": _Type("Z", 16, 5, 1, 8),
}
_OPERATIONS = {"N": 0, "T": 1, "C": 2}
_LOWER, _UPPER = 0, 1
_BATCHED_UP_TO, _QR_BATCHED_UP_TO, _JACOBI_BATCHED_UP_TO = 512, 256, 32  # rows


class _Svd(NamedTuple):
    """Matrices to decompose, and where the parts go; `v` gets V or its conjugate transpose."""

    type: _Type
    m: int
    n: int
    batch: int
    a: int
    s: int
    u: int
    v: int
    info: int
    job: str

    def with_room(self, call: Call, batch: int, columns: int) -> _Svd:
        """The same with scratch memory for vectors that nobody wants; functions ask for it."""
        if self.job != "N":
            return self
        u = call.scratch(batch * self.m * columns * self.type.item, "u")
        return self._replace(u=u, v=call.scratch(batch * self.n**2 * self.type.item, "v"))

    def each(self) -> list[tuple[c_void_p, ...]]:
        """The addresses of each matrix and of its parts."""
        item, columns = self.type.item, {"A": self.m, "S": self.n, "N": 0}[self.job]
        steps = (
            (self.a, self.m * self.n * item),
            (self.s, self.n * self.type.real_item),
            (self.u, self.m * columns * item),
            (self.v, (self.n * self.n if columns else 0) * item),
            (self.info, 4),
        )
        return [tuple(c_void_p(at) for at in one) for one in _each(self.batch, *steps)]


class _Handles:
    """One thread's handles by device; other threads get them when it has ended."""

    def __init__(self, pool: dict[int, list[int]]) -> None:
        self.of: dict[int, int] = {}
        self._pool = pool

    def __del__(self) -> None:
        for device, handle in self.of.items():
            self._pool.setdefault(device, []).append(handle)


class NvidiaSolver:
    """See `flambeau.driver.libraries.Solver`."""

    def __init__(self) -> None:
        self._pool: dict[int, list[int]] = {}
        self._mine = threading.local()
        self._parameters: c_void_p | None = None
        self._jacobi: c_void_p | None = None

    def handle(self, stream: int) -> int:
        """The thread's handle for the current device."""
        handles = getattr(self._mine, "handles", None)
        if handles is None:
            handles = self._mine.handles = _Handles(self._pool)
        device = _nvidia.current_device()
        handle = handles.of.get(device)
        if handle is None:
            free = self._pool.get(device)
            handle = free.pop() if free else _create()
            handles.of[device] = handle
        _CUSOLVER.call("cusolverDnSetStream", c_void_p(handle), c_void_p(stream))
        return int(handle)

    def _run(
        self,
        call: Call,
        name: str,
        type_: _Type,
        sizing: tuple[object, ...],
        *arguments: object,
        after: tuple[object, ...] = (),
    ) -> None:
        """Call a function of the older interface, whose scratch memory counts elements.

        `sizing` goes to its ``_bufferSize``, before where the size is put, and `after` behind that;
        ``_WORK`` among the arguments becomes the scratch memory and its size.
        """
        handle = c_void_p(self.handle(call.stream))
        size = c_int(0)
        symbol = f"cusolverDn{type_.letter}{name}"
        _CUSOLVER.call(f"{symbol}_bufferSize", handle, *sizing, byref(size), *after)
        work = c_void_p(call.scratch(max(1, size.value) * type_.item))
        given: list[object] = []
        for argument in arguments:
            given.extend((work, size) if argument is _WORK else [argument])
        _CUSOLVER.call(symbol, handle, *given)

    def _jacobi_settings(self) -> c_void_p:
        """Settings of Jacobi's method as the library has them at first."""
        if self._jacobi is None:
            made = c_void_p(0)
            _CUSOLVER.call("cusolverDnCreateGesvdjInfo", byref(made))
            self._jacobi = made
        return self._jacobi

    def _run_generic(
        self, call: Call, name: str, sizing: tuple[object, ...], *tail: object
    ) -> None:
        """Call a function of the 64-bit interface, with scratch memory on both sides."""
        handle = c_void_p(self.handle(call.stream))
        if self._parameters is None:
            made = c_void_p(0)
            _CUSOLVER.call("cusolverDnCreateParams", byref(made))
            self._parameters = made
        device, host = c_size_t(0), c_size_t(0)
        batch = tail[1:]
        first = (handle, self._parameters, *sizing)
        _CUSOLVER.call(f"cusolverDn{name}_bufferSize", *first, byref(device), byref(host), *batch)
        scratch = c_void_p(call.scratch(max(1, device.value)))
        on_host = ctypes.create_string_buffer(max(1, host.value))
        _CUSOLVER.call(f"cusolverDn{name}", *first, scratch, device, on_host, host, *tail)

    def lu_factor(
        self, call: Call, dtype: str, m: int, n: int, batch: int, a: int, pivots: int, info: int
    ) -> None:
        """``getrf``, or cuBLAS's batched form."""
        type_ = _TYPES[dtype]
        if batch > 1 and m == n <= _BATCHED_UP_TO:
            matrices = call.addresses(a, n * n * type_.item, batch)
            self._blas(call, type_, "getrfBatched", n, c_void_p(matrices), n, c_void_p(pivots),
                       c_void_p(info), batch)  # fmt: skip
            return
        for one_a, one_pivots, one_info in _each(
            batch, (a, m * n * type_.item), (pivots, min(m, n) * 4 if pivots else 0), (info, 4)
        ):
            at = c_void_p(one_a)
            handle = c_void_p(self.handle(call.stream))
            size = c_int(0)
            symbol = f"cusolverDn{type_.letter}getrf"
            _CUSOLVER.call(f"{symbol}_bufferSize", handle, m, n, at, m, byref(size))
            work = c_void_p(call.scratch(max(1, size.value) * type_.item))
            _CUSOLVER.call(
                symbol, handle, m, n, at, m, work, c_void_p(one_pivots), c_void_p(one_info)
            )

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
        """``getrs``, or cuBLAS's batched form."""
        type_, op = _TYPES[dtype], _OPERATIONS[operation]
        if batch > 1 and n <= _BATCHED_UP_TO:
            factors = call.addresses(lu, n * n * type_.item, batch)
            sides = call.addresses(b, n * columns * type_.item, batch)
            wrong = c_int(0)
            self._blas(call, type_, "getrsBatched", op, n, columns, c_void_p(factors), n,
                       c_void_p(pivots), c_void_p(sides), n, byref(wrong), batch)  # fmt: skip
            return
        info = c_void_p(call.scratch(4, "info"))
        for one_lu, one_pivots, one_b in _each(
            batch, (lu, n * n * type_.item), (pivots, n * 4), (b, n * columns * type_.item)
        ):
            handle = c_void_p(self.handle(call.stream))
            symbol = f"cusolverDn{type_.letter}getrs"
            _CUSOLVER.call(symbol, handle, op, n, columns, c_void_p(one_lu), n,
                           c_void_p(one_pivots), c_void_p(one_b), n, info)  # fmt: skip

    def cholesky(
        self, call: Call, dtype: str, n: int, batch: int, a: int, info: int, upper: bool
    ) -> None:
        """``potrf``, or its batched form."""
        type_, fill = _TYPES[dtype], _UPPER if upper else _LOWER
        if batch > 1 and n <= _BATCHED_UP_TO:
            matrices = call.addresses(a, n * n * type_.item, batch)
            handle = c_void_p(self.handle(call.stream))
            _CUSOLVER.call(f"cusolverDn{type_.letter}potrfBatched", handle, fill, n,
                           c_void_p(matrices), n, c_void_p(info), batch)  # fmt: skip
            return
        for one_a, one_info in _each(batch, (a, n * n * type_.item), (info, 4)):
            matrix = (fill, n, c_void_p(one_a), n)
            self._run(call, "potrf", type_, matrix, *matrix, _WORK, c_void_p(one_info))

    def qr_factor(
        self, call: Call, dtype: str, m: int, n: int, batch: int, a: int, tau: int
    ) -> None:
        """``geqrf``, or cuBLAS's batched form."""
        type_ = _TYPES[dtype]
        least = min(m, n)
        # The batched form makes NaN of complex columns that are zero.
        if (
            type_.real_item == type_.item
            and batch >= max(2, least // 16)
            and least <= _QR_BATCHED_UP_TO
        ):
            addresses = call.addresses(a, m * n * type_.item, batch)
            factors = call.addresses(tau, least * type_.item, batch)
            wrong = c_int(0)
            self._blas(call, type_, "geqrfBatched", m, n, c_void_p(addresses), m,
                       c_void_p(factors), byref(wrong), batch)  # fmt: skip
            return
        info = c_void_p(call.scratch(4, "info"))
        steps = ((a, m * n * type_.item), (tau, min(m, n) * type_.item))
        for one_a, one_tau in _each(batch, *steps):
            matrix = (m, n, c_void_p(one_a), m)
            self._run(call, "geqrf", type_, matrix, *matrix, c_void_p(one_tau), _WORK, info)

    def qr_form(
        self, call: Call, dtype: str, m: int, n: int, k: int, batch: int, a: int, tau: int
    ) -> None:
        """``orgqr`` and, for complex matrices, ``ungqr``."""
        type_ = _TYPES[dtype]
        name = "orgqr" if type_.letter in "SD" else "ungqr"
        info = c_void_p(call.scratch(4, "info"))
        for one_a, one_tau in _each(batch, (a, m * n * type_.item), (tau, k * type_.item)):
            matrix = (m, n, k, c_void_p(one_a), m, c_void_p(one_tau))
            self._run(call, name, type_, matrix, *matrix, _WORK, info)

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
        """``gesvd``, ``gesvdj`` and ``gesvda``, the latter two with batched forms."""
        type_ = _TYPES[dtype]
        of = _Svd(type_, m, n, batch, a, s, u, vh, info, job)
        if method == "gesvd":
            self._svd_by_iteration(call, of)
            return False
        whole = job != "S" or m == n
        if method == "gesvda" and (job != "A" or m == n):
            self._svd_approximate(call, of.with_room(call, batch, n))
        elif batch > 1 and m <= _JACOBI_BATCHED_UP_TO and whole:
            self._svd_of_many(call, of.with_room(call, batch, m))
        else:
            self._svd_by_rotations(call, of.with_room(call, 1, n))
        return True

    def _svd_by_iteration(self, call: Call, of: _Svd) -> None:
        """``gesvd``."""
        letter = c_byte(ord(of.job))
        real_work = c_void_p(call.scratch(max(1, of.n) * of.type.real_item, "real"))
        for a, s, u, vh, info in of.each():
            matrix = (letter, letter, of.m, of.n, a, of.m, s)
            tail = (_WORK, real_work, info)
            self._run(call, "gesvd", of.type, (of.m, of.n), *matrix, u, of.m, vh, of.n, *tail)

    def _svd_by_rotations(self, call: Call, of: _Svd) -> None:
        """``gesvdj``."""
        settings = self._jacobi_settings()
        for a, s, u, v, info in of.each():
            matrix = (int(of.job != "N"), int(of.job != "A"), of.m, of.n, a, of.m, s, u, of.m, v,
                      of.n)  # fmt: skip
            tail = (_WORK, info, settings)
            self._run(call, "gesvdj", of.type, matrix, *matrix, *tail, after=(settings,))

    def _svd_of_many(self, call: Call, of: _Svd) -> None:
        """``gesvdjBatched``."""
        after = (self._jacobi_settings(), of.batch)
        a, s, u, v, info = (c_void_p(at) for at in (of.a, of.s, of.u, of.v, of.info))
        matrices = (int(of.job != "N"), of.m, of.n, a, of.m, s, u, of.m, v, of.n)
        tail = (_WORK, info, *after)
        self._run(call, "gesvdjBatched", of.type, matrices, *matrices, *tail, after=after)

    def _svd_approximate(self, call: Call, of: _Svd) -> None:
        """``gesvdaStridedBatched``."""
        m, n = of.m, of.n
        a, s, u, v, info = (c_void_p(at) for at in (of.a, of.s, of.u, of.v, of.info))
        matrices = (int(of.job != "N"), n, m, n, a, m, c_int64(m * n), s, c_int64(n), u, m,
                    c_int64(m * n), v, n, c_int64(n * n))  # fmt: skip
        residuals = (ctypes.c_double * of.batch)()
        tail = (_WORK, info, residuals, of.batch)
        after = (of.batch,)
        self._run(call, "gesvdaStridedBatched", of.type, matrices, *matrices, *tail, after=after)

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
        """``syevd``, ``heevd`` or, for small matrices, ``XsyevBatched``."""
        type_ = _TYPES[dtype]
        mode, fill = int(vectors), _UPPER if upper else _LOWER
        if batch > 1 and n <= _BATCHED_UP_TO:
            generic = (mode, fill, c_int64(n), type_.code, c_void_p(a), c_int64(n), type_.real,
                      c_void_p(values), type_.code)  # fmt: skip
            self._run_generic(call, "XsyevBatched", generic, c_void_p(info), c_int64(batch))
            return
        name = "syevd" if type_.letter in "SD" else "heevd"
        for one_a, one_values, one_info in _each(
            batch, (a, n * n * type_.item), (values, n * type_.real_item), (info, 4)
        ):
            matrix = (mode, fill, n, c_void_p(one_a), n, c_void_p(one_values))
            self._run(call, name, type_, matrix, *matrix, _WORK, c_void_p(one_info))

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
        """``Xgeev``."""
        type_ = _TYPES[dtype]
        step = n * n * type_.item if vectors else 0
        for one_a, one_values, one_vectors, one_info in _each(
            batch, (a, n * n * type_.item), (values, n * type_.item), (vectors, step), (info, 4)
        ):
            right = (type_.code, c_void_p(one_vectors), c_int64(n))
            mode = int(bool(one_vectors))
            matrix = (0, mode, c_int64(n), type_.code, c_void_p(one_a), c_int64(n),
                      type_.code, c_void_p(one_values), type_.code, c_void_p(0), c_int64(n), *right,
                      type_.code)  # fmt: skip
            self._run_generic(call, "Xgeev", matrix, c_void_p(one_info))

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
        """``trsm`` and its batched form."""
        type_ = _TYPES[dtype]
        real = ctypes.c_float if type_.real_item == 4 else ctypes.c_double
        one = (real * 2)(1, 0)
        shape = (0, _UPPER if upper else _LOWER, _OPERATIONS[operation], int(unit), n, columns, one)
        if batch == 1:
            self._blas(call, type_, "trsm_v2", *shape, c_void_p(a), n, c_void_p(b), n)
            return
        factors = call.addresses(a, n * n * type_.item, batch)
        sides = call.addresses(b, n * columns * type_.item, batch)
        self._blas(call, type_, "trsmBatched", *shape, c_void_p(factors), n, c_void_p(sides), n,
                   batch)  # fmt: skip

    def _blas(self, call: Call, type_: _Type, name: str, *arguments: object) -> None:
        handle = c_void_p(_nvidia.blas_handle(call.stream))
        CUBLAS.call(f"cublas{type_.letter}{name}", handle, *arguments)


_WORK = object()


def _create() -> int:
    made = c_void_p(0)
    _CUSOLVER.call("cusolverDnCreate", byref(made))
    assert made.value is not None
    return made.value


def _each(batch: int, *starts: tuple[int, int]) -> list[tuple[int, ...]]:
    """For each matrix of a batch the addresses that begin at `starts` and grow by their steps."""
    return [tuple(first + i * step for first, step in starts) for i in range(batch)]
