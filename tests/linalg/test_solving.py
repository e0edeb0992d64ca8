# SPDX-License-Identifier: Apache-2.0
"""Systems, inverses, determinants, least squares, norms and products against NumPy; errors."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from linalg_cases import BATCHES, DTYPES, assert_near, matrix, positive, tensor_of

L = torch.linalg
DEVICES = ["cpu", "cuda"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_solve_inverse_determinant(dtype: str, device: str) -> None:
    for batch in BATCHES:
        a, b = matrix(dtype, *batch, 4, 4), matrix(dtype, *batch, 4, 3)
        x, y = tensor_of(a, device), tensor_of(b, device)
        assert_near(L.solve(x, y), np.linalg.solve(a, b))
        assert_near(L.solve(x, y.mT, left=False).mT, np.linalg.solve(a.swapaxes(-1, -2), b))
        assert_near(L.inv(x), np.linalg.inv(a))
        assert_near(L.det(x), np.linalg.det(a))
        sign, logarithm = L.slogdet(x)
        expected = np.linalg.slogdet(a)
        assert_near(sign, expected.sign)
        assert_near(logarithm, expected.logabsdet)


@pytest.mark.parametrize("device", DEVICES)
def test_solve_shapes(device: str) -> None:
    a, b = matrix("float64", 2, 3, 3), matrix("float64", 2, 3)
    x = tensor_of(a, device)
    assert_near(L.solve(x, tensor_of(b, device)), np.linalg.solve(a, b[..., None])[..., 0])
    one = tensor_of(b[0], device)
    assert_near(L.solve(x[0], one), np.linalg.solve(a[0], b[0]))
    wide = matrix("float64", 3, 4)
    expected = np.stack([np.linalg.solve(one_a, wide) for one_a in a])
    assert_near(L.solve(x, tensor_of(wide, device)), expected)
    assert L.solve(x[:0], tensor_of(wide, device)).shape == (0, 3, 4)
    assert L.inv(torch.empty(0, 0, device=device)).shape == (0, 0)
    assert L.det(torch.empty(0, 0, device=device)).item() == 1.0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_solve_triangular(unit: bool, upper: bool, device: str) -> None:
    for batch in BATCHES:
        full, b = matrix("float64", *batch, 4, 4) + 5 * np.eye(4), matrix("float64", *batch, 4, 2)
        a = np.triu(full) if upper else np.tril(full)
        if unit:
            a[..., range(4), range(4)] = 1
        x, y = tensor_of(full, device), tensor_of(b, device)
        found = L.solve_triangular(x, y, upper=upper, unitriangular=unit)
        assert_near(found, np.linalg.solve(a, b))
        left = L.solve_triangular(x, y.mT, upper=upper, left=False, unitriangular=unit)
        assert_near(left.mT, np.linalg.solve(a.swapaxes(-1, -2), b))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_least_squares_and_rank(dtype: str, device: str) -> None:
    for batch in BATCHES:
        for rows, columns in ((5, 3), (3, 5), (4, 4)):
            a, b = matrix(dtype, *batch, rows, columns), matrix(dtype, *batch, rows, 2)
            x = tensor_of(a, device)
            inverse = np.linalg.pinv(a)
            assert_near(L.pinv(x), inverse)
            assert_near(L.lstsq(x, tensor_of(b, device)).solution, inverse @ b)
            assert_near(L.matrix_rank(x), np.linalg.matrix_rank(a))
    low = tensor_of(a[..., :1] @ a[..., :1, :], device)
    assert (L.matrix_rank(low) == 1).all().item()
    symmetric = tensor_of(positive(dtype, 3), device)
    assert_near(L.pinv(symmetric, hermitian=True), np.linalg.pinv(symmetric.cpu().numpy()))
    assert L.matrix_rank(symmetric, hermitian=True).item() == 3


def test_least_squares_drivers() -> None:
    a, b = matrix("float64", 5, 3), matrix("float64", 5, 2)
    expected = np.linalg.lstsq(a, b)
    found = L.lstsq(tensor_of(a, "cpu"), tensor_of(b, "cpu"), driver="gelsd")
    assert_near(found.solution, expected[0])
    assert_near(found.residuals, expected[1])
    assert found.rank.item() == 3
    assert_near(found.singular_values, expected[3])


@pytest.mark.parametrize("device", DEVICES)
def test_norms(device: str) -> None:
    for dtype in DTYPES:
        a = matrix(dtype, 2, 4, 3)
        x = tensor_of(a, device)
        for order in ("fro", "nuc", 1, -1, 2, -2, inf, -inf):
            expected = np.linalg.norm(a, order, axis=(-2, -1))
            assert_near(L.matrix_norm(x, order), expected)
            kept = L.matrix_norm(x, order, (0, 2), keepdim=True)
            assert_near(kept, np.linalg.norm(a, order, axis=(0, 2), keepdims=True))
        for order in (0, 0.5, 1, 2, 3, -1, inf, -inf):
            expected = np.asarray(np.linalg.norm(a, order, axis=1)).astype(expected.dtype)
            assert_near(L.vector_norm(x, order, 1), expected)
        assert_near(L.norm(x), np.linalg.norm(a.ravel()))
        assert_near(L.norm(x[0], "nuc"), np.linalg.norm(a[0], "nuc"))
        assert_near(L.norm(x, 1, 2), np.linalg.norm(a, 1, 2))
    half = torch.full((3,), 100.0, device=device, dtype=torch.float16)
    assert L.vector_norm(half).item() == pytest.approx(173.2, rel=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_condition_numbers(device: str) -> None:
    a = positive("float64", 2, 4)
    for order in (None, 2, -2, "fro", 1, inf):
        assert_near(L.cond(tensor_of(a, device), order), np.linalg.cond(a, order))
    assert L.cond(torch.zeros(2, 2, device=device), 1).item() == inf


@pytest.mark.parametrize("device", DEVICES)
def test_products(device: str) -> None:
    a = matrix("float64", 2, 3, 3)
    x = tensor_of(a, device)
    for n in (0, 1, 2, 5, -2):
        assert_near(L.matrix_power(x, n), np.linalg.matrix_power(a, n))
    chain = [matrix("float64", *shape) for shape in ((10, 30), (30, 5), (5, 60))]
    expected = np.linalg.multi_dot(chain)
    assert_near(L.multi_dot([tensor_of(one, device) for one in chain]), expected)
    u, v = matrix("float64", 4, 3), matrix("float64", 1, 3)
    p, q = tensor_of(u, device), tensor_of(v, device)
    assert_near(L.cross(p, q), np.cross(u, np.broadcast_to(v, u.shape)))
    assert_near(L.vecdot(p, q), (u * v).sum(-1))
    assert_near(L.vander(p), np.stack([u**0, u, u * u], -1))
    t = matrix("float64", 4, 6, 8, 3)
    assert_near(L.tensorinv(tensor_of(t, device)), np.linalg.tensorinv(t))
    side = matrix("float64", 4, 6)
    assert_near(
        L.tensorsolve(tensor_of(t, device), tensor_of(side, device)), np.linalg.tensorsolve(t, side)
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_exponentials(dtype: str, device: str) -> None:
    from scipy.linalg import expm

    for scale in (0.01, 1.0, 20.0):
        a = (matrix(dtype, 2, 3, 3) * scale).astype(dtype)
        found, expected = L.matrix_exp(tensor_of(a, device)).cpu().numpy(), expm(a)
        tolerance = 1e-3 if dtype in {"float32", "complex64"} else 1e-9
        assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


_SINGULAR = [
    (L.inv, r"linalg.inv: The diagonal element 1 is zero"),
    (lambda z: L.inv(z.expand(3, 2, 2)), r"linalg.inv: \(Batch element 0\): The diagonal element"),
    (lambda z: L.solve(z, z), "torch.linalg.solve: The solver failed because the input matrix is"),
    (L.cholesky, "the leading minor of order 1 is not positive-definite"),
    (lambda z: L.matrix_power(z, -1), "the input matrix is singular"),
    (lambda z: L.svd(z * float("nan")), "the input matrix contained non-finite values"),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", _SINGULAR, ids=lambda case: case[1][:30])
def test_singular_matrices(case: Any, device: str) -> None:
    call, text = case
    with pytest.raises(torch.linalg.LinAlgError, match=text) as caught:
        call(torch.zeros(2, 2, device=device))
    assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize("device", DEVICES)
def test_statuses_instead_of_errors(device: str) -> None:
    z = torch.zeros(2, 2, device=device)
    assert L.inv_ex(z).info.item() == 1
    assert L.solve_ex(z, z).info.item() == 1
    assert L.cholesky_ex(z).info.item() == 1
    assert L.lu_factor_ex(z).info.item() == 1
    assert L.det(z).item() == 0
    assert L.slogdet(z).logabsdet.item() == -inf
    with pytest.raises(RuntimeError, match=r"U\[1,1\] is zero"):
        L.lu_factor(z)


_WRONG = [
    (lambda x: L.inv(x[0]), "must have at least 2 dimensions"),
    (lambda x: L.inv(x[:2]), "A must be batches of square matrices, but they are 2 by 3 matrices"),
    (lambda x: L.inv(x.half()), "Low precision dtypes not supported. Got Half"),
    (lambda x: L.inv(x.long()), "Expected a floating point or complex tensor as input. Got Long"),
    (lambda x: L.solve(x, x.double()), "Expected A and B to have the same dtype"),
    (lambda x: L.solve(x, x[:2]), r"for the equation AX = B \(3x3 and 2x3\)"),
    (lambda x: L.qr(x, "x"), "qr received unrecognized mode 'x'"),
    (lambda x: L.eigh(x, "X"), "Expected UPLO argument to be 'L' or 'U', but got X"),
    (lambda x: L.lstsq(x, x[:2]), r"input.size\(-2\) should match other.size\(-2\)"),
    (lambda x: L.multi_dot([x]), "expected at least 2 tensors but got 1"),
    (lambda x: L.cross(x[:, :2], x[:, :2]), "inputs dimension -1 must have length 3. Got 2 and 2"),
    (lambda x: L.cond(x, "x"), "got an invalid norm type: x"),
    (lambda x: L.matrix_norm(x, 3), "Order 3 not supported"),
    (lambda x: L.vector_norm(x[:0, 0], inf), "cannot compute the inf norm on an empty tensor"),
    (lambda x: L.eig(x * float("nan")), "should not contain infs or NaNs"),
]


@pytest.mark.parametrize("case", _WRONG, ids=lambda case: case[1][:25])
def test_wrong_arguments(case: Any, gpu: Any) -> None:
    call, text = case
    with pytest.raises(RuntimeError, match=text):
        call(torch.eye(3, device=gpu))
