# SPDX-License-Identifier: Apache-2.0
"""Data for comparing operations with NumPy: dtypes, values that matter, layouts, tolerances."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import flambeau as torch

DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64",
)  # fmt: skip
CATEGORY = {name: getattr(torch, name).category for name in DTYPES}
# Contiguous and vectorised with a ragged end; strided; broadcast; empty; without dimensions.
LAYOUTS = ("contiguous", "transposed", "stepped", "offset", "expanded", "empty", "scalar")
_SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, np.inf, -np.inf, np.nan, 1e-30, 3e4, -7.25]
_TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 4e-6, "float64": 4e-14}


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def values(name: str, count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Numbers of a dtype, the special ones first."""
    random = np.random.default_rng(seed)
    of = numpy_dtype(name)
    if name == "bool":
        return random.random(count) < 0.5
    if CATEGORY[name] == 1:
        limits = np.iinfo(of)
        edges = [0, 1, 2, 3, limits.max, limits.min, limits.max - 1]
        small = random.integers(max(-9, limits.min), 10, max(0, count - len(edges)))
        mixed = np.array([*edges, *small], dtype=of)[:count]
        return random.permutation(mixed)
    normal = random.normal(0, 3, max(0, count - len(_SPECIAL)))
    with np.errstate(over="ignore"):
        mixed = np.array([*_SPECIAL, *normal], dtype=np.float64)[:count].astype(of)
    return random.permutation(mixed)


def tensor_of(array: np.ndarray[Any, Any], device: Any) -> torch.Tensor:
    """A tensor with these elements."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.tensor(array.astype(np.float32)).to(torch.bfloat16).to(device)
    return torch.tensor(np.ascontiguousarray(array)).to(device).reshape(array.shape)


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The elements of a tensor as a NumPy array; bfloat16 widened."""
    host = tensor.detach().cpu()
    return (host.float() if tensor.dtype == torch.bfloat16 else host).numpy()


def laid_out(name: str, layout: str, device: Any, seed: int = 0) -> torch.Tensor:
    """A tensor of a dtype in one of `LAYOUTS`."""
    base = tensor_of(values(name, 60, seed), device)
    if layout == "contiguous":
        return base.reshape(4, 15)
    if layout == "transposed":
        return base.reshape(15, 4).t()
    if layout == "stepped":
        return base.reshape(4, 15)[:, ::2]
    if layout == "offset":
        return base[1:58].reshape(3, 19)
    if layout == "expanded":
        return base[:15].expand(4, 15)
    if layout == "empty":
        return base[:0].reshape(0, 4)
    return base[5]


def assert_close(found: torch.Tensor, expected: np.ndarray[Any, Any], scale: float = 1.0) -> None:
    """Compare with an expected array; floats within a few units in the last place of the dtype."""
    name = found.dtype.name
    have = array_of(found)
    assert have.shape == expected.shape, (have.shape, expected.shape)
    if CATEGORY[name] < 2:
        np.testing.assert_array_equal(have, expected)
        return
    tolerance = _TOLERANCE[name] * scale
    wanted = expected.astype(np.float64)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            have.astype(np.float64), wanted, rtol=tolerance, atol=tolerance * 1e-2, equal_nan=True
        )
