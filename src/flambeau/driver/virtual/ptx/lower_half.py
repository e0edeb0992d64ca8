# SPDX-License-Identifier: Apache-2.0
"""f16 and bf16 arithmetic, alone and in pairs: computed in f32 and rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flambeau.driver.virtual.ptx.lower_float import transcendental
from flambeau.driver.virtual.ptx.lowering import Lowering, lowers
from flambeau.driver.virtual.ptx.rounding import flush, from_half, saturate, to_half

if TYPE_CHECKING:
    from flambeau.driver.virtual.ptx.syntax import Instruction

__all__ = ["element_type", "elements", "flush_half", "pack", "rectify"]

Scalar = Callable[[list[str]], str]


def element_type(ptx_type: str) -> str:
    """The type of one number: ``f16`` of ``f16x2``."""
    return ptx_type.removesuffix("x2")


def elements(f: Lowering, value: str, ptx_type: str) -> list[str]:
    """The numbers in a register, as i16, the low one first."""
    if not ptx_type.endswith("x2"):
        return [value]
    high = f.value(f"lshr i32 {value}, 16")
    return [f.value(f"trunc i32 {value} to i16"), f.value(f"trunc i32 {high} to i16")]


def pack(f: Lowering, parts: list[str]) -> str:
    """Numbers back into a register."""
    if len(parts) == 1:
        return parts[0]
    low, high = (f.value(f"zext i16 {part} to i32") for part in parts)
    return f.value(f"or i32 {f.value(f'shl i32 {high}, 16')}, {low}")


def each(f: Lowering, i: Instruction, scalar: Scalar) -> None:
    """Apply an operation on i16 bits to each number of the operands."""
    kind = "i32" if i.type.endswith("x2") else "i16"
    operands = [elements(f, f.read(o, kind), i.type) for o in i.operands[1:]]
    parts = [scalar(list(numbers)) for numbers in zip(*operands, strict=True)]
    f.write(i.operands[0], pack(f, parts), kind)


def in_float(f: Lowering, i: Instruction, compute: Scalar) -> Scalar:
    """An operation on f32 as one on half-precision bits, with the instruction's modifiers."""
    kind = element_type(i.type)

    def scalar(numbers: list[str]) -> str:
        values = [from_half(f, number, kind) for number in numbers]
        if "ftz" in i.modifiers:
            values = [flush_half(f, value, i, kind) for value in values]
        value = compute(values)
        if "sat" in i.modifiers:
            value = saturate(f, value, "float")
        if "relu" in i.modifiers:
            value = rectify(f, value)
        bits = to_half(f, value, kind)
        if "ftz" in i.modifiers:
            bits = to_half(f, flush_half(f, from_half(f, bits, kind), i, kind), kind)
        return bits

    return scalar


def flush_half(f: Lowering, value: str, i: Instruction, kind: str) -> str:
    """An f32 that holds a subnormal f16 to zero, keeping the sign; bf16 has no such form."""
    if kind != "f16":
        i.unsupported(".ftz")
    magnitude = f.call("float", "llvm.fabs.f32", f"float {value}")
    limit = "bitcast (i32 947912704 to float)"  # the smallest normal f16
    small = f.value(f"fcmp olt float {magnitude}, {limit}")
    zero = f.call("float", "llvm.copysign.f32", "float 0.0", f"float {value}")
    return f.value(f"select i1 {small}, float {zero}, float {value}")


def rectify(f: Lowering, value: str) -> str:
    """Negative numbers to zero; NaN stays."""
    negative = f.value(f"fcmp olt float {value}, 0.0")
    return f.value(f"select i1 {negative}, float 0.0, float {value}")


@lowers("add sub mul", kind="half", modifiers="rn ftz sat")
def binary(f: Lowering, i: Instruction) -> None:
    """``add``, ``sub``, ``mul``: f32 holds enough bits for one rounding."""
    each(f, i, in_float(f, i, lambda v: f.value(f"f{i.opcode} float {v[0]}, {v[1]}")))


@lowers("fma", kind="half", modifiers="rn ftz sat relu")
def fused_multiply_add(f: Lowering, i: Instruction) -> None:
    """``fma``: rounded to odd in f32 first, so that the last rounding is the only one."""
    f.unit.declare("fl_fma_odd", "declare float {}(float, float, float) nounwind memory(none)")
    each(
        f,
        i,
        in_float(f, i, lambda v: f.call("float", "fl_fma_odd", *(f"float {x}" for x in v))),
    )


@lowers("min max", kind="half", modifiers="ftz NaN")
def extreme(f: Lowering, i: Instruction) -> None:
    """``min`` and ``max``."""
    name = {"min": "minimum", "max": "maximum"}[i.opcode] + ("" if "NaN" in i.modifiers else "num")
    each(
        f,
        i,
        in_float(f, i, lambda v: f.call("float", f"llvm.{name}.f32", *(f"float {x}" for x in v))),
    )


@lowers("neg abs", kind="half", modifiers="ftz")
def sign_change(f: Lowering, i: Instruction) -> None:
    """``neg`` and ``abs``: only the sign bit changes."""
    verb, mask = ("xor", -32768) if i.opcode == "neg" else ("and", 32767)
    if "ftz" in i.modifiers:
        i.unsupported(".ftz")
    each(f, i, lambda numbers: f.value(f"{verb} i16 {numbers[0]}, {mask}"))


@lowers("ex2", kind="half", modifiers="approx ftz")
@lowers("tanh", kind="half", modifiers="approx")
def elementary(f: Lowering, i: Instruction) -> None:
    """``ex2`` and ``tanh``."""
    ftz = "ftz" in i.modifiers
    if ftz and element_type(i.type) == "f16":
        i.unsupported(".ftz")

    def compute(values: list[str]) -> str:
        value = flush(f, values[0]) if ftz else values[0]
        value = transcendental(f, i.opcode, value)
        return flush(f, value) if ftz else value

    kind = element_type(i.type)
    each(
        f,
        i,
        lambda numbers: to_half(f, compute([from_half(f, n, kind) for n in numbers]), kind),
    )
