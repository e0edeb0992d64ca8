# SPDX-License-Identifier: Apache-2.0
"""Triton kernels on tensors, where Triton is installed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import flambeau as torch

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns unless one chooses
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

from flambeau.interop import triton as ours  # noqa: E402 - needs Triton


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def affine_kernel(out, n, a, b, flag, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = i * a + b
    if flag:
        value = -value
    tl.store(out + i, value, mask=i < n)


@triton.jit
def softmax_kernel(out, x, stride, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + column, mask=column < columns, other=-float("inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    power = power / tl.sum(power, axis=0)
    tl.store(out + row * stride + column, power, mask=column < columns)


@triton.jit
def matmul_kernel(  # type: ignore[no-untyped-def]
    a, b, c, M, N, K, a0, a1, b0, b1, c0, c1,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        mask = (m[:, None] < M) & (k[None, :] < K)
        left = tl.load(a + m[:, None] * a0 + k[None, :] * a1, mask=mask, other=0.0)
        mask = (k[:, None] < K) & (n[None, :] < N)
        right = tl.load(b + k[:, None] * b0 + n[None, :] * b1, mask=mask, other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    mask = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c + m[:, None] * c0 + n[None, :] * c1, total.to(c.dtype.element_ty), mask=mask)


@triton.jit
def count_kernel(counter, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.atomic_add(counter + (tl.arange(0, BLOCK) & 1), 1)


@triton.jit
def pair_kernel(pair, out):  # type: ignore[no-untyped-def]
    tl.store(out, tl.load(pair[0]) + pair[1])


@triton.jit
def maybe_kernel(x, bias, out):  # type: ignore[no-untyped-def]
    value = tl.load(x)
    if bias is not None:
        value += tl.load(bias)
    tl.store(out, value)


def matmul(a: Any, b: Any) -> Any:
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(a.shape[0], 32), triton.cdiv(b.shape[1], 32))
    matmul_kernel[grid](
        a, b, c, a.shape[0], b.shape[1], a.shape[1],
        *a.stride(), *b.stride(), *c.stride(), BM=32, BN=32, BK=32,
    )  # fmt: skip
    return c


@pytest.mark.parametrize("n", [1, 255, 1000])
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int32", "int64", "float64"])
def test_addition(gpu: Any, n: int, name: str) -> None:
    x = torch.arange(n, device=gpu).to(getattr(torch, name))
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(n, 256),)](x, x, out, n, BLOCK=256)
    assert (out == x + x).all().item()


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize(("a", "b"), [(1, 0), (3, -7), (0.5, 2.25), (1 << 40, 5), (2, -1.5)])
def test_numbers(gpu: Any, a: float, b: float, flag: bool) -> None:
    kind = torch.float32 if isinstance(a, float) or isinstance(b, float) else torch.int64
    out = torch.zeros(100, dtype=kind, device=gpu)
    affine_kernel[(1,)](out, 100, a, b, flag, BLOCK=128)
    expected = (np.arange(100) * a + b) * (-1 if flag else 1)
    np.testing.assert_array_equal(out.cpu().numpy(), expected)


def test_softmax(gpu: Any) -> None:
    x = torch.rand(8, 100, device=gpu)
    out = torch.empty_like(x)
    softmax_kernel[(8,)](out, x, x.stride(0), 100, BLOCK=128)
    power = np.exp(x.cpu().numpy().astype(np.float64))
    np.testing.assert_allclose(out.cpu().numpy(), power / power.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "rtol"), [("float16", 2e-3), ("bfloat16", 2e-2), ("float32", 1e-5)]
)
def test_matrix_products(gpu: Any, name: str, rtol: float) -> None:
    a = torch.rand(70, 50, device=gpu).to(getattr(torch, name))
    b = torch.rand(90, 50, device=gpu).to(getattr(torch, name)).t()
    expected = a.cpu().double().numpy() @ b.cpu().double().numpy()
    np.testing.assert_allclose(matmul(a, b).cpu().double().numpy(), expected, rtol=rtol)


def test_atomics(gpu: Any) -> None:
    counter = torch.zeros(2, dtype=torch.int32, device=gpu)
    count_kernel[(5,)](counter, BLOCK=64)
    assert counter.tolist() == [160, 160]


def test_tuples_and_nones(gpu: Any) -> None:
    x, out = torch.tensor([4.0], device=gpu), torch.zeros(1, device=gpu)
    pair_kernel[(1,)]((x, 3), out)
    assert out.item() == 7
    maybe_kernel[(1,)](x, None, out)
    assert out.item() == 4
    maybe_kernel[(1,)](x, x, out)
    assert out.item() == 8


def test_the_current_stream_is_used(gpu: Any, schedule: str) -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = torch.zeros(1000, device=gpu)
        for _ in range(5):
            add_kernel[(4,)](x, torch.ones_like(x), x, 1000, BLOCK=256)
    torch.cuda.current_stream().wait_stream(side)
    assert (x + 1).cpu().unique().tolist() == [6.0]


def test_a_stream_that_is_named(gpu: Any) -> None:
    x, out = torch.ones(256, device=gpu), torch.zeros(256, device=gpu)
    compiled = add_kernel.warmup(x, x, out, 256, BLOCK=256, grid=(1,))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    compiled[(1, 1, 1)](x, x, out, 256, 256, stream=side.cuda_stream)
    side.synchronize()
    assert out.cpu().unique().tolist() == [2.0]


def test_other_devices(gpus: Any) -> None:
    for device in gpus(2):
        with torch.cuda.device(device):
            x = torch.ones(256, device=device)
            out = torch.empty_like(x)
            add_kernel[(1,)](x, x, out, 256, BLOCK=256)
        assert out.cpu().unique().tolist() == [2.0]


def test_graphs(gpu: Any) -> None:
    x = torch.zeros(256, device=gpu)
    one = torch.ones(256, device=gpu)
    add_kernel[(1,)](x, one, x, 256, BLOCK=256)  # loads the code, which a capture must not
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add_kernel[(1,)](x, one, x, 256, BLOCK=256)
        add_kernel[(1,)](x, x, x, 256, BLOCK=256)
    graph.replay()
    graph.replay()
    assert x.cpu().unique().tolist() == [10.0]


def test_autotuning(gpu: Any) -> None:
    @triton.autotune(
        configs=[
            triton.Config({"BLOCK": size}, num_warps=warps) for size, warps in ((64, 2), (256, 4))
        ],
        key=["n"],
    )
    @triton.jit
    def tuned(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

    x = torch.arange(500, dtype=torch.float32, device=gpu)
    out = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(500, meta["BLOCK"]),)](x, x, out, 500)
    assert (out == 2 * x).all().item()
    assert tuned.best_config.kwargs["BLOCK"] in {64, 256}


def test_measuring(gpu: Any) -> None:
    x = torch.ones(1 << 16, device=gpu)
    runs: list[int] = []

    def work() -> None:
        runs.append(1)
        x.add_(1)

    low, high = ours.benchmark(work, warmup=1, rep=2, quantiles=(0.2, 0.8))
    assert 0 < low <= high
    assert len(runs) >= 5
    assert ours.benchmark(work, warmup=1, rep=2, return_mode="max") > 0


def test_more_shared_memory_than_the_device_has(gpu: Any) -> None:
    a = torch.ones(512, 512, dtype=torch.float16, device=gpu)
    c = torch.empty_like(a)
    strides = [*a.stride(), *a.stride(), *c.stride()]
    with pytest.raises(triton.runtime.errors.OutOfResources, match="shared memory"):
        matmul_kernel[(4, 4)](a, a, c, 512, 512, 512, *strides, BM=128, BN=128, BK=64, num_stages=9)


def test_much_shared_memory(gpu: Any) -> None:
    a = torch.rand(64, 256, device=gpu).half()
    c = torch.empty(64, 64, dtype=torch.float16, device=gpu)
    strides = [*a.stride(), 1, 256, *c.stride()]
    compiled = matmul_kernel[(1, 1)](
        a, a, c, 64, 64, 256, *strides, BM=64, BN=64, BK=64, num_stages=5
    )
    assert compiled.metadata.shared > 48 << 10
    expected = a.cpu().double().numpy() @ a.cpu().double().numpy().T
    np.testing.assert_allclose(c.cpu().double().numpy(), expected, rtol=2e-3)


def test_what_is_not_offered(gpu: Any) -> None:
    x = torch.ones(256, device=gpu)
    with pytest.raises(NotImplementedError, match="launch_cooperative_grid"):
        add_kernel[(1,)](x, x, x, 256, BLOCK=256, launch_cooperative_grid=True)


@pytest.mark.parametrize("value", [1.0, -2.5, 3.14159, 1e-40, 65504.0, float("inf"), float("nan")])
def test_half_precision_numbers(value: float) -> None:
    import ml_dtypes

    found = np.frombuffer(ours._bytes_of_bfloat16(value), dtype=ml_dtypes.bfloat16)
    expected = np.array([value], dtype=ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found.astype(float), expected.astype(float))


def test_active_and_not() -> None:
    assert isinstance(triton.runtime.driver.active, ours.FlambeauDriver)
    driver = triton.runtime.driver.active
    assert driver.get_active_torch_device() == torch.device("cuda:0")
    assert driver.get_current_target().backend == "cuda"
    assert driver.map_python_to_cpp_type("*fp32") == "CUdeviceptr"
    assert driver.map_python_to_cpp_type("i1") == "int8_t"
    assert driver.map_python_to_cpp_type("u32") == "uint32_t"
    assert driver.map_python_to_cpp_type("bf16") == "double"
    ours.deactivate()
    assert triton.backends.backends["nvidia"].driver is not ours.FlambeauDriver
    ours.activate()
    assert triton.backends.backends["nvidia"].driver is ours.FlambeauDriver
