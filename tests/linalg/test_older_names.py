# SPDX-License-Identifier: Apache-2.0
"""Names outside ``torch.linalg``."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

import flambeau as torch
from linalg_cases import DTYPES, adjoint, assert_near, matrix, positive, tensor_of

DEVICES = ["cpu", "cuda"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_against_numpy(dtype: str, device: str) -> None:
    a, b = matrix(dtype, 2, 4, 4), matrix(dtype, 2, 4, 3)
    x, y = tensor_of(a, device), tensor_of(b, device)
    assert_near(x.inverse(), np.linalg.inv(a))
    assert_near(torch.det(x), np.linalg.det(a))
    assert_near(x.slogdet().sign, np.linalg.slogdet(a).sign)
    assert_near(torch.matrix_power(x, 3), np.linalg.matrix_power(a, 3))
    assert_near(torch.pinverse(x), np.linalg.pinv(a, 1e-15))
    u, s, v = (one.cpu().numpy() for one in torch.svd(y))
    assert_near((u * s[..., None, :]) @ adjoint(v), b)
    assert torch.svd(y, compute_uv=False).U.abs().sum().item() == 0
    q, r = torch.qr(y)
    assert_near(q @ r, b)
    packed, pivots = torch.lu(x)
    p, lower, upper = torch.lu_unpack(packed, pivots)
    assert_near(p @ lower @ upper, a)
    assert_near(torch.lu_solve(y, packed, pivots), np.linalg.solve(a, b))
    factored, tau = torch.geqrf(y)
    assert_near(torch.orgqr(factored, tau) @ factored[..., :3, :].triu(), b)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("upper", [True, False])
def test_positive_definite(upper: bool, device: str) -> None:
    a, b = positive("complex128", 2, 3), matrix("complex128", 2, 3, 2)
    factors = torch.cholesky(tensor_of(a, device), upper)
    assert_near(torch.cholesky_solve(tensor_of(b, device), factors, upper), np.linalg.solve(a, b))
    assert_near(torch.cholesky_inverse(factors, upper), np.linalg.inv(a))
    solution, copy = torch.triangular_solve(tensor_of(b, device), factors, upper)
    assert_near(solution, np.linalg.solve(copy.cpu().numpy(), b))
    solution = torch.triangular_solve(tensor_of(b, device), factors, upper, True).solution
    assert_near(solution, np.linalg.solve(copy.cpu().numpy().swapaxes(-1, -2), b))


@pytest.mark.parametrize("device", DEVICES)
def test_logarithms_of_determinants(device: str) -> None:
    x = torch.tensor([[[2.0, 0], [0, 1]], [[0.0, 0], [0, 1]], [[-1.0, 0], [0, 1]]], device=device)
    found = torch.logdet(x).tolist()
    assert found[0] == pytest.approx(0.6931, abs=1e-3)
    assert found[1] == -inf
    assert found[2] != found[2]


def test_norms_by_name() -> None:
    x = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    assert torch.nuclear_norm(x).item() == pytest.approx(7.0)
    assert torch.frobenius_norm(x).item() == pytest.approx(5.0)
