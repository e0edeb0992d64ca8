# SPDX-License-Identifier: Apache-2.0
"""Every form that works on memory or several threads, against its definition."""

from __future__ import annotations

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
    module = Module(kernel(forms), optimized=optimized)
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
