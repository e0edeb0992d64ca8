# SPDX-License-Identifier: Apache-2.0
"""Conversions of pairs of 8-bit floating-point numbers, e4m3 and e5m2."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flambeau.driver.virtual.ptx.lower_half import elements, pack, rectify
from flambeau.driver.virtual.ptx.rounding import from_half, to_half

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.lowering import Lowering
    from flambeau.driver.virtual.ptx.syntax import Instruction

__all__ = ["PAIR_FORMATS", "convert_pair"]


class Format(NamedTuple):
    """Bits of the fraction, the exponent's bias, the largest number as bits of an f32."""

    fraction: int
    bias: int
    largest: int


PAIR_FORMATS = {"e4m3x2": Format(3, 7, 0x43E00000), "e5m2x2": Format(2, 15, 0x47600000)}
NAN = 0x7F  # of both formats


def convert_pair(f: Lowering, i: Instruction) -> None:
    """``cvt`` to pairs from two f32 or a pair of f16, and from pairs to a pair of f16."""
    target, source = i.modifiers[-2:]
    if "rn" not in i.modifiers or not {"ftz", "sat", "rna"}.isdisjoint(i.modifiers):
        i.unsupported()
    if source in PAIR_FORMATS:
        if target != "f16x2" or "satfinite" in i.modifiers:
            i.unsupported()
        pair = f.read(i.operands[1], "i16")
        high = f.value(f"lshr i16 {pair}, 8")
        values = [widen(f, part, source) for part in (f.value(f"and i16 {pair}, 255"), high)]
        if "relu" in i.modifiers:
            values = [rectify(f, value) for value in values]
        f.write(i.operands[0], pack(f, [to_half(f, value, "f16") for value in values]), "i32")
        return
    if source not in {"f32", "f16x2"} or "satfinite" not in i.modifiers:
        i.unsupported()
    if source == "f32":
        values = [f.read(operand, "float") for operand in (i.operands[2], i.operands[1])]
    else:
        halves = elements(f, f.read(i.operands[1], "i32"), source)
        values = [from_half(f, half, "f16") for half in halves]
    if "relu" in i.modifiers:
        values = [rectify(f, value) for value in values]
    low, high = (narrow(f, value, PAIR_FORMATS[target]) for value in values)
    both = f.value(f"or i32 {f.value(f'shl i32 {high}, 8')}, {low}")
    f.write(i.operands[0], f.value(f"trunc i32 {both} to i16"), "i16")


def widen(f: Lowering, byte: str, source: str) -> str:
    """A number to f32; both formats are f16 without its last bits, e4m3 with another bias."""
    sign = f.value(f"shl i16 {f.value(f'and i16 {byte}, 128')}, 8")
    size = f.value(f"and i16 {byte}, 127")
    moved = f.value(f"shl i16 {size}, {7 if source == 'e4m3x2' else 8}")
    value = from_half(f, f.value(f"or i16 {sign}, {moved}"), "f16")
    if source == "e5m2x2":
        return value
    scaled = f.value(f"fmul float {value}, 256.0")
    nan = f.value(f"icmp eq i16 {size}, {NAN}")
    return f.value(f"select i1 {nan}, float bitcast (i32 2147483647 to float), float {scaled}")


def narrow(f: Lowering, value: str, form: Format) -> str:
    """An f32 to the nearest number, at most the largest; as an i32."""
    bits = f.value(f"bitcast float {value} to i32")
    sign = f.value(f"and i32 {f.value(f'lshr i32 {bits}, 24')}, 128")
    size = f.value(f"and i32 {bits}, 2147483647")
    size = f.call("i32", "llvm.umin.i32", f"i32 {size}", f"i32 {form.largest}")
    cut = 23 - form.fraction
    tie = f.value(f"and i32 {f.value(f'lshr i32 {size}, {cut}')}, 1")
    raised = f.value(f"add i32 {f.value(f'add i32 {size}, {(1 << cut - 1) - 1}')}, {tie}")
    normal = f.value(
        f"sub i32 {f.value(f'lshr i32 {raised}, {cut}')}, {(127 - form.bias) << form.fraction}"
    )
    # below: adding a number whose last place is that of subnormals does the rounding
    unit = (127 + 1 - form.bias - form.fraction + 23) << 23
    number = f.value(f"bitcast i32 {size} to float")
    total = f.value(f"fadd float {number}, bitcast (i32 {unit} to float)")
    small = f.value(f"sub i32 {f.value(f'bitcast float {total} to i32')}, {unit}")
    is_small = f.value(f"icmp ult i32 {size}, {(127 + 1 - form.bias) << 23}")
    chosen = f.value(f"select i1 {is_small}, i32 {small}, i32 {normal}")
    nan = f.value(f"fcmp uno float {value}, 0.0")
    signed = f.value(f"or i32 {sign}, {chosen}")
    return f.value(f"select i1 {nan}, i32 {NAN}, i32 {signed}")
