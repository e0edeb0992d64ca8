# SPDX-License-Identifier: Apache-2.0
"""``cvt``: between integers and floating-point numbers of all widths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx.lower_fp8 import PAIR_FORMATS, convert_pair
from flambeau.driver.virtual.ptx.lower_half import pack, rectify
from flambeau.driver.virtual.ptx.lower_integer import extend
from flambeau.driver.virtual.ptx.lowering import LLVM_TYPES, Lowering, lowers, width
from flambeau.driver.virtual.ptx.rounding import (
    MODES,
    canonical,
    flush,
    from_half,
    intrinsic,
    narrow_to_odd,
    saturate,
    step_towards,
    to_half,
)

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.syntax import Instruction, Operand

__all__: list[str] = []

_FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


@lowers(
    "cvt",
    modifiers=f"{' '.join(MODES)} {' '.join(_INTEGRAL)} rna ftz sat relu satfinite "
    f"{' '.join(PAIR_FORMATS)}",
)
def convert(f: Lowering, i: Instruction) -> None:
    """``cvt``."""
    if not PAIR_FORMATS.keys().isdisjoint(i.modifiers):
        convert_pair(f, i)
        return
    if "satfinite" in i.modifiers:
        i.unsupported()
    types = [m for m in i.modifiers if m in LLVM_TYPES]
    if len(types) != 2:
        i.unsupported()
    target, source = types
    if target in {"f16x2", "bf16x2", "tf32"}:
        special_target(f, i, target, source)
    elif target in _FLOATS and source in _FLOATS:
        float_to_float(f, i, target, source)
    elif target in _FLOATS:
        integer_to_float(f, i, target, source)
    elif source in _FLOATS:
        float_to_integer(f, i, target, source)
    else:
        integer_to_integer(f, i, target, source)


def mode_of(i: Instruction) -> str:
    """The rounding of a narrowing conversion."""
    return next((m for m in i.modifiers if m in MODES), "rn")


def as_float(f: Lowering, operand: Operand | None, source: str) -> tuple[str, str]:
    """A floating-point operand as float or double: its value and type."""
    if source in {"f16", "bf16"}:
        return from_half(f, f.read(operand, "i16"), source), "float"
    kind = LLVM_TYPES[source]
    return f.read(operand, kind), kind


def special_target(f: Lowering, i: Instruction, target: str, source: str) -> None:
    """Two f32 to a pair of halves, the first operand on top; f32 to tf32."""
    mode = mode_of(i)
    if source != "f32" or "sat" in i.modifiers:
        i.unsupported()
    if target == "tf32":
        if "rna" not in i.modifiers or "relu" in i.modifiers:
            i.unsupported()
        value = f.read(i.operands[1], "i32")
        rounded = f.value(f"add i32 {value}, 4096")
        exponent = f.value(f"and i32 {value}, 2139095040")
        special = f.value(f"icmp eq i32 {exponent}, 2139095040")
        kept = f.value(f"select i1 {special}, i32 {value}, i32 {rounded}")
        # A NaN loses the bits that tf32 does not have, as on a GPU, even if none is left.
        f.write(i.operands[0], f.value(f"and i32 {kept}, -8192"), "i32")
        return
    if "rna" in i.modifiers:
        i.unsupported()
    parts = []
    for operand in (i.operands[2], i.operands[1]):
        value = f.read(operand, "float")
        if "relu" in i.modifiers:
            value = rectify(f, value)
        parts.append(to_half(f, value, target.removesuffix("x2"), mode))
    f.write(i.operands[0], pack(f, parts), "i32")


def float_to_float(f: Lowering, i: Instruction, target: str, source: str) -> None:
    """Widening, narrowing and rounding to integral values."""
    value, kind = as_float(f, i.operands[1], source)
    if "rna" in i.modifiers or ("relu" in i.modifiers and kind != "float"):
        i.unsupported()
    if "ftz" in i.modifiers and kind == "float":
        value = flush(f, value)
    integral = next((m for m in i.modifiers if m in _INTEGRAL), None)
    if integral:
        value = f.call(kind, intrinsic(_INTEGRAL[integral], kind), f"{kind} {value}")
    if "relu" in i.modifiers:
        value = rectify(f, value)
    if target == "f64":
        value, kind = widen(f, value, kind), "double"
    elif kind == "double":
        value, kind = narrow(f, value, target, mode_of(i)), "float"
    if "sat" in i.modifiers:
        value = saturate(f, value, kind)
    if target in {"f16", "bf16"}:
        same = target == source and not integral
        bits = to_half(f, value, target, "rn" if same else mode_of(i))
        f.write(i.operands[0], bits, "i16")
    else:
        f.write(i.operands[0], finish(f, i, value, target, source), kind)


def finish(f: Lowering, i: Instruction, value: str, target: str, source: str) -> str:
    """What else happens to an f32 result; f64 stays as it is."""
    integral = not _INTEGRAL.keys().isdisjoint(i.modifiers)
    if target == "f32" and (source != "f32" or integral):
        value = canonical(f, value)
    if target == "f32" and "ftz" in i.modifiers:
        value = flush(f, value)
    return value


def widen(f: Lowering, value: str, kind: str) -> str:
    """To f64."""
    return value if kind == "double" else f.value(f"fpext float {value} to double")


def narrow(f: Lowering, value: str, target: str, mode: str) -> str:
    """f64 to f32: rounded as asked if that is the target, to odd if a half follows."""
    if target != "f32":
        return narrow_to_odd(f, value)
    near = f.value(f"fptrunc double {value} to float")
    if mode == "rn":
        return near
    back = f.value(f"fpext float {near} to double")
    bits = step_towards(
        f,
        f.value(f"bitcast float {near} to i32"),
        "i32",
        f.value(f"fcmp ogt double {back}, {value}"),
        f.value(f"fcmp olt double {back}, {value}"),
        f.value(f"fcmp olt double {value}, 0.0"),
        mode,
    )
    return f.value(f"bitcast i32 {bits} to float")


def integer_to_float(f: Lowering, i: Instruction, target: str, source: str) -> None:
    """From an integer; f32 holds every integer that f16 can, so that rounding twice is harmless."""
    mode = mode_of(i)
    signed = source[0] == "s"
    kind = LLVM_TYPES[source]
    value = f.read(i.operands[1], kind)
    verb = "sitofp" if signed else "uitofp"
    if target == "bf16" or "sat" in i.modifiers:
        i.unsupported()
    real = "double" if target == "f64" else "float"
    inexact = width(kind) > (53 if target == "f64" else 24)
    if mode == "rn" or not inexact:
        number = f.value(f"{verb} {kind} {value} to {real}")
    else:
        wide = value if kind == "i64" else extend(f, value, kind, "i64", signed)
        name = f"fl_{'s' if signed else 'u'}64_to_{real}"
        f.unit.declare(name, f"declare {real} {{}}(i32, i64) nounwind memory(none)")
        number = f.call(real, name, f"i32 {MODES[mode]}", f"i64 {wide}")
    if target == "f16":
        f.write(i.operands[0], to_half(f, number, "f16", mode), "i16")
    else:
        f.write(i.operands[0], number, real)


def float_to_integer(f: Lowering, i: Instruction, target: str, source: str) -> None:
    """To an integer, with saturation.

    NaN gives 0 where source and target have at most 32 bits, else the target's top bit alone.
    """
    value, kind = as_float(f, i.operands[1], source)
    if "ftz" in i.modifiers and kind == "float":
        value = flush(f, value)
    integral = next((m for m in i.modifiers if m in _INTEGRAL), None)
    if integral is None:
        i.unsupported("no rounding given")
    if integral != "rzi":
        value = f.call(kind, intrinsic(_INTEGRAL[integral], kind), f"{kind} {value}")
    whole = LLVM_TYPES[target]
    signed = target[0] == "s"
    name = f"llvm.fpto{'s' if signed else 'u'}i.sat.{whole}.{'f64' if kind == 'double' else 'f32'}"
    number = f.call(whole, name, f"{kind} {value}")
    if source == "f64" or width(whole) == 64:
        nan = f.value(f"fcmp uno {kind} {value}, 0.0")
        top = 1 << (width(whole) - 1)
        number = f.value(f"select i1 {nan}, {whole} {top}, {whole} {number}")
    f.write(i.operands[0], number, whole, signed=signed)


def integer_to_integer(f: Lowering, i: Instruction, target: str, source: str) -> None:
    """Truncation, extension by the source's sign, or saturation."""
    signed = source[0] == "s"
    kind, goal = LLVM_TYPES[source], LLVM_TYPES[target]
    value = f.read(i.operands[1], kind)
    if "sat" in i.modifiers:
        value, kind = clamp(f, value, kind, signed, target), "i128"
    if width(kind) > width(goal):
        value = f.value(f"trunc {kind} {value} to {goal}")
    elif width(kind) < width(goal):
        value = extend(f, value, kind, goal, signed)
    f.write(i.operands[0], value, goal, signed=target[0] == "s")


def clamp(f: Lowering, value: str, kind: str, signed: bool, target: str) -> str:
    """Clamp an integer to a type's range, in i128."""
    bits = width(LLVM_TYPES[target])
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    if target[0] != "s":
        low, high = 0, (1 << bits) - 1
    wide = extend(f, value, kind, "i128", signed)
    wide = f.call("i128", "llvm.smax.i128", f"i128 {wide}", f"i128 {low}")
    return f.call("i128", "llvm.smin.i128", f"i128 {wide}", f"i128 {high}")
