# SPDX-License-Identifier: Apache-2.0
"""Matrices to factor, and how near results must be."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

import flambeau as torch

Array = np.ndarray[Any, Any]
DTYPES = ("float32", "float64", "complex64", "complex128")
BATCHES: list[tuple[int, ...]] = [(), (3,), (2, 2)]
_TOLERANCE = {"float32": 2e-3, "complex64": 2e-3, "float64": 1e-9, "complex128": 1e-9}


def matrix(dtype: str, *shape: int) -> Array:
    """The same random numbers for the same request."""
    rng = np.random.default_rng(zlib.crc32(repr((dtype, shape)).encode()))
    values = rng.normal(size=shape)
    if "complex" in dtype:
        values = values + 1j * rng.normal(size=shape)
    return np.asarray(values.astype(dtype))


def positive(dtype: str, *shape: int) -> Array:
    """Hermitian positive-definite matrices (*, n, n)."""
    a = matrix(dtype, *shape, shape[-1])
    made = a @ adjoint(a) + shape[-1] * np.eye(shape[-1], dtype=dtype)
    return np.asarray(made)


def adjoint(a: Array) -> Array:
    """Conjugate transposes."""
    return np.asarray(a.conj().swapaxes(-1, -2))


def tensor_of(a: Array, device: str) -> torch.Tensor:
    """The array on a device."""
    return torch.from_numpy(np.ascontiguousarray(a)).to(device)


def assert_near(found: Any, expected: Any, signs: bool = False) -> None:
    """Same shape, near values; `signs` compares absolute values."""
    values = found.cpu().numpy() if isinstance(found, torch.Tensor) else found
    wanted = np.asarray(expected)
    assert values.shape == wanted.shape
    assert values.dtype == wanted.dtype
    if signs:
        values, wanted = abs(values), abs(wanted)
    tolerance = _TOLERANCE.get(str(wanted.dtype), 0)
    np.testing.assert_allclose(values, wanted, rtol=tolerance, atol=tolerance)
