# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau.ops import random_sampling
from random_reference import Stream, philox, unit_float
from support import run_script

if TYPE_CHECKING:
    from flambeau import Generator

GPU = {"device": "cuda"}
SEED = 42
PLACES = pytest.mark.parametrize("place", ["cpu", "cuda"])


@pytest.fixture
def generator(gpu: Any) -> Generator:
    return torch.Generator(gpu).manual_seed(SEED)


# -- bernoulli ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "bool"])
@pytest.mark.parametrize("n", [1, 3, 4, 1001])
def test_own_probabilities(generator: Generator, dtype: str, n: int) -> None:
    p = np.linspace(0, 1, n).astype(np.float32)
    out = torch.empty(n, dtype=getattr(torch, dtype), **GPU)
    out.bernoulli_(torch.from_numpy(p).cuda(), generator=generator)
    i = np.arange(n)
    words = philox(SEED, (i // 4).astype(np.uint64), np.zeros(n, np.uint64))
    u = unit_float(np.stack(words)[i % 4, i])
    np.testing.assert_array_equal(out.cpu().to(torch.bool).numpy(), u <= p)
    assert generator.get_offset() == 12


def test_probabilities_are_spread_over_the_output(generator: Generator) -> None:
    out = torch.empty(3, 4, **GPU).t()
    out.bernoulli_(torch.tensor([0.0, 0.0, 1.0], **GPU), generator=generator)
    assert out.tolist() == [[0.0, 0.0, 1.0]] * 4
    assert torch.bernoulli(torch.ones(5, **GPU), 0.0).tolist() == [0.0] * 5
    assert torch.ones(2, **GPU).bernoulli().tolist() == [1.0, 1.0]


@PLACES
def test_wrong_probabilities(place: str) -> None:
    x = torch.empty(3, device=place)
    for p in (-0.1, 1.1, float("nan")):
        with pytest.raises(RuntimeError, match=r"expects p to be in \[0, 1\]"):
            x.bernoulli_(p)
    with pytest.raises(RuntimeError, match="expected probabilities tensor to have floating type"):
        x.bernoulli_(torch.ones(3, dtype=torch.int64, device=place))
    with pytest.raises(NotImplementedError, match="not implemented for 'ComplexFloat'"):
        torch.empty(3, dtype=torch.complex64, device=place).bernoulli_(0.5)


def test_a_wrong_probability_of_a_host_tensor_is_refused_at_once() -> None:
    with pytest.raises(RuntimeError, match=r"expects p to be in \[0, 1\]"):
        torch.bernoulli(torch.tensor([0.5, 1.5]))


# -- poisson --------------------------------------------------------------------------------------


def test_small_rates(generator: Generator) -> None:
    rates = torch.full((1000,), 4.0, **GPU)
    counts = torch.poisson(rates, generator=generator)
    assert generator.get_offset() == 20
    i = np.arange(1000, dtype=np.uint64)
    words = np.concatenate([philox(SEED, i, np.full(1000, b, np.uint64)) for b in range(8)])
    u, product = unit_float(words), np.full(1000, np.exp(np.float32(4)), np.float32)
    draws = np.zeros(1000)
    for row in u:
        going = product > 1
        draws += going
        product = np.where(going, product * row, product)
    np.testing.assert_array_equal(counts.cpu().numpy(), draws - 1)


@PLACES
@pytest.mark.parametrize("rate", [0.5, 12.0, 64.0, 500.0, 20000.0])
def test_mean_and_variance(place: str, rate: float) -> None:
    torch.manual_seed(5)
    counts = (
        torch.poisson(torch.full((20000,), rate, device=place)).cpu().numpy().astype(np.float64)
    )
    assert counts.mean() == pytest.approx(rate, abs=5 * (rate / 20000) ** 0.5)
    assert counts.var() == pytest.approx(rate, rel=0.06)
    assert (counts >= 0).all()
    assert (counts == np.round(counts)).all()


@PLACES
def test_a_rate_of_zero(place: str) -> None:
    assert torch.poisson(torch.zeros(5, device=place)).tolist() == [0.0] * 5
    assert torch.poisson(torch.zeros(0, device=place)).numel() == 0
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        torch.poisson(torch.ones(3, dtype=torch.int64, device=place))


def test_a_negative_rate_of_a_host_tensor() -> None:
    with pytest.raises(
        RuntimeError, match="invalid Poisson rate, expected rate to be non-negative"
    ):
        torch.poisson(torch.tensor([-1.0]))


# -- multinomial ----------------------------------------------------------------------------------


def expected_choices(weights: Any, samples: int) -> Any:
    rows, categories = weights.shape
    normal = (weights / weights.sum(1, keepdims=True, dtype=np.float32)).astype(np.float32)
    sums = np.cumsum(normal, 1, dtype=np.float32)
    width = -(-samples // 128) * 128
    found = []
    for row in range(rows):
        thread = (row * width + np.arange(samples)).astype(np.uint64)
        u = unit_float(philox(SEED, thread, np.zeros(samples, np.uint64))[0])
        found.append(np.minimum(np.searchsorted(sums[row], u), categories - 1))
    return np.array(found)


@pytest.mark.parametrize(("rows", "samples"), [(1, 20), (3, 200), (5, 128)])
def test_with_replacement(generator: Generator, rows: int, samples: int) -> None:
    weights = np.arange(1, 8 * rows + 1, dtype=np.float32).reshape(rows, 8)
    found = torch.multinomial(torch.from_numpy(weights).cuda(), samples, True, generator=generator)
    np.testing.assert_array_equal(found.cpu().numpy(), expected_choices(weights, samples))
    assert generator.get_offset() == 4


def test_more_rows_than_a_grid_is_high(generator: Generator) -> None:
    weights = torch.ones(65537, 2, **GPU)
    found = torch.multinomial(weights, 2, True, generator=generator)
    assert generator.get_offset() == 8
    thread = np.array([128, 129], np.uint64)  # row 65536 is the second pass of the second row
    u = unit_float(philox(SEED, thread, np.ones(2, np.uint64))[0])
    assert found[65536].tolist() == (u > 0.5).astype(int).tolist()


@PLACES
def test_weights_of_zero_are_never_drawn(place: str) -> None:
    torch.manual_seed(1)
    weights = torch.tensor([0.0, 1.0, 0.0, 3.0, 0.0], device=place)
    assert set(torch.multinomial(weights, 500, True).tolist()) == {1, 3}
    for _ in range(10):
        assert sorted(torch.multinomial(weights, 2).tolist()) == [1, 3]
        assert torch.multinomial(weights, 1).item() in {1, 3}


@PLACES
def test_without_replacement(place: str) -> None:
    torch.manual_seed(2)
    rows = torch.arange(1.0, 41.0, device=place).reshape(4, 10)
    for row in torch.multinomial(rows, 10).tolist():
        assert sorted(row) == list(range(10))
    # Without replacement each drawn position beats the others' exponential arrival times.
    torch.manual_seed(2)
    quotient = rows / torch.empty_like(rows).exponential_()
    torch.manual_seed(2)
    assert torch.equal(torch.multinomial(rows, 3), quotient.topk(3).indices)


@PLACES
@pytest.mark.parametrize("replacement", [True, False])
def test_heavier_weights_are_drawn_more_often(place: str, replacement: bool) -> None:
    torch.manual_seed(3)
    rows = torch.tensor([1.0, 3.0], device=place).repeat(20000, 1)
    first = torch.multinomial(rows, 2, replacement)[:, 0]
    assert first.sum().item() / 20000 == pytest.approx(0.75, abs=0.02)


@PLACES
def test_multinomial_arguments(place: str) -> None:
    ones = torch.ones(3, device=place)
    cube, floats = torch.ones(2, 2, 2, device=place), torch.empty(1, device=place)
    for call, message in (
        (lambda: torch.multinomial(cube, 1), "prob_dist must be 1 or 2 dim"),
        (lambda: torch.multinomial(ones, 4), "cannot sample n_sample > prob_dist.size"),
        (lambda: torch.multinomial(ones, 0), "cannot sample n_sample <= 0 samples"),
        (lambda: torch.multinomial(ones.long(), 1), "only supports floating-point dtypes"),
        (lambda: torch.multinomial(ones, 1, out=floats), "expects Long tensor"),
        (lambda: torch.multinomial(torch.ones(1, device=place).expand(2**24 + 1), 1),
         "number of categories cannot exceed 2"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=message):
            call()
    out = torch.empty(0, dtype=torch.int64, device=place)
    assert torch.multinomial(ones, 2, out=out) is out


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.0, 0.0], "sum of probabilities <= 0"),
        ([1.0, -1.0], "either `inf`, `nan` or element < 0"),
        ([1.0, float("inf")], "either `inf`, `nan` or element < 0"),
        ([1.0, float("nan")], "either `inf`, `nan` or element < 0"),
    ],
)
def test_wrong_weights_on_the_host(weights: list[float], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        torch.multinomial(torch.tensor(weights), 1)


@pytest.mark.parametrize(
    "call",
    [
        "torch.multinomial(torch.tensor([1.0, -1.0], device='cuda'), 1)",
        "torch.multinomial(torch.zeros(2, device='cuda'), 1, True)",
        "torch.multinomial(torch.tensor([1.0, float('inf')], device='cuda'), 1)",
        "torch.bernoulli(torch.tensor([0.5, 1.5], device='cuda'))",
        "torch.poisson(torch.tensor([-1.0], device='cuda'))",
        "torch.normal(torch.zeros(2, device='cuda'), torch.tensor([1.0, -1.0], device='cuda'))",
    ],
)
def test_wrong_elements_on_a_device_show_later(call: str) -> None:
    script = f"""
        try:
            {call}
            torch.cuda.synchronize()
        except torch.AcceleratorError as error:
            print(error.error_code)
    """
    assert run_script(script).lines == ["710"]


# -- randperm -------------------------------------------------------------------------------------


@PLACES
@pytest.mark.parametrize("n", [0, 1, 2, 10, 1000, 30083, 30084])
def test_permutations(place: str, n: int) -> None:
    torch.manual_seed(SEED)
    found = torch.randperm(n, device=place)
    assert found.dtype == torch.int64
    assert sorted(found.tolist()) == list(range(n))
    if place == "cuda":
        drawn = 4 + -(-n // 4) * 4 if n else 0  # keys, then ties
        assert torch.cuda.default_generators[0].get_offset() == drawn


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 200), seed=st.integers(0, 2**64 - 1))
def test_permutation_by_sorted_keys(n: int, seed: int) -> None:
    generator = torch.Generator("cuda").manual_seed(seed)
    found = torch.randperm(n, generator=generator, **GPU).cpu().numpy()
    bits = int(np.ceil(np.log2(n - (6 * n * n + 1) / (12 * np.log(0.9)))))
    stream = Stream(seed)
    keys = stream.integers(n, -(2**31), 2**31 - 1).astype(np.int64) & (2**bits - 1)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    for start in range(n):
        ties = np.flatnonzero(ordered == ordered[start])
        if ties[0] != start or ties.size < 2:
            continue
        blocks = np.arange(1 + n // 4, dtype=np.uint64) + np.uint64(stream.offset // 4)
        words = np.stack(philox(seed, np.full(blocks.size, start, np.uint64), blocks), 1).reshape(
            -1
        )
        for i, word in zip(range(ties.size - 1, 0, -1), words, strict=False):
            other = int(word) % (i + 1)
            order[[start + i, start + other]] = order[[start + other, start + i]]
    np.testing.assert_array_equal(found, order)


def test_permutation_of_keys_with_equal_high_bits() -> None:
    """Whole keys order what their high bits leave open, and keys that are equal are shuffled."""
    numbers = np.random.default_rng(1).integers(0, 4_000, 20_000) * 257
    keys = torch.from_numpy(numbers).cuda() + (1 << 26)  # bits above those that count
    generator = torch.Generator("cuda").manual_seed(SEED)
    found = random_sampling._order_of_long_keys(keys, 26, generator).cpu().numpy()
    np.testing.assert_array_equal(np.sort(found), np.arange(numbers.size))
    np.testing.assert_array_equal(numbers[found], np.sort(numbers))
    assert (found != np.argsort(numbers, kind="stable")).any()


@PLACES
def test_permutation_arguments(place: str) -> None:
    assert torch.randperm(2049, dtype=torch.float16, device=place).float().max().item() == 2048
    with pytest.raises(RuntimeError, match="n cannot be greater than 2049 for Half type"):
        torch.randperm(2050, dtype=torch.float16, device=place)
    with pytest.raises(RuntimeError, match="n must be non-negative, got -1"):
        torch.randperm(-1, device=place)
    out = torch.empty(0, dtype=torch.int32, device=place)
    assert torch.randperm(5, out=out) is out
    assert sorted(out.tolist()) == [0, 1, 2, 3, 4]


# -- normal with tensors --------------------------------------------------------------------------


@PLACES
def test_normal_numbers_with_own_parameters(place: str) -> None:
    mean, std = torch.arange(4.0, device=place), torch.tensor([[1.0], [2.0]], device=place)
    torch.manual_seed(9)
    found = torch.normal(mean, std)
    torch.manual_seed(9)
    standard = torch.empty(2, 4, device=place).normal_()
    assert torch.equal(found, standard * std + mean)
    assert torch.normal(2.0, torch.zeros(3, device=place)).tolist() == [2.0] * 3
    assert torch.normal(mean, 0.0).tolist() == mean.tolist()
    with pytest.raises(RuntimeError, match=r"normal expects std >= 0.0"):
        torch.normal(mean, -1.0)
    with pytest.raises(TypeError, match="needs a size"):
        torch.normal(0.0, 1.0)
    with pytest.raises(RuntimeError, match="must match the size"):
        torch.normal(mean, torch.ones(3, device=place))


def test_a_negative_deviation_of_a_host_tensor() -> None:
    with pytest.raises(RuntimeError, match=r"normal expects all elements of std >= 0.0"):
        torch.normal(torch.zeros(2), torch.tensor([1.0, -1.0]))
