# SPDX-License-Identifier: Apache-2.0
"""Complex numbers, the wide unsigned integers and the eight-bit floats."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import flambeau as torch

FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
UNSIGNED = ("uint16", "uint32", "uint64")
# Names that NumPy has too; those of the second line under another one.
FUNCTIONS = """
exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh square reciprocal abs angle
asin:arcsin acos:arccos atan:arctan asinh:arcsinh acosh:arccosh atanh:arctanh conj sinc
"""


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest, gpu: Any) -> Any:
    """The host, and a GPU."""
    return gpu if request.param == "cuda" else torch.device("cpu")


def complexes(count: int = 40, seed: int = 0) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    return (random.normal(size=count) + 1j * random.normal(size=count)).astype(np.complex64)


def close(found: torch.Tensor, expected: Any, tolerance: float = 2e-5) -> None:
    have = found.cpu().numpy()
    assert have.dtype == np.asarray(expected).dtype, (have.dtype, np.asarray(expected).dtype)
    np.testing.assert_allclose(have, expected, rtol=tolerance, atol=tolerance)


# -- complex ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", FUNCTIONS.split())
def test_functions_of_complex_numbers(names: str, device: Any) -> None:
    name, _, numpy_name = names.partition(":")
    values = complexes()
    x = torch.from_numpy(values).to(device)
    form = getattr(np, numpy_name or name, None) or {"exp2": lambda a: 2**a}[name]
    close(getattr(torch, name)(x), form(values))


def test_arithmetic_of_complex_numbers(device: Any) -> None:
    a, b = complexes(seed=1), complexes(seed=2)
    x, y = torch.from_numpy(a).to(device), torch.from_numpy(b).to(device)
    close(x + y, a + b)
    close(x - 2, a - 2)
    close(x * (1 - 2j), a * np.complex64(1 - 2j))
    close(x / y, a / b)
    close(x**y, a**b, 1e-4)
    close(-x, -a)
    close(torch.where(x.real > 0, x, y), np.where(a.real > 0, a, b))
    close(x.masked_fill(x.imag > 0, 3j), np.where(a.imag > 0, np.complex64(3j), a))
    assert ((x == x.clone()) & (x != y)).all().item()
    assert (x + torch.ones(40, device=device).double()).dtype == torch.complex128


def test_reductions_of_complex_numbers(device: Any) -> None:
    values = complexes(60).reshape(4, 15)
    x = torch.from_numpy(values).to(device)
    close(x.sum(), values.sum())
    close(x.sum(1), values.sum(1))
    close(x.mean(0), values.mean(0))
    close(x.prod(1), values.prod(1), 1e-4)
    close(x.cumsum(1), values.cumsum(1))
    close(x.var(1), values.var(1, ddof=1))
    close(x.norm(), np.linalg.norm(values))
    assert x.any().item()
    with pytest.raises(RuntimeError, match="does not support complex input"):
        x.max()


def test_parts_of_complex_numbers_are_views(device: Any) -> None:
    values = complexes(24).reshape(4, 6)
    x = torch.from_numpy(values.copy()).to(device)
    pairs = torch.view_as_real(x.t())
    assert pairs.shape == (6, 4, 2)
    np.testing.assert_array_equal(pairs[..., 1].cpu().numpy(), values.T.imag)
    assert torch.view_as_complex(pairs).data_ptr() == x.data_ptr()
    x.real.mul_(2)
    x.imag = 0.5
    close(x, (values.real * 2 + 0.5j).astype(np.complex64))
    close(torch.complex(x.real, x.imag), x.cpu().numpy())
    close(torch.polar(x.abs(), x.angle()), x.cpu().numpy(), 1e-5)
    close(x.mH, x.cpu().numpy().conj().T)
    with pytest.raises(RuntimeError, match="stride 1"):
        torch.view_as_complex(torch.zeros(2, 2, device=device).t())


def test_complex_numbers_are_scattered_and_printed(gpu: Any) -> None:
    x = torch.tensor([1 + 1j, 2.0, 3.0], device=gpu)
    index = torch.tensor([0, 0, 2], device=gpu)
    assert torch.zeros_like(x).scatter_add(0, index, x).tolist() == [3 + 1j, 0, 3]
    assert x[index].tolist() == [1 + 1j, 1 + 1j, 3]
    assert repr(x.cpu()) == "tensor([1.+1.j, 2.+0.j, 3.+0.j])"
    drawn = torch.randn(1000, dtype=torch.complex64, device=gpu)
    assert 0.8 < drawn.abs().square().mean().item() < 1.2


# -- unsigned --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", UNSIGNED)
def test_unsigned_integers_wrap(name: str, device: Any) -> None:
    limit = np.iinfo(name).max
    values = np.array([0, 1, 7, limit - 1, limit], dtype=name)
    x = torch.from_numpy(values).to(device)
    one = np.array(1, dtype=name)
    np.testing.assert_array_equal((x + 1).cpu().numpy(), values + one)
    np.testing.assert_array_equal((x * x).cpu().numpy(), values * values)
    np.testing.assert_array_equal((x // 3).cpu().numpy(), values // np.array(3, dtype=name))
    np.testing.assert_array_equal((x > 6).cpu().numpy(), values > 6)
    np.testing.assert_array_equal(x.sort(descending=True).values.cpu().numpy(), values[::-1])
    assert int(x.max().item()) == limit
    assert (x * 0.5).dtype == torch.float32
    with pytest.raises(RuntimeError, match="Promotion for"):
        x + torch.ones(5, dtype=torch.int32, device=device)


# -- eight-bit floats ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOAT8)
def test_every_code_of_an_eight_bit_float(name: str, device: Any) -> None:
    codes = np.arange(256, dtype=np.uint8)
    x = torch.from_numpy(codes).to(device).view(getattr(torch, name))
    expected = codes.view(getattr(ml_dtypes, name)).astype(np.float32)
    np.testing.assert_array_equal(x.float().cpu().numpy(), expected)
    again = x.float().to(x.dtype).float().cpu().numpy()
    np.testing.assert_array_equal(again, expected)


@pytest.mark.parametrize("name", FLOAT8)
def test_rounding_to_an_eight_bit_float(name: str, device: Any) -> None:
    random = np.random.default_rng(5)
    values = (random.normal(size=4000) * 2.0 ** random.integers(-12, 6, 4000)).astype(np.float32)
    values[:6] = 0.0, -0.0, np.nan, 2.0**-9, 2.0**-10, 3 * 2.0**-10
    x = torch.from_numpy(values).to(device)
    expected = values.astype(getattr(ml_dtypes, name)).astype(np.float32)
    np.testing.assert_array_equal(x.to(getattr(torch, name)).float().cpu().numpy(), expected)


def test_eight_bit_floats_are_for_storage(gpu: Any) -> None:
    x = torch.tensor([0.5, 1.0, float("nan")], device=gpu).to(torch.float8_e4m3fn)
    assert torch.cat([x, x]).float().isnan().sum().item() == 2
    assert (x == x.clone()).tolist() == [True, True, False]
    assert x[torch.tensor([1, 0], device=gpu)].float().tolist() == [1.0, 0.5]
    with pytest.raises(NotImplementedError, match="not implemented for 'Float8_e4m3fn'"):
        x + x
