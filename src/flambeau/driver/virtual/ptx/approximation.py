# SPDX-License-Identifier: Apache-2.0
"""Elementary functions in IR: a call of the C library would keep threads from running in rows."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.lowering import Lowering

__all__ = ["power_of_two"]

# 2**f for |f| <= 0.5 is 1 + f*(c0 + f*(c1 + ...)); relative error 2e-9 before rounding
_EXP2 = (
    0.6931471824645996,
    0.24022647738456726,
    0.055503323674201965,
    0.00961843691766262,
    0.0013398875016719103,
    0.00015353361959569156,
)
_LOWEST, _HIGHEST = -160.0, 130.0  # beyond, the result is 0 or infinity


def constant(value: float) -> str:
    """An f32 constant, bit for bit."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return f"bitcast (i32 {bits} to float)"


def power_of_two(f: Lowering, x: str) -> str:
    """``2**x`` of an f32, within one ulp, subnormal results included."""
    low = f.value(f"fcmp ogt float {x}, {constant(_LOWEST)}")  # not for NaN
    above = f.value(f"select i1 {low}, float {x}, float {constant(_LOWEST)}")
    high = f.value(f"fcmp olt float {above}, {constant(_HIGHEST)}")
    inside = f.value(f"select i1 {high}, float {above}, float {constant(_HIGHEST)}")
    whole = f.call("float", "llvm.rint.f32", f"float {inside}")
    rest = f.value(f"fsub float {inside}, {whole}")
    power = constant(_EXP2[-1])
    for coefficient in (*_EXP2[-2::-1], 1.0):
        operands = (f"float {power}", f"float {rest}", f"float {constant(coefficient)}")
        power = f.call("float", "llvm.fma.f32", *operands)
    exponent = f.value(f"fptosi float {whole} to i32")
    half = f.value(f"ashr i32 {exponent}, 1")  # in two steps: the power may be subnormal
    for part in (half, f.value(f"sub i32 {exponent}, {half}")):
        bits = f.value(f"shl i32 {f.value(f'add i32 {part}, 127')}, 23")
        power = f.value(f"fmul float {power}, {f.value(f'bitcast i32 {bits} to float')}")
    nan = f.value(f"fcmp uno float {x}, {x}")
    return f.value(f"select i1 {nan}, float {x}, float {power}")
