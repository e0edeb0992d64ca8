# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from flambeau.cuda import _utils
from support import TWO_VIRTUAL, run_script

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SOURCE = """
extern "C" __global__ void scale(const float* x, float* y, int n, double by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * by;
}

template <class T> __global__ void add(T* x, T by, long long n) {
  long long i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += by;
}

namespace tools {
__global__ void where_am_i(int* out) {
  if (threadIdx.x + threadIdx.y + threadIdx.z == 0)
    out[(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] =
        (blockDim.z * 100 + blockDim.y) * 100 + blockDim.x;
}
}

__global__ void reverse(int* out) {
  extern __shared__ int words[];
  words[threadIdx.x * 64] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = words[64 * (blockDim.x - 1 - threadIdx.x)];
}

struct Pair { int first; float second; };
__global__ void numbers(double* out, signed char a, unsigned b, long long c, float d, bool e, Pair f) {
  out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = f.first; out[6] = f.second;
}
"""  # noqa: E501


class Pair(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int), ("second", ctypes.c_float))


def compiled(name: str, **options: Any) -> Any:
    return torch.cuda._compile_kernel(SOURCE, name, **options)


def floats(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, device="cuda")


def test_tensors_ints_and_floats_are_passed(gpu: Any) -> None:
    x = torch.arange(1000, dtype=torch.float32, device=gpu)
    y = torch.zeros_like(x)
    compiled("scale")(grid=(4, 1, 1), block=(256, 1, 1), args=[x, y, 999, 2.5])
    wanted = x * 2.5
    wanted[999] = 0
    assert torch.equal(y, wanted)


def test_a_template_is_named_with_its_arguments(gpu: Any) -> None:
    x = torch.ones(4, dtype=torch.float64, device=gpu)
    compiled("add<double>")((1,), (32,), [x, 0.5, 3])
    assert x.tolist() == [1.5, 1.5, 1.5, 1]


def test_a_kernel_in_a_namespace_is_named_with_it(gpu: Any) -> None:
    out = torch.zeros(8, dtype=torch.int32, device=gpu)
    compiled("tools::where_am_i")((2, 2, 2), (4, 3, 2), [out])
    assert out.tolist() == [20304] * 8


def test_numbers_take_the_size_of_the_parameter(gpu: Any) -> None:
    out = torch.zeros(7, dtype=torch.float64, device=gpu)
    kernel = compiled("numbers")
    kernel(1, 1, [out, -7, 2**32 - 1, -(2**40), 0.25, True, Pair(5, 1.5)])
    assert out.tolist() == [-7, 2**32 - 1, -(2**40), 0.25, 1, 5, 1.5]
    kernel(1, 1, [out, 1, ctypes.c_uint(2), 3, ctypes.c_float(4), False, Pair(6, 7)])
    assert out.tolist() == [1, 2, 3, 4, 0, 6, 7]


def test_an_int_that_the_parameter_cannot_hold_is_refused(gpu: Any) -> None:
    x = floats(1)
    with pytest.raises(OverflowError, match="32 bits, too few for 4294967296"):
        compiled("scale")(1, 1, [x, x, 2**32, 1.0])


def test_pinned_host_memory_is_passed_pageable_is_refused(gpu: Any) -> None:
    kernel = compiled("add<float>")
    pinned = torch.ones(3).pin_memory()
    kernel(1, 32, [pinned, 2.0, 3])
    torch.cuda.synchronize()
    assert pinned.tolist() == [3, 3, 3]
    with pytest.raises(ValueError, match="must be CUDA tensors or pinned CPU tensors"):
        kernel(1, 32, [torch.ones(3), 2.0, 3])


@pytest.mark.parametrize("argument", ["text", None, b"1234", 1j, [1]])
def test_other_arguments_are_refused(gpu: Any, argument: object) -> None:
    x = floats(1)
    message = re.escape(f"Unsupported argument type: {type(argument)}")
    with pytest.raises(TypeError, match=message):
        compiled("scale")(1, 1, [x, x, argument, 1.0])


def test_the_number_and_the_sizes_of_arguments_are_checked(gpu: Any) -> None:
    kernel, x = compiled("scale"), floats(1)
    with pytest.raises(TypeError, match=r"scale takes 4 arguments \(of 8, 8, 4, 8 bytes\), got 2"):
        kernel(1, 1, [x, x])
    with pytest.raises(TypeError, match="scale takes 4 arguments"):
        kernel(1, 1)
    with pytest.raises(TypeError, match="argument 3 of scale, a tensor's address, has 8 bytes"):
        kernel(1, 1, [x, x, x, 1.0])


def test_grids_and_blocks_are_checked(gpu: Any) -> None:
    kernel, x = compiled("scale"), floats(1)
    for grid in ((), (1, 1, 1, 1), (-1, 1, 1)):
        with pytest.raises(ValueError, match="a grid has one to three extents"):
            kernel(grid, 1, [x, x, 1, 1.0])
    with pytest.raises(RuntimeError, match="invalid argument"):
        kernel(1, 2048, [x, x, 1, 1.0])


def test_the_stream_is_the_current_one_or_the_one_given(gpu: Any, schedule: str) -> None:
    stream, x = torch.cuda.Stream(), floats(1, 2)
    kernel = compiled("add<float>")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        kernel(1, 32, [x, 1.0, 2])
    kernel(1, 32, [x, 1.0, 2], stream=stream)
    assert not stream.query() or schedule == "hardware"
    torch.cuda.current_stream().wait_stream(stream)
    assert x.tolist() == [3, 4]


def test_one_kernel_runs_on_each_device(gpus: Callable[[int], list[Any]]) -> None:
    kernel = compiled("add<float>")
    for device in gpus(2):
        x = torch.zeros(2, device=device)
        with torch.cuda.device(device):
            kernel(1, 32, [x, 1.0, 2])
        kernel(1, 32, [x, 2.0, 2], stream=torch.cuda.default_stream(device))
        assert x.tolist() == [3, 3]
        assert torch.cuda.current_device() == 0


def test_64_kib_of_shared_memory_need_configuration(gpu: Any) -> None:
    kernel, out = compiled("reverse"), torch.zeros(256, dtype=torch.int32, device=gpu)
    kernel(1, 64, [out], shared_mem=64 * 256)
    with pytest.raises(RuntimeError, match=r"65536 bytes .* but not configured"):
        kernel(1, 256, [out], shared_mem=65536)
    kernel.set_shared_memory_config(65536)
    kernel(1, 256, [out], shared_mem=65536)
    assert out.tolist() == list(range(255, -1, -1))
    with pytest.raises(RuntimeError, match="but only 65536 bytes configured"):
        kernel(1, 256, [out], shared_mem=65540)


def test_a_device_has_only_so_much_shared_memory(gpu: Any) -> None:
    limit = torch.cuda.get_device_properties().shared_memory_per_block_optin
    kernel = compiled("reverse")
    kernel.set_shared_memory_config(limit)
    with pytest.raises(RuntimeError, match=rf"exceeds device limit \({limit} bytes\)"):
        kernel.set_shared_memory_config(limit + 1)


def test_the_configuration_holds_on_devices_used_later(gpus: Callable[[int], list[Any]]) -> None:
    kernel = compiled("reverse")
    kernel.set_shared_memory_config(65536)
    with torch.cuda.device(gpus(2)[1]):
        out = torch.zeros(256, dtype=torch.int32, device="cuda")
        kernel(1, 256, [out], shared_mem=65536)
        assert out[0].item() == 255


def test_what_the_compiler_refuses_is_shown_with_its_log(gpu: Any) -> None:
    broken = "__global__ void k(int* x) {\n  x[0] = undefined_name;\n}"
    with pytest.raises(RuntimeError, match="Kernel compilation failed") as caught:
        torch.cuda._compile_kernel(broken, "k")
    assert 'kernel.cu(2): error: identifier "undefined_name" is undefined' in str(caught.value)
    with pytest.raises(RuntimeError, match=r"Kernel compilation failed.*has no kernel 'other'"):
        compiled("other")
    with pytest.raises(RuntimeError, match="Kernel compilation failed"):
        compiled("scale", nvcc_options=["--no-such-option"])


def test_options_take_the_place_of_flambeau_s_own(gpu: Any) -> None:
    source = "__global__ void k(long* x) { *x = __cplusplus; }"
    x = torch.zeros(1, dtype=torch.int64, device=gpu)
    for standard in ("17", "20"):
        kernel = torch.cuda._compile_kernel(source, "k", nvcc_options=[f"--std=c++{standard}"])
        kernel(1, 1, [x])
        assert x.item() // 100 == 2000 + int(standard)


def test_cuda_s_headers_and_the_user_s_are_found(gpu: Any, tmp_path: Path) -> None:
    source = (
        '#include <cuda_fp16.h>\n#include "value.h"\n'
        "__global__ void k(__half* x) { x[0] = __float2half(VALUE); }"
    )
    x = torch.zeros(1, dtype=torch.float16, device=gpu)
    for value in (1.5, 2.5):  # a header that changes is seen
        (tmp_path / "value.h").write_text(f"#define VALUE {value}f\n")
        torch.cuda._compile_kernel(source, "k", cuda_include_dirs=[str(tmp_path)])(1, 1, [x])
        assert x.item() == value


def test_an_architecture_can_be_asked_for(gpu: Any) -> None:
    major, minor = torch.cuda.get_device_capability()
    x = floats(1)
    compiled("add<float>", compute_capability=f"{major}{minor}")(1, 1, [x, 1.0, 1])
    assert x.item() == 2
    with pytest.raises(RuntimeError, match="Kernel compilation failed"):
        compiled("scale", compute_capability="1")


def test_compiled_code_can_be_loaded_by_hand(gpu: Any) -> None:
    image, name = _utils._nvrtc_compile(SOURCE, "scale")
    assert name == "scale"
    x, y = floats(1, 2), floats(0, 0)
    module = _utils._cuda_load_module(image)
    assert isinstance(module, _utils._CudaModule)
    assert module.scale is module.scale
    module.scale(1, 32, [x, y, 2, 3.0])
    assert y.tolist() == [3, 6]
    with pytest.raises(AttributeError, match="No kernel named 'other'"):
        module.other  # noqa: B018
    kernels = _utils._cuda_load_module(image, ["scale"])
    assert list(kernels) == ["scale"]
    kernels["scale"](1, 32, [y, x, 2, 1.0])
    assert x.tolist() == [3, 6]
    with pytest.raises(torch.AcceleratorError):
        _utils._cuda_load_module(image, ["other"])


def test_kernels_have_torch_s_type_and_say_their_name(gpu: Any) -> None:
    assert isinstance(compiled("scale"), _utils._CudaKernel)
    assert repr(compiled("add<int>")) == "<CUDA kernel add<int>>"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _utils.nothing  # noqa: B018


FAULT = """
import flambeau as torch
kernel = torch.cuda._compile_kernel('''
__global__ void past_the_end(int* x) {
  int i = threadIdx.x;
  x[i + (1 << 20)] = i;
}''', "past_the_end")
x = torch.zeros(4, dtype=torch.int32, device="cuda")
kernel(1, 4, [x])
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    print(error)
"""


def test_a_fault_names_the_line_of_the_source() -> None:
    done = run_script(FAULT, TWO_VIRTUAL)
    assert "illegal memory access" in done.stdout
    assert "past_the_end" in done.stdout
    assert "kernel.cu:4" in done.stdout
