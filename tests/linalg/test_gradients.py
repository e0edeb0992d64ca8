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
    "qr_wide": lambda a, b: tuple(L.qr(b.mT)),
    "householder": lambda a, b: L.householder_product(b, a[..., 0, :2]),
    "lu": lambda a, b: tuple(L.lu(a))[1:],
    "lu_tall": lambda a, b: L.lu_factor(b).LU,
    "lu_wide": lambda a, b: L.lu_factor(b.mT).LU,
    "lu_without_exchanges": lambda a, b: L.lu_factor(a, pivot=False).LU,
    "lu_unpack": lambda a, b: torch.lu_unpack(*L.lu_factor(a))[1:],
    "lu_solve": lambda a, b: L.lu_solve(*L.lu_factor(a), b),
    "lu_solve_left": lambda a, b: L.lu_solve(*L.lu_factor(a), b.mT, left=False),
    "lu_solve_adjoint": lambda a, b: L.lu_solve(*L.lu_factor(a), b, adjoint=True),
    "eigvals": lambda a, b: torch.view_as_real(L.eigvals(a)),
    "eig": lambda a, b: _squared(torch.view_as_real(x).norm(dim=-1) for x in L.eig(a)),
    "svdvals": lambda a, b: L.svdvals(b),
    "svd": lambda a, b: _squared(L.svd(b, False)),
    "svd_wide": lambda a, b: _squared(L.svd(b.mT, False)),
    "svd_full": lambda a, b: _squared((L.svd(b).U[..., :2], L.svd(b).S)),
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


def _lengths(*results: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Without the phases of vectors, which are free."""
    return tuple(torch.view_as_real(one).square().sum(-1) for one in results)


def _outer(found: Any) -> torch.Tensor:
    """The first pair of vectors, whose common phase cancels."""
    first: torch.Tensor = found.U[..., :1] @ found.Vh[..., :1, :]
    return first


_OF_COMPLEX = {
    "solve": L.solve,
    "inv": lambda a, b: L.inv(a),
    "slogdet": lambda a, b: (torch.view_as_real(L.slogdet(a)[0]), L.slogdet(a)[1]),
    "cholesky": lambda a, b: L.cholesky(a @ a.mH + 2 * torch.eye(3)),
    "qr": lambda a, b: tuple(torch.view_as_real(x) for x in L.qr(b)),
    "svd": lambda a, b: _lengths(*[x for x in L.svd(b, False) if x.is_complex()]),
    "svd_products": lambda a, b: _outer(L.svd(b, False)),
    "eigh": lambda a, b: _lengths(L.eigh(a @ a.mH).eigenvectors),
    "eig": lambda a, b: _lengths(*L.eig(a)),
    "lu": lambda a, b: tuple(torch.view_as_real(x) for x in tuple(L.lu(a))[1:]),
    "lu_solve": lambda a, b: L.lu_solve(*L.lu_factor(a), b),
    "householder": lambda a, b: L.householder_product(b, a[..., 0, :2]),
}


@pytest.mark.parametrize("name", _OF_COMPLEX)
def test_linear_algebra_of_complex_numbers(name: str) -> None:
    torch.manual_seed(4)
    a = torch.randn(2, 3, 3, 2, dtype=torch.float64, requires_grad=True)
    b = torch.randn(2, 3, 2, 2, dtype=torch.float64, requires_grad=True)

    def of_parts(a: torch.Tensor, b: torch.Tensor) -> Any:
        found = _OF_COMPLEX[name](torch.view_as_complex(a), torch.view_as_complex(b))
        results = found if isinstance(found, tuple) else (found,)
        return tuple(torch.view_as_real(x) if x.is_complex() else x for x in results)

    assert torch.autograd.gradcheck(of_parts, (a, b))


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
    "complete qr": lambda x: L.qr(x[:, :2], "complete"),
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
