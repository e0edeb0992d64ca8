# SPDX-License-Identifier: Apache-2.0
"""Conversions of 8-bit floating-point numbers, against a search among all numbers there are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.virtual.ptx.harness import apply

FORMATS = {"e4m3x2": (4, 3, 0x7E), "e5m2x2": (5, 2, 0x7B)}


def value(kind: str, byte: int) -> float:
    """The number that a byte stands for."""
    exponent_bits, fraction_bits, largest = FORMATS[kind]
    exponent, fraction = (byte & 127) >> fraction_bits, byte & (1 << fraction_bits) - 1
    sign = -1.0 if byte & 128 else 1.0
    if byte & 127 > largest:
        return sign * math.inf if kind == "e5m2x2" and fraction == 0 else math.nan
    digits = fraction + ((1 << fraction_bits) if exponent else 0)
    lowest = 2 - (1 << exponent_bits - 1) - fraction_bits
    return sign * math.ldexp(digits, max(exponent, 1) - 1 + lowest)


def nearest(kind: str, number: float) -> int:
    """The byte whose number lies nearest, the even one of two; nothing goes past the largest."""
    if math.isnan(number):
        return 0x7F
    size = min(abs(number), value(kind, FORMATS[kind][2]))
    byte = min(range(FORMATS[kind][2] + 1), key=lambda b: (abs(value(kind, b) - size), b & 1))
    return byte | (128 if math.copysign(1, number) < 0 else 0)


def edges(kind: str) -> np.ndarray:
    """Every number, what lies between two of them, and the neighbours of those."""
    finite = np.array([value(kind, b) for b in range(FORMATS[kind][2] + 1)], np.float32)
    middle = (finite[1:] + finite[:-1]) / 2
    points = np.concatenate([finite, middle, [np.inf, np.nan, 1e-40, 500, 60000, 1e30]])
    points = points.astype(np.float32)
    points = np.concatenate([points, np.nextafter(points, np.float32(0)), points * (1 + 2**-20)])
    return np.concatenate([points, -points]).astype(np.float32)


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("kind", FORMATS)
def test_narrowing(kind, relu):
    x = edges(kind)
    y = x[::-1].copy()
    got = apply(f"cvt.rn.satfinite{relu}.{kind}.f32 %d, %a, %b;", np.uint16, x, y)
    keep = np.where(x < 0, 0, x) if relu else x
    wanted = np.array([nearest(kind, float(v)) for v in keep])
    np.testing.assert_array_equal(got >> 8, wanted)
    np.testing.assert_array_equal(got & 255, wanted[::-1])


@pytest.mark.parametrize("kind", FORMATS)
def test_narrowing_from_half(kind):
    x = np.arange(1 << 16, dtype=np.uint16)[::7]
    pairs = x.astype(np.uint32) | x[::-1].astype(np.uint32) << 16
    got = apply(f"cvt.rn.satfinite.{kind}.f16x2 %d, %a;", np.uint16, pairs)
    wanted = np.array([nearest(kind, float(v)) for v in x.view(np.float16)])
    np.testing.assert_array_equal(got & 255, wanted)
    np.testing.assert_array_equal(got >> 8, wanted[::-1])


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("kind", FORMATS)
def test_widening(kind, relu):
    bytes_ = np.arange(256, dtype=np.uint16)
    got = apply(f"cvt.rn{relu}.f16x2.{kind} %d, %a;", np.uint32, bytes_ | bytes_[::-1] << 8)
    wanted = np.array([value(kind, int(b)) for b in bytes_], np.float16)
    wanted = np.where(wanted < 0, np.float16(0), wanted) if relu else wanted
    np.testing.assert_array_equal((got & 0xFFFF).astype(np.uint16).view(np.float16), wanted)
    np.testing.assert_array_equal((got >> 16).astype(np.uint16).view(np.float16), wanted[::-1])


@settings(max_examples=50, deadline=None)
@given(number=st.floats(width=32), kind=st.sampled_from(list(FORMATS)))
def test_any_number(number, kind):
    x = np.array([number], np.float32)
    got = apply(f"cvt.rn.satfinite.{kind}.f32 %d, %a, %a;", np.uint16, x)
    assert int(got[0]) == nearest(kind, number) * 257
