# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.virtual.ptx.harness import apply

S32 = np.array([0, 1, -1, 2, 7, -7, 31, 255, 2**31 - 1, -(2**31), 12345, -98765], np.int32)
S64 = np.array([0, 1, -1, 3, 63, -64, 2**63 - 1, -(2**63), 10**12, -(10**15)], np.int64)
U32 = S32.view(np.uint32)
U64 = S64.view(np.uint64)


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(list(itertools.product(values, values)), values.dtype)
    return table[:, 0].copy(), table[:, 1].copy()


def python(function, *arrays: np.ndarray, dtype: type) -> np.ndarray:
    """Python's integers, cut to the width."""
    bits = np.dtype(dtype).itemsize * 8
    values = [
        function(*(int(x) for x in row)) & ((1 << bits) - 1) for row in zip(*arrays, strict=True)
    ]
    return np.array(values, f"u{bits // 8}").view(dtype)


def truncating_division(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("add", lambda a, b: a + b),
        ("sub", lambda a, b: a - b),
        ("mul.lo", lambda a, b: a * b),
        ("min", min),
        ("max", max),
        ("div", lambda a, b: truncating_division(a, b) if b else -1),
        ("rem", lambda a, b: a - truncating_division(a, b) * b if b else -1),
    ],
)
@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
def test_arithmetic_at_the_edges(op, function, kind):
    values = {"s32": S32, "u32": U32, "s64": S64, "u64": U64}[kind]
    a, b = pairs(values)
    got = apply(f"{op}.{kind} %d, %a, %b;", values.dtype, a, b)
    np.testing.assert_array_equal(got, python(function, a, b, dtype=values.dtype.type))


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
def test_high_half_of_a_product(kind):
    values = {"s32": S32, "u32": U32, "s64": S64, "u64": U64}[kind]
    bits = values.itemsize * 8
    a, b = pairs(values)
    got = apply(f"mul.hi.{kind} %d, %a, %b;", values.dtype, a, b)
    expected = python(lambda x, y: (x * y) >> bits, a, b, dtype=values.dtype.type)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("kind", ["s32", "u32"])
def test_wide_product_and_sum(kind):
    values, wide = (S32, np.int64) if kind == "s32" else (U32, np.uint64)
    a, b = pairs(values)
    c = (np.arange(a.size) * 7919).astype(wide)
    got = apply(f"mad.wide.{kind} %d, %a, %b, %c;", wide, a, b, c)
    np.testing.assert_array_equal(got, python(lambda x, y, z: x * y + z, a, b, c, dtype=wide))


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("op", ["shl.b", "shr.u", "shr.s"])
def test_shifts_past_the_width(op, bits):
    dtype = np.dtype(f"i{bits // 8}")
    values = np.array([1, -1, 5, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    amounts = np.array([0, 1, 7, bits - 1, bits, bits + 1, 200, 2**32 - 1], np.uint32)
    table = list(itertools.product(values, amounts))
    a = np.array([v for v, _ in table], dtype)
    n = np.array([k for _, k in table], np.uint32)
    got = apply(f"{op}{bits} %d, %a, %b;", dtype, a, n)
    mask = (1 << bits) - 1

    def reference(value: int, amount: int) -> int:
        if op == "shl.b":
            return value << min(amount, bits)
        if op == "shr.u":
            return (value & mask) >> min(amount, bits)
        return value >> min(amount, bits)

    np.testing.assert_array_equal(got, python(reference, a, n, dtype=dtype.type))


def reference_bfe(value: int, position: int, length: int, bits: int, signed: bool) -> int:
    position, length = position & 255, length & 255
    top = bits - 1
    sign = 0 if not signed or length == 0 else value >> min(position + length - 1, top) & 1
    total = 0
    for i in range(bits):
        inside = i < length and position + i <= top
        total |= (value >> (position + i) & 1 if inside else sign) << i
    return total


def reference_bfi(a: int, b: int, position: int, length: int, bits: int) -> int:
    position, length = position & 255, length & 255
    for i in range(length):
        if position + i < bits:
            b = b & ~(1 << (position + i)) | (a >> i & 1) << (position + i)
    return b


FIELDS = np.array(
    list(itertools.product([0, 1, 5, 31, 32, 63, 64, 255], [0, 1, 8, 31, 32, 33, 64, 255])),
    np.uint32,
)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("sign", ["u", "s"])
def test_extract_field(bits, sign):
    value = np.array([0xDEADBEEF87654321 & ((1 << bits) - 1)], f"u{bits // 8}")
    position, length = FIELDS[:, 0], FIELDS[:, 1]
    a = np.repeat(value, len(FIELDS))
    got = apply(f"bfe.{sign}{bits} %d, %a, %b, %c;", a.dtype, a, position, length)
    expected = [reference_bfe(int(value[0]), int(p), int(n), bits, sign == "s") for p, n in FIELDS]
    np.testing.assert_array_equal(got, np.array(expected, a.dtype))


@pytest.mark.parametrize("bits", [32, 64])
def test_insert_field(bits):
    mask = (1 << bits) - 1
    x, y = 0xA5A5A5A512345678 & mask, 0x0F0F0F0FFFFF0000 & mask
    a, b = (np.full(len(FIELDS), v, f"u{bits // 8}") for v in (x, y))
    got = apply(f"bfi.b{bits} %d, %a, %b, %c, %e;", a.dtype, a, b, FIELDS[:, 0], FIELDS[:, 1])
    expected = [reference_bfi(x, y, int(p), int(n), bits) for p, n in FIELDS]
    np.testing.assert_array_equal(got, np.array(expected, a.dtype))


WORD = st.integers(0, 2**32 - 1)


def words(*values: int) -> list[np.ndarray]:
    return [np.array([v], np.uint32) for v in values]


@settings(deadline=None)  # the first example compiles
@given(WORD, WORD, WORD)
def test_permute_bytes(a, b, selector):
    got = apply("prmt.b32 %d, %a, %b, %c;", np.uint32, *words(a, b, selector))
    source = (a | b << 32).to_bytes(8, "little")
    expected = 0
    for n in range(4):
        nibble = selector >> 4 * n & 15
        value = source[nibble & 7]
        expected |= ((0xFF if value & 0x80 else 0) if nibble & 8 else value) << 8 * n
    assert got[0] == expected


@settings(deadline=None)  # the first example compiles
@given(WORD, WORD, WORD, st.sampled_from([0x00, 0x96, 0xE8, 0xCA, 0x1B, 0xFF]))
def test_logic_of_three(a, b, c, table):
    got = apply(f"lop3.b32 %d, %a, %b, %c, {table};", np.uint32, *words(a, b, c))
    expected = 0
    for bit in range(32):
        row = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | c >> bit & 1
        expected |= (table >> row & 1) << bit
    assert got[0] == expected


@settings(deadline=None)  # the first example compiles
@given(WORD, WORD, st.integers(0, 100))
@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_funnel_shift(mode, low, high, amount):
    n = min(amount, 32) if mode == "clamp" else amount & 31
    both = high << 32 | low
    left = apply(f"shf.l.{mode}.b32 %d, %a, %b, %c;", np.uint32, *words(low, high, amount))
    right = apply(f"shf.r.{mode}.b32 %d, %a, %b, %c;", np.uint32, *words(low, high, amount))
    assert left[0] == (both << n) >> 32 & 0xFFFFFFFF
    assert right[0] == both >> n & 0xFFFFFFFF


@settings(deadline=None)  # the first example compiles
@given(st.integers(0, 2**64 - 1))
def test_counting_bits(value):
    a = np.array([value], np.uint64)
    assert apply("popc.b64 %d, %a;", np.uint32, a)[0] == value.bit_count()
    assert apply("clz.b64 %d, %a;", np.uint32, a)[0] == 64 - value.bit_length()
    found = apply("bfind.u64 %d, %a;", np.uint32, a)[0]
    assert found == (value.bit_length() - 1) % 2**32
    assert apply("brev.b64 %d, %a;", np.uint64, a)[0] == int(f"{value:064b}"[::-1], 2)


@settings(deadline=None)  # the first example compiles
@given(*[st.integers(0, 2**64 - 1)] * 2)
def test_carry_chains_make_128_bits(x, y):
    a, b = np.array([x], np.uint64), np.array([y], np.uint64)
    body = """
    .reg .b32 %x<4>, %y<4>; .reg .b64 %lo, %hi;
    mov.b64 {%x0, %x1}, %a; mov.b64 {%y0, %y1}, %b;
    add.cc.u32 %x0, %x0, %y0; addc.cc.u32 %x1, %x1, %y1; addc.u32 %x2, 0, 0;
    cvt.u64.u32 %d, %x2;"""
    assert apply(body, np.uint64, a, b)[0] == (x + y) >> 64
    body = """
    .reg .b64 %z0, %z1;
    sub.cc.u64 %z0, %a, %b; subc.u64 %z1, 0, 0; mov.b64 %d, %z1;"""
    assert apply(body, np.uint64, a, b)[0] == (-1 if x < y else 0) % 2**64
    body = """
    .reg .b64 %z0, %z1;
    mad.lo.cc.u64 %z0, %a, %b, %b; madc.hi.u64 %z1, %a, %b, 0; mov.b64 %d, %z1;"""
    assert apply(body, np.uint64, a, b)[0] == (x * y + y) >> 64


def test_small_types():
    a = np.arange(-128, 128).astype(np.int16)
    wide = apply("mul.wide.s16 %d, %a, %a;", np.int32, a)
    np.testing.assert_array_equal(wide, a.astype(np.int32) ** 2)
    np.testing.assert_array_equal(apply("neg.s16 %d, %a;", np.int16, a), -a)
    np.testing.assert_array_equal(apply("abs.s16 %d, %a;", np.int16, a), abs(a))


def test_saturating_sums():
    a, b = pairs(S32)
    got = apply("add.sat.s32 %d, %a, %b;", np.int32, a, b)
    total = a.astype(np.int64) + b
    np.testing.assert_array_equal(got, total.clip(-(2**31), 2**31 - 1))


def test_dot_of_bytes():
    rng = np.random.default_rng(1)
    a = rng.integers(-128, 128, (50, 4)).astype(np.int8)
    b = rng.integers(0, 256, (50, 4)).astype(np.uint8)
    c = rng.integers(-1000, 1000, 50).astype(np.int32)
    got = apply(
        "dp4a.s32.u32 %d, %a, %b, %c;", np.int32, a.view(np.int32)[:, 0], b.view(np.int32)[:, 0], c
    )
    np.testing.assert_array_equal(got, (a.astype(int) * b).sum(1) + c)


@pytest.mark.parametrize("half", ["lo", "hi"])
def test_dot_of_half_words(half):
    rng = np.random.default_rng(2)
    a = rng.integers(-(2**15), 2**15, (50, 2)).astype(np.int16)
    b = rng.integers(0, 256, (50, 4)).astype(np.uint8)
    got = apply(
        f"dp2a.{half}.s32.u32 %d, %a, %b, 7;",
        np.int32,
        a.view(np.int32)[:, 0],
        b.view(np.int32)[:, 0],
    )
    pairs_of_b = b[:, :2] if half == "lo" else b[:, 2:]
    np.testing.assert_array_equal(got, (a.astype(int) * pairs_of_b).sum(1) + 7)


def test_a_register_that_is_read_before_it_is_written_holds_zero():
    body = ".reg .b32 %z; .reg .pred %w; setp.eq.s32 %w, %a, 7; @%w mov.b32 %z, %a; mov.b32 %d, %z;"
    np.testing.assert_array_equal(
        apply(body, np.int32, np.array([7, 8], np.int32)), np.array([7, 0], np.int32)
    )
