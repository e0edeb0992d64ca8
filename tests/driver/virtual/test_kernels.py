# SPDX-License-Identifier: Apache-2.0
"""Kernels on the machine: launches, what they may have, what they may touch, what they report."""

from __future__ import annotations

import ctypes
import struct
import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pytest

from driver.virtual.device_memory import status_of
from driver.virtual.ptx.compiler import compile_ptx
from driver.virtual.scripts import run
from flambeau import driver, virtual
from flambeau.driver.virtual import _calls as calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from driver.virtual.device_memory import Bench, Buffer

SOURCE = """
__device__ int counter = 41;
__constant__ float factors[2] = {2.0f, 3.0f};

extern "C" __global__ void add(float *out, const float *a, const float *b, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}
extern "C" __global__ void scale(float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * factors[0] + factors[1];
}
extern "C" __global__ void bump() { atomicAdd(&counter, 1); }
extern "C" __global__ void mixed(char a, double b, short c, double *out) { *out = a + b + c; }
extern "C" __global__ void reverse(int *x) {
  extern __shared__ int tile[];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void static_shared(int *x) {
  __shared__ int tile[1024];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(64) bounded(int *x) { *x = blockDim.x; }
extern "C" __global__ void wait_for(volatile int *flag, int *out) {
  while (*flag == 0) {}
  *out = 1;
}
extern "C" __global__ void empty() {}
"""


@pytest.fixture(scope="module")
def image() -> bytes:
    return compile_ptx(SOURCE).encode()


@pytest.fixture
def module(bench: Bench, image: bytes) -> Iterator[int]:
    handle = driver.current().modules.load(image, 0)
    yield handle
    driver.current().modules.unload(handle)


def kernel(module: int, name: str) -> int:
    return driver.current().modules.function(module, name)


def pack(form: str, *values: object) -> list[bytes]:
    return [struct.pack(letter, value) for letter, value in zip(form, values, strict=True)]


def floats(bench: Bench, values: np.ndarray) -> Buffer:
    buffer = bench.buffer(values.nbytes)
    calls.memcpy_htod_async(buffer.address, values.ctypes.data, values.nbytes)
    calls.ctx_synchronize()
    return buffer


def test_a_kernel_computes(bench: Bench, module: int, schedule: str) -> None:
    n = 10_001
    rng = np.random.default_rng(0)
    x, y = rng.random(n, np.float32), rng.random(n, np.float32)
    a, b, out = floats(bench, x), floats(bench, y), bench.buffer(4 * n)
    stream = bench.stream()
    parameters = pack("PPPq", out.address, a.address, b.address, n)
    calls.launch_kernel(kernel(module, "add"), (40, 1, 1), (256, 1, 1), parameters, 0, stream)
    calls.stream_synchronize(stream)
    np.testing.assert_array_equal(np.frombuffer(out.peek(), np.float32), x + y)


def test_kernels_of_a_stream_are_in_order(bench: Bench, module: int, schedule: str) -> None:
    x = floats(bench, np.ones(64, np.float32))
    stream = bench.stream()
    for _ in range(3):
        calls.launch_kernel(
            kernel(module, "scale"), (1, 1, 1), (64, 1, 1), pack("Pi", x.address, 64), 0, stream
        )
    calls.stream_synchronize(stream)
    assert set(np.frombuffer(x.peek(), np.float32)) == {((1 * 2 + 3) * 2 + 3) * 2 + 3}


def test_parameters_are_read_at_the_launch(bench: Bench, module: int) -> None:
    out, stream = bench.buffer(8), bench.stream()
    parameters = pack("bdhP", -3, 0.5, 1000, out.address)
    calls.launch_kernel(kernel(module, "mixed"), (1, 1, 1), (1, 1, 1), parameters, 0, stream)
    for parameter in parameters:
        ctypes.memset(parameter, 0, len(parameter))
    calls.stream_synchronize(stream)
    assert struct.unpack("d", out.peek()) == (997.5,)


def test_module_variables(bench: Bench, module: int) -> None:
    address, size = driver.current().modules.global_pointer(module, "counter")
    assert size == 4
    calls.launch_kernel(kernel(module, "bump"), (10, 1, 1), (10, 1, 1), [])
    value = ctypes.c_int()
    calls.memcpy_dtoh_async(ctypes.addressof(value), address, 4)
    assert value.value == 141
    assert driver.current().modules.global_pointer(module, "factors")[1] == 8


def test_dynamic_shared_memory_needs_leave_above_48_kib(bench: Bench, module: int) -> None:
    reverse, x = kernel(module, "reverse"), floats(bench, np.arange(256, dtype=np.int32))
    launch = (reverse, (1, 1, 1), (256, 1, 1), pack("P", x.address))
    with pytest.raises(RuntimeError, match="65536 bytes of dynamic shared memory were asked for"):
        calls.launch_kernel(*launch, 65536)
    assert calls.func_get_attribute(8, reverse) == 49152
    calls.func_set_attribute(reverse, 8, 65536)
    calls.launch_kernel(*launch, 65536)
    calls.ctx_synchronize()
    assert list(np.frombuffer(x.peek(), np.int32)) == list(range(255, -1, -1))
    assert status_of(calls.func_set_attribute, reverse, 8, 232449) == 1
    assert status_of(calls.func_set_attribute, reverse, 99, 1) == 1


def test_what_a_kernel_says_of_itself(bench: Bench, module: int) -> None:
    assert calls.func_get_attribute(1, kernel(module, "static_shared")) == 4096
    assert calls.func_get_attribute(0, kernel(module, "bounded")) == 64
    assert calls.func_get_attribute(0, kernel(module, "add")) == 1024
    assert calls.func_get_attribute(4, kernel(module, "add")) > 0
    assert status_of(calls.func_get_attribute, 55, kernel(module, "add")) == 1


def test_occupancy(bench: Bench, module: int) -> None:
    empty, static = kernel(module, "empty"), kernel(module, "static_shared")
    assert calls.occupancy(empty, 1024) == 2
    assert calls.occupancy(empty, 256) == 8
    assert calls.occupancy(empty, 1) == 32
    assert calls.occupancy(empty, 128, 100 * 1024) == 2
    assert calls.occupancy(empty, 128, 228 * 1024) == 0
    assert calls.occupancy(static, 32, 43 * 1024) == 233472 // ((43 + 4 + 1) * 1024)
    assert calls.occupancy(kernel(module, "bounded"), 65) == 0


@pytest.mark.parametrize(
    ("grid", "block", "status"),
    [
        ((0, 1, 1), (1, 1, 1), 1),
        ((1, 1, 1), (0, 1, 1), 1),
        ((1, 65536, 1), (1, 1, 1), 1),
        ((1, 1, 65536), (1, 1, 1), 1),
        ((1, 1, 1), (1025, 1, 1), 1),
        ((1, 1, 1), (1, 1, 65), 1),
        ((1, 1, 1), (64, 32, 1), 1),
        ((1, 1, 1), (32, 32, 1), 0),
    ],
)
def test_shapes_that_are_refused(
    bench: Bench, module: int, grid: tuple[int, ...], block: tuple[int, ...], status: int
) -> None:
    assert status_of(calls.launch_kernel, kernel(module, "empty"), grid, block, []) == status


def test_more_threads_than_the_kernel_was_compiled_for(bench: Bench, module: int) -> None:
    x = bench.buffer()
    bounded = kernel(module, "bounded")
    parameters = pack("P", x.address)
    calls.launch_kernel(bounded, (1, 1, 1), (64, 1, 1), parameters)
    with pytest.raises(RuntimeError, match="bounded was compiled for at most 64") as error:
        calls.launch_kernel(bounded, (1, 1, 1), (65, 1, 1), parameters)
    assert error.value.error_code == 701  # type: ignore[attr-defined]


def test_a_kernel_stays_on_its_device(bench: Bench, module: int) -> None:
    empty = kernel(module, "empty")
    bench.use(1)
    assert status_of(calls.launch_kernel, empty, (1, 1, 1), (1, 1, 1), []) == 400


def test_what_a_module_has(bench: Bench, module: int, image: bytes) -> None:
    modules = driver.current().modules
    assert kernel(module, "add") == kernel(module, "add")
    for lookup in (modules.function, modules.global_pointer):
        with pytest.raises(RuntimeError, match=r"has no .* 'nothing'") as error:
            lookup(module, "nothing")
        assert error.value.error_code == 500  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="load PTX text") as error:
        modules.load(b"\x7fELF\xff", 0)
    assert error.value.error_code == 200  # type: ignore[attr-defined]
    assert status_of(modules.load, b".version 8.0\n.visible .entry k(", 0) == 218
    assert status_of(modules.function, 10**6, "add") == 400


def test_unloading_waits_and_frees(bench: Bench, image: bytes) -> None:
    modules = driver.current().modules
    before = calls.mem_get_info()
    module = modules.load(image, 0)
    address, _ = modules.global_pointer(module, "counter")
    target = bench.pinned(4)
    bump, stream = kernel(module, "bump"), bench.stream()
    calls.launch_kernel(bump, (1, 1, 1), (1, 1, 1), [], 0, stream)
    calls.memcpy_dtoh_async(target.address, address, 4, stream)
    modules.unload(module)
    assert struct.unpack("i", target.bytes) == (42,)
    assert status_of(calls.launch_kernel, bump, (1, 1, 1), (1, 1, 1), []) == 400
    assert calls.mem_get_info() == before


def test_a_kernel_may_wait_for_the_host(bench: Bench, module: int) -> None:
    flag, out, stream = bench.pinned(4).set(0), bench.buffer(4), bench.stream()
    virtual.set_progress(True)
    calls.launch_kernel(
        kernel(module, "wait_for"), (1, 1, 1), (1, 1, 1), pack("PP", flag.address, out.address),
        0, stream,
    )  # fmt: skip
    assert not calls.stream_query(stream)
    flag.set(1)
    calls.stream_synchronize(stream)
    assert struct.unpack("i", out.peek()) == (1,)


def test_kernels_reach_pinned_memory(bench: Bench, module: int) -> None:
    pinned, stream = bench.pinned(4 * 32), bench.stream()
    host = np.frombuffer((ctypes.c_char * 128).from_address(pinned.address), np.float32)
    host[:] = 1
    calls.launch_kernel(
        kernel(module, "scale"), (1, 1, 1), (32, 1, 1), pack("Pi", pinned.address, 32), 0, stream
    )
    calls.stream_synchronize(stream)
    assert set(host) == {5.0}


FAULTY = """
extern "C" __global__ void store(int *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = i;
}
extern "C" __global__ void store8(long long *x) { *x = 1; }
extern "C" __global__ void wait_for(volatile int *flag) { while (*flag == 0) {} }
extern "C" __global__ void fail(int x) { if (x) __trap(); }
"""

LAUNCH = """
import struct
modules = driver.current().modules
module = modules.load(PTX.encode(), 0)
stream = calls.stream_create()

def launch(name, form, *values):
    calls.launch_kernel(modules.function(module, name), (2, 1, 1), (64, 1, 1),
                        [struct.pack(f, v) for f, v in zip(form, values)], 0, stream)
"""


def run_fault(source: str, devices: int = 1) -> None:
    ptx = compile_ptx(FAULTY, "-lineinfo")
    head = f"contexts = start({devices})\nPTX = {ptx!r}\n{LAUNCH}"
    run(head + textwrap.dedent(source), machine=f"h200:{devices}")


@pytest.mark.parametrize("how", ["by itself", "in another thread", "reset"])
def test_a_kernel_that_never_ends_does_not_keep_the_process(how: str) -> None:
    run_fault(f"""
    import faulthandler
    faulthandler.dump_traceback_later(60, exit=True)
    flag = calls.mem_host_alloc(64)
    launch("wait_for", "P", flag)
    how = {how!r}
    if how == "in another thread":
        def wait():
            calls.ctx_set_current(contexts[0])
            status_of(calls.stream_synchronize, stream)
        threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.3)
    else:
        assert not calls.stream_query(stream)
    if how == "reset":
        virtual.reset()
        import gc
        gc.collect()
        start()
        calls.ctx_synchronize()
    """)


def test_an_overrun_names_everything() -> None:
    run_fault("""
    x = calls.mem_alloc(100 * 4)
    launch("store", "Pi", x, 101)
    try:
        calls.stream_synchronize(stream)
    except AcceleratorError as error:
        assert error.error_code == 700
        text = str(error)
        for part in ("illegal memory access", "Kernel store", "thread (36, 0, 0)",
                     "block (1, 0, 0)", "write of 4 bytes", hex(x + 400),
                     "0 bytes past the end of", "400 bytes at",
                     hex(x), "kernel.cu:4", "stream 1 of device 0"):
            assert part in text, (part, text)
    else:
        raise AssertionError("the overrun went unseen")
    """)


def test_modules_go_with_their_context() -> None:
    run_fault("""
    launch("fail", "i", 0)
    function = modules.function(module, "fail")
    calls.primary_ctx_release(0)
    calls.ctx_set_current(calls.primary_ctx_retain(0))
    assert status_of(calls.func_get_attribute, 0, function) == 400
    before = calls.mem_get_info()
    taken = calls.mem_alloc(1 << 20)
    modules.unload(module)
    calls.memset_d8_async(taken, 0, 1 << 20)
    again = modules.load(PTX.encode(), 0)
    assert again != module
    calls.mem_free(taken)
    """)


def test_blocking_launches_raise_where_the_fault_is() -> None:
    ptx = compile_ptx(FAULTY)
    source = """
        x = calls.mem_alloc(64)
        ran = []
        calls.launch_host_function(stream, lambda: ran.append(1))
        launch("store", "Pi", x, 16)
        assert ran == [1]
        assert struct.unpack("16i", ctypes.string_at(x, 64)) == tuple(range(16))
        assert status_of(launch, "store", "Pi", x, 17) == 700
    """
    head = f"start()\nPTX = {ptx!r}\n{LAUNCH}"
    run(head + textwrap.dedent(source), CUDA_LAUNCH_BLOCKING="1")


def test_a_fault_is_sticky_and_the_other_device_goes_on() -> None:
    run_fault(
        """
    ran = []
    x = calls.mem_alloc(64)
    event = calls.event_create()
    launch("store", "Pi", 8, 1)
    calls.launch_host_function(stream, lambda: ran.append(1))
    calls.event_record(event, stream)
    other = calls.stream_create()
    assert status_of(calls.event_synchronize, event) == 700
    for call, args in ((calls.mem_alloc, (1,)), (calls.mem_free, (x,)), (calls.event_create, ()),
                       (calls.stream_query, (stream,)), (calls.event_query, (event,)),
                       (calls.ctx_synchronize, ()), (calls.stream_synchronize, (other,)),
                       (calls.memset_d8_async, (x, 0, 1)), (calls.mem_get_info, ())):
        assert status_of(call, *args) == 700, call
    assert status_of(launch, "fail", "i", 0) == 700
    assert ran == []
    calls.ctx_set_current(contexts[1])
    y = calls.mem_alloc(64)
    calls.memset_d8_async(y, 1, 64)
    calls.ctx_synchronize()
    calls.mem_free(y)
    """,
        devices=2,
    )


def test_misaligned_access_and_trap() -> None:
    run_fault("""
    x = calls.mem_alloc(64)
    launch("store8", "P", x + 4)
    assert status_of(calls.ctx_synchronize) == 716
    assert "write of 8 bytes" in driver.current().explain(716)
    """)
    run_fault("""
    launch("fail", "i", 1)
    assert status_of(calls.ctx_synchronize) == 719
    assert "Kernel fail" in driver.current().explain(719)
    """)


def test_peer_memory_needs_leave() -> None:
    run_fault(
        """
    calls.ctx_set_current(contexts[1])
    there = calls.mem_alloc(256)
    calls.ctx_set_current(contexts[0])
    calls.ctx_enable_peer_access(contexts[1])
    launch("store", "Pi", there, 64)
    calls.stream_synchronize(stream)
    assert struct.unpack("64i", ctypes.string_at(there, 256)) == tuple(range(64))
    calls.ctx_disable_peer_access(contexts[1])
    launch("store", "Pi", there, 64)
    assert status_of(calls.stream_synchronize, stream) == 700
    assert "in the allocation of 256 bytes" in driver.current().explain(700)
    assert "device 1" in driver.current().explain(700)
    """,
        devices=2,
    )


def test_freed_memory_may_not_be_touched() -> None:
    run_fault("""
    x = calls.mem_alloc(256)
    calls.mem_free(x)
    launch("store", "Pi", x, 1)
    assert status_of(calls.stream_synchronize, stream) == 700
    """)
