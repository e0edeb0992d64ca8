# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from driver.virtual.ptx.compiler import compile_ptx
from driver.virtual.ptx.harness import Module
from flambeau.driver.errors import AcceleratorError, UnsupportedPtxError
from flambeau.driver.virtual.ptx import jit
from flambeau.driver.virtual.ptx.cache import Cache, cache_folder, key
from flambeau.driver.virtual.ptx.parser import parse

SOURCE = """
extern "C" __global__ void twice(int* x) { x[threadIdx.x] *= 2; }
extern "C" __global__ void negate(int* x) { x[threadIdx.x] = -x[threadIdx.x]; }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    return tmp_path


def works(module: Module) -> bool:
    x = np.arange(8, dtype=np.int32)
    module.run("twice", 1, 8, x)
    module.run("negate", 1, 8, x)
    return bool((x == -2 * np.arange(8)).all())


def test_cached_code_is_loaded_without_compiling(folder, monkeypatch):
    ptx = compile_ptx(SOURCE)
    assert works(Module(ptx))
    monkeypatch.setattr(jit, "compile_ir", None)
    assert works(Module(ptx))
    best = min(timed_load(ptx) for _ in range(5))
    assert best < 0.05


def timed_load(ptx: str) -> float:
    start = time.perf_counter()
    Module(ptx)
    return time.perf_counter() - start


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "foreign"])
def test_a_damaged_entry_is_compiled_again(folder, damage):
    ptx = compile_ptx(SOURCE)
    Module(ptx)
    (entry,) = (p for p in folder.rglob("*") if p.is_file())
    data = bytearray(entry.read_bytes())
    if damage == "truncated":
        data = data[: len(data) // 2]
    elif damage == "flipped":
        data[len(data) * 2 // 3] ^= 4
    elif damage == "empty":
        data = bytearray()
    else:
        data = bytearray(b"something else entirely, longer than a header" * 9)
    entry.write_bytes(data)
    assert works(Module(ptx))
    assert Cache(folder / "ptx").load(entry.name) is not None
    assert [p.name for p in folder.rglob("*") if p.is_file()] == [entry.name]


LOADER = """
import sys
sys.path[:0] = eval(sys.argv[1])
from driver.virtual.ptx.harness import Module
for turn in range(20):
    for number in range(3):
        Module(open(sys.argv[2]).read() + f"// {number}")
"""


def test_processes_that_store_the_same_entry_at_once(folder):
    text = folder / "module.ptx"
    text.write_text(compile_ptx(SOURCE))
    words = [sys.executable, "-c", LOADER, repr(sys.path), str(text)]
    running = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [(p.communicate(timeout=60)[1], p.returncode) for p in running] == [("", 0)] * 3
    entries = [p for p in (folder / "ptx").rglob("*") if p.is_file()]
    assert len(entries) == 3
    assert all(Cache(folder / "ptx").load(entry.name) for entry in entries)


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("not a folder")
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(file))
    assert works(Module(compile_ptx(SOURCE)))


def test_cache_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", "/a")
    assert cache_folder() == Path("/a")
    monkeypatch.delenv("FLAMBEAU_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_folder() == Path("/b/flambeau")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "flambeau"


def test_key_separates_its_parts():
    assert key("ab", "c") != key("a", "bc")


HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def kernel(body: str) -> str:
    return f"{HEAD}.visible .entry k()\n{{\n.reg .b32 %r<4>;\n.reg .f32 %f<4>;\n{body}\nret;\n}}\n"


@pytest.mark.parametrize(
    ("instruction", "named"),
    [
        ("tensormap.replace.tile.global [%r1], 0;", "tensormap.replace.tile.global"),
        ("add.rn.weird.f32 %f1, %f2, %f3;", "add.rn.weird.f32"),
        ("vadd.u32.u32.u32 %r1, %r2, %r3;", "vadd.u32.u32.u32"),
        ("vote.ballot.b32 %r1, 1;", "vote.ballot.b32"),
        ("mov.u32 %r1, %clusterid.x;", "%clusterid.x"),
        ("mov.u32 %r1, elsewhere;", "elsewhere"),
    ],
)
def test_unknown_instructions_are_refused_when_loaded(folder, instruction, named):
    with pytest.raises(UnsupportedPtxError, match=r"not supported: .* at line 8") as caught:
        Module(kernel(instruction))
    assert named in str(caught.value)
    assert not any(folder.rglob("*"))


@pytest.mark.parametrize(
    "text",
    [
        kernel("add.s32 %r1, %r2 %r3;"),
        kernel("bra nowhere;"),
        kernel("add.s32 %r9, %r1, %r2;"),
        HEAD + ".visible .entry k()\n{\n",
        "this is not PTX",
        HEAD + ".extern .global .b32 x;\n" + kernel("ld.global.b32 %r1, [x];").split(HEAD)[1],
    ],
)
def test_malformed_text_is_error_218(folder, text):
    with pytest.raises(AcceleratorError, match="PTX") as caught:
        Module(text)
    assert caught.value.error_code == 218


def test_a_module_without_kernels(folder):
    module = Module(HEAD + ".visible .global .align 4 .b32 x = 7;\n")
    assert module.loaded.kernels == {}
    assert module.loaded.globals["x"][1] == 4


def test_close_frees_the_kernels(folder):
    module = Module(compile_ptx(SOURCE))
    module.loaded.close()
    assert module.loaded.kernels == {}
    module.loaded.close()


def test_parser_scopes_and_initialisers():
    module = parse(
        HEAD
        + """.global .align 8 .u64 table[3] = {1, generic(other)+8, 0x10};
        .global .f32 other = 0f3F800000;
        .func (.param .b32 r) helper(.param .align 8 .b8 a[12], .param .b64 b) ;
        .visible .entry k(.param .u8 a, .param .align 16 .b8 s[20], .param .u16 h)
        .maxntid 16, 4, 1
        {
            .reg.b32 x;
            { .reg .b32 x, y; mov.b32 x, 1; mov.b32 y, x; bra again; again: }
            again: mov.b32 x, 2; @x bra again;
            ret;
        }"""
    )
    table = module.variables["table"]
    assert table.size == 24
    assert table.patches == ((8, "other", 8),)
    assert table.initial[16] == 16
    assert module.variables["other"].initial == np.float32(1).tobytes()
    function = module.functions["k"]
    assert [(v.offset, v.size) for v in function.parameters] == [(0, 1), (16, 20), (36, 2)]
    assert function.max_threads == 64
    assert len(function.registers) == 3
    targets = [i.operands[0].name for i in function.body if i.opcode == "bra"]
    assert len(set(targets)) == 2
    assert not module.functions["helper"].defined
