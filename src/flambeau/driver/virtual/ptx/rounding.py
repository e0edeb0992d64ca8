# SPDX-License-Identifier: Apache-2.0
"""Rounding in IR: flush to zero, saturation, directed rounding, half-precision conversions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.lowering import Lowering

__all__ = [
    "MODES",
    "canonical",
    "directed_fma",
    "flush",
    "from_half",
    "rounding_mode",
    "saturate",
    "step_towards",
    "to_half",
]

MODES = {"rn": 0, "rz": 1, "rm": 2, "rp": 3}
_INTRINSIC = {"float": "f32", "double": "f64"}


def intrinsic(name: str, kind: str) -> str:
    """The full name of a floating-point intrinsic."""
    return f"llvm.{name}.{_INTRINSIC[kind]}"


def rounding_mode(modifiers: tuple[str, ...]) -> str:
    """The rounding that an instruction names; to nearest without one."""
    return next((m for m in modifiers if m in MODES), "rn")


def canonical(f: Lowering, value: str) -> str:
    """An f32 result with the one NaN that GPUs make, 0x7fffffff; f64 agrees with the host's."""
    nan = f.value(f"fcmp uno float {value}, {value}")
    return f.value(f"select i1 {nan}, float bitcast (i32 2147483647 to float), float {value}")


def flush(f: Lowering, value: str) -> str:
    """Subnormal f32 to zero, keeping the sign."""
    bits = f.value(f"bitcast float {value} to i32")
    exponent = f.value(f"and i32 {bits}, 2139095040")
    small = f.value(f"icmp eq i32 {exponent}, 0")
    sign = f.value(f"and i32 {bits}, -2147483648")
    return f.value(f"bitcast i32 {f.value(f'select i1 {small}, i32 {sign}, i32 {bits}')} to float")


def saturate(f: Lowering, value: str, kind: str) -> str:
    """Clamp to [0, 1]; NaN becomes 0."""
    zero, one = f"{kind} 0.0", f"{kind} 1.0"
    low = f.call(kind, intrinsic("maximumnum", kind), f"{kind} {value}", zero)
    return f.call(kind, intrinsic("minimumnum", kind), f"{kind} {low}", one)


def step_towards(
    f: Lowering, bits: str, kind: str, too_high: str, too_low: str, negative: str, mode: str
) -> str:
    """Correct a nearest rounding into a directed one.

    Parameters
    ----------
    bits, kind
        The rounded number as an integer of this type.
    too_high, too_low
        Whether it lies above or below the exact value.
    negative
        Whether the exact value is negative.
    mode
        ``rz``, ``rm`` or ``rp``.
    """
    sign = f.value(f"icmp slt {kind} {bits}, 0")
    up = f.value(f"select i1 {sign}, {kind} -1, {kind} 1")
    down = f.value(f"sub {kind} 0, {up}")
    if mode == "rm":
        move = f.value(f"select i1 {too_high}, {kind} {down}, {kind} 0")
    elif mode == "rp":
        move = f.value(f"select i1 {too_low}, {kind} {up}, {kind} 0")
    else:
        from_above = f.value(f"select i1 {too_high}, {kind} {down}, {kind} 0")
        from_below = f.value(f"select i1 {too_low}, {kind} {up}, {kind} 0")
        move = f.value(f"select i1 {negative}, {kind} {from_below}, {kind} {from_above}")
    return f.value(f"add {kind} {bits}, {move}")


def directed_fma(f: Lowering, a: str, b: str, c: str, mode: str) -> str:
    """a*b + c of f32, rounded once in a direction.

    The product of two f32 is exact in f64; the error of the sum there is known exactly, so that
    the rounded result can be compared with the exact one.
    """
    x, y, z = (f.value(f"fpext float {v} to double") for v in (a, b, c))
    product = f.value(f"fmul double {x}, {y}")
    total = f.value(f"fadd double {product}, {z}")
    part = f.value(f"fsub double {total}, {product}")
    rest = f.value(f"fsub double {total}, {part}")
    error = f.value(
        f"fadd double {f.value(f'fsub double {product}, {rest}')}, "
        f"{f.value(f'fsub double {z}, {part}')}"
    )
    near = f.value(f"fptrunc double {total} to float")
    back = f.value(f"fpext float {near} to double")
    same = f.value(f"fcmp oeq double {back}, {total}")
    above = f.value(f"fcmp ogt double {back}, {total}")
    below = f.value(f"fcmp olt double {back}, {total}")
    short = f.value(f"and i1 {same}, {f.value(f'fcmp olt double {error}, 0.0')}")
    long = f.value(f"and i1 {same}, {f.value(f'fcmp ogt double {error}, 0.0')}")
    bits = f.value(f"bitcast float {near} to i32")
    moved = step_towards(
        f,
        bits,
        "i32",
        f.value(f"or i1 {above}, {short}"),
        f.value(f"or i1 {below}, {long}"),
        f.value(f"fcmp olt double {total}, 0.0"),
        mode,
    )
    if mode == "rm":  # a sum that cancels is -0 when rounding down
        moved = negative_zero(f, moved, total, product, z)
    return f.value(f"bitcast i32 {moved} to float")


def negative_zero(f: Lowering, bits: str, total: str, product: str, addend: str) -> str:
    """Set the sign of a zero that came from terms of different signs."""
    zero = f.value(f"fcmp oeq double {total}, 0.0")
    signs = f.value(
        f"xor i64 {f.value(f'bitcast double {product} to i64')}, "
        f"{f.value(f'bitcast double {addend} to i64')}"
    )
    differ = f.value(f"icmp slt i64 {signs}, 0")
    cancelled = f.value(f"and i1 {zero}, {differ}")
    return f.value(f"select i1 {cancelled}, i32 -2147483648, i32 {bits}")


def from_half(f: Lowering, value: str, ptx_type: str) -> str:
    """An f16 or bf16, as its bits, to f32; exact."""
    if ptx_type == "bf16":
        wide = f.value(f"shl i32 {f.value(f'zext i16 {value} to i32')}, 16")
        return f.value(f"bitcast i32 {wide} to float")
    half = f.value(f"bitcast i16 {value} to half")
    return f.value(f"fpext half {half} to float")


def to_half(f: Lowering, value: str, ptx_type: str, mode: str = "rn") -> str:
    """An f32 to f16 or bf16 bits; NaN becomes 0x7fff."""
    if ptx_type == "bf16":
        near = nearest_bf16(f, value)
    else:
        near = f.value(f"bitcast half {f.value(f'fptrunc float {value} to half')} to i16")
    if mode != "rn":
        back = from_half(f, near, ptx_type)
        near = step_towards(
            f,
            near,
            "i16",
            f.value(f"fcmp ogt float {back}, {value}"),
            f.value(f"fcmp olt float {back}, {value}"),
            f.value(f"fcmp olt float {value}, 0.0"),
            mode,
        )
    nan = f.value(f"fcmp uno float {value}, 0.0")
    return f.value(f"select i1 {nan}, i16 32767, i16 {near}")


def nearest_bf16(f: Lowering, value: str) -> str:
    """The upper half of an f32, rounded to nearest even; wrong for NaN."""
    bits = f.value(f"bitcast float {value} to i32")
    upper = f.value(f"lshr i32 {bits}, 16")
    tie = f.value(f"add i32 {f.value(f'and i32 {upper}, 1')}, 32767")
    rounded = f.value(f"lshr i32 {f.value(f'add i32 {bits}, {tie}')}, 16")
    return f.value(f"trunc i32 {rounded} to i16")


def narrow_to_odd(f: Lowering, value: str) -> str:
    """An f64 to f32, the last bit telling of a remainder: safe to round once more."""
    near = f.value(f"fptrunc double {value} to float")
    back = f.value(f"fpext float {near} to double")
    bits = f.value(f"bitcast float {near} to i32")
    high = f.value(f"fcmp ogt double {back}, {value}")
    low = f.value(f"fcmp olt double {back}, {value}")
    towards_zero = step_towards(
        f, bits, "i32", high, low, f.value(f"fcmp olt double {value}, 0.0"), "rz"
    )
    inexact = f.value(f"zext i1 {f.value(f'or i1 {high}, {low}')} to i32")
    odd = f.value(f"or i32 {towards_zero}, {inexact}")
    return f.value(f"bitcast i32 {odd} to float")
