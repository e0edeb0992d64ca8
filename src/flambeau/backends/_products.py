# SPDX-License-Identifier: Apache-2.0
"""Switches of matrix products: sums of half types, the preferred library, scratch memory."""

from __future__ import annotations

import enum
import os
import re
import warnings
from typing import Any

from flambeau.backends import _precision
from flambeau.runtime import _dtype, _matmul

__all__ = [
    "blas_workspace_size",
    "cuBLASModule",
    "cublas_workspace_size",
    "cublaslt_workspace_size",
    "preferred_blas_library",
    "preferred_linalg_library",
    "preferred_rocm_fa_library",
]

# Of gemm_options.hpp.
_HALF_SUMS, _WIDE_REDUCTION, _ONE_PASS = 3, 0x10, 0x20
_CUBLAS_ALGORITHM = 1 << 8
_ALGORITHM = ~0xFF
_FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


class _HalfSwitches:
    """Whether partial sums of a half type may be half, and whether k may be split."""

    def __init__(self) -> None:
        self.reduced = {"float16": (True, True), "bfloat16": (True, True)}
        self.half_sums = False
        self.grouped_cublaslt = False

    def apply(self) -> None:
        for name, (reduced, split) in self.reduced.items():
            code = _dtype.dtypes[name].code
            bits = _matmul.get_compute(code) & _ALGORITHM
            bits |= 0 if reduced else _WIDE_REDUCTION
            bits |= 0 if split else _ONE_PASS
            bits |= _HALF_SUMS if name == "float16" and self.half_sums else 0
            _matmul.set_compute(code, bits)


_half = _HalfSwitches()


def _pair(value: Any, name: str) -> tuple[bool, bool]:
    pair = (value, True) if isinstance(value, bool) else value
    if not (isinstance(pair, tuple) and len(pair) == 2 and all(type(x) is bool for x in pair)):
        raise TypeError(f"{name} is a bool or a pair (allow, allow_splitk) of bools, got {value!r}")
    allow, split = pair
    if allow and not split:
        raise RuntimeError(f"{name}=True with allow_splitk=False is not supported")
    return allow, split


class cuBLASModule:  # noqa: N801 - torch's name
    """What steers matrix products: the type of `matmul`, not to be made by users.

    Attributes
    ----------
    allow_tf32 : bool
        Whether float32 products may round their operands to tf32.
    fp32_precision : str
        ``"none"``, ``"ieee"``, ``"tf32"`` or ``"bfx9"``.
    allow_fp16_reduced_precision_reduction, allow_bf16_reduced_precision_reduction : bool
        Whether partial sums of a product that is split along k may be of the half type. A pair
        ``(False, False)`` also forbids splitting; the second part reads as ``..._split_k``.
    allow_fp16_accumulation : bool
        Whether float16 products may be summed in float16.
    prefer_cublaslt_grouped_gemm : bool
        Whether grouped products go to cuBLASLt.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.matmul.allow_fp16_accumulation
    False
    """

    def __getattr__(self, name: str) -> Any:
        if name == "allow_tf32":
            return _precision.allow_matmul_tf32()
        if name == "fp32_precision":
            return _precision.get_precision("cuda", "matmul")
        if name == "allow_fp16_accumulation":
            return _half.half_sums
        if name == "prefer_cublaslt_grouped_gemm":
            return _half.grouped_cublaslt
        found = _REDUCTION.fullmatch(name)
        if found is None:
            raise AttributeError(f"Unknown attribute {name}")
        return _half.reduced[_HALF[found[1]]][1 if found[2] else 0]

    def __setattr__(self, name: str, value: Any) -> None:
        found = _REDUCTION.fullmatch(name)
        if name == "allow_tf32":
            _precision.set_allow_matmul_tf32(bool(value))
        elif name == "fp32_precision":
            _precision.set_precision("cuda", "matmul", value)
        elif name == "allow_fp16_accumulation":
            _half.half_sums = bool(value)
        elif name == "prefer_cublaslt_grouped_gemm":
            _half.grouped_cublaslt = bool(value)
        elif found is None:
            raise AttributeError(f"Unknown attribute {name}")
        elif found[2]:
            raise AttributeError(
                f"{name} is read-only: set {name.removesuffix('_split_k')} to a pair"
            )
        else:
            _half.reduced[_HALF[found[1]]] = _pair(value, name)
        _half.apply()


_REDUCTION = re.compile(r"allow_(fp16|bf16)_reduced_precision_reduction(_split_k)?")
_HALF = {"fp16": "float16", "bf16": "bfloat16"}


# -- libraries -----------------------------------------------------------------------------------


class _BlasBackend(enum.Enum):
    Default = "default"
    Cublas = "cublas"
    Cublaslt = "cublaslt"
    Ck = "ck"

    def __str__(self) -> str:
        return f"_BlasBackend.{self.name}"

    __repr__ = __str__


class _LinalgBackend(enum.Enum):
    Default = "default"
    Cusolver = "cusolver"
    Magma = "magma"

    def __str__(self) -> str:
        return f"_LinalgBackend.{self.name}"

    __repr__ = __str__


class _ROCmFABackend(enum.Enum):
    Default = "default"
    AOTriton = "aotriton"
    Ck = "ck"

    def __str__(self) -> str:
        return f"_ROCmFABackend.{self.name}"

    __repr__ = __str__


_BLAS_NAMES = {
    "default": _BlasBackend.Default,
    "cublas": _BlasBackend.Cublas,
    "hipblas": _BlasBackend.Cublas,
    "cublaslt": _BlasBackend.Cublaslt,
    "hipblaslt": _BlasBackend.Cublaslt,
    "ck": _BlasBackend.Ck,
}
_LINALG_NAMES = {one.value: one for one in _LinalgBackend}
_ROCM_NAMES = {one.value: one for one in _ROCmFABackend}


def _prefers(variable: str) -> bool:
    return os.environ.get(variable) == "1"


_blas = _BlasBackend.Cublaslt if _prefers("TORCH_BLAS_PREFER_CUBLASLT") else _BlasBackend.Default
_linalg = (
    _LinalgBackend.Cusolver if _prefers("TORCH_LINALG_PREFER_CUSOLVER") else _LinalgBackend.Default
)
_rocm = _ROCmFABackend.Default
_matmul.set_plain_cublaslt(_blas is _BlasBackend.Cublaslt)


def _chosen(backend: Any, names: dict[str, Any], kind: type[enum.Enum]) -> Any:
    if isinstance(backend, kind):
        return backend
    if isinstance(backend, str):
        found = names.get(backend.lower())
        if found is not None:
            return found
        raise RuntimeError(f"Unknown input value. Choose from: {', '.join(names)}.")
    raise RuntimeError(
        f"Unknown input value type {type(backend)}: give a str. Choose from: {', '.join(names)}."
    )


def preferred_blas_library(backend: Any = None) -> _BlasBackend:
    """Read or set which library computes matrix products.

    Parameters
    ----------
    backend
        ``"default"``: cuBLASLt with as much scratch memory as cuBLAS has; ``"cublaslt"``: cuBLASLt
        with the scratch memory of `cublaslt_workspace_size`; ``"cublas"``: cuBLAS, which chooses
        algorithms itself. None only reads.

    Returns
    -------
    _BlasBackend
        The choice.

    Raises
    ------
    RuntimeError
        There is no such library, or flambeau does not use it (``"ck"``).

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.preferred_blas_library("cublaslt")
    _BlasBackend.Cublaslt
    >>> torch.backends.cuda.preferred_blas_library("default")
    _BlasBackend.Default
    """
    global _blas
    if backend is not None:
        chosen = _chosen(backend, _BLAS_NAMES, _BlasBackend)
        if chosen is _BlasBackend.Ck:
            raise RuntimeError(
                "Cannot set preferred blas backend to CK: it is a library of AMD GPUs. Use "
                "'cublas' or 'cublaslt'."
            )
        _blas = chosen
        _matmul.set_plain_cublaslt(chosen is _BlasBackend.Cublaslt)
        number = _CUBLAS_ALGORITHM if chosen is _BlasBackend.Cublas else 0
        for name in _FLOATS:
            code = _dtype.dtypes[name].code
            _matmul.set_compute(code, _matmul.get_compute(code) & ~_ALGORITHM | number)
    return _blas


def preferred_linalg_library(backend: Any = None) -> _LinalgBackend:
    """Read or set which library factors matrices.

    Parameters
    ----------
    backend
        ``"default"`` and ``"cusolver"``: cuSOLVER. None only reads.

    Returns
    -------
    _LinalgBackend
        The choice.

    Raises
    ------
    RuntimeError
        There is no such library, or flambeau does not use it (``"magma"``).

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.preferred_linalg_library()
    _LinalgBackend.Default
    """
    global _linalg
    if backend is not None:
        chosen = _chosen(backend, _LINALG_NAMES, _LinalgBackend)
        if chosen is _LinalgBackend.Magma:
            raise RuntimeError(
                "Cannot set preferred linalg backend to MAGMA: flambeau has none. Use 'cusolver'."
            )
        _linalg = chosen
    return _linalg


def preferred_rocm_fa_library(backend: Any = None) -> _ROCmFABackend:
    """Read or set the attention library of AMD GPUs, which flambeau does not run on.

    Parameters
    ----------
    backend
        ``"default"``; ``"aotriton"`` and ``"ck"`` are kept and mean nothing. None only reads.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.preferred_rocm_fa_library()
    _ROCmFABackend.Default
    """
    global _rocm
    if backend is not None:
        _rocm = _chosen(backend, _ROCM_NAMES, _ROCmFABackend)
    return _rocm


# -- scratch memory ------------------------------------------------------------------------------

_KIB = 1 << 10
_cublas_bytes: int | None = None


def _parsed_config(text: str) -> int | None:
    """Bytes of ``:KiB:COUNT`` repeated; None if it is something else."""
    if not re.fullmatch(r"(:\d+:\d+)+", text):
        return None
    numbers = [int(part) for part in text.split(":")[1:]]
    return sum(size * count for size, count in zip(numbers[::2], numbers[1::2], strict=True)) * _KIB


def _default_cublas_bytes() -> int:
    text = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    if text:
        parsed = _parsed_config(text)
        if parsed is not None:
            return parsed
        warnings.warn(
            f"Could not parse CUBLAS_WORKSPACE_CONFIG, which is {text!r}: it should be :KiB:COUNT, "
            "repeated, such as :4096:8. The default size is used.",
            UserWarning,
            stacklevel=4,
        )
    from flambeau.cuda import get_device_capability

    return 32 << 20 if 9 <= get_device_capability()[0] <= 12 else 8320 * _KIB


def cublas_workspace_size(size: int | None = None) -> int:
    """Read or set the scratch memory of products that go to cuBLAS.

    Parameters
    ----------
    size
        Bytes; it beats ``CUBLAS_WORKSPACE_CONFIG``. None only reads.

    Returns
    -------
    int
        Bytes: 32 MiB at first on compute capability 9 to 12, else 8320 KiB.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.cublas_workspace_size() >> 20
    32
    """
    global _cublas_bytes
    if size is not None:
        _cublas_bytes = _checked(size)
        _matmul.set_cublas_workspace_bytes(_cublas_bytes)
    if _cublas_bytes is None:
        _cublas_bytes = _default_cublas_bytes()
        _matmul.set_cublas_workspace_bytes(_cublas_bytes)
    return _cublas_bytes


def cublaslt_workspace_size(size: int | None = None) -> int:
    """Read or set the scratch memory of products that go to cuBLASLt.

    Parameters
    ----------
    size
        Bytes; it beats ``CUBLASLT_WORKSPACE_SIZE``, which counts KiB. None only reads.

    Returns
    -------
    int
        Bytes, 1 MiB at first.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.cublaslt_workspace_size() >> 20
    1
    """
    if size is not None:
        _matmul.set_workspace_bytes(_checked(size))
    return _matmul.get_workspace_bytes()


def blas_workspace_size(size: int | None = None, backend: str | None = None) -> int:
    """Read or set the scratch memory of products that go to a library.

    Parameters
    ----------
    size
        Bytes. None only reads.
    backend
        ``"cublas"`` or ``"cublaslt"``; by default the preferred library.

    Returns
    -------
    int
        Bytes.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cuda.blas_workspace_size(backend="cublas") >> 20
    32
    """
    chosen = _blas if backend is None else _chosen(backend, _BLAS_NAMES, _BlasBackend)
    if chosen is _BlasBackend.Cublas:
        return cublas_workspace_size(size)
    if chosen is _BlasBackend.Ck:
        raise RuntimeError("Unknown input value. Choose from: cublas, cublaslt.")
    return cublaslt_workspace_size(size)


def _checked(size: int) -> int:
    if size < 0:
        raise RuntimeError(f"a workspace has 0 bytes or more, got {size}")
    return int(size)
