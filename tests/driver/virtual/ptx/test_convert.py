# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from driver.virtual.ptx.harness import apply

REALS = np.array(
    [0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 127.6, -129, 255.9, 300, 40000, 70000, 3e9, -3e9, 5e9,
     1e19, -1e19, 2e19, np.inf, -np.inf],
)  # fmt: skip
ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("mode", ROUND)
@pytest.mark.parametrize("target", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_real_to_integer_saturates(source, mode, target):
    x = REALS.astype(source.replace("f32", "f4").replace("f64", "f8"))
    dtype = np.dtype(f"{'i' if target[0] == 's' else 'u'}{int(target[1:]) // 8}")
    got = apply(f"cvt.{mode}.{target}.{source} %d, %a;", dtype, x)
    limits = np.iinfo(dtype)
    expected = [
        limits.max if v > limits.max else limits.min if v < limits.min else int(v)
        for v in ROUND[mode](x.astype(np.float64)).tolist()
    ]
    np.testing.assert_array_equal(got, np.array(expected, dtype))


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("f32", "s32", 0),
        ("f32", "u32", 0),
        ("f32", "s64", 1 << 63),
        ("f64", "s32", 1 << 31),
        ("f64", "u64", 1 << 63),
    ],
)
def test_nan_to_integer(source, target, expected):
    x = np.array([np.nan], source.replace("f32", "f4").replace("f64", "f8"))
    got = apply(f"cvt.rzi.{target}.{source} %d, %a;", f"u{int(target[1:]) // 8}", x)
    assert got[0] == expected


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("real", ["f32", "f64"])
def test_integer_to_real(kind, real):
    rng = np.random.default_rng(4)
    dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{int(kind[1:]) // 8}")
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 500, dtype, endpoint=True)
    target = np.dtype("f4" if real == "f32" else "f8")
    near = apply(f"cvt.rn.{real}.{kind} %d, %a;", target, x)
    np.testing.assert_array_equal(near, x.astype(target))
    low = apply(f"cvt.rm.{real}.{kind} %d, %a;", target, x)
    high = apply(f"cvt.rp.{real}.{kind} %d, %a;", target, x)
    for value, below, above in zip(x.tolist(), low, high, strict=True):
        assert int(below) <= value <= int(above)
        assert below == above or np.nextafter(below, target.type(np.inf)) == above


@pytest.mark.parametrize(
    ("op", "source", "target"),
    [
        ("cvt.s32.s8", np.int8, np.int32),
        ("cvt.u32.u8", np.uint8, np.uint32),
        ("cvt.s64.s32", np.int32, np.int64),
        ("cvt.u64.u32", np.uint32, np.uint64),
        ("cvt.u16.u64", np.uint64, np.uint16),
        ("cvt.s8.s32", np.int32, np.int8),
    ],
)
def test_integer_widths(op, source, target):
    rng = np.random.default_rng(5)
    x = rng.integers(np.iinfo(source).min, np.iinfo(source).max, 100, source, endpoint=True)
    np.testing.assert_array_equal(apply(f"{op} %d, %a;", target, x), x.astype(target))


def test_saturating_integer_conversion():
    x = np.array([-(2**31), -129, -128, 0, 127, 128, 255, 2**31 - 1], np.int32)
    np.testing.assert_array_equal(apply("cvt.sat.s8.s32 %d, %a;", np.int8, x), x.clip(-128, 127))
    np.testing.assert_array_equal(apply("cvt.sat.u8.s32 %d, %a;", np.uint8, x), x.clip(0, 255))


@pytest.mark.parametrize("mode", ROUND)
def test_rounding_to_integral_values(mode):
    x = np.array([-2.5, -1.5, -0.4, 0.5, 1.5, 2.5, 1e10], np.float32)
    got = apply(f"cvt.{mode}.f32.f32 %d, %a;", np.float32, x)
    np.testing.assert_array_equal(got, ROUND[mode](x))


def test_directed_narrowing_of_f64():
    rng = np.random.default_rng(6)
    x = rng.standard_normal(500)
    low = apply("cvt.rm.f32.f64 %d, %a;", np.float32, x)
    high = apply("cvt.rp.f32.f64 %d, %a;", np.float32, x)
    inner = apply("cvt.rz.f32.f64 %d, %a;", np.float32, x)
    assert (low.astype(np.float64) < x).all()
    assert (high.astype(np.float64) > x).all()
    np.testing.assert_array_equal(inner, np.where(x > 0, low, high))
    np.testing.assert_array_equal(np.nextafter(low, np.float32(np.inf)), high)
