# SPDX-License-Identifier: Apache-2.0
"""Every form that works on memory or several threads, against its definition."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from driver.virtual.ptx.forms_block import (
    PARAMETER,
    THREADS,
    WORDS,
    disagreement,
    kernel,
    most_outputs,
)
from driver.virtual.ptx.forms_block_inputs import inputs_for
from driver.virtual.ptx.forms_block_table import families
from driver.virtual.ptx.harness import Module
from flambeau.driver.virtual.ptx import jit


@cache
def plain_machine() -> Any:
    """A compiler that does not optimize, which takes a fifth of the time."""
    llvm = jit.binding()
    _, cpu, features = jit.host()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=cpu, features=features, opt=0, reloc="pic", codemodel="small"
    )


def compile_plainly(text: str) -> bytes:
    llvm, machine = jit.binding(), plain_machine()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = llvm.get_process_triple(), str(machine.target_data)
    return bytes(machine.emit_object(module))


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that lies as device memory does."""
    room = np.empty(array.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize(
    "optimized", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["plain", "optimized"]
)
@pytest.mark.parametrize("family", families())
def test_forms(family, optimized, monkeypatch, tmp_path):
    forms = families()[family]
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    if not optimized:
        monkeypatch.setattr(jit, "compile_ir", compile_plainly)
    module = Module(kernel(forms))
    most = most_outputs(forms)
    for seed in (1, 2):
        words = aligned(inputs_for(family, seed))
        out = aligned(np.zeros((len(forms), THREADS, most), np.uint32))
        own = aligned(np.zeros((THREADS, WORDS), np.uint32))
        module.run("forms", 1, THREADS, words, out, own, PARAMETER)
        wrong = [
            disagreement(form, words, got[:, : form.outputs])
            for form, got in zip(forms, out, strict=True)
        ]
        assert not any(wrong), "\n".join(filter(None, wrong))


def test_results_are_compared():
    """A reference that is wrong in one bit of one thread shows."""
    for family in ("ld global", "mma f16", "shuffles"):
        form = families()[family][0]
        words = inputs_for(family, 1)
        right = form.reference(words)
        if form.result == "f32":
            got = right.astype(np.float32)
            assert not disagreement(form, words, got.view(np.uint32))
            got[5, 1] += form.scale(words)[5, 1] * 2.0**-20
            assert disagreement(form, words, got.view(np.uint32))
        else:
            got = np.where(right < 0, 0, right).astype(np.uint32)
            assert not disagreement(form, words, got)
            got[5, 1] ^= 1
            assert disagreement(form, words, got)
