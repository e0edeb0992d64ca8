# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import gc
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flambeau import driver
from flambeau.driver import _table
from flambeau.driver.errors import AcceleratorError
from flambeau.runtime import _allocator, _launch, _state, lazy_init, observers
from flambeau.runtime._launch import Kernel
from flambeau.runtime._stream import Stream, stream
from support import run_script, search_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent

# store(long *out, int i, unsigned I, long q, unsigned long Q, float f, double d, {int, int} B):
# out[blockIdx.x] gets the sum of the others.
PTX = """
.version 7.0
.target sm_80
.address_size 64

.visible .entry store(
    .param .u64 out, .param .s32 pi, .param .u32 pI, .param .s64 pq, .param .u64 pQ,
    .param .f32 pf, .param .f64 pd, .param .align 4 .b8 pB[8]
)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<12>;
    .reg .f32 %f<2>;
    .reg .f64 %fd<2>;
    ld.param.u64 %rd1, [out];
    ld.param.s32 %rd2, [pi];
    ld.param.u32 %rd3, [pI];
    ld.param.s64 %rd4, [pq];
    ld.param.u64 %rd5, [pQ];
    ld.param.f32 %f1, [pf];
    ld.param.f64 %fd1, [pd];
    ld.param.s32 %rd8, [pB];
    ld.param.s32 %rd9, [pB+4];
    cvt.rzi.s64.f32 %rd6, %f1;
    cvt.rzi.s64.f64 %rd7, %fd1;
    add.s64 %rd2, %rd2, %rd3;
    add.s64 %rd2, %rd2, %rd4;
    add.s64 %rd2, %rd2, %rd5;
    add.s64 %rd2, %rd2, %rd6;
    add.s64 %rd2, %rd2, %rd7;
    add.s64 %rd2, %rd2, %rd8;
    add.s64 %rd2, %rd2, %rd9;
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd10, %r1, 8;
    add.s64 %rd1, %rd1, %rd10;
    st.global.u64 [%rd1], %rd2;
    ret;
}

.visible .entry nothing()
{
    ret;
}
"""
SIGNATURE = "PiIqQfdB"
ARGUMENTS = (-1, 20, -300, 4000, 50000.5, 600000.25, struct.pack("ii", -7000000, 80000000))
SUM = -1 + 20 - 300 + 4000 + 50000 + 600000 - 7000000 + 80000000


@pytest.fixture(scope="module")
def function() -> Iterator[Callable[[str], int]]:
    lazy_init.lazy_init()
    modules = driver.current().modules
    _state.set_device(0)
    module = modules.load(PTX.encode(), 0)
    yield lambda name: modules.function(module, name)
    modules.unload(module)


class Output:
    """`count` 64-bit integers in pinned memory, which kernels write directly."""

    def __init__(self, count: int) -> None:
        self.memory = _allocator.allocate_on_host(8 * count, pin=True)
        self.values = (ctypes.c_int64 * count).from_address(self.memory.address)
        ctypes.memset(self.memory.address, 0, 8 * count)

    def data_ptr(self) -> int:
        return self.memory.address


def test_arguments_of_every_kind(function: Callable[[str], int]) -> None:
    kernel = Kernel(function("store"), SIGNATURE)
    out = Output(3)
    kernel(0, 3, 1, 0, out, *ARGUMENTS)
    _state.synchronize()
    assert list(out.values) == [SUM] * 3
    kernel(0, (1, 1), (1, 1, 1), 0, out.data_ptr() + 8, 0, *ARGUMENTS[1:])
    _state.synchronize()
    assert list(out.values) == [SUM, SUM + 1, SUM]


def test_it_goes_to_the_current_stream(function: Callable[[str], int]) -> None:
    kernel = Kernel(function("nothing"), "")
    side = Stream()
    seen: list[tuple[int, int]] = []

    def note(kernel: int, on: int) -> None:
        seen.append((kernel, on))

    observers.register("launch", note)
    try:
        kernel(0, 1, 1, 0)
        with stream(side):
            kernel(0, 1, 32, 0)
    finally:
        observers.unregister("launch", note)
    kernel(0, 1, 1, 0)
    assert seen == [(kernel.function, 0), (kernel.function, side.cuda_stream)]


def test_an_empty_grid_launches_nothing(function: Callable[[str], int]) -> None:
    _table.start_trace()
    try:
        Kernel(function("nothing"), "")(0, (4, 0), 32, 0)
    finally:
        calls = [name for name, _ in _table.stop_trace()]
    assert "cuLaunchKernel" not in calls


def test_a_kernel_that_may_overlap(function: Callable[[str], int]) -> None:
    kernel = Kernel(function("store"), SIGNATURE, overlapping=True)
    assert kernel.overlapping
    out = Output(1)
    _table.start_trace()
    try:
        kernel(0, 1, 1, 0, out, *ARGUMENTS)
        _state.synchronize()
    finally:
        calls = [name for name, _ in _table.stop_trace()]
    assert out.values[0] == SUM
    offered = driver.current().supports("programmatic_launch")
    assert ("cuLaunchKernelEx" if offered else "cuLaunchKernel") in calls


def test_bad_calls(function: Callable[[str], int]) -> None:
    kernel = Kernel(function("store"), SIGNATURE)
    with pytest.raises(TypeError, match="takes 8 arguments"):
        kernel(0, 1, 1, 0, 1)
    with pytest.raises(TypeError):
        kernel(0, 1, 1, 0, 0, "text", *ARGUMENTS[1:])
    with pytest.raises(OverflowError):
        kernel(0, 1, 1, 0, 0, 1 << 40, *ARGUMENTS[1:])
    with pytest.raises(ValueError, match="exceed 4096 bytes"):
        kernel(0, 1, 1, 0, 0, *ARGUMENTS[:-1], b"x" * 5000)
    with pytest.raises(ValueError, match="1 to 3 dimensions"):
        kernel(0, (1, 1, 1, 1), 1, 0, 0, *ARGUMENTS)
    with pytest.raises(ValueError, match="unknown letters 'z'"):
        Kernel(0, "Pz")
    with pytest.raises(AcceleratorError, match="invalid argument"):
        Kernel(function("nothing"), "")(0, 1, 5000, 0)


def test_every_128th_launch_looks_at_its_marks(function: Callable[[str], int]) -> None:
    kernel = Kernel(function("nothing"), "")
    with stream(Stream()):
        _table.start_trace()
        try:
            for _ in range(1024):
                kernel(0, 1, 1, 0)
        finally:
            calls = [name for name, _ in _table.stop_trace()]
        _state.synchronize()
    assert calls.count("cuLaunchKernel") == 1024
    assert 6 <= calls.count("cuEventRecord") <= 8
    assert calls.count("cuEventQuery") >= 1


def test_a_host_callback_gets_the_gil_while_launches_pile_up(
    function: Callable[[str], int],
) -> None:
    """A queue that waits for Python must not be fed by a thread that never lets go of the GIL."""
    kernel = Kernel(function("nothing"), "")
    ran = threading.Event()
    callback_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    @callback_type
    def callback(_: int) -> None:
        ran.set()

    side = Stream()
    launch_host_function(side, ctypes.cast(callback, ctypes.c_void_p).value or 0)
    with stream(side):
        for _ in range(3000):
            kernel(0, 1, 1, 0)
    side.synchronize()
    assert ran.is_set()
    gc.collect()


def launch_host_function(on: Stream, address: int) -> None:
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    table = ctypes.cast(driver.current().table(), ctypes.POINTER(ctypes.c_void_p))
    entry = prototype(table[_table.entries().index("cuLaunchHostFunc")])
    assert entry(on.cuda_stream, address, None) == 0


def test_blocking_launches(function: Callable[[str], int]) -> None:
    kernel = Kernel(function("store"), SIGNATURE)
    out = Output(1)
    _launch.set_blocking(True)
    try:
        kernel(0, 1, 1, 0, out, *ARGUMENTS)
        assert out.values[0] == SUM
    finally:
        _launch.set_blocking(False)


@pytest.mark.parametrize("blocking", ["1", "0"])
def test_a_fault_is_raised_at_its_launch_if_launches_block(blocking: str) -> None:
    run_script(
        f"""
        import test_launch as here
        from flambeau import driver
        from flambeau.driver.errors import AcceleratorError
        from flambeau.runtime import _state, lazy_init
        lazy_init.lazy_init()
        _state.set_device(0)
        modules = driver.current().modules
        function = modules.function(modules.load(here.PTX.encode(), 0), "store")
        launched = False
        try:
            here.Kernel(function, here.SIGNATURE)(0, 1, 1, 0, 64, *here.ARGUMENTS)
            launched = True
            _state.synchronize()
        except AcceleratorError as error:
            assert error.error_code == 700, error
            assert launched is ({blocking!r} == "0")
        else:
            raise AssertionError("no fault")
        """,
        env={"CUDA_LAUNCH_BLOCKING": blocking, "PYTHONPATH": search_path(HERE, HERE.parent)},
        prelude="",
    )
