# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled ahead: recorded, archived, found, and void when a source changes."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import flambeau as torch
from flambeau.kernels import compile as kernel_compiler
from flambeau.kernels import pack, pack_list

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SOURCE = """#include "types.cuh"
FLAMBEAU_KERNEL(32) packed(float *x) { FLAMBEAU_GRID_WAIT(); x[threadIdx.x] += 1; }
"""


def test_a_pack_spares_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: Any
) -> None:
    target = tmp_path / "pack.zip"
    assert pack.build(target, [(SOURCE, "", ())], ["sm_90"]) == 1
    monkeypatch.setattr(pack, "_archive", lambda: zipfile.ZipFile(target))
    parts, entry = kernel_compiler.compile_for_pack(SOURCE, "", (), "sm_90")
    assert pack.find(parts) == entry
    assert entry.partition(b"\0")[2].startswith(b"\x7fELF")
    changed, _ = kernel_compiler.compile_for_pack(SOURCE.replace("+= 1", "+= 2"), "", (), "sm_90")
    assert pack.find(changed) is None


def test_what_programs_ask_for_is_recorded(gpu: Any) -> None:
    program = "torch.ones(3, device='cuda', dtype=torch.int16).logical_xor_(1)"
    torch.cuda.synchronize()
    found = pack.record([program])
    assert any("logical_xor" in source for source, _, _ in found)
    assert pack.recorded is None


def test_the_programs_of_the_list_are_programs() -> None:
    for program in pack_list.PROGRAMS:
        compile(program, "program", "exec")
