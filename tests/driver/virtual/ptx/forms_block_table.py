# SPDX-License-Identifier: Apache-2.0
"""The form of a block that a line of the list stands for."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

from driver.virtual.ptx.forms import Text, listed_forms
from driver.virtual.ptx.forms_matrix import MATRIX
from driver.virtual.ptx.forms_memory import MEMORY, vector_atomic_form
from driver.virtual.ptx.forms_warp import WARP

if TYPE_CHECKING:
    from driver.virtual.ptx.forms_block import BlockForm

TABLE = {**MEMORY, **WARP, **MATRIX}


def is_vector_atomic(text: str) -> bool:
    opcode, *words = text.split(".")
    return opcode in {"atom", "red"} and not {"v2", "v4", "v8"}.isdisjoint(words)


def is_block_form(text: str) -> bool:
    """Whether a form is not one that works on one element."""
    return text.split(".", maxsplit=1)[0] in TABLE or is_vector_atomic(text)


def block_form(t: Text) -> BlockForm:
    """The form that a line of the list stands for."""
    return vector_atomic_form(t) if is_vector_atomic(t.text) else TABLE[t.opcode](t)


@cache
def families() -> dict[str, list[BlockForm]]:
    """The listed forms that work on blocks, by what is run in one kernel."""
    found: dict[str, list[BlockForm]] = defaultdict(list)
    for text in filter(is_block_form, listed_forms()):
        form = block_form(Text.of(text))
        found[form.family].append(form)
    return found
