# SPDX-License-Identifier: Apache-2.0
"""Every call recorded on an H200, on any device with as many threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import flambeau as torch
from conftest import REAL
from flambeau.ops.dropout import functional_dropout
from random_reference import Record, Stream, digest, golden, records

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau import Tensor

QUICK = 70_000
GPU = {"device": "cuda"}


def empty(n: Any, dtype: Any = torch.float32) -> Tensor:
    return torch.empty(n, dtype=dtype, **GPU)


def ones(n: Any, dtype: Any = torch.float32) -> Tensor:
    return torch.ones(n, dtype=dtype, **GPU)


def weights(n: int) -> Tensor:
    return torch.arange(1.0, 1.0 + n, **GPU)


def randint(low: int, high: int, n: int, dtype: Any = torch.int64) -> Tensor:
    return torch.randint(low, high, (n,), dtype=dtype, **GPU)


# Integer and singly rounded arithmetic: the same bits everywhere.
EXACT: dict[str, Callable[[int], Tensor]] = {
    "rand": lambda n: torch.rand(n, **GPU),
    "rand64": lambda n: torch.rand(n, dtype=torch.float64, **GPU),
    "randbf16": lambda n: torch.rand(n, dtype=torch.bfloat16, **GPU).float(),
    "rand_f16": lambda n: torch.rand(n, dtype=torch.float16, **GPU),
    "rand_bf16raw": lambda n: torch.rand(n, dtype=torch.bfloat16, **GPU),
    "rand_c64": lambda n: torch.rand(n, dtype=torch.complex64, **GPU),
    "randint": lambda n: randint(0, 1000, n),
    "randint_2p28m1": lambda n: randint(0, 2**28 - 1, n),
    "randint_2p28": lambda n: randint(0, 2**28, n),
    "randint_2p40": lambda n: randint(-5, 2**40, n),
    "randint_i32_1000": lambda n: randint(-500, 500, n, torch.int32),
    "randint_i32_wide": lambda n: randint(-(2**31), 2**31 - 1, n, torch.int32),
    "randint_u8": lambda n: randint(0, 256, n, torch.uint8),
    "randint_f32": lambda n: randint(0, 1000, n, torch.float32),
    "randint_bf16": lambda n: randint(0, 200, n, torch.bfloat16),
    "random_i64": lambda n: empty(n, torch.int64).random_(),
    "random_i32": lambda n: empty(n, torch.int32).random_(),
    "random_u8": lambda n: empty(n, torch.uint8).random_(),
    "random_bool": lambda n: empty(n, torch.bool).random_(),
    "random_f32": lambda n: empty(n).random_(),
    "random_f64": lambda n: empty(n, torch.float64).random_(),
    "random_f16": lambda n: empty(n, torch.float16).random_(),
    "random_full64": lambda n: empty(n, torch.int64).random_(-(2**63), None),
    "uniform_m2_3": lambda n: empty(n).uniform_(-2, 3),
    "uniform_m2_3_f16": lambda n: empty(n, torch.float16).uniform_(-2, 3),
    "uniform_m2_3_bf16": lambda n: empty(n, torch.bfloat16).uniform_(-2, 3),
    "uniform_m2_3_f64": lambda n: empty(n, torch.float64).uniform_(-2, 3),
    "uniform_T_order": lambda n: empty((n, 2 * n)).t().uniform_(),
    "uniform_T_mem": lambda n: empty((n, 2 * n)).t().uniform_().t(),
    "uniform_stride2": lambda n: torch.zeros(2 * n, **GPU)[::2].uniform_(),
    "uniform_perm3": lambda n: empty((8, n, 10)).permute(2, 0, 1).uniform_(),
    "bern": lambda n: empty(n).bernoulli_(0.3),
    "bernoulli_half_i64": lambda n: empty(n, torch.int64).bernoulli_(0.5),
    "bernoulli_f64": lambda n: empty(n, torch.float64).bernoulli_(0.3),
    "bernoulli_ptensor": lambda n: torch.bernoulli(torch.full((n,), 0.3, **GPU)),
    "bernoulli_ptensor_f64": lambda n: torch.bernoulli(
        torch.full((n,), 0.3, dtype=torch.float64, **GPU)
    ),
    "drop": lambda n: functional_dropout(ones(n), 0.25),
    "drop_f32": lambda n: functional_dropout(ones(n), 0.1),
    "drop_f16": lambda n: functional_dropout(ones(n, torch.float16), 0.25),
    "drop_bf16": lambda n: functional_dropout(ones(n, torch.bfloat16), 0.25),
    "drop_f64": lambda n: functional_dropout(ones(n, torch.float64), 0.25),
    "drop_inplace": lambda n: functional_dropout(ones(n), 0.25, inplace=True),
    "drop_misaligned": lambda n: functional_dropout(ones(n + 1)[1:], 0.25),
    "poisson4": lambda n: torch.poisson(torch.full((n,), 4.0, **GPU)),
    "randperm": lambda n: torch.randperm(n, **GPU),
    "randperm_i32": lambda n: torch.randperm(n, dtype=torch.int32, **GPU),
    "multinomial_repl": lambda n: torch.multinomial(weights(10), n, True),
    "multinomial_1": lambda n: torch.multinomial(weights(n), 1),
    "multinomial_norepl": lambda n: torch.multinomial(weights(n), n // 2),
    "multinomial_2d_repl": lambda n: torch.multinomial(ones((3, n)), 200, True),
}
# Built on functions whose last bits are a device's own.
INEXACT: dict[str, Callable[[int], Tensor]] = {
    "randn": lambda n: torch.randn(n, **GPU),
    "randn_f64": lambda n: torch.randn(n, dtype=torch.float64, **GPU),
    "randn_f16": lambda n: torch.randn(n, dtype=torch.float16, **GPU),
    "randn_bf16": lambda n: torch.randn(n, dtype=torch.bfloat16, **GPU),
    "randn_c64": lambda n: torch.randn(n, dtype=torch.complex64, **GPU),
    "normal_1p5_2": lambda n: empty(n).normal_(1.5, 2),
    "normal_tensor_ms": lambda n: torch.normal(
        torch.arange(n, dtype=torch.float32, **GPU), torch.full((n,), 2.0, **GPU)
    ),
    "log_normal": lambda n: empty(n).log_normal_(),
    "log_normal_f64": lambda n: empty(n, torch.float64).log_normal_(),
    "exp": lambda n: empty(n).exponential_(),
    "exponential_1p5": lambda n: empty(n).exponential_(1.5),
    "exponential_f64": lambda n: empty(n, torch.float64).exponential_(),
    "exponential_bf16": lambda n: empty(n, torch.bfloat16).exponential_(),
    "geometric": lambda n: empty(n).geometric_(0.3),
    "geometric_i64": lambda n: empty(n, torch.int64).geometric_(0.3),
    "geometric_f64": lambda n: empty(n, torch.float64).geometric_(0.3),
    "cauchy": lambda n: empty(n).cauchy_(),
    "cauchy_f64": lambda n: empty(n, torch.float64).cauchy_(),
}

ANGLE = 2.0**-20.9  # what sine and cosine may be off by, absolutely
DOUBLE = 1e-14
HALF, BRAIN = 2.0**-11, 2.0**-8


def normal_bound(deviation: float, rounding: float = 2.0**-23) -> Callable[..., Any]:
    return lambda value, radius: deviation * radius * ANGLE + rounding * np.abs(value)


def relative(rounding: float) -> Callable[..., Any]:
    return lambda value, radius: rounding * np.abs(value)


# How far an element may be from the recorded one; `radius` is that of the element's normal number.
BOUNDS: dict[str, Callable[..., Any]] = {
    "randn": normal_bound(1),
    "randn_f16": normal_bound(1, HALF),
    "randn_bf16": normal_bound(1, BRAIN),
    "randn_c64": normal_bound(0.5**0.5),
    "normal_1p5_2": normal_bound(2),
    "normal_tensor_ms": normal_bound(2),
    "log_normal": lambda value, radius: np.abs(value) * (2 * radius * ANGLE + 2.0**-20),
    "exp": lambda value, radius: 2.0**-20.8 + 1e-5 * np.abs(value),
    "exponential_1p5": lambda value, radius: 2.0**-20.8 + 1e-5 * np.abs(value),
    "exponential_bf16": lambda value, radius: 2.0**-20.8 + BRAIN * np.abs(value),
    "cauchy": lambda value, radius: (1 + value**2) * 2.0**-20,
    **dict.fromkeys(
        ("randn_f64", "log_normal_f64", "exponential_f64", "cauchy_f64"), relative(DOUBLE)
    ),
    **dict.fromkeys(("geometric", "geometric_i64", "geometric_f64"), relative(0)),
}


def marked(record: Record) -> Any:
    marks = [pytest.mark.slow] if record.n > QUICK else []
    return pytest.param(record, id=str(record), marks=marks)


def chosen(ops: dict[str, Any]) -> list[Any]:
    return [marked(record) for record in records() if record.op in ops]


def raw(result: Tensor) -> Any:
    result = result.contiguous().cpu()
    small = result.dtype in {torch.float16, torch.bfloat16}
    return (result.view(torch.int16) if small else result).numpy()


def seen(result: Tensor) -> Any:
    """Elements in logical order as NumPy's doubles, complex ones as pairs."""
    result = result.contiguous().cpu()
    if result.dtype in {torch.float16, torch.bfloat16}:
        result = result.float()
    array = result.numpy().reshape(-1)
    return (array.view(np.float32) if array.dtype.kind == "c" else array).astype(np.float64)


@pytest.fixture
def same_geometry(gpu: Any) -> Callable[[Record], None]:
    """Leave out records that depend on the number of threads where that differs."""
    properties = torch.cuda.get_device_properties(gpu)
    threads = properties.multi_processor_count * properties.max_threads_per_multi_processor

    def require(record: Record) -> None:
        if record.n > min(threads, 132 * 2048) and threads != 132 * 2048:
            pytest.skip(f"{properties.name} has {threads} threads")

    return require


def test_every_record_has_a_call() -> None:
    assert {record.op for record in records()} == EXACT.keys() | INEXACT.keys()
    assert BOUNDS.keys() == INEXACT.keys()


def check_hashes(record: Record, call: Callable[[int], Tensor]) -> None:
    generator = torch.cuda.default_generators[0]
    torch.cuda.manual_seed(record.seed)
    assert digest(raw(call(record.n))) == record.sha1
    if record.offset1 is not None:
        assert generator.get_offset() == record.offset1
    if record.sha2 is not None:
        assert digest(raw(call(record.n))) == record.sha2
    if record.offset2 is not None:
        assert generator.get_offset() == record.offset2


@pytest.mark.parametrize("record", chosen(EXACT))
def test_exact(record: Record, same_geometry: Callable[[Record], None]) -> None:
    same_geometry(record)
    check_hashes(record, EXACT[record.op])


@pytest.mark.parametrize("record", chosen(INEXACT))
def test_within_bounds(record: Record, same_geometry: Callable[[Record], None]) -> None:
    same_geometry(record)
    if REAL:
        check_hashes(record, INEXACT[record.op])
        return
    torch.cuda.manual_seed(record.seed)
    first, second = seen(INEXACT[record.op](record.n)), seen(INEXACT[record.op](record.n))
    head, tail, later = (
        np.array(values, np.float64).reshape(-1)
        for values in (record.head1, record.tail1, record.head2)
    )
    n = first.size
    ends = np.concatenate([np.arange(head.size), np.arange(n - tail.size, n)])
    stream = Stream(record.seed)
    for found, expected, elements in (
        (first, np.concatenate([head, tail]), ends),
        (second, later, np.arange(later.size)),
    ):
        allowed = BOUNDS[record.op](expected, stream.normals(n, elements)[1])
        error = np.abs(found[elements] - expected)
        assert (error <= allowed).all(), (found[elements], expected, allowed)
    if record.offset1 is not None:
        assert torch.cuda.default_generators[0].get_offset() == record.offset2


@pytest.mark.parametrize("seed", [0, 42, 2**40 + 7])
def test_state_bytes(seed: int) -> None:
    expected = golden()["cuda_state_bytes"][str(seed)]
    torch.cuda.manual_seed(seed)
    assert torch.cuda.get_rng_state().tolist() == expected["fresh"]
    torch.rand(1000, **GPU)
    assert torch.cuda.get_rng_state().tolist() == expected["after_rand_1000"]


@pytest.mark.parametrize("seed", [0, 42, 2**40 + 7])
def test_the_cpu_generator(seed: int) -> None:
    expected = golden()["cpu_mt19937"][str(seed)]
    generator = torch.Generator().manual_seed(seed)
    assert torch.rand(10, generator=generator).tolist() == expected["rand_10"]
    normal = torch.randn(10, generator=generator).tolist()
    assert normal == expected["randn_10_after_rand_10"]
    many = torch.randn(20, generator=generator.manual_seed(seed)).numpy()
    assert np.abs(many - np.array(expected["randn_20"])).max() < 4e-7
