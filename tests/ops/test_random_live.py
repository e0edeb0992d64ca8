# SPDX-License-Identifier: Apache-2.0
"""The same calls made of torch in the same process must give the same bits and offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import flambeau
from flambeau.ops.dropout import functional_dropout

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

pytestmark = pytest.mark.gpu

SIZES = [1, 1000, 1002, 270337, 1081345, 4194316]
FLOATS = ["float32", "float64", "float16", "bfloat16"]


def fill(name: str, *arguments: Any) -> Callable[[ModuleType, int, str], Any]:
    def call(of: ModuleType, n: int, dtype: str) -> Any:
        made = of.empty(n, dtype=getattr(of, dtype), device="cuda")
        return getattr(made, name)(*arguments)

    return call


def dropout(of: ModuleType, n: int, dtype: str) -> Any:
    x = of.arange(n, device="cuda").to(getattr(of, dtype))
    return functional_dropout(x, 0.3) if of is flambeau else of.nn.functional.dropout(x, 0.3)


def bernoulli(of: ModuleType, n: int, dtype: str) -> Any:
    return of.bernoulli(of.linspace(0, 1, n, device="cuda").to(getattr(of, dtype)))


def poisson(of: ModuleType, n: int, dtype: str) -> Any:
    return of.poisson(of.arange(n, device="cuda") % 60 + 0.5)


def transposed(of: ModuleType, n: int, dtype: str) -> Any:
    return of.empty(n // 2 + 1, 2, device="cuda").t().uniform_()


CALLS: dict[str, tuple[Callable[[ModuleType, int, str], Any], list[str]]] = {
    "uniform": (fill("uniform_"), FLOATS),
    "uniform -2 3": (fill("uniform_", -2, 3), FLOATS),
    "normal": (fill("normal_"), FLOATS),
    "normal 1.5 2": (fill("normal_", 1.5, 2), FLOATS),
    "log_normal": (fill("log_normal_"), FLOATS),
    "exponential": (fill("exponential_"), FLOATS),
    "exponential 1.5": (fill("exponential_", 1.5), FLOATS),
    "cauchy": (fill("cauchy_"), FLOATS),
    "cauchy 1 2": (fill("cauchy_", 1, 2), FLOATS),
    "geometric": (fill("geometric_", 0.3), [*FLOATS, "int64", "int32", "uint8"]),
    "bernoulli": (fill("bernoulli_", 0.3), [*FLOATS, "int64", "bool"]),
    "bernoulli of a tensor": (bernoulli, ["float32", "float64", "float16"]),
    "random": (fill("random_"), [*FLOATS, "int64", "int32", "int16", "int8", "uint8", "bool"]),
    "random 100": (fill("random_", 100), [*FLOATS, "int64", "int32", "int16", "int8", "uint8"]),
    "random wide": (fill("random_", -5, 2**40), ["int64", "float64"]),
    "random 64": (fill("random_", -(2**63), None), ["int64", "float64", "float32", "bfloat16"]),
    "complex": (fill("normal_"), ["complex64", "complex128"]),
    "complex uniform": (fill("uniform_"), ["complex64"]),
    "dropout": (dropout, FLOATS),
    "poisson": (poisson, ["float32"]),
    "randperm": (lambda of, n, dtype: of.randperm(n, device="cuda"), ["int64"]),
    "transposed": (transposed, ["float32"]),
    "strided": (lambda of, n, dtype: of.zeros(2 * n, device="cuda")[::2].normal_(), ["float32"]),
    "multinomial": (
        lambda of, n, dtype: of.multinomial(of.arange(1.0, 9.0, device="cuda"), n, True),
        ["int64"],
    ),
}  # fmt: skip
CASES = [(name, dtype) for name, (_, dtypes) in CALLS.items() for dtype in dtypes]


@pytest.fixture(scope="module")
def theirs() -> ModuleType:
    return pytest.importorskip("torch")  # type: ignore[no-any-return]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_same_bits(theirs: ModuleType, name: str, dtype: str) -> None:
    call = CALLS[name][0]
    for n in SIZES:
        for seed in (0, 2**40 + 7):
            theirs.cuda.manual_seed(seed)
            flambeau.cuda.manual_seed(seed)
            for _ in range(2):
                expected, found = call(theirs, n, dtype), call(flambeau, n, dtype)
                assert found.stride() == expected.stride()
                assert bits(found) == bits(expected), f"{n} elements, seed {seed}"
                assert offset(flambeau) == offset(theirs)


def bits(tensor: Any) -> bytes:
    host = tensor.contiguous().cpu().reshape(-1)
    if "bfloat16" in str(host.dtype):
        host = host.float()
    return host.numpy().tobytes()  # type: ignore[no-any-return]


def offset(of: ModuleType) -> int:
    return of.cuda.default_generators[0].get_offset()  # type: ignore[no-any-return]


def test_states_are_exchanged(theirs: ModuleType) -> None:
    theirs.cuda.manual_seed(3)
    theirs.rand(1000, device="cuda")
    state = flambeau.tensor(theirs.cuda.get_rng_state().tolist(), dtype=flambeau.uint8)
    flambeau.cuda.set_rng_state(state)
    assert flambeau.rand(5, device="cuda").tolist() == theirs.rand(5, device="cuda").tolist()
    host = theirs.get_rng_state()
    flambeau.set_rng_state(flambeau.tensor(host.tolist(), dtype=flambeau.uint8))
    assert flambeau.rand(5).tolist() == theirs.rand(5).tolist()
    assert flambeau.get_rng_state().tolist() == theirs.get_rng_state().tolist()
