# SPDX-License-Identifier: Apache-2.0
"""Triangles of matrices against NumPy: element sizes, diagonals, layouts, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch

DTYPES = ("bool", "uint8", "int16", "float32", "int64", "complex128")
DIAGONALS = (0, 1, -2, 5, -7, 2**40, -(2**40))


def _matrices(dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).integers(1, 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_diagonal(gpu: Any, dtype: str) -> None:
    for shape in ((3, 5), (2, 16, 32), (2, 3, 7, 4), (1, 1), (0, 4), (2, 4, 0)):
        a = _matrices(dtype, *shape)
        x = torch.from_numpy(a).to(gpu)
        for k in DIAGONALS:
            near = max(-100, min(100, k))
            for ours, numpy in ((torch.tril, np.tril), (torch.triu, np.triu)):
                made = ours(x, k)
                assert made.dtype == x.dtype
                assert np.array_equal(made.cpu().numpy(), numpy(a, near))


def test_layouts(gpu: Any) -> None:
    a = _matrices("float32", 6, 8, 12)
    x = torch.from_numpy(a).to(gpu)
    for strided, expected in (
        (x.mT, a.swapaxes(1, 2)),
        (x[:, 1:, 3:], a[:, 1:, 3:]),
        (x[:, :, ::2], a[:, :, ::2]),
        (x.transpose(0, 1), a.swapaxes(0, 1)),
        (x.reshape(-1).as_strided((5, 6), (1, 1)), a.reshape(-1)[np.add.outer(range(5), range(6))]),
        (x.mT[:, 2:7], a.swapaxes(1, 2)[:, 2:7]),
        (x[:1].expand(3, 8, 12), np.broadcast_to(a[:1], (3, 8, 12))),
        (x.reshape(-1)[1:73].view(6, 12), a.reshape(-1)[1:73].reshape(6, 12)),
    ):
        assert np.array_equal(strided.tril(1).cpu().numpy(), np.tril(expected, 1))
        assert np.array_equal(strided.triu(-1).cpu().numpy(), np.triu(expected, -1))
    assert x.mT.tril().mT.is_contiguous()
    out = torch.empty(0, device=gpu)
    assert torch.tril(x, out=out) is out
    assert np.array_equal(out.cpu().numpy(), np.tril(a))


def test_in_place(gpu: Any) -> None:
    a = _matrices("float32", 4, 9, 8)
    x = torch.from_numpy(a).to(gpu)
    turned = x.clone().mT
    before = x._version
    assert x.tril_(1) is x
    assert x._version > before
    assert np.array_equal(x.cpu().numpy(), np.tril(a, 1))
    assert np.array_equal(turned.triu_(2).cpu().numpy(), np.triu(a.swapaxes(1, 2), 2))


def test_what_is_left_out_may_be_anything(gpu: Any) -> None:
    x = torch.full((8, 8), float("nan"), device=gpu)
    x.tril_()
    assert x.triu(1).isnan().sum().item() == 0
    assert x.isnan().sum().item() == 36


def test_gradients(gpu: Any) -> None:
    x = torch.ones(3, 3, device=gpu, requires_grad=True)
    (x.tril() * 2 + x.triu(1)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2.0, 1.0, 1.0], [2.0, 2.0, 1.0], [2.0, 2.0, 2.0]]


def test_vectors_are_refused(gpu: Any) -> None:
    for wrong in (torch.tril, torch.triu, torch.Tensor.tril_):
        with pytest.raises(RuntimeError, match="must have at least 2 dimensions"):
            wrong(torch.ones(3, device=gpu))
