# SPDX-License-Identifier: Apache-2.0
"""Forms that work on one element: their operands, the kernels that run them, and the verdict."""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from driver.virtual.ptx.forms import Form, listed_forms, width
from driver.virtual.ptx.forms_block_table import is_block_form
from driver.virtual.ptx.forms_table import form_of
from driver.virtual.ptx.reference import F64, FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

Signature = tuple[str, tuple[str, ...], bool]  # the last: whether it goes to memory
MOST_ROWS = 160
ROW = 32
COUNTS = (0, 1, 2, 7, 8, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 255, 256, 2**31, 2**32 - 1)
HEAD = ".version 8.7\n.target sm_90\n.address_size 64\n"


def storage(kind: str) -> int:
    """Bytes of an operand in memory."""
    return 4 if kind in {"bool", "count"} else width(kind) // 8


def numbers(kind: str) -> list[int]:
    """The floating-point numbers at which things go wrong, as bits."""
    form = FORMATS[kind]
    one = form.infinity // 2 >> form.fraction << form.fraction
    patterns = [0, 1, 2, (1 << form.fraction) - 1, 1 << form.fraction, (1 << form.fraction) + 1]
    patterns += [one, one + 1, one - 1, one * 3 // 2, form.infinity - 1, form.infinity]
    wanted = (2.5, 127.5, 255, 32767.5, 65504, 65519, 65520, 2.0**31, 2.0**63)
    wanted += tuple(2.0**-n * 1.375 for n in (14, 15, 24, 25, 126, 130))
    patterns += [form.round(Fraction(v)) for v in wanted]
    patterns += [form.nan, form.infinity + 1]
    return patterns + [p | form.sign for p in patterns]


@cache
def specials(operand: str) -> list[int]:
    """The values of an operand at which things go wrong, as bits, whatever its type."""
    if operand == "bool":
        return [0, 1]
    if operand == "count":
        return list(COUNTS)
    bits = int(operand[1:])
    top = 1 << bits - 1
    wanted = [0, 1, 2, 3, 7, 31, 127, 128, 255, 0x5A5A, 0xFFFF, 0x7FFF8000, 0x12345678, top // 3]
    wanted += [top, top - 1, top + 1, -1, -2, -7, -128, -129, 0xDEADBEEF87654321]
    for kind in FORMATS:
        patterns = numbers(kind)
        if FORMATS[kind].bits == bits:
            wanted += patterns
        elif (FORMATS[kind].bits, bits) == (16, 32):
            wanted += [p | q << 16 for p, q in zip(patterns, patterns[7:], strict=False)]
    return sorted({w & (1 << bits) - 1 for w in wanted})


def stored(kind: str) -> str:
    """What an operand is in memory."""
    return kind if kind in {"bool", "count"} else f"b{width(kind)}"


def group_name(signature: Signature) -> str:
    result, sources, atomic = signature
    return f"{'atomic_' * atomic}{result}_of_{'_'.join(sources)}"


@cache
def groups() -> dict[Signature, list[Form]]:
    """The listed forms by the storage of their operands."""
    found: dict[Signature, list[Form]] = defaultdict(list)
    for text in listed_forms():
        if is_block_form(text):
            continue
        form = form_of(text)
        atomic = text.startswith(("atom.", "red."))
        signature = stored(form.result), tuple(map(stored, form.sources)), atomic
        found[signature].append(form)
    return found


def entry(signature: Signature, forms: list[Form]) -> str:
    """A kernel that runs all forms of a group on each element."""
    result, sources, atomic = signature
    names = "abce"[: len(sources)]
    size = storage(result)
    parameters = ", ".join(f".param .u64 p_{n}" for n in "d" + names)
    lines = [
        ".reg .pred %p, %q; .reg .b64 %i, %m, %p_d; .reg .b32 %t, %n, %s;",
        f".reg .b{max(16, 8 * size)} %d;",
        "mov.u32 %t, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %s, %tid.x;",
        "mad.lo.s32 %t, %t, %n, %s; cvt.u64.u32 %i, %t;",
        "mov.u32 %s, %nctaid.x; mul.lo.u32 %n, %n, %s; cvt.u64.u32 %m, %n;",
        f"mul.lo.u64 %m, %m, {size}; ld.param.u64 %p_d, [p_d];",
        f"mad.lo.u64 %p_d, %i, {size}, %p_d;",
    ]
    for name, kind in zip(names, sources, strict=True):
        bits = 8 * storage(kind)
        lines += [
            f".reg .b64 %p_{name}; .reg .b{max(16, bits)} %{name};",
            f"ld.param.u64 %p_{name}, [p_{name}];",
            f"mad.lo.u64 %p_{name}, %i, {bits // 8}, %p_{name};",
            f"ld.global.b{bits} %{name}, [%p_{name}];",
        ]
    for form in forms:
        lines += [
            f"{{ {form.code} }}",
            f"st.global.b{8 * size} [%p_d], %d; add.u64 %p_d, %p_d, %m;",
        ]
    if atomic:
        lines.insert(0, f".shared .align 8 .b8 own[{8 * ROW}];")
    body = "\n".join(lines)
    return f".visible .entry {group_name(signature)}({parameters})\n{{\n{body}\nret;\n}}\n"


def operands_of(sources: tuple[str, ...]) -> list[tuple[int, ...]]:
    """All combinations of special values, or many of them, and some at random."""
    chance = random.Random(7)
    values = [specials(stored(kind)) for kind in sources]
    if math.prod(map(len, values)) <= MOST_ROWS:
        rows = list(itertools.product(*values))
    else:
        rows = [tuple(map(chance.choice, values)) for _ in range(MOST_ROWS)]
    count = -len(rows) % ROW + ROW
    rows += [
        tuple(
            chance.choice(specials(k)) if k in {"bool", "count"} else chance.getrandbits(width(k))
            for k in sources
        )
        for _ in range(count)
    ]
    return rows


def same(form: Form, got: int, wanted: int) -> bool:
    if got == wanted:
        return True
    kind = form.result
    if kind.endswith("x2") and form.ulps:
        one = Form(form.text, kind.removesuffix("x2"), form.sources, form.reference, form.ulps)
        halves = ((got & 0xFFFF, wanted & 0xFFFF), (got >> 16, wanted >> 16))
        return all(same(one, g, w) for g, w in halves)
    if "relu" in form.text:  # the sign of a zero is left open
        halves = ((got >> n & 0xFFFF, wanted >> n & 0xFFFF) for n in (0, 16))
        return all(g == w or {g, w} == {0, 0x8000} for g, w in halves)
    if kind not in FORMATS:
        return False
    number = FORMATS[kind]
    if number.is_nan(wanted) or number.is_nan(got):
        return kind == "f64" and number.is_nan(wanted) and number.is_nan(got)
    if number is F64 and form.ulps == 0:
        return False
    if number.negative(got) != number.negative(wanted):
        return False
    return abs(got - wanted) <= form.ulps


def nan_in_memory(form: Form, operands: tuple[int, ...], got: int) -> bool:
    """Whether an atomic sum is NaN, of whatever bits, as it should be."""
    kind = form.result
    if form.text[:4] not in {"atom", "red."} or kind not in {"f32", "f64"}:
        return False
    number, returns = FORMATS[kind], form.text.startswith("atom")
    old = operands[0] if returns else 0
    return number.is_nan(got ^ old) and number.is_nan(form.reference(*operands) ^ old)


@cache
def wanted_of(form: Form, operands: tuple[int, ...]) -> int:
    return form.reference(*operands)


def disagreements(
    signature: Signature,
    forms: list[Form],
    rows: list[tuple[int, ...]],
    out: np.ndarray,
    agree: Callable[[Form, tuple[int, ...], int, int], bool] | None = None,
) -> list[str]:
    """For each form that gave something else than it must: the first such operands."""
    mask = (1 << 8 * storage(signature[0])) - 1
    wrong = []
    for form, results in zip(forms, out, strict=True):
        for operands, got in zip(rows, results.tolist(), strict=True):
            wanted = wanted_of(form, operands) & mask
            good = same(form, got, wanted) or nan_in_memory(form, operands, got)
            if not good and not (agree and agree(form, operands, got, wanted)):
                shown = ", ".join(f"{v:#x}" for v in operands)
                wrong.append(f"{form.text}({shown}) gave {got:#x} instead of {wanted:#x}")
                break
    return wrong
