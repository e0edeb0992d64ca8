# SPDX-License-Identifier: Apache-2.0
"""The short way of a matrix product, and what sends it the long way."""

import subprocess
import sys

import numpy as np
import pytest

import flambeau as torch
from flambeau.runtime import _matmul

A = np.random.default_rng(2).standard_normal((5, 7))
B = np.random.default_rng(3).standard_normal((7, 3))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_products_of_stored_and_transposed_matrices(dtype, gpu):
    def put(array):
        return torch.from_numpy(array.copy()).to(gpu).to(getattr(torch, dtype))

    tolerance = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-2, "bfloat16": 6e-2}[dtype]
    for a in (put(A), put(A.T).t()):
        for b in (put(B), put(B.T).t()):
            c = _matmul.product(a, b)
            assert c is not None
            assert (c.shape, c.dtype) == ((5, 3), a.dtype)
            np.testing.assert_allclose(c.double().cpu().numpy(), A @ B, atol=tolerance * 4)
            part = _matmul.product(a[1:, 2:], b[2:])
            np.testing.assert_allclose(
                part.double().cpu().numpy(), A[1:, 2:] @ B[2:], atol=tolerance * 4
            )


def test_what_is_not_simple_is_left_to_others(gpu):
    class Mine(torch.Tensor):
        pass

    x = torch.ones(4, 4, device=gpu)
    assert _matmul.product(x, x) is not None
    left = [
        (x, x.cpu()),
        (x.cpu(), x.cpu()),
        (x, x.double()),
        (x.long(), x.long()),
        (x, x[0]),
        (x, torch.ones(3, 4, device=gpu)),
        (x[:0], x),
        (x.as_subclass(Mine), x),
        (x[::2, ::2], x[:2]),
        (x, 3.0),
    ]
    assert [_matmul.product(a, b) for a, b in left] == [None] * len(left)


def test_strided_matrices_multiply_all_the_same(gpu):
    x = torch.arange(64.0, device=gpu).reshape(8, 8)
    expected = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    np.testing.assert_array_equal(
        (x[::2, ::2] @ x[:4]).cpu().numpy(), expected[::2, ::2] @ expected[:4]
    )


def test_a_workspace_size_that_is_no_number_is_refused():
    source = """
import flambeau as torch
x = torch.ones(256, 256, device="cuda")
try:
    x @ x
except ValueError as error:
    print(error)
"""
    import os

    done = subprocess.run(
        [sys.executable, "-c", source],
        env=os.environ | {"CUBLASLT_WORKSPACE_SIZE": "many"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "CUBLASLT_WORKSPACE_SIZE is a number of KiB, got 'many'" in done.stdout, done.stderr
