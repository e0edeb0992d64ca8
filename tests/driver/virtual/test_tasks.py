# SPDX-License-Identifier: Apache-2.0
"""Matrix products against NumPy, for every type, layout and factor."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from driver.virtual.device_memory import status_of
from driver.virtual.scripts import run
from flambeau.driver.virtual import _calls as calls

if TYPE_CHECKING:
    from driver.virtual.device_memory import Bench, Buffer

# Numbers of runtime/scalar_type.hpp.
FLOAT16, BFLOAT16, FLOAT32, FLOAT64, COMPLEX64, COMPLEX128, INT32, BOOL = (
    9,
    10,
    11,
    12,
    14,
    15,
    4,
    0,
)
TYPES: dict[int, Any] = {
    FLOAT16: np.float16,
    BFLOAT16: ml_dtypes.bfloat16,
    FLOAT32: np.float32,
    FLOAT64: np.float64,
    COMPLEX64: np.complex64,
    COMPLEX128: np.complex128,
}
TOLERANCE = {
    FLOAT16: 1e-3,
    BFLOAT16: 8e-3,
    FLOAT32: 1e-5,
    FLOAT64: 1e-13,
    COMPLEX64: 1e-5,
    COMPLEX128: 1e-13,
}


def device_copy(bench: Bench, values: np.ndarray) -> Buffer:
    buffer = bench.buffer(max(values.nbytes, 1))
    calls.memcpy_htod_async(buffer.address, values.ctypes.data, values.nbytes)
    return buffer


def random_matrix(rng: np.random.Generator, shape: tuple[int, ...], kind: Any) -> np.ndarray:
    values = rng.standard_normal(shape)
    if np.dtype(kind).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(kind)


def wide(values: np.ndarray) -> np.ndarray:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (0.5, 0.25)])
def test_batched_products(
    bench: Bench, dtype: int, transpose_a: bool, transpose_b: bool, alpha: float, beta: float
) -> None:
    m, n, k, batch, padding = 5, 7, 11, 3, 2
    rng = np.random.default_rng(1)
    kind = TYPES[dtype]
    rows_a, columns_a = (k, m) if transpose_a else (m, k)
    rows_b, columns_b = (n, k) if transpose_b else (k, n)
    a = random_matrix(rng, (batch, rows_a, columns_a + padding), kind)
    b = random_matrix(rng, (rows_b, columns_b), kind)  # stride 0: the same for all
    c = random_matrix(rng, (batch, m, n + padding), kind)
    if beta == 0.0:
        c[...] = np.nan
    before = c.copy()
    buffers = [device_copy(bench, values) for values in (a, b, c)]
    calls.gemm(
        m=m, n=n, k=k, batch=batch, dtype=dtype,
        a=buffers[0].address, b=buffers[1].address, c=buffers[2].address,
        lda=columns_a + padding, ldb=columns_b, ldc=n + padding,
        stride_a=a[0].size, stride_b=0, stride_c=c[0].size,
        transpose_a=transpose_a, transpose_b=transpose_b, alpha=alpha, beta=beta,
    )  # fmt: skip
    calls.ctx_synchronize()
    got = np.frombuffer(buffers[2].peek(), kind).reshape(c.shape)
    left = wide(a[:, :, :columns_a]).swapaxes(1, 2) if transpose_a else wide(a[:, :, :columns_a])
    right = wide(b).T if transpose_b else wide(b)
    expected = alpha * (left @ right)
    if beta != 0.0:
        expected = expected + beta * wide(before[:, :, :n])
    np.testing.assert_allclose(
        wide(got[:, :, :n]), expected, rtol=TOLERANCE[dtype], atol=10 * TOLERANCE[dtype]
    )
    np.testing.assert_array_equal(wide(got[:, :, n:]), wide(before[:, :, n:]))


def square(bench: Bench, dtype: int, n: int = 4, **more: Any) -> Buffer:
    kind = TYPES.get(dtype, np.int32)
    a = device_copy(bench, np.ones((n, n), kind))
    c = device_copy(bench, np.zeros((n, n), kind))
    size = {"m": n, "n": n, "k": n, "lda": n, "ldb": n, "ldc": n, **more}
    calls.gemm(a=a.address, b=a.address, c=c.address, dtype=dtype, **size)
    return c


def test_half_products_are_summed_in_single_precision(bench: Bench) -> None:
    n = 4096
    ones = device_copy(bench, np.ones((1, n), np.float16))
    out = bench.buffer(2)
    calls.gemm(m=1, n=1, k=n, dtype=FLOAT16, a=ones.address, b=ones.address, c=out.address,
               lda=n, ldb=1, ldc=1)  # fmt: skip
    calls.ctx_synchronize()
    assert np.frombuffer(out.peek(), np.float16)[0] == 4096  # float16 sums would stop at 2048


def test_tf32_rounds_its_operands(bench: Bench) -> None:
    value = np.float32(1 + 2**-12)
    a, b, c = (device_copy(bench, np.array([[v]], np.float32)) for v in (value, 1.0, 0.0))
    for compute, expected in ((0, value), (1, np.float32(1))):
        calls.gemm(m=1, n=1, k=1, dtype=FLOAT32, a=a.address, b=b.address, c=c.address,
                   lda=1, ldb=1, ldc=1, compute=compute)  # fmt: skip
        calls.ctx_synchronize()
        assert np.frombuffer(c.peek(), np.float32)[0] == expected


def test_empty_products(bench: Bench) -> None:
    c = square(bench, FLOAT32, k=0, beta=0.0)
    calls.ctx_synchronize()
    assert c.peek() == bytes(64)
    square(bench, FLOAT32, m=0)
    calls.ctx_synchronize()


@pytest.mark.parametrize("dtype", [FLOAT16, FLOAT32, FLOAT64])
def test_a_bias_is_added_before_rounding(bench: Bench, dtype: int) -> None:
    kind, rng = TYPES[dtype], np.random.default_rng(1)
    a, b, bias = (random_matrix(rng, shape, kind) for shape in ((2, 3, 5), (5, 4), (1, 4)))
    buffers = [device_copy(bench, values) for values in (a, b, bias, np.zeros((2, 3, 4), kind))]
    calls.gemm(m=3, n=4, k=5, batch=2, dtype=dtype, a=buffers[0].address, b=buffers[1].address,
               bias=buffers[2].address, c=buffers[3].address, lda=5, ldb=4, ldc=4, stride_a=15,
               stride_c=12, alpha=2.0)  # fmt: skip
    calls.ctx_synchronize()
    got = np.frombuffer(buffers[3].peek(), kind).reshape(2, 3, 4)
    once = (2.0 * (wide(a) @ wide(b)) + wide(bias)).astype(kind)
    np.testing.assert_allclose(got, once, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert status_of(functools.partial(square, bench, 16, bias=buffers[2].address)) == 801


def test_what_is_refused(bench: Bench) -> None:
    assert status_of(square, bench, INT32) == 801
    assert status_of(square, bench, BOOL) == 801
    for wrong in ({"lda": 3}, {"ldb": 3}, {"ldc": 3}, {"m": -1}):
        assert status_of(functools.partial(square, bench, FLOAT32, **wrong)) == 1


def test_it_is_ordered_like_any_work(bench: Bench, schedule: str) -> None:
    stream, target = bench.stream(), bench.pinned(4)
    a, c = bench.buffer(4), bench.buffer(4)
    calls.memset_d32_async(a.address, 0x40000000, 1, stream)  # 2.0
    calls.gemm(stream, m=1, n=1, k=1, dtype=FLOAT32, a=a.address, b=a.address, c=c.address,
               lda=1, ldb=1, ldc=1)  # fmt: skip
    c.store(target, stream)
    calls.stream_synchronize(stream)
    assert np.frombuffer(target.bytes, np.float32)[0] == 4.0


def test_an_operand_outside_its_allocation_is_a_fault() -> None:
    run("""
        start()
        a = calls.mem_alloc(64)
        calls.gemm(m=4, n=4, k=5, dtype=11, a=a, b=a, c=a, lda=5, ldb=4, ldc=4)
        try:
            calls.ctx_synchronize()
        except AcceleratorError as error:
            assert error.error_code == 700
            assert "A matrix product's read of A of 80 bytes" in str(error)
            assert "in the allocation of 64 bytes" in str(error)
        else:
            raise AssertionError("the overrun went unseen")
    """)
