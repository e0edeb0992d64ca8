# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from driver.virtual.ptx.harness import apply

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(3)
ALL = np.arange(65536, dtype=np.uint16)


def bits_of(values: np.ndarray) -> np.ndarray:
    return values.view(np.uint16)


def same(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal bits; every NaN is 0x7fff."""
    nan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(got[~nan], bits_of(expected)[~nan])
    assert (got[nan] == 0x7FFF).all()


@pytest.mark.parametrize(("kind", "dtype"), [("f16", np.float16), ("bf16", BF16)])
def test_every_half_survives_f32(kind, dtype):
    wide = apply(f"cvt.f32.{kind} %d, %a;", np.float32, ALL)
    values = ALL.view(dtype)
    nan = np.isnan(values.astype(np.float32))
    np.testing.assert_array_equal(wide[~nan], values.astype(np.float32)[~nan])
    back = apply(f"cvt.rn.{kind}.f32 %d, %a;", np.uint16, wide)
    same(back, values)


@pytest.mark.parametrize(("kind", "dtype"), [("f16", np.float16), ("bf16", BF16)])
def test_rounding_to_nearest_even(kind, dtype):
    x = np.concatenate(
        [
            RNG.standard_normal(4000) * 10.0 ** RNG.integers(-9, 6, 4000),
            [65504, 65519.9, 65520, 1e39],
        ]
    )
    with np.errstate(over="ignore"):
        x = x.astype(np.float32)
        same(apply(f"cvt.rn.{kind}.f32 %d, %a;", np.uint16, x), x.astype(dtype))


@pytest.mark.parametrize(("kind", "dtype"), [("f16", np.float16), ("bf16", BF16)])
def test_directed_narrowing(kind, dtype):
    x = (RNG.standard_normal(2000) * 10.0 ** RNG.integers(-6, 5, 2000)).astype(np.float32)
    x = x[np.abs(x) < 60000]
    low, high, inner = (
        apply(f"cvt.{mode}.{kind}.f32 %d, %a;", np.uint16, x).view(dtype).astype(np.float32)
        for mode in ("rm", "rp", "rz")
    )
    inexact = x.astype(dtype).astype(np.float32) != x
    assert (low <= x).all()
    assert (high >= x).all()
    assert (low < high)[inexact].all()
    assert (low == high)[~inexact].all()
    np.testing.assert_array_equal(inner, np.where(x > 0, low, high))


@pytest.mark.parametrize(("kind", "dtype"), [("f16", np.float16), ("bf16", BF16)])
@pytest.mark.parametrize("op", ["add", "mul", "sub"])
def test_arithmetic(op, kind, dtype):
    a = RNG.permutation(ALL)
    b = RNG.permutation(ALL)
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[op]
    with np.errstate(all="ignore"):
        x, y = a.view(dtype).astype(np.float32), b.view(dtype).astype(np.float32)
        expected = function(x, y).astype(dtype)
    same(apply(f"{op}.{kind} %d, %a, %b;", np.uint16, a, b), expected)


def test_fma_of_halves_rounds_once():
    a, b, c = (RNG.standard_normal(20000).astype(np.float16) for _ in range(3))
    # products of 11-bit numbers and the sum are exact in the 64 bits of long double
    exact = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
    got = apply("fma.rn.f16 %d, %a, %b, %c;", np.uint16, *map(bits_of, (a, b, c)))
    value = got.view(np.float16)
    gap = np.abs(value.astype(np.longdouble) - exact)
    for way in (np.inf, -np.inf):
        other = np.nextafter(value, np.float16(way)).astype(np.longdouble)
        assert (gap <= np.abs(other - exact)).all()


@pytest.mark.parametrize(("kind", "dtype"), [("f16x2", np.float16), ("bf16x2", BF16)])
def test_pairs(kind, dtype):
    a, b, c = (RNG.standard_normal((500, 2)).astype(dtype) for _ in range(3))
    words = [v.view(np.uint32)[:, 0] for v in (a, b, c)]
    got = apply(
        f"mul.rn.{kind} %d, %a, %b;" if kind == "f16x2" else f"fma.rn.{kind} %d, %a, %b, %c;",
        np.uint32,
        *words,
    )
    x, y, z = (v.astype(np.float64) for v in (a, b, c))
    expected = (x * y if kind == "f16x2" else x * y + z).astype(np.float32)
    got = got.view(dtype).reshape(-1, 2).astype(np.float32)
    np.testing.assert_allclose(got, expected, rtol=2.0 ** (-11 if kind == "f16x2" else -8))


def test_packing_puts_the_first_operand_on_top():
    a = np.array([1.5], np.float32)
    b = np.array([-2.0], np.float32)
    got = apply("cvt.rn.f16x2.f32 %d, %a, %b;", np.uint32, a, b).view(np.float16)
    np.testing.assert_array_equal(got, np.array([-2.0, 1.5], np.float16))


def test_extremes():
    a, b = RNG.permutation(ALL), RNG.permutation(ALL)
    x, y = (v.view(np.float16) for v in (a, b))
    with np.errstate(invalid="ignore"):
        expected = np.fmax(x, y)
    zeros = (x == 0) & (y == 0)
    expected[zeros] = np.where(np.signbit(x) & np.signbit(y), -0.0, 0.0)[zeros]
    same(apply("max.f16 %d, %a, %b;", np.uint16, a, b), expected)


def test_sign_bits_change_alone():
    np.testing.assert_array_equal(apply("neg.f16 %d, %a;", np.uint16, ALL), ALL ^ 0x8000)
    np.testing.assert_array_equal(apply("abs.bf16 %d, %a;", np.uint16, ALL), ALL & 0x7FFF)


def test_double_to_half_rounds_once():
    # f64 -> f32 -> f16 would round this tie twice, to even
    x = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, -(1 + 2.0**-11 + 2.0**-40)])
    same(apply("cvt.rn.f16.f64 %d, %a;", np.uint16, x), x.astype(np.float16))
