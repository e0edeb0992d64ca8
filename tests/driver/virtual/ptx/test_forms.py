# SPDX-License-Identifier: Apache-2.0
"""Every form that works on one element, at special values and random ones, against definitions."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.virtual.ptx.forms import listed_forms
from driver.virtual.ptx.forms_block_table import families
from driver.virtual.ptx.forms_element import (
    HEAD,
    ROW,
    Signature,
    disagreements,
    entry,
    group_name,
    groups,
    operands_of,
    specials,
    storage,
)
from driver.virtual.ptx.harness import Module
from flambeau.driver.virtual.ptx import lower_kernel  # noqa: F401  fills the table
from flambeau.driver.virtual.ptx.lowering import LLVM_TYPES, TABLE


@cache
def module(signature: Signature) -> Module:
    atomic = signature[2]  # no optimization could change what atomic operations do
    return Module(HEAD + entry(signature, groups()[signature]), optimized=not atomic)


def run(signature: Signature, rows: list[tuple[int, ...]], block: int) -> np.ndarray:
    """What each form of a group gives for each row."""
    result, sources, _ = signature
    forms = groups()[signature]
    columns = [
        np.array(column, f"u{storage(kind)}")
        for column, kind in zip(zip(*rows, strict=True), sources, strict=True)
    ]
    out = np.zeros((len(forms), len(rows)), f"u{storage(result)}")
    module(signature).run(group_name(signature), len(rows) // block, block, out, *columns)
    return out


def expect(signature: Signature, rows: list[tuple[int, ...]], block: int) -> None:
    out = run(signature, rows, block)
    wrong = disagreements(signature, groups()[signature], rows, out)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("block", [1, ROW])
@pytest.mark.parametrize("signature", groups(), ids=group_name)
def test_special_values(signature, block):
    """Alone each thread is checked; in rows threads run side by side."""
    expect(signature, operands_of(signature[1]), block)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_arithmetic(data):
    signature = data.draw(st.sampled_from(list(groups())))
    values = [
        st.sampled_from(specials(k)) if k == "bool" else st.integers(0, 2 ** (8 * storage(k)) - 1)
        for k in signature[1]
    ]
    rows = data.draw(st.lists(st.tuples(*values), min_size=8, max_size=8))
    expect(signature, rows, 8)


def test_the_list_names_each_form_once():
    forms = listed_forms()
    assert len(forms) == len(set(forms))


def test_the_tables_run_every_listed_form():
    run_here = {form.text for forms in groups().values() for form in forms}
    run_in_blocks = {form.text for forms in families().values() for form in forms}
    assert not run_here & run_in_blocks
    assert run_here | run_in_blocks == set(listed_forms())


WITHOUT_FORMS = {
    "trap": "it ends the grid; test_faults has it",
    "brkpt": "as trap, which it is without a debugger",
}
NOT_LISTED = {"e4m3x2": "test_fp8 has them", "e5m2x2": "likewise", "satfinite": "likewise"}
BRANCHES = {"bra", "brx", "ret", "exit"}  # which are no lines of the table


def test_what_is_lowered_is_listed():
    listed = {form.split(".")[0] for form in listed_forms()}
    assert {opcode for opcode, _ in TABLE} | BRANCHES == listed | set(WITHOUT_FORMS)


def test_each_modifier_and_type_that_is_lowered_is_listed():
    """What a row refuses in spite of the words that it knows is a form that `NOT_LISTED` names."""
    words = defaultdict(set)
    for form in listed_forms():
        opcode, *modifiers = form.split(".")
        words[opcode].update(modifiers)
    missing = {}
    for (opcode, kind), row in TABLE.items():
        types = row.types if row.types < set(LLVM_TYPES) else set()
        left = (row.modifiers | types) - words[opcode] - set(NOT_LISTED)
        if left and opcode not in WITHOUT_FORMS:
            missing[f"{opcode} {kind}"] = sorted(left)
    assert not missing
