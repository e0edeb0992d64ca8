# SPDX-License-Identifier: Apache-2.0
"""Derivatives of factorizations and transforms against finite differences."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from linalg_cases import matrix, positive, tensor_of

L, F = torch.linalg, torch.fft


def _hermitian(x: torch.Tensor) -> torch.Tensor:
    """A matrix that stays positive-definite when an element of `x` moves."""
    return x @ x.mT + 4 * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def _squared(results: Any) -> tuple[torch.Tensor, ...]:
    """Without the signs of vectors, which are free."""
    return tuple(one * one for one in results)


_FUNCTIONS = {
    "solve": L.solve,
    "solve_left": lambda a, b: L.solve(a, b.mT, left=False),
    "inv": lambda a, b: L.inv(a),
    "det": lambda a, b: L.det(a),
    "slogdet": lambda a, b: L.slogdet(a)[1],
    "cholesky": lambda a, b: L.cholesky(_hermitian(a)),
    "cholesky_upper": lambda a, b: L.cholesky(_hermitian(a), upper=True),
    "triangular": lambda a, b: L.solve_triangular(a, b, upper=True),
    "triangular_unit": lambda a, b: L.solve_triangular(a, b, upper=False, unitriangular=True),
    "qr": lambda a, b: tuple(L.qr(b)),
    "svdvals": lambda a, b: L.svdvals(b),
    "svd": lambda a, b: _squared(L.svd(b, False)),
    "svd_wide": lambda a, b: _squared(L.svd(b.mT, False)),
    "eigh": lambda a, b: _squared(L.eigh(_hermitian(a))),
    "eigvalsh": lambda a, b: L.eigvalsh(_hermitian(a)),
    "pinv": lambda a, b: L.pinv(b),
    "lstsq": lambda a, b: L.lstsq(b, a, driver="gels").solution,
    "matrix_power": lambda a, b: L.matrix_power(a, 3),
    "matrix_exp": lambda a, b: L.matrix_exp(a / 20),
    "nuclear_norm": lambda a, b: L.matrix_norm(b, "nuc"),
    "norm": lambda a, b: L.norm(b),
    "multi_dot": lambda a, b: L.multi_dot([a[0], a[0], b[0]]),
}


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_linear_algebra(name: str) -> None:
    a = tensor_of(positive("float64", 2, 3), "cpu").requires_grad_()
    b = tensor_of(matrix("float64", 2, 3, 2), "cpu").requires_grad_()
    assert torch.autograd.gradcheck(_FUNCTIONS[name], (a, b))


# Complex results are read through a transform to real numbers.
_TRANSFORMS = {
    "fft": lambda x: F.hfft(F.fft(x)),
    "ifft_ortho": lambda x: F.hfft(F.ifft(x, norm="ortho")),
    "rfft": lambda x: F.hfft(F.rfft(x), 7),
    "rfft_longer": lambda x: F.hfft(F.rfft(x, 7), 7, norm="ortho"),
    "rfft_shorter": lambda x: F.hfft(F.rfft(x, 3), 3),
    "irfft": lambda x: F.irfft(F.fft(x), 5),
    "irfft_even": lambda x: F.irfft(F.fft(x), dim=0),
    "ihfft": lambda x: F.irfft(F.ihfft(x) * 3),
    "rfft2": lambda x: F.irfft2(F.rfft2(x) * 2, norm="forward"),
    "fftn": lambda x: F.hfftn(F.fftn(x, norm="forward")),
}


@pytest.mark.parametrize("name", _TRANSFORMS)
def test_transforms(name: str) -> None:
    x = tensor_of(matrix("float64", 3, 4), "cpu").requires_grad_()
    assert torch.autograd.gradcheck(_TRANSFORMS[name], (x,))


def test_gradients_on_a_device(gpu: Any) -> None:
    host = tensor_of(positive("float64", 3), "cpu").requires_grad_()
    device = host.detach().to(gpu).requires_grad_()
    for x in (host, device):
        (L.inv(x).sum() + L.slogdet(x)[1] + (F.hfft(F.rfft(x)) ** 2).sum()).backward()
    assert device.grad is not None
    assert torch.allclose(device.grad.cpu(), host.grad)


_REFUSED = {
    "lu": L.lu,
    "eig": L.eig,
    "full svd": L.svd,
    "complete qr": lambda x: L.qr(x, "complete"),
    "geqrf": torch.geqrf,
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_has_no_derivative_says_so(name: str, gpu: Any) -> None:
    x = tensor_of(positive("float64", 3), gpu).requires_grad_()
    with pytest.raises(NotImplementedError, match=r"the derivative of .* is not implemented"):
        _REFUSED[name](x)
    with torch.no_grad():
        _REFUSED[name](x)
    assert L.matrix_rank(x).item() == 3
