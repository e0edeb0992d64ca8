# SPDX-License-Identifier: Apache-2.0
"""Operations on lists of tensors against NumPy, on devices by few launches and on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.ops.foreach_launch import same_kind
from flambeau.runtime import observers
from ops.cases import array_of, tensor_of

SHAPES = [(3,), (100, 70), (), (1, 5), (5000, 2), (0,), (4097,)] * 12  # more than a table holds


def arrays(seed: int) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    return [np.asarray(random.uniform(0.5, 2, shape), np.float32) for shape in SHAPES]


A, B, C = (arrays(seed) for seed in range(3))


def tensors(values: list[np.ndarray[Any, Any]], device: Any) -> list[torch.Tensor]:
    return [tensor_of(value, device) for value in values]


def check(found: Any, expected: Any, rtol: float = 2e-6) -> None:
    for tensor, right in zip(found, expected, strict=True):
        assert tensor.shape == right.shape
        np.testing.assert_allclose(array_of(tensor), right, rtol=rtol)


@pytest.fixture(params=["device", "host"])
def where(request: pytest.FixtureRequest, gpu: Any) -> Any:
    return gpu if request.param == "device" else torch.device("cpu")


def test_binary(where: Any) -> None:
    a, b = tensors(A, where), tensors(B, where)
    check(torch._foreach_add(a, b, alpha=2), [x + 2 * y for x, y in zip(A, B, strict=True)])
    check(torch._foreach_mul(a, 2.5), [x * 2.5 for x in A])
    numbers = [float(k + 1) for k in range(len(a))]
    check(torch._foreach_div(a, numbers), [x / k for x, k in zip(A, numbers, strict=True)])
    check(torch._foreach_mul(a, torch.tensor(3.0, device=where)), [x * 3 for x in A])
    assert torch._foreach_mul_(a, b) is None
    check(a, [x * y for x, y in zip(A, B, strict=True)])
    torch._foreach_clamp_max_(a, 1.0)
    check(a, [np.minimum(x * y, 1) for x, y in zip(A, B, strict=True)])


def test_ternary_and_unary(where: Any) -> None:
    a, b, c = (tensors(values, where) for values in (A, B, C))
    torch._foreach_addcdiv_(a, b, c, -0.5)
    check(a, [x - 0.5 * y / z for x, y, z in zip(A, B, C, strict=True)], 1e-5)
    a = tensors(A, where)
    numbers = [float(k) for k in range(len(a))]
    check(
        torch._foreach_addcmul(a, b, c, numbers),
        [x + k * y * z for k, x, y, z in zip(numbers, A, B, C, strict=True)],
    )
    torch._foreach_lerp_(a, b, 0.25)
    check(a, [x + 0.25 * (y - x) for x, y in zip(A, B, strict=True)])
    check(torch._foreach_sqrt(b), [np.sqrt(y) for y in B])
    torch._foreach_reciprocal_(b)
    check(b, [1 / y for y in B])
    torch._foreach_zero_(a)
    check(a, [x * 0 for x in A])
    torch._foreach_copy_(a, c)
    check(a, C)


@pytest.mark.parametrize("order", [1, 2, 3, float("inf")])
def test_norms(order: float, where: Any) -> None:
    found = torch._foreach_norm([t for t in tensors(A, where) if t.numel()], order)
    check(found, [np.asarray(np.linalg.norm(x.reshape(-1), order)) for x in A if x.size], 1e-5)


def test_halves_and_layouts(gpu: Any) -> None:
    """16-bit types, transposed tensors, and views that begin between packs."""
    base = tensor_of(np.arange(4000, dtype=np.float32).reshape(50, 80), gpu)
    half = [base.half(), base.half().t(), base.half().reshape(-1)[3:1000]]
    assert same_kind(half)
    found = torch._foreach_mul(half, 0.5)
    for tensor, source in zip(found, half, strict=True):
        assert tensor.stride() == source.stride()
        np.testing.assert_array_equal(array_of(tensor), array_of(source) * 0.5)
    # Tensors with gaps, of several dtypes, or integers are done one by one.
    mixed = [base[:, ::2], base.double(), base.int()]
    assert not same_kind(mixed)
    found = torch._foreach_mul(mixed, 2)
    for tensor, source in zip(found, mixed, strict=True):
        np.testing.assert_array_equal(array_of(tensor), array_of(source) * 2)


def test_one_launch_for_many(gpu: Any) -> None:
    a = tensors(A[:20], gpu)
    launches: list[Any] = []

    def note(*event: object) -> None:
        launches.append(event)

    torch._foreach_add_(a, 1.0)
    observers.register("launch", note)
    try:
        torch._foreach_add_(a, 1.0)
    finally:
        observers.unregister("launch", note)
    assert len(launches) == 1
    check(a, [x + 2 for x in A[:20]], 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_scaled_gradients(dtype: str, where: Any) -> None:
    gradients = [tensor.to(getattr(torch, dtype)) for tensor in tensors(A[:5], where)]
    found, inverse = torch.zeros((), device=where), torch.full((1,), 0.5, device=where)
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse)
    assert found.item() == 0
    check(
        gradients,
        [array_of(t) * 0.5 for t in (tensor_of(x, where).to(getattr(torch, dtype)) for x in A[:5])],
    )
    for bad in (float("inf"), float("-inf"), float("nan")):
        found.zero_()
        gradients[4][17, 1] = bad
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse)
        assert found.item() == 1


def test_refusals(gpu: Any) -> None:
    with pytest.raises(RuntimeError, match="must have at least one tensor"):
        torch._foreach_add([], 1)
    with pytest.raises(RuntimeError, match="must have the same number of tensors"):
        torch._foreach_add([torch.ones(2, device=gpu)], [])
    with pytest.raises(AttributeError):
        torch._foreach_nothing  # noqa: B018
