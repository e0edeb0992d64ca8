# SPDX-License-Identifier: Apache-2.0
"""The form that a line of the list stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.virtual.ptx.forms import Form, Text, clamp, in_pairs, typed, width
from driver.virtual.ptx.forms_float import (
    convert_form,
    float_form,
    move_form,
    predicate_form,
    property_form,
    select_form,
    set_form,
    sign_select_form,
)
from driver.virtual.ptx.forms_integer import (
    INTEGER,
    carry_form,
    count_form,
    dot_form,
    field_form,
    funnel_form,
    integer_form,
    logic_form,
    nth_form,
    permute_form,
    shift_form,
)
from driver.virtual.ptx.reference import FORMATS, compute, signed

if TYPE_CHECKING:
    from collections.abc import Callable


def form_of(text: str) -> Form:
    """The form that a line of the list stands for."""
    t = Text.of(text)
    special = SPECIAL.get(t.opcode)
    if special:
        return special(t)
    kind = t.type.removesuffix("x2")
    if kind in FORMATS:
        return in_pairs(t, float_form(t, kind))
    if t.type.endswith("x2"):
        return in_pairs(t, integer_form(t, kind))
    return integer_form(t, kind)


def sum_form(t: Text) -> Form:
    if t.type in FORMATS or t.type.endswith("x2"):
        kind = t.type.removesuffix("x2")
        return in_pairs(t, float_form(t, kind) if kind in FORMATS else integer_form(t, kind))
    carries = "cc" in t.words or t.opcode in {"addc", "subc", "madc"}
    return carry_form(t) if carries else integer_form(t, t.type)


def product_form(t: Text) -> Form:
    """``mul``, ``mad`` and their forms for 24 bits."""
    if t.type in FORMATS or t.type.endswith("x2"):
        return in_pairs(t, float_form(t, t.type.removesuffix("x2")))
    if "cc" in t.words or t.opcode == "madc":
        return carry_form(t)
    kind, bits = t.type, width(t.type)
    adds = t.opcode.startswith("mad")
    wide = f"{kind[0]}{2 * bits}" if "wide" in t.words else kind
    cut = 24 if "24" in t.opcode else bits

    def reference(*v: int) -> int:
        a, b = (signed(x, cut) if kind[0] == "s" else x & (1 << cut) - 1 for x in v[:2])
        value = a * b
        if "hi" in t.words:
            value = (value >> 16 if cut == 24 else value >> bits) & (1 << bits) - 1
        value += typed(wide, v[2]) if adds else 0
        if "sat" in t.words:
            value = clamp(signed(value - typed(wide, v[2]), bits) + typed(wide, v[2]), bits)
        return value

    return Form(t.text, wide, (kind, kind, *((wide,) * adds)), reference)


def atomic_form(t: Text) -> Form:
    """What was there before and what is there then, one rotated onto the other."""
    kind, bits = t.type, width(t.type)
    operation = t.first("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
    shared = not {"shared", "shared::cta"}.isdisjoint(t.words)
    place = "[%z]" if shared else "[%p_d]"
    space = "shared" if shared else "global"
    returns = t.opcode == "atom"
    operands = "%b, %c" if operation == "cas" else "%b"
    unit = f"b{bits}"
    policy = "createpolicy.fractional.L2::evict_first.b64 %u, 0.5;" * ("hint" in t.text)
    operands += ", %u" * bool(policy)
    body = f""".reg .{unit} %x, %y; .reg .b32 %z, %w; .reg .b64 %u; {policy} mov.u32 %z, %tid.x;
        mov.u32 %w, own; mad.lo.u32 %z, %z, 8, %w;
        mov.{unit} %y, 0; st.{space}.{unit} {place}, %a;
        {t.text} {"%y, " * returns}{place}, {operands}; ld.{space}.{unit} %x, {place};
        xor.{unit} %d, %x, %y;"""

    def one(old: int, value: int, new: int = 0) -> int:
        if operation == "cas":
            return new if old == value else old
        if operation in {"inc", "dec"}:
            up = 0 if old >= value else old + 1
            return up if operation == "inc" else value if old == 0 or old > value else old - 1
        if operation == "exch":
            return value
        if kind.removesuffix("x2") in FORMATS:
            form = FORMATS[kind.removesuffix("x2")]
            return compute(form, "add", "rn", old, value)
        return INTEGER[operation](typed(kind, old), typed(kind, value)) & (1 << bits) - 1

    single = kind.removesuffix("x2")
    whole = in_pairs(t, Form(t.text, single, (single,) * 2, one)).reference
    count = 3 if operation == "cas" else 2
    return Form(
        t.text, kind, (kind,) * count, lambda *v: whole(*v) ^ (v[0] if returns else 0), 0, body
    )


SPECIAL: dict[str, Callable[[Text], Form]] = {
    **dict.fromkeys(("add", "sub", "addc", "subc"), sum_form),
    **dict.fromkeys(("mul", "mad", "madc", "mul24", "mad24"), product_form),
    **dict.fromkeys(("dp2a", "dp4a"), dot_form),
    **dict.fromkeys(("popc", "clz", "brev", "bfind"), count_form),
    **dict.fromkeys(("shl", "shr"), shift_form),
    **dict.fromkeys(("bfe", "bfi", "bmsk", "szext"), field_form),
    "fns": nth_form,
    "shf": funnel_form,
    "prmt": permute_form,
    "lop3": logic_form,
    "testp": property_form,
    "setp": predicate_form,
    "set": set_form,
    "selp": select_form,
    "slct": sign_select_form,
    "mov": move_form,
    **dict.fromkeys(("atom", "red"), atomic_form),
    "cvt": convert_form,
}
