# SPDX-License-Identifier: Apache-2.0
"""Integers drawn by ``random_``, ``randint`` and their kin, and what all fills refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from random_reference import Stream

if TYPE_CHECKING:
    from flambeau import Generator

GPU = {"device": "cuda"}
SEED = 42
PLACES = pytest.mark.parametrize("place", ["cpu", "cuda"])


@pytest.fixture
def generator(gpu: Any) -> Generator:
    return torch.Generator(gpu).manual_seed(SEED)


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 1), (0, 2), (-3, 4), (0, 3), (0, 2**28 - 1), (0, 2**28), (5, 2**28 + 5), (0, 2**32),
     (-(2**63), 2**63 - 1), (0, 2**62 + 1), (-1, 2**40)],
)  # fmt: skip
def test_ranges(generator: Generator, low: int, high: int) -> None:
    found = torch.randint(low, high, (1000,), generator=generator, **GPU).cpu().numpy()
    np.testing.assert_array_equal(found, Stream(SEED).integers(1000, low, high))
    assert low <= found.min()
    assert found.max() < high


@settings(max_examples=50, deadline=None)
@given(low=st.integers(-(2**63), 2**63 - 2), data=st.data())
def test_any_range(low: int, data: st.DataObject) -> None:
    high = data.draw(st.integers(low + 1, 2**63 - 1))
    generator = torch.Generator("cuda").manual_seed(SEED)
    found = torch.randint(low, high, (64,), generator=generator, **GPU).cpu().numpy()
    np.testing.assert_array_equal(found, Stream(SEED).integers(64, low, high))


WHOLE = {
    "bool": 2, "uint8": 2**8, "int8": 2**7, "int16": 2**15, "int32": 2**31, "float16": 2**11 + 1,
    "bfloat16": 2**8 + 1, "float32": 2**24 + 1,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [*WHOLE, "int64", "float64"])
def test_without_bounds(generator: Generator, dtype: str) -> None:
    found = torch.empty(500, dtype=getattr(torch, dtype), **GPU).random_(generator=generator)
    stream = Stream(SEED)
    if dtype in WHOLE:
        expected = stream.words(500) % np.uint32(WHOLE[dtype])
    else:
        range = 2**63 if dtype == "int64" else 2**53 + 1
        expected = stream.wide_words(500) % np.uint64(range)
    exact = found.cpu().to(torch.float64 if "float" in dtype else torch.int64).numpy()
    np.testing.assert_array_equal(exact, expected.astype(exact.dtype))
    assert generator.get_offset() == stream.offset


@pytest.mark.parametrize("dtype", ["int64", "float64", "float32", "bfloat16"])
def test_all_of_64_bits(generator: Generator, dtype: str) -> None:
    of = getattr(torch, dtype)
    found = torch.empty(100, dtype=of, **GPU).random_(-(2**63), None, generator=generator)
    words = torch.from_numpy(Stream(SEED).wide_words(100).astype(np.int64))
    assert torch.equal(found.cpu(), words.to(of))


@pytest.mark.parametrize("end", [None, 2**31])
def test_all_of_32_bits(generator: Generator, end: int | None) -> None:
    made = torch.empty(1000, dtype=torch.int32, **GPU)
    if end is None:
        made.random_(-(2**31), None, generator=generator)
    else:
        made = torch.randint(-(2**31), end, (1000,), dtype=torch.int32, generator=generator, **GPU)
    expected = Stream(SEED).integers(1000, -(2**31), 2**31)
    np.testing.assert_array_equal(made.cpu().numpy(), expected)
    assert expected.min() < -(2**30)
    assert expected.max() > 2**30


@pytest.mark.parametrize(("dtype", "last"), [("int8", 127), ("uint8", 255), ("int16", 2**15 - 1)])
def test_up_to_the_greatest(generator: Generator, dtype: str, last: int) -> None:
    found = torch.empty(20000, dtype=getattr(torch, dtype), **GPU)
    found.random_(last - 2, None, generator=generator)
    assert found.unique().tolist() == [last - 2, last - 1, last]


@PLACES
def test_forms_of_random(place: str) -> None:
    x = torch.zeros(200, dtype=torch.int64, device=place)
    assert x.random_(3).unique().tolist() == [0, 1, 2]
    assert x.random_(5, 7).unique().tolist() == [5, 6]
    assert x.random_(**{"from": 5, "to": 6}).unique().tolist() == [5]
    assert x.random_(to=1).unique().tolist() == [0]
    with pytest.raises(TypeError, match="takes from, to and generator"):
        x.random_(1, 2, 3)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_wide_unsigned_integers_need_bounds(generator: Generator, dtype: str) -> None:
    x = torch.empty(100, dtype=getattr(torch, dtype), **GPU)
    with pytest.raises(NotImplementedError, match="without bounds"):
        x.random_()
    x.random_(0, 1000, generator=generator)
    expected = Stream(SEED).integers(100, 0, 1000)
    np.testing.assert_array_equal(x.cpu().numpy().astype(np.int64), expected)


@pytest.mark.parametrize(
    ("dtype", "low", "high", "first", "range"),
    [
        ("float32", 0, 2**25, 0, 2**25 - 2),  # 2**25 - 1 would round up to the end
        ("float32", 0, 2**24 + 2, 0, 2**24 + 2),
        ("float32", -(2**24) - 5, 7, -(2**24) - 5, 2**24 + 12),
        ("bfloat16", 0, 257, 0, 257),
        ("bfloat16", 0, 260, 0, 258),
        ("float16", 0, 2050, 0, 2050),
        ("float16", 0, 4096, 0, 4094),
        ("float64", 0, 2**53, 0, 2**53),
    ],
)
def test_bounds_that_a_float_lacks_move_inwards(
    generator: Generator, dtype: str, low: int, high: int, first: int, range: int
) -> None:
    of = getattr(torch, dtype)
    found = torch.empty(300, dtype=of, **GPU).random_(low, high, generator=generator)
    drawn = Stream(SEED).integers(300, first, first + range)
    assert torch.equal(found.cpu(), torch.from_numpy(drawn).to(of))


@PLACES
def test_ranges_that_are_refused(place: str) -> None:
    bytes_ = torch.empty(3, dtype=torch.uint8, device=place)
    halves = torch.empty(3, dtype=torch.float16, device=place)
    flags = torch.empty(3, dtype=torch.bool, device=place)
    for call, message in (
        (lambda: torch.randint(5, 5, (3,), device=place), "random_ expects 'from' to be less than"),
        (lambda: halves.random_(5, 3), "random_ expects 'from' to be less than 'to'"),
        (lambda: bytes_.random_(0, 257), "to - 1 is out of bounds for"),
        (lambda: bytes_.random_(-1, 5), "from is out of bounds for"),
        (lambda: flags.random_(5), "to - 1 is out of bounds for"),
        (lambda: halves.random_(0, 70000), "to - 1 is out of bounds for"),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()
    with pytest.raises(ValueError, match="Overflow when unpacking long long"):
        torch.randint(0, 2**63 + 5, (3,), device=place)
    with pytest.raises(TypeError, match="takes"):
        torch.randint(5, device=place)
    with pytest.raises(TypeError, match="must be ints"):
        torch.randint(0.5, 3, (2,), device=place)
    with pytest.raises(NotImplementedError, match="not implemented for 'ComplexFloat'"):
        torch.empty(2, dtype=torch.complex64, device=place).random_()


@PLACES
def test_parameters_that_are_refused(place: str) -> None:
    x = torch.zeros(3, device=place)
    for call, message in (
        (lambda: x.uniform_(3, 1), r"uniform_ expects to return a \[from, to\) range"),
        (lambda: x.uniform_(0, float("inf")), "is out of bounds for"),
        (lambda: x.uniform_(-3e38, 3e38), "uniform_ expects to-from <="),
        (lambda: x.half().uniform_(0, 1e5), "is out of bounds for Half"),
        (lambda: x.normal_(0, -1), r"normal expects std >= 0.0"),
        (lambda: x.normal_(0, float("nan")), r"normal expects std >= 0.0"),
        (lambda: x.log_normal_(0, 0), r"expects std > 0.0"),
        (lambda: x.exponential_(0), r"expects lambda > 0.0"),
        (lambda: x.exponential_(-1), r"expects lambda > 0.0"),
        (lambda: x.geometric_(0), r"expects p to be in \(0, 1\)"),
        (lambda: x.geometric_(1), r"expects p to be in \(0, 1\)"),
        (lambda: x.cauchy_(0, 0), r"expects sigma > 0.0"),
        (lambda: x.int().exponential_(), "dtype must be a floating point"),
        (lambda: x.int().cauchy_(), "dtype must be a floating point"),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()
    for call in (
        lambda: x.int().uniform_(),
        lambda: x.int().normal_(),
        lambda: x.int().log_normal_(),
        lambda: torch.rand(3, dtype=torch.int32, device=place),
        lambda: torch.randn(3, dtype=torch.int64, device=place),
        lambda: x.bool().geometric_(0.5),
    ):
        with pytest.raises(NotImplementedError, match="not implemented for"):
            call()
    with pytest.raises(TypeError, match="takes from, to and generator"):
        x.uniform_(1, 2, 3)


def test_generators_of_another_kind(generator: Generator) -> None:
    with pytest.raises(
        RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"
    ):
        torch.rand(3, generator=generator)
    with pytest.raises(
        RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"
    ):
        torch.rand(3, generator=torch.Generator(), **GPU)
    with pytest.raises(
        RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"
    ):
        torch.randperm(3, generator=torch.Generator(), **GPU)
    with pytest.raises(TypeError, match="argument 'generator' must be"):
        torch.rand(3, generator=5, **GPU)
