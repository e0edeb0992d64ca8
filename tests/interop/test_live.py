# SPDX-License-Identifier: Apache-2.0
"""Arrays of CuPy, Numba, JAX and PyTorch on real GPUs, where they are installed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import flambeau as torch

pytestmark = pytest.mark.gpu

TYPES = ["bool", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64"]


def ramp(name: str, gpu: Any) -> Any:
    return torch.arange(6).to(getattr(torch, name)).reshape(2, 3).to(gpu)


class TestCupy:
    @pytest.fixture(autouse=True)
    def cupy(self) -> Any:
        self.cupy = pytest.importorskip("cupy")

    @pytest.mark.parametrize("name", TYPES)
    @pytest.mark.parametrize("way", ["dlpack", "interface"])
    def test_both_ways(self, gpu: Any, name: str, way: str) -> None:
        x = ramp(name, gpu)
        c = self.cupy.from_dlpack(x) if way == "dlpack" else self.cupy.asarray(x)
        assert c.data.ptr == x.data_ptr()
        assert c.dtype.name == name
        assert c.get().tolist() == x.tolist()
        y = torch.from_dlpack(c) if way == "dlpack" else torch.as_tensor(c)
        assert y.data_ptr() == x.data_ptr()
        assert y.dtype is x.dtype
        assert y.device == gpu

    def test_layouts(self, gpu: Any) -> None:
        x = torch.arange(24, device=gpu).reshape(4, 6)[1:, ::2].t()
        assert self.cupy.from_dlpack(x).get().tolist() == x.tolist()
        assert self.cupy.asarray(x).get().tolist() == x.tolist()
        assert self.cupy.from_dlpack(torch.empty(0, 3, device=gpu)).shape == (0, 3)

    def test_streams(self, gpu: Any) -> None:
        theirs = self.cupy.cuda.Stream(non_blocking=True)
        x = torch.zeros(1 << 22, device=gpu)
        for _ in range(100):
            x += 1
        with theirs:
            doubled = self.cupy.from_dlpack(x) * 2
        y = torch.from_dlpack(doubled)
        with theirs:
            more = doubled + 1
        theirs.synchronize()
        assert y.unique().tolist() == [200.0]
        assert float(more.max()) == 201.0

    def test_a_stream_of_theirs_is_taken(self, gpu: Any) -> None:
        theirs = self.cupy.cuda.Stream(non_blocking=True)
        if not hasattr(theirs, "__cuda_stream__"):
            pytest.skip("this CuPy's streams lack __cuda_stream__")
        with torch.cuda.stream(theirs):
            assert torch.cuda.current_stream().cuda_stream == theirs.ptr
            assert torch.ones(3, device=gpu).tolist() == [1, 1, 1]

    def test_raw_kernels(self, gpu: Any) -> None:
        kernel = self.cupy.RawKernel(
            'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }', "twice"
        )
        x = torch.ones(8, device=gpu)
        kernel((1,), (8,), (self.cupy.asarray(x),))
        assert x.tolist() == [2.0] * 8


class TestNumba:
    @pytest.fixture(autouse=True)
    def numba(self) -> Any:
        self.cuda = pytest.importorskip("numba.cuda")

    @pytest.mark.filterwarnings("ignore:.*Grid size 1 will likely")
    def test_kernels_take_tensors(self, gpu: Any) -> None:
        cuda = self.cuda

        @cuda.jit
        def add_one(x: Any) -> None:
            i = cuda.grid(1)
            if i < x.size:
                x[i] += 1

        try:
            add_one[1, 128](cuda.to_device([0.0]))
        except AttributeError as error:
            pytest.skip(f"Numba itself fails beside this NumPy: {error}")
        x = torch.arange(100, dtype=torch.float32, device=gpu)
        add_one[1, 128](x)
        assert x.tolist() == list(range(1, 101))
        add_one[1, 128](x[::2])
        assert x.tolist() == [i + 1 + (i % 2 == 0) for i in range(100)]

    @pytest.mark.parametrize("name", TYPES)
    def test_arrays_both_ways(self, gpu: Any, name: str) -> None:
        x = ramp(name, gpu)
        theirs = self.cuda.as_cuda_array(x)
        assert theirs.copy_to_host().tolist() == x.tolist()
        assert torch.as_tensor(theirs).data_ptr() == x.data_ptr()


class TestTorch:
    """In the same process, under its own name; flambeau is imported as flambeau here."""

    @pytest.fixture(autouse=True)
    def pytorch(self) -> Any:
        self.pytorch = pytest.importorskip("torch")
        if self.pytorch is torch or not hasattr(self.pytorch, "_C"):
            pytest.skip("`torch` is flambeau itself")

    @pytest.mark.parametrize(
        "name", [*TYPES, "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex128", "uint16"]
    )
    def test_both_ways(self, gpu: Any, name: str) -> None:
        x = torch.empty(2, 3, dtype=getattr(torch, name), device=gpu)
        p = self.pytorch.from_dlpack(x)
        assert p.data_ptr() == x.data_ptr()
        assert str(p.dtype) == f"torch.{name}"
        y = torch.from_dlpack(p)
        assert y.data_ptr() == x.data_ptr()
        assert y.dtype is x.dtype

    def test_streams(self, gpu: Any) -> None:
        theirs = self.pytorch.cuda.Stream()
        x = torch.zeros(1 << 22, device=gpu)
        for _ in range(100):
            x += 1
        with self.pytorch.cuda.stream(theirs):
            doubled = self.pytorch.from_dlpack(x) * 2
        with torch.cuda.stream(theirs):
            y = torch.from_dlpack(doubled) + 1
        theirs.synchronize()
        assert y.unique().tolist() == [201.0]

    def test_the_interface(self, gpu: Any) -> None:
        p = self.pytorch.arange(4, device="cuda")
        assert torch.as_tensor(p).data_ptr() == p.data_ptr()
        x = torch.arange(4, device=gpu)
        assert self.pytorch.as_tensor(x, device="cuda").data_ptr() == x.data_ptr()


JAX = """
import os
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import flambeau as torch
import jax, jax.numpy as jnp
x = torch.arange(6, dtype=torch.float32, device="cuda").reshape(2, 3)
j = jax.dlpack.from_dlpack(x)
assert j.unsafe_buffer_pointer() == x.data_ptr()
assert (j * 2).tolist() == (x * 2).tolist()
made = jnp.arange(4, dtype=jnp.bfloat16) + 1
y = torch.from_dlpack(made)
assert y.dtype is torch.bfloat16 and y.is_cuda
assert y.tolist() == [1, 2, 3, 4]
print("fine")
"""


def test_jax() -> None:
    pytest.importorskip("jax")
    done = subprocess.run(
        [sys.executable, "-c", JAX], capture_output=True, text=True, check=False, timeout=250
    )
    assert done.stdout.strip().endswith("fine"), done.stdout + done.stderr
