# SPDX-License-Identifier: Apache-2.0
"""Allocators of the user's, from a shared library that is compiled here."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from support import run_script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MIB = 1 << 20
c = torch.cuda
COMPILER = shutil.which(os.environ.get("CXX", "g++"))
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")

# It hands out addresses that nobody may touch, and keeps a log of its calls.
SOURCE = r"""
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <sys/types.h>

static std::string text;
static std::uintptr_t next_address = std::uintptr_t{1} << 46;
static bool refuse = false;

template <class... A> static void note(const char *form, A... values) {
  char line[200];
  std::snprintf(line, sizeof line, form, values...);
  text += line;
}

extern "C" {
void *allocate(ssize_t bytes, int device, void *stream) {
  note("allocate %zd %d %p\n", bytes, device, stream);
  if (refuse) return nullptr;
  void *memory = reinterpret_cast<void *>(next_address);
  next_address += (bytes + 511) / 512 * 512;
  return memory;
}
void release(void *memory, std::size_t bytes, int device, void *stream) {
  note("release %p %zu %d %p\n", memory, bytes, device, stream);
}
void on_init(int count) { note("init %d\n", count); }
void on_reset() { note("reset\n"); }
void on_fraction(double fraction, int device) { note("fraction %g %d\n", fraction, device); }
void on_record(void *memory, void *stream) { note("record %p %p\n", memory, stream); }
void set_refuse(int on) { refuse = on; }
const char *log_text() { return text.c_str(); }
void clear_log() { text.clear(); }
}
"""

SCRIPT = """
import ctypes
c = torch.cuda
library = ctypes.CDLL({path!r})
library.log_text.restype = ctypes.c_char_p
def log():
    lines = library.log_text().decode().splitlines()
    library.clear_log()
    return lines
def address(name):
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
def raises(call, error, text):
    try:
        call()
    except error as raised:
        assert text in str(raised), raised
    else:
        raise AssertionError(text)
mine = c.CUDAPluggableAllocator({path!r}, "allocate", "release")
"""


@pytest.fixture(scope="session")
def library_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("allocator")
    source, library = folder / "allocator.cpp", folder / "allocator.so"
    source.write_text(SOURCE)
    command = [str(COMPILER), "-O1", "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return str(library)


@pytest.fixture
def library(library_path: str) -> Iterator[Any]:
    loaded = ctypes.CDLL(library_path)
    loaded.log_text.restype = ctypes.c_char_p
    loaded.clear_log()
    yield loaded
    loaded.set_refuse(0)


def lines(library: Any) -> list[str]:
    found: list[str] = library.log_text().decode().splitlines()
    library.clear_log()
    return found


def of_bytes(size: int) -> Any:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


@needs_compiler
def test_a_pool_gets_whole_segments_from_it(library: Any, library_path: str) -> None:
    c.init()
    allocator = c.CUDAPluggableAllocator(library_path, "allocate", "release")
    pool = c.MemPool(allocator.allocator())
    assert pool.allocator is allocator.allocator()
    assert lines(library) == []
    side = c.Stream()
    with c.use_mem_pool(pool):
        held = [of_bytes(3 * MIB), of_bytes(3 * MIB)]
        with c.stream(side):
            held.append(of_bytes(1))
    pointers = [t.data_ptr() for t in held]
    handle = f"{side.cuda_stream:#x}"
    assert lines(library) == ["allocate 20971520 0 (nil)", f"allocate 2097152 0 {handle}"]
    assert sorted(s["total_size"] for s in pool.snapshot()) == [2 * MIB, 20 * MIB]
    held.clear()
    c.empty_cache()
    assert lines(library) == []
    del pool
    gc.collect()
    c.empty_cache()
    assert sorted(lines(library)) == sorted(
        [
            f"release {pointers[0]:#x} 20971520 0 (nil)",
            f"release {pointers[2]:#x} 2097152 0 {handle}",
        ]
    )


@needs_compiler
def test_a_null_pointer_means_out_of_memory(library: Any, library_path: str) -> None:
    allocator = c.CUDAPluggableAllocator(library_path, "allocate", "release")
    pool = c.MemPool(allocator.allocator())
    library.set_refuse(1)
    with c.use_mem_pool(pool), pytest.raises(c.OutOfMemoryError) as caught:
        of_bytes(3 * MIB)
    assert caught.value.refused_by == "source"
    assert "the custom allocator, which returned a null pointer" in str(caught.value)
    library.set_refuse(0)
    with c.use_mem_pool(pool):
        assert of_bytes(3 * MIB).numel() == 3 * MIB


@needs_compiler
def test_instead_of_flambeaus_own(library_path: str) -> None:
    run_script(
        SCRIPT.format(path=library_path)
        + """
assert c.memory._get_current_allocator().allocator() is None
functions = mine.allocator()
functions.set_init_fn(address("on_init"))
functions.set_reset_fn(address("on_reset"))
functions.set_memory_fraction_fn(address("on_fraction"))
functions.set_record_stream_fn(address("on_record"))
c.change_current_allocator(mine)
raises(lambda: c.change_current_allocator(mine), RuntimeError,
       "Can't swap an already initialized allocator")
assert c.get_allocator_backend() == "pluggable"
assert c.memory._get_current_allocator().allocator() is functions
assert log() == []
c.init()
assert log() == [f"init {c.device_count()}"]

x = torch.empty(1000, dtype=torch.uint8, device="cuda")
assert log() == ["allocate 1000 0 (nil)"]
pointer = x.data_ptr()
side = c.Stream()
x.record_stream(side)
assert log() == [f"record {pointer:#x} {side.cuda_stream:#x}"]
view = x[10:]
del x
assert log() == []
del view
assert log() == [f"release {pointer:#x} 1000 0 (nil)"]

c.empty_cache()
c.set_per_process_memory_fraction(0.5)
assert log() == ["reset", "fraction 0.5 0"]
raw = c.caching_allocator_alloc(77)
c.caching_allocator_delete(raw)
assert log() == ["allocate 77 0 (nil)", f"release {raw:#x} 77 0 (nil)"]
raises(lambda: c.caching_allocator_delete(raw), RuntimeError,
       "Trying to free a pointer not allocated here")

for call in (c.memory_allocated, c.memory_stats, c.reset_peak_memory_stats, c.memory_summary,
             c.reset_accumulated_memory_stats, c.memory_snapshot, c.memory._snapshot,
             c.memory._record_memory_history, c.get_per_process_memory_fraction, c.MemPool,
             c.memory_explain, c.max_memory_reserved):
    raises(call, RuntimeError, "does not yet support")
assert not c.memory._memory_metadata_supported()
library.set_refuse(1)
raises(lambda: torch.empty(1000, device="cuda"), c.OutOfMemoryError, "Tried to allocate 3.91 KiB")
""",
        prelude="import flambeau as torch\n",
    )


@needs_compiler
def test_it_cannot_be_changed_late(library_path: str) -> None:
    c.init()
    allocator = c.CUDAPluggableAllocator(library_path, "allocate", "release")
    with pytest.raises(RuntimeError, match="Can't swap an already initialized allocator"):
        c.change_current_allocator(allocator)
    assert c.get_allocator_backend() == "native"
    run_script("""
        try:
            torch.cuda.change_current_allocator(None)
        except TypeError as error:
            assert "CUDAPluggableAllocator" in str(error)
        else:
            raise AssertionError
    """)


@needs_compiler
def test_what_is_missing_is_said(library_path: str) -> None:
    with pytest.raises(OSError, match=r"nowhere\.so"):
        c.CUDAPluggableAllocator("/nowhere.so", "allocate", "release")
    with pytest.raises(AttributeError, match="other"):
        c.CUDAPluggableAllocator(library_path, "allocate", "other")


def test_memory_of_the_cache_is_no_new_memory() -> None:
    region = c.caching_allocator_alloc(40 * MIB)
    released: list[int] = []
    allocator = c.CUDAPluggableAllocator.from_functions(
        lambda nbytes, device, stream: region + 512,
        lambda memory, nbytes, device, stream: released.append(memory),
    )
    pool = c.MemPool(allocator.allocator())
    with c.use_mem_pool(pool), pytest.raises(c.OutOfMemoryError, match="reserved here already"):
        of_bytes(MIB)
    assert set(released) == {region + 512}
    c.caching_allocator_delete(region)


def test_python_functions_may_allocate() -> None:
    with c.caching_allocator_disabled():
        region = c.caching_allocator_alloc(40 * MIB)
    calls: list[tuple[object, ...]] = []

    def allocate(nbytes: int, device: int, stream: int) -> int | None:
        calls.append((nbytes, device, stream))
        return region if len(calls) == 1 else None

    def release(memory: int, nbytes: int, device: int, stream: int) -> None:
        calls.append((memory, nbytes, device, stream))

    make: Callable[..., Any] = c.CUDAPluggableAllocator.from_functions
    pool = c.MemPool(make(allocate, release).allocator())
    with c.use_mem_pool(pool):
        x = torch.full((MIB,), 2.0, device="cuda")
        y = x * 3
        assert region <= y.data_ptr() < region + 20 * MIB
        with pytest.raises(c.OutOfMemoryError):
            of_bytes(30 * MIB)
    assert float(y.sum()) == 6.0 * MIB
    del x, y, pool
    gc.collect()
    c.empty_cache()
    assert calls == [
        (20 * MIB, 0, 0), (30 * MIB, 0, 0), (30 * MIB, 0, 0), (region, 20 * MIB, 0, 0),
    ]  # fmt: skip
    c.caching_allocator_delete(region)


def test_a_holder_without_functions_stands_for_flambeaus_own() -> None:
    holder = c.memory._CUDAAllocator(None)
    assert holder.allocator() is None
    assert issubclass(c.CUDAPluggableAllocator, c.memory._CUDAAllocator)
    run_script("""
        for wrong in (torch.cuda.memory._CUDAAllocator(None), None, "library.so"):
            try:
                torch.cuda.change_current_allocator(wrong)
            except TypeError as error:
                assert "CUDAPluggableAllocator" in str(error)
            else:
                raise AssertionError(wrong)
        assert torch.cuda.get_allocator_backend() == "native"
    """)
