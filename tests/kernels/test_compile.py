# SPDX-License-Identifier: Apache-2.0
"""Compiling: names, cache hits, errors, a missing compiler."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from flambeau import driver
from flambeau.driver.contract import CodeTarget
from flambeau.driver.errors import CompilationError, MissingExtraError
from flambeau.kernels import compile as compiling
from flambeau.kernels.cache import DiskCache
from flambeau.runtime import _function

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2.0f; }'
TEMPLATE = "template <typename T> __global__ void twice(T *x) { x[threadIdx.x] *= T(2); }"


class _Driver:
    """What compiling asks of a driver."""

    name = "test"

    def __init__(self, kind: Any = "ptx", arch: str = "compute_80") -> None:
        self.target = CodeTarget(kind, arch)
        self.loaded: list[bytes] = []
        self.modules = SimpleNamespace(load=self._load, function=self._function)

    def code_target(self, device: int) -> CodeTarget:
        return self.target

    def _load(self, image: bytes, device: int) -> int:
        self.loaded.append(image)
        return len(self.loaded)

    def _function(self, module: int, name: str) -> int:
        assert name.encode() in self.loaded[module - 1]
        return 100 * module + len(name)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _Driver:
    made = _Driver()
    monkeypatch.setattr(driver, "current", lambda: made)
    monkeypatch.setattr(compiling, "_disk", lambda: DiskCache(tmp_path))
    monkeypatch.setattr(compiling, "_functions", {})
    monkeypatch.setattr(compiling, "_modules", {})
    monkeypatch.setattr(_function, "use_context", lambda device: None)
    return made


GENERATED = """#include "types.cuh"
// add_
FLAMBEAU_KERNEL(32) kernel(float *x) { FLAMBEAU_GRID_WAIT(); x[threadIdx.x] += 1; }
"""


def test_machine_code_of_generated_sources_has_the_name_of_what_it_does(fake: _Driver) -> None:
    fake.target = CodeTarget("cubin", "sm_90")
    image, name = compiling.compile_source(GENERATED, "kernel", device=0)
    assert name == "add_kernel"
    assert compiling.compile_source(GENERATED, "kernel", device=0) == (image, name)
    assert compiling.get_function(GENERATED, "kernel", 0) == 100 + len("add_kernel")
    assert b".text.add_kernel" in fake.loaded[0]
    _, entry = compiling.compile_for_pack(GENERATED, "", (), "sm_90")
    assert b".text.add_kernel" in entry
    fake.target = CodeTarget("ptx", "compute_80")
    assert compiling.compile_source(GENERATED, "kernel", device=0)[1] == "kernel"


def test_ptx_for_the_driver_s_target(fake: _Driver) -> None:
    image, name = compiling.compile_source(SOURCE, "twice", device=0)
    assert name == "twice"
    assert b".target sm_80" in image
    assert not image.endswith(b"\0")


def test_cubin_for_real_architectures(fake: _Driver) -> None:
    fake.target = CodeTarget("cubin", "sm_90")
    image, _ = compiling.compile_source(SOURCE, "twice", device=0)
    assert image[:4] == b"\x7fELF"


def test_template_expressions_are_lowered(fake: _Driver) -> None:
    image, name = compiling.compile_source(TEMPLATE, "twice<double>", device=0)
    assert name.startswith("_Z")
    assert name.encode() in image
    other = compiling.compile_source(TEMPLATE, "twice<float>", device=0)[1]
    assert other != name


def test_plain_name_of_a_mangled_kernel(fake: _Driver) -> None:
    image, name = compiling.compile_source("__global__ void f(int *x) { *x = 1; }", "f", device=0)
    assert name != "f"
    assert name.encode() in image


def test_second_compilation_comes_from_disk(fake: _Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiling.compile_source(TEMPLATE, "twice<int>", device=0)

    def fail(*arguments: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiling, "_compile", fail)
    assert compiling.compile_source(TEMPLATE, "twice<int>", device=0) == first
    with pytest.raises(AssertionError, match="compiled again"):
        compiling.compile_source(TEMPLATE, "twice<int>", device=0, options=["-DOTHER"])
    fake.target = CodeTarget("ptx", "compute_90")
    with pytest.raises(AssertionError, match="compiled again"):
        compiling.compile_source(TEMPLATE, "twice<int>", device=0)


def test_damaged_entry_is_compiled_again(fake: _Driver, tmp_path: Path) -> None:
    image, _ = compiling.compile_source(SOURCE, "twice", device=0)
    (entry,) = tmp_path.glob("??/*")
    entry.write_bytes(entry.read_bytes()[:100])
    with pytest.warns(RuntimeWarning, match="damaged"):
        again, _ = compiling.compile_source(SOURCE, "twice", device=0)
    assert again == image


def test_functions_are_loaded_once(fake: _Driver) -> None:
    two = SOURCE + '\nextern "C" __global__ void thrice(float *x) { *x *= 3.0f; }'
    first = compiling.get_function(two, "twice", 0)
    assert compiling.get_function(two, "twice", 0) == first
    assert compiling.get_function(two, "thrice", 0) != first
    assert len(fake.loaded) == 1
    compiling.get_function(two, "twice", 1)
    assert len(fake.loaded) == 2


def test_errors_carry_log_and_numbered_source(fake: _Driver) -> None:
    broken = 'extern "C" __global__ void k() {\n  undeclared = 1;\n}'
    with pytest.raises(CompilationError, match="Kernel compilation failed") as caught:
        compiling.compile_source(broken, "k", device=0)
    assert "kernel.cu(2)" in caught.value.log
    assert "undeclared" in caught.value.log
    assert "   2 |   undeclared = 1;" in str(caught.value)
    assert isinstance(caught.value, RuntimeError)
    assert pickle.loads(pickle.dumps(caught.value)).log == caught.value.log


def test_missing_compiler_names_the_extras(fake: _Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import nvrtc

    def missing() -> None:
        raise RuntimeError("libnvrtc.so.13 not found")

    monkeypatch.setattr(nvrtc, "nvrtcVersion", missing)
    compiling._nvrtc.cache_clear()
    try:
        with pytest.raises(MissingExtraError) as caught:
            compiling.compile_source(SOURCE + "// another", "twice", device=0)
    finally:
        compiling._nvrtc.cache_clear()
    assert 'pip install "flambeau[virtual]"' in str(caught.value)
    assert 'pip install "flambeau[cu13]"' in str(caught.value)
    assert isinstance(caught.value, ImportError)


def test_own_headers_can_be_included(fake: _Driver) -> None:
    source = '#include "math.cuh"\nFLAMBEAU_KERNEL(32) k(float16 *x) { *x = convert<float16>(2); }'
    image, _ = compiling.compile_source(source, "k", device=0)
    assert b"griddepcontrol" not in image


def test_grid_wait_from_sm_90_on(fake: _Driver) -> None:
    source = '#include "types.cuh"\nFLAMBEAU_KERNEL(32) k(int *x) { FLAMBEAU_GRID_WAIT(); *x = 1; }'
    image, _ = compiling.compile_source(source, "k", device=0)
    assert b"griddepcontrol.wait" not in image
    fake.target = CodeTarget("ptx", "compute_90")
    image, _ = compiling.compile_source(source, "k", device=0)
    assert b"griddepcontrol.wait" in image


@pytest.mark.slow
def test_cuda_headers_come_with_the_compiler(
    fake: _Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "own"))
    compiling._bundled_headers.cache_clear()
    try:
        options = compiling.include_options()
        source = (
            "#include <cuda_fp16.h>\n#include <cub/block/block_reduce.cuh>\n"
            'extern "C" __global__ void k(__half *x) { *x = __float2half(1.0f); }'
        )
        image, _ = compiling.compile_source(source, "k", device=0, options=options)
    finally:
        compiling._bundled_headers.cache_clear()
    assert b".entry k(" in image


def test_only_included_headers_matter_to_the_key() -> None:
    needed = [name for name, _ in compiling._headers_of('#include "fill.cuh"\nint x;')]
    assert needed == ["fill.cuh", "math.cuh", "types.cuh"]
    assert compiling._headers_of("#include <cub/cub.cuh>") == []
