# SPDX-License-Identifier: Apache-2.0
"""f32 and f64 arithmetic. One rounding each; approximations are good to about one ulp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx.approximation import power_of_two
from flambeau.driver.virtual.ptx.lowering import LLVM_TYPES, Lowering, lowers
from flambeau.driver.virtual.ptx.rounding import (
    MODES,
    canonical,
    directed_fma,
    flush,
    intrinsic,
    rounding_mode,
    saturate,
)

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.syntax import Instruction

__all__: list[str] = []

_ROUNDINGS = "rn rz rm rp"
SIGN_ONLY = frozenset({"abs", "neg", "copysign"})
_HELPER_OPERATIONS = {"add": 0, "mul": 1, "fma": 2, "div": 3, "sqrt": 4}


def sources(f: Lowering, i: Instruction) -> tuple[str, list[str]]:
    """The LLVM type and the sources, flushed where the instruction says so."""
    kind = LLVM_TYPES[i.type]
    values = [f.read(operand, kind) for operand in i.operands[1:]]
    if "ftz" in i.modifiers and kind == "float":
        values = [flush(f, value) for value in values]
    return kind, values


def result(f: Lowering, i: Instruction, value: str) -> None:
    """Flush or saturate as the instruction says, and write."""
    kind = LLVM_TYPES[i.type]
    if kind == "float" and i.opcode not in SIGN_ONLY:
        value = canonical(f, value)
    if "ftz" in i.modifiers and kind == "float":
        value = flush(f, value)
    if "sat" in i.modifiers:
        value = saturate(f, value, kind)
    f.write(i.operands[0], value, kind)


def directed(f: Lowering, operation: str, mode: str, kind: str, *values: str) -> str:
    """An operation rounded in a direction, by the processor's rounding mode."""
    name = f"fl_directed_{kind}"
    f.unit.declare(name, f"declare {kind} {{}}(i32, i32, {kind}, {kind}, {kind}) nounwind")
    padded = [*values, *["0.0"] * (3 - len(values))]
    return f.call(
        kind,
        name,
        f"i32 {_HELPER_OPERATIONS[operation]}",
        f"i32 {MODES[mode]}",
        *(f"{kind} {value}" for value in padded),
    )


@lowers("add sub mul", kind="float", modifiers=f"{_ROUNDINGS} ftz sat")
def binary(f: Lowering, i: Instruction) -> None:
    """``add``, ``sub``, ``mul``."""
    kind, (a, b) = sources(f, i)
    mode = rounding_mode(i.modifiers)
    if mode == "rn":
        result(f, i, f.value(f"f{i.opcode} {kind} {a}, {b}"))
        return
    if i.opcode == "sub":
        b = f.value(f"fneg {kind} {b}")
    result(f, i, directed(f, "mul" if i.opcode == "mul" else "add", mode, kind, a, b))


@lowers("fma mad", kind="float", modifiers=f"{_ROUNDINGS} ftz sat")
def fused_multiply_add(f: Lowering, i: Instruction) -> None:
    """``fma``: one rounding."""
    kind, (a, b, c) = sources(f, i)
    mode = rounding_mode(i.modifiers)
    if mode == "rn":
        arguments = (f"{kind} {a}", f"{kind} {b}", f"{kind} {c}")
        result(f, i, f.call(kind, intrinsic("fma", kind), *arguments))
    elif kind == "float":
        result(f, i, directed_fma(f, a, b, c, mode))
    else:
        result(f, i, directed(f, "fma", mode, kind, a, b, c))


@lowers("div", kind="float", modifiers=f"{_ROUNDINGS} approx full ftz")
def divide(f: Lowering, i: Instruction) -> None:
    """``div``: exact for the approximate forms too."""
    kind, (a, b) = sources(f, i)
    mode = rounding_mode(i.modifiers)
    if mode == "rn":
        result(f, i, f.value(f"fdiv {kind} {a}, {b}"))
    else:
        result(f, i, directed(f, "div", mode, kind, a, b))


@lowers("rcp", kind="float", modifiers=f"{_ROUNDINGS} approx ftz")
def reciprocal(f: Lowering, i: Instruction) -> None:
    """``rcp``; the gross f64 form looks at the upper 32 bits and gives so many."""
    kind, (a,) = sources(f, i)
    mode = rounding_mode(i.modifiers)
    if mode != "rn":
        result(f, i, directed(f, "div", mode, kind, "1.0", a))
    elif kind == "double" and "approx" in i.modifiers:
        result(f, i, gross(f, f.value(f"fdiv double 1.0, {gross(f, a)}")))
    else:
        result(f, i, f.value(f"fdiv {kind} 1.0, {a}"))


def gross(f: Lowering, value: str) -> str:
    """An f64 cut to its upper 32 bits; subnormals become zero, NaN stays NaN."""
    bits = f.value(f"bitcast double {value} to i64")
    upper = f.value(f"and i64 {bits}, -4294967296")
    exponent = f.value(f"and i64 {bits}, 9218868437227405312")
    small = f.value(f"icmp eq i64 {exponent}, 0")
    sign = f.value(f"and i64 {bits}, -9223372036854775808")
    cut = f.value(f"select i1 {small}, i64 {sign}, i64 {upper}")
    nan = f.value(f"fcmp uno double {value}, 0.0")
    kept = f.value(f"select i1 {nan}, i64 9223372032559808512, i64 {cut}")
    return f.value(f"bitcast i64 {kept} to double")


@lowers("sqrt", kind="float", modifiers=f"{_ROUNDINGS} approx ftz")
def square_root(f: Lowering, i: Instruction) -> None:
    """``sqrt``."""
    kind, (a,) = sources(f, i)
    mode = rounding_mode(i.modifiers)
    if mode == "rn":
        root = f.call(kind, intrinsic("sqrt", kind), f"{kind} {a}")
        # LLVM takes any NaN for as good as sqrt's own; the fence hides where this one comes from
        result(f, i, f.call(kind, intrinsic("arithmetic.fence", kind), f"{kind} {root}"))
    else:
        result(f, i, directed(f, "sqrt", mode, kind, a))


@lowers("rsqrt", kind="float", modifiers="approx ftz")
def reciprocal_root(f: Lowering, i: Instruction) -> None:
    """``rsqrt``, through f64 for f32."""
    kind, (a,) = sources(f, i)
    if kind == "double" and "ftz" in i.modifiers:
        a = gross(f, a)
    wide = f.value(f"fpext float {a} to double") if kind == "float" else a
    root = f.call("double", "llvm.sqrt.f64", f"double {wide}")
    value = f.value(f"fdiv double 1.0, {root}")
    if kind == "float":
        value = f.value(f"fptrunc double {value} to float")
    elif "ftz" in i.modifiers:
        value = gross(f, value)
    result(f, i, value)


HELPERS = {"sin": "fl_sin", "cos": "fl_cos", "lg2": "fl_log2", "tanh": "fl_tanh"}


def transcendental(f: Lowering, opcode: str, value: str) -> str:
    """An elementary function of an f32; all but ``ex2`` are the C library's."""
    if opcode == "ex2":
        return power_of_two(f, value)
    name = HELPERS[opcode]
    f.unit.declare(name, "declare float {}(float) nounwind memory(none)")
    return f.call("float", name, f"float {value}")


@lowers("sin cos ex2 lg2", kind="float", modifiers="approx ftz", types="f32")
@lowers("tanh", kind="float", modifiers="approx", types="f32")
def elementary(f: Lowering, i: Instruction) -> None:
    """``sin``, ``cos``, ``ex2``, ``lg2``, ``tanh``."""
    _, (a,) = sources(f, i)
    result(f, i, transcendental(f, i.opcode, a))


@lowers("min max", kind="float", modifiers="ftz NaN")
def extreme(f: Lowering, i: Instruction) -> None:
    """``min`` and ``max``: a NaN loses, unless ``.NaN``; -0 lies below +0."""
    kind, values = sources(f, i)
    name = {"min": "minimum", "max": "maximum"}[i.opcode] + ("" if "NaN" in i.modifiers else "num")
    value = values[0]
    for other in values[1:]:
        value = f.call(kind, intrinsic(name, kind), f"{kind} {value}", f"{kind} {other}")
    result(f, i, value)


@lowers("abs neg", kind="float", modifiers="ftz")
def sign_change(f: Lowering, i: Instruction) -> None:
    """``abs`` and ``neg``."""
    kind, (a,) = sources(f, i)
    if i.opcode == "neg":
        result(f, i, f.value(f"fneg {kind} {a}"))
    else:
        result(f, i, f.call(kind, intrinsic("fabs", kind), f"{kind} {a}"))


@lowers("copysign", kind="float")
def copy_sign(f: Lowering, i: Instruction) -> None:
    """``copysign``: the first operand gives the sign."""
    kind, (sign, magnitude) = sources(f, i)
    name = intrinsic("copysign", kind)
    result(f, i, f.call(kind, name, f"{kind} {magnitude}", f"{kind} {sign}"))


_CLASSES = {
    "notanumber": 0x003,
    "infinite": 0x204,
    "finite": 0x1F8,
    "number": 0x3FC,
    "normal": 0x168,  # with both zeros
    "subnormal": 0x090,
}


@lowers("testp", kind="float", modifiers=" ".join(_CLASSES))
def test_property(f: Lowering, i: Instruction) -> None:
    """``testp``."""
    kind, (a,) = sources(f, i)
    mask = _CLASSES[i.modifiers[0]]
    value = f.call("i1", intrinsic("is.fpclass", kind), f"{kind} {a}", f"i32 {mask}")
    f.write(i.operands[0], value, "i1")
