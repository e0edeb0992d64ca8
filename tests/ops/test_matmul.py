# SPDX-License-Identifier: Apache-2.0
"""Matrix products against NumPy: shapes, strides, batches, factors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from ops.cases import array_of, assert_close, tensor_of

FLOATS = ("float16", "bfloat16", "float32", "float64")
SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 6)),
    ((7, 1, 3, 4), (1, 5, 4, 2)),
    ((1, 1), (1, 1)),
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((2, 0, 4), (2, 4, 5)),
    ((65, 130), (130, 33)),
]


def _random(shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(0, 1, shape)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(shapes: Any, device: str) -> None:
    a, b = _random(shapes[0], 1).astype(np.float32), _random(shapes[1], 2).astype(np.float32)
    found = tensor_of(a, device) @ tensor_of(b, device)
    assert_close(found, np.asarray(np.matmul(a.astype(np.float64), b)), scale=100)


@pytest.mark.parametrize("name", FLOATS)
def test_dtypes(name: str, gpu: Any) -> None:
    of = getattr(torch, name)
    a, b = (tensor_of(_random((17, 17), seed), gpu).to(of) for seed in (3, 4))
    expected = array_of(a).astype(np.float64) @ array_of(b).astype(np.float64)
    assert (a @ b).dtype == of
    assert_close(a @ b, expected, scale=100)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_strides_need_no_copy_or_get_one(device: str) -> None:
    base = _random((8, 10, 12), 5)
    x = tensor_of(base, device)
    for left, right, a, b in (
        (x[0].t(), x[1], base[0].T, base[1]),
        (x[0], x[1].t(), base[0], base[1].T),
        (x[0][:, ::2], x[1][:, :6].t(), base[0][:, ::2], base[1][:, :6].T),
        (x.transpose(1, 2), x, base.transpose(0, 2, 1), base),
        (x[:, 0], x[:, 0].t(), base[:, 0], base[:, 0].T),
        (x[0][:1].expand(4, 12), x[0].t(), np.repeat(base[0][:1], 4, 0), base[0].T),
        (
            x[:, 3:5, 2:],
            x[:1, :, 2:].transpose(1, 2),
            base[:, 3:5, 2:],
            base[:1, :, 2:].transpose(0, 2, 1),
        ),
    ):
        assert_close(left @ right, a @ b, scale=100)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_factors(device: str) -> None:
    a, b, c = (_random(shape, 6) for shape in ((3, 4), (4, 5), (5,)))
    x, y, z = (tensor_of(array, device) for array in (a, b, c))
    assert_close(torch.addmm(z, x, y, beta=2, alpha=3), 2 * c + 3 * (a @ b), scale=100)
    assert_close(torch.addmm(z * float("nan"), x, y, beta=0), a @ b, scale=100)
    batch = torch.baddbmm(z, x.expand(2, 3, 4), y.expand(2, 4, 5))
    assert_close(batch, np.broadcast_to(c + a @ b, (2, 3, 5)), scale=100)
    assert_close(torch.mv(x, y[:, 0]), a @ b[:, 0], scale=100)
    assert_close(torch.outer(x[0], z), np.outer(a[0], c))
    assert_close(torch.addmm(z, x[:, :0], y[:0]), np.broadcast_to(c, (3, 5)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_bias(gpu: Any, dtype: str) -> None:
    for m, k, n in ((5, 3, 7), (64, 32, 48), (33, 130, 65), (1, 8, 4), (8, 4, 1), (3, 1, 2)):
        x, weight, bias = (
            tensor_of(_random(shape, 9), gpu).to(getattr(torch, dtype))
            for shape in ((m, k), (n, k), (n + 1,))
        )
        a, w, b = (array_of(t.double()) for t in (x, weight, bias))
        wide = torch.stack([bias, bias], 1)
        for vector, added in (
            (bias[:n].clone(), b[:n]),
            (bias[1:], b[1:]),  # at an odd address
            (wide[1:, 0], b[1:]),
            (bias[:1].expand(n), b[:1].repeat(n)),
        ):
            expected = a @ w.T + added
            assert_close(torch.nn.functional.linear(x, weight, vector), expected, scale=100)
            assert_close(torch.addmm(vector, x, weight.t()), expected, scale=100)
            assert_close(torch.addmm(vector, x, weight.t(), alpha=2), expected + a @ w.T, scale=100)
        assert_close(
            torch.nn.functional.linear(x[None], weight, bias[1:])[0], a @ w.T + b[1:], scale=100
        )


def test_half_products_with_a_bias_are_rounded_once(gpu: Any) -> None:
    tiny = 2**-11  # half of what a float16 of 1 can tell
    x = torch.tensor([[1.0, tiny]] * 16, dtype=torch.float16, device=gpu)
    weight = torch.ones(16, 2, dtype=torch.float16, device=gpu)
    bias = torch.full((16,), tiny, dtype=torch.float16, device=gpu)
    made = torch.nn.functional.linear(x, weight, bias)
    assert set(made.double().flatten().tolist()) == {1 + 2 * tiny}


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_bias(gpu: Any, dtype: str) -> None:
    x, weight = (_random(shape, 3) + 1j * _random(shape, 4) for shape in ((5, 4), (6, 4)))
    a, w = (torch.from_numpy(array.astype(dtype)).to(gpu) for array in (x, weight))
    made = torch.nn.functional.linear(a, w, w[:, 0].clone()).cpu().numpy()
    np.testing.assert_allclose(made, x @ weight.T + weight[:, 0], rtol=1e-4, atol=1e-4)


def test_out(gpu: Any) -> None:
    x = torch.ones(2, 3, device=gpu)
    out = torch.empty(0, device=gpu)
    assert torch.mm(x, x.t(), out=out) is out
    assert out.tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_integers(gpu: Any) -> None:
    x = torch.arange(4).reshape(2, 2)
    assert (x @ x).tolist() == [[2, 3], [6, 11]]
    with pytest.raises(NotImplementedError, match="\"addmm_cuda\" not implemented for 'Long'"):
        x.to(gpu) @ x.to(gpu)


_WRONG = [
    (lambda x: x @ x, RuntimeError, r"mat1 and mat2 shapes cannot be multiplied \(2x3 and 2x3\)"),
    (
        lambda x: x @ x.t().double(),
        RuntimeError,
        "expected m1 and m2 to have the same dtype, but got: Float != Double",
    ),
    (lambda x: x @ torch.tensor(1.0, device="cuda"), RuntimeError, "need to be at least 1D"),
    (lambda x: x @ torch.ones(3), RuntimeError, "Expected all tensors to be on the same device"),
    (lambda x: torch.bmm(x, x), RuntimeError, "must be 3D tensors"),
    (lambda x: torch.dot(x, x), RuntimeError, "1D tensors expected"),
    (lambda x: torch.mm(x[0], x), RuntimeError, "must be a matrix"),
    (lambda x: x @ 2, TypeError, "unsupported operand"),
]


@pytest.mark.parametrize("case", _WRONG, ids=lambda case: case[2][:25])
def test_wrong_operands(case: Any, gpu: Any) -> None:
    call, error, text = case
    with pytest.raises(error, match=text):
        call(torch.ones(2, 3, device=gpu))
