# SPDX-License-Identifier: Apache-2.0
"""How a product is named in results: as cuBLAS sees it, column-major, with its sides exchanged."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from flambeau.driver.libraries import GemmProblem
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from flambeau.cuda._tunable_settings import Mask

__all__ = ["describe", "key_of", "matches", "problem_of", "wild_key_of"]

_TF32, _BF16X9 = 1, 2
_KIND = 0xF
_NAMES = {
    "float16": "Half",
    "bfloat16": "BFloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()} | {"tf32": "float32", "bfx9": "float32"}
_OPERATION = re.compile(r"(Gemm|GemmStridedBatched|GemmAndBias)TunableOp_(.+)_([NT])([NTC])")
_PARAMETERS = re.compile(
    r"([ntNT])([ntcNTC])_(\d+)_(\d+)_(\d+)(?:_B_(\d+))?_ld_(\d+)_(\d+)_(\d+)(?:_compute_\w+)?"
)


def _type_name(problem: GemmProblem) -> str:
    name = _NAMES[_dtype.dtype_from_code(problem.dtype).name]
    if name == "float":
        return {_TF32: "tf32", _BF16X9: "bfx9"}.get(problem.compute & _KIND, name)
    return name


def key_of(problem: GemmProblem) -> tuple[str, str]:
    """Operation and parameters: ``GemmTunableOp_float_NN`` and ``nn_48_64_32_ld_48_32_48``."""
    return _key(problem, ("",) * 4)


def wild_key_of(problem: GemmProblem, mask: Mask) -> tuple[str, str]:
    """The same with ``*`` for open dimensions, and for leading dimensions that follow them."""
    return _key(problem, ("*" * mask.m, "*" * mask.n, "*" * mask.k, "*" * mask.batch))


def _key(problem: GemmProblem, open_: tuple[str, ...]) -> tuple[str, str]:
    wild_m, wild_n, wild_k, wild_batch = open_
    letters = ("T" if problem.transpose_b else "N") + ("T" if problem.transpose_a else "N")
    m, n, k = problem.n, problem.m, problem.k
    first = (wild_k, k) if problem.transpose_b else (wild_m, m)
    second = (wild_n, n) if problem.transpose_a else (wild_k, k)
    leading = (
        first[0] if problem.ldb == first[1] and first[0] else problem.ldb,
        second[0] if problem.lda == second[1] and second[0] else problem.lda,
        wild_m if problem.ldc == m and wild_m else problem.ldc,
    )
    operation = "GemmStridedBatched" if problem.batch > 1 else "Gemm"
    if problem.bias:
        operation = "GemmAndBias"
    sizes = f"{wild_m or m}_{wild_n or n}_{wild_k or k}"
    if problem.batch > 1:
        sizes += f"_B_{wild_batch or problem.batch}"
    tail = "_compute_bf16x9_r" if _type_name(problem) == "bfx9" else ""
    return (
        f"{operation}TunableOp_{_type_name(problem)}_{letters}",
        f"{letters.lower()}_{sizes}_ld_{leading[0]}_{leading[1]}_{leading[2]}{tail}",
    )


def matches(pattern: str, parameters: str) -> bool:
    """Whether parameters fit an entry with ``*`` in it, token by token."""
    wanted, given = pattern.split("_"), parameters.split("_")
    return len(wanted) == len(given) and all(
        w in {"*", g} for w, g in zip(wanted, given, strict=True)
    )


def problem_of(operation: str, parameters: str) -> GemmProblem | None:
    """The product that a line names; None if it is of a kind that flambeau does not compute."""
    operated, given = _OPERATION.fullmatch(operation), _PARAMETERS.fullmatch(parameters)
    if operated is None or given is None or operated[2] not in _DTYPES:
        return None
    m, n, k = (int(given[i]) for i in (3, 4, 5))
    batch = int(given[6] or 1)
    ldb, lda, ldc = (int(given[i]) for i in (7, 8, 9))
    transpose_b, transpose_a = (given[i].upper() != "N" for i in (1, 2))
    problem = GemmProblem(
        m=n,
        n=m,
        k=k,
        batch=batch,
        lda=lda,
        ldb=ldb,
        ldc=ldc,
        stride_a=0,
        stride_b=0,
        stride_c=0,
        transpose_a=int(transpose_a),
        transpose_b=int(transpose_b),
        dtype=_dtype.dtypes[_DTYPES[operated[2]]].code,
        compute={"tf32": _TF32, "bfx9": _BF16X9}.get(operated[2], 0),
        bias=int(operated[1] == "GemmAndBias"),
    )
    if batch == 1:
        return problem
    return replace(
        problem,
        stride_a=lda * (k if transpose_a else n),
        stride_b=ldb * (m if transpose_b else k),
        stride_c=ldc * n,
    )


def describe(problem: GemmProblem) -> str:
    """One product in words, for the log that ``BLAS_LOG`` asks for."""
    of = _dtype.dtype_from_code(problem.dtype).name
    return (
        f"{{ function: matmul, M: {problem.n}, N: {problem.m}, K: {problem.k}, "
        f"lda: {problem.ldb}, ldb: {problem.lda}, ldc: {problem.ldc}, "
        f"transA: {'NT'[problem.transpose_b]}, transB: {'NT'[problem.transpose_a]}, "
        f"batch_count: {problem.batch}, type: {of} }}"
    )
