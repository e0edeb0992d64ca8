# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.virtual.ptx.harness import apply

F32 = np.array(
    [0.0, -0.0, 1.0, -1.5, 3.1415927, 1e-40, -1e-45, 3e38, -3.4e38, np.inf, -np.inf, np.nan, 1e-38],
    np.float32,
)
F64 = np.array(
    [0.0, -0.0, 1.0, -1.5, 2.718281828459045, 5e-324, 1e308, -1e308, np.inf, -np.inf, np.nan]
)
FINITE = st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False)


def triples(values: np.ndarray) -> list[np.ndarray]:
    return list(np.array(list(itertools.product(values, repeat=3)), values.dtype).T.copy())


def pairs(values: np.ndarray) -> list[np.ndarray]:
    return list(np.array(list(itertools.product(values, repeat=2)), values.dtype).T.copy())


def same(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal bit for bit, but any NaN is as good as another."""
    integer = f"u{got.itemsize}"
    nan = np.isnan(expected.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), nan)
    np.testing.assert_array_equal(got.view(integer)[~nan], expected.view(integer)[~nan])


@pytest.mark.parametrize(
    ("op", "function"),
    [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div.rn", np.divide)],
)
@pytest.mark.parametrize(("kind", "values"), [("f32", F32), ("f64", F64)])
def test_arithmetic_rounds_once(op, function, kind, values):
    a, b = pairs(values)
    with np.errstate(all="ignore"):
        same(apply(f"{op}.{kind} %d, %a, %b;", values.dtype, a, b), function(a, b))


def exact(*values: float) -> list[Fraction]:
    return [Fraction(float(v)) for v in values]


def round_f32(value: Fraction, mode: str) -> np.float32:
    """Round an exact number to f32 in a direction, by looking at both neighbours."""
    near = np.float32(float(value)) if value else np.float32(0)
    low = near if Fraction(float(near)) <= value else np.nextafter(near, np.float32(-np.inf))
    high = near if Fraction(float(near)) >= value else np.nextafter(near, np.float32(np.inf))
    if mode == "rm":
        return low
    if mode == "rp":
        return high
    return low if value > 0 else high


@settings(deadline=None)  # the first example compiles
@given(FINITE, FINITE, FINITE)
def test_fma_rounds_once(a, b, c):
    arrays = [np.array([v], np.float32) for v in (a, b, c)]
    got = apply("fma.rn.f32 %d, %a, %b, %c;", np.float32, *arrays)[0]
    x, y, z = exact(a, b, c)
    exact_value = x * y + z
    if np.isfinite(got) and exact_value:
        gap = abs(Fraction(float(got)) - exact_value)
        for other in (np.inf, -np.inf):
            neighbour = np.nextafter(got, np.float32(other))
            if np.isfinite(neighbour):
                assert gap <= abs(Fraction(float(neighbour)) - exact_value)


@settings(deadline=None)  # the first example compiles
@given(FINITE, FINITE, FINITE, st.sampled_from(["rz", "rm", "rp"]))
def test_directed_fma(a, b, c, mode):
    arrays = [np.array([v], np.float32) for v in (a, b, c)]
    x, y, z = exact(a, b, c)
    value = x * y + z
    got = apply(f"fma.{mode}.f32 %d, %a, %b, %c;", np.float32, *arrays)[0]
    if value and np.isfinite(got) and abs(value) > Fraction(2) ** -120:
        assert got == round_f32(value, mode)
    elif value == 0 and a * b != 0:
        assert np.signbit(got) == (mode == "rm")


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("op", ["add", "mul", "div"])
def test_directed_arithmetic_brackets_the_exact_value(op, kind):
    rng = np.random.default_rng(2)
    dtype = np.dtype(kind.replace("f32", "f4").replace("f64", "f8"))
    a, b = (rng.standard_normal(200).astype(dtype) for _ in range(2))
    low = apply(f"{op}.rm.{kind} %d, %a, %b;", dtype, a, b)
    high = apply(f"{op}.rp.{kind} %d, %a, %b;", dtype, a, b)
    towards_zero = apply(f"{op}.rz.{kind} %d, %a, %b;", dtype, a, b)
    for n in range(a.size):
        x, y = exact(a[n], b[n])
        value = {"add": x + y, "mul": x * y, "div": x / y}[op]
        below, above = exact(low[n], high[n])
        assert below <= value <= above
        assert above == below or np.nextafter(low[n], dtype.type(np.inf)) == high[n]
        assert towards_zero[n] == (low[n] if value > 0 else high[n])


@pytest.mark.parametrize(("kind", "values"), [("f32", F32), ("f64", F64)])
@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes_ignore_nan_and_order_zeros(op, kind, values):
    a, b = pairs(values)
    got = apply(f"{op}.{kind} %d, %a, %b;", values.dtype, a, b)
    expected = {"min": np.fmin, "max": np.fmax}[op](a, b)
    zeros = (a == 0) & (b == 0)
    negative = np.signbit(a) | np.signbit(b) if op == "min" else np.signbit(a) & np.signbit(b)
    expected[zeros] = np.where(negative, -0.0, 0.0)[zeros]
    same(got, expected)


def test_nan_propagating_minimum():
    a, b = pairs(F32)
    got = apply("min.NaN.f32 %d, %a, %b;", np.float32, a, b)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(a) | np.isnan(b))


def test_flush_to_zero():
    a = np.array([1e-40, -1e-40, 1.0], np.float32)
    got = apply("add.ftz.f32 %d, %a, 0f00000000;", np.float32, a)
    same(got[2:], a[2:])
    assert (got[:2] == 0).all()
    product = apply("mul.ftz.f32 %d, %a, %a;", np.float32, np.array([1e-21, -2.0], np.float32))
    same(product, np.array([0.0, 4.0], np.float32))


def test_saturation():
    a = np.array([-1.0, 0.25, 7.0, np.nan, -0.0], np.float32)
    got = apply("mov.b32 %d, %a; cvt.sat.f32.f32 %d, %d;", np.float32, a)
    same(got, np.array([0.0, 0.25, 1.0, 0.0, 0.0], np.float32))


@pytest.mark.parametrize(
    ("op", "function", "ulps"),
    [
        ("ex2.approx.ftz.f32", np.exp2, 1.5),
        ("lg2.approx.f32", np.log2, 1.5),
        ("sin.approx.f32", np.sin, 1.5),
        ("cos.approx.f32", np.cos, 1.5),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x), 0.51),
        ("tanh.approx.f32", np.tanh, 2.0),
        ("sqrt.rn.f32", np.sqrt, 0.5),
        ("rcp.rn.f32", lambda x: 1 / x, 0.5),
    ],
)
def test_elementary_functions(op, function, ulps):
    x = np.linspace(0.01, 20, 2000, dtype=np.float32)
    got = apply(f"{op} %d, %a;", np.float32, x).astype(np.float64)
    expected = function(x.astype(np.float64))
    error = np.abs(got - expected) / np.spacing(np.abs(expected).astype(np.float32))
    assert error.max() <= ulps


def test_gross_reciprocal_fills_the_upper_half():
    x = np.array([3.0, -0.7, 1e300, np.inf, 0.0])
    got = apply("rcp.approx.ftz.f64 %d, %a;", np.float64, x)
    assert not (got.view(np.uint64) & 0xFFFFFFFF).any()
    np.testing.assert_allclose(got[:3], 1 / x[:3], rtol=2e-6)
    same(got[3:], np.array([0.0, np.inf]))


TESTS = ("eq", "ne", "lt", "le", "gt", "ge")


@pytest.mark.parametrize("test", [*TESTS, *(f"{t}u" for t in TESTS), "num", "nan"])
def test_comparisons_with_nan(test):
    a, b = pairs(F32)
    got = apply(f"setp.{test}.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", np.uint32, a, b)
    unordered = np.isnan(a) | np.isnan(b)
    if test in {"num", "nan"}:
        expected = unordered == (test == "nan")
    else:
        name = {
            "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal",
            "gt": "greater", "ge": "greater_equal",
        }[test[:2]]  # fmt: skip
        expected = getattr(np, name)(a, b)
        expected = expected | unordered if test.endswith("u") else expected & ~unordered
    np.testing.assert_array_equal(got, expected)


def test_predicate_pairs_and_combination():
    a = np.arange(-3, 4).astype(np.int32)
    body = """setp.gt.s32 %p, %a, -2; setp.lt.and.s32 %p|%q, %a, 2, %p;
    selp.u32 %d, 1, 0, %p; @%q add.u32 %d, %d, 2;"""
    below = a < 2
    inside = a > -2
    expected = (below & inside) + 2 * (~below & inside)
    np.testing.assert_array_equal(apply(body, np.uint32, a), expected)


def test_properties_and_signs():
    finite = apply("testp.finite.f32 %p, %a; selp.u32 %d, 1, 0, %p;", np.uint32, F32)
    np.testing.assert_array_equal(finite, np.isfinite(F32))
    a, b = pairs(F32)
    same(apply("copysign.f32 %d, %a, %b;", np.float32, a, b), np.copysign(b, a))


@pytest.mark.parametrize(
    "body",
    [
        "div.rn.f32 %d, %a, %b;",
        "sub.f32 %d, %c, %c;",
        "mul.f32 %d, %a, %c;",
        "fma.rn.f32 %d, %a, %c, %b;",
        "sqrt.rn.f32 %d, %e;",
        "rsqrt.approx.f32 %d, %e;",
        "rcp.rn.f32 %d, %e; lg2.approx.f32 %d, %d;",
        "sin.approx.f32 %d, %c;",
        "neg.f32 %d, %c; add.f32 %d, %d, %c;",
        ".reg .f64 %w; cvt.f64.f32 %w, %c; sub.f64 %w, %w, %w; cvt.rn.f32.f64 %d, %w;",
    ],
)
def test_f32_has_one_nan(body):
    zero, infinity, minus = (np.array([v], np.float32) for v in (0.0, np.inf, -1.0))
    got = apply(body, np.float32, zero, zero, infinity, minus)
    assert got.view(np.uint32)[0] == 0x7FFFFFFF


def test_f64_keeps_the_sign_of_the_default_nan():
    zero = np.zeros(1)
    assert apply("div.rn.f64 %d, %a, %a;", np.float64, zero).view(np.uint64)[0] >> 51 == 0x1FFF
