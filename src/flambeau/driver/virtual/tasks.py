# SPDX-License-Identifier: Apache-2.0
"""Library calls as NumPy tasks. They run on the executor thread, on device memory in place."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["gemm"]


_TF32, _HALF_SUMS = 1, 3


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        kind: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return kind
    return np.dtype(name)


def _matrices(
    address: int, dtype: np.dtype[Any], shape: tuple[int, int, int], strides: tuple[int, int]
) -> NDArray[Any]:
    """Device memory as an array (batch, rows, columns); `strides` of batch and rows in elements."""
    batch, rows, columns = shape
    if 0 in shape:
        return np.empty(shape, dtype)
    span = (batch - 1) * strides[0] + (rows - 1) * strides[1] + columns
    memory = (ctypes.c_char * (span * dtype.itemsize)).from_address(address)
    steps = (strides[0] * dtype.itemsize, strides[1] * dtype.itemsize, dtype.itemsize)
    return np.ndarray(shape, dtype, buffer=memoryview(memory), strides=steps)


def _to_tf32(values: NDArray[Any]) -> NDArray[Any]:
    """Round to the 10 bits of mantissa that tensor cores keep of a float32."""
    real = values.view(np.float32)
    kept = (real.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(real), kept.view(np.float32), real).view(values.dtype)


def _operand(
    values: NDArray[Any], transpose: bool, accumulate: np.dtype[Any], tf32: bool
) -> NDArray[Any]:
    values = values.swapaxes(1, 2) if transpose else values
    converted = np.ascontiguousarray(values.astype(accumulate, copy=False))
    return _to_tf32(converted) if tf32 else converted


def _half_sums(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """A product summed in float16, as tensor cores do it: 16 elements of k at a time."""
    total = np.zeros((left.shape[0], left.shape[1], right.shape[2]), np.float16)
    for k in range(0, left.shape[2], 16):
        total += np.matmul(left[:, :, k : k + 16], right[:, k : k + 16]).astype(np.float16)
    return total.astype(np.float32)


def gemm(
    dtype_name: str,
    size: tuple[int, int, int, int],
    addresses: tuple[int, int, int],
    leading: tuple[int, int, int],
    batch_strides: tuple[int, int, int],
    transpose: tuple[bool, bool],
    *,
    kind: int,
    alpha: float,
    beta: float,
    bias: int = 0,
) -> None:
    """Compute ``C = alpha * op(A) @ op(B) + beta * C + bias``, row-major, once per batch.

    Half types are multiplied and summed in float32 and rounded once. C is not read if beta is 0.

    Parameters
    ----------
    dtype_name
        Of A, B and C.
    size
        m, n, k and the batch count.
    addresses, leading, batch_strides
        Of A, B and C; the latter two in elements.
    transpose
        Whether A, and whether B, is stored transposed.
    kind
        The arithmetic, of ``gemm_options.hpp``: 1 rounds float32 operands to tf32 first, 3 sums
        float16 products in float16.
    alpha, beta
        Factors.
    bias
        Address of n elements that are added to every row, or 0.
    """
    m, n, k, batch = size
    dtype = _numpy_dtype(dtype_name)
    accumulate = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    a_shape = (batch, k, m) if transpose[0] else (batch, m, k)
    b_shape = (batch, n, k) if transpose[1] else (batch, k, n)
    a = _matrices(addresses[0], dtype, a_shape, (batch_strides[0], leading[0]))
    b = _matrices(addresses[1], dtype, b_shape, (batch_strides[1], leading[1]))
    c = _matrices(addresses[2], dtype, (batch, m, n), (batch_strides[2], leading[2]))
    rounded = kind == _TF32 and dtype_name in {"float32", "complex64"}
    with np.errstate(all="ignore"):
        left = _operand(a, transpose[0], accumulate, rounded)
        right = _operand(b, transpose[1], accumulate, rounded)
        if kind == _HALF_SUMS and dtype_name == "float16":
            product = _half_sums(left, right)
        else:
            product = np.matmul(left, right)
        if alpha != 1.0:
            product *= accumulate.type(alpha)
        if beta != 0.0:
            product += accumulate.type(beta) * c.astype(accumulate, copy=False)
        if bias:
            product += _matrices(bias, dtype, (1, 1, n), (n, n)).astype(accumulate, copy=False)
        c[...] = product.astype(dtype, copy=False)
