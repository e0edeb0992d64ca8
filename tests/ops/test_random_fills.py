# SPDX-License-Identifier: Apache-2.0
"""How the stream of a CUDA generator is dealt out to the elements of tensors."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau.ops.common import kernel
from random_reference import THREADS, Stream, philox
from support import run_script

if TYPE_CHECKING:
    from flambeau import Generator

GPU = {"device": "cuda"}
SEED = 2**40 + 7


@pytest.fixture
def generator(gpu: Any) -> Generator:
    return torch.Generator(gpu).manual_seed(SEED)


@pytest.fixture(scope="module")
def blocks() -> int:
    """Blocks of 256 threads that the device holds at once."""
    properties = torch.cuda.get_device_properties(0)
    return properties.multi_processor_count * (
        properties.max_threads_per_multi_processor // THREADS
    )


# -- the words ------------------------------------------------------------------------------------

KNOWN_WORDS = [
    (0, 0, 0, 0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    (42, 0, 0, 0x9CEAF053, 0x77F5493B, 0x12BF50AD, 0x5742B3D7),
    (42, 1, 0, 0x02933769, 0x2051E913, 0x3B68B038, 0xB62C409C),
    (42, 0, 1, 0xFCDB2127, 0x53BA6CFD, 0x838F5A6E, 0x744E06FB),
    (2**64 - 1, 5, 7, 0xA5C72C52, 0x3A1B42B0, 0xE86ECBBE, 0x61B257DA),
]
_WORDS = """#include "random.cuh"
FLAMBEAU_KERNEL(32) words(uint32 *out, const Philox philox, uint64 subsequence, uint64 further) {
  if (threadIdx.x) return;
  const Words w = Position(philox).words(subsequence, further);
  out[0] = w.x; out[1] = w.y; out[2] = w.z; out[3] = w.w;
}
"""


def device_words(seed: int, subsequence: int, offset: int, further: int = 0) -> list[int]:
    out = torch.zeros(4, dtype=torch.int32, **GPU)
    philox_bytes = np.array([seed, offset, 0, 0], np.uint64).tobytes()
    made = kernel(_WORDS, "words", "PBQQ", 0)
    made(0, 1, 32, 0, out, philox_bytes, subsequence, further)
    return [int(x) & 0xFFFFFFFF for x in out.tolist()]


def reference_words(seed: int, subsequence: int, block: int) -> list[int]:
    one = np.array([subsequence], np.uint64), np.array([block], np.uint64)
    return [int(word[0]) for word in philox(seed, *one)]


@pytest.mark.parametrize("row", KNOWN_WORDS)
def test_known_words(row: tuple[int, ...]) -> None:
    seed, subsequence, block, *words = row
    assert reference_words(seed, subsequence, block) == words
    assert device_words(seed, subsequence, 4 * block) == words


@pytest.mark.parametrize("block", [2**32 - 1, 2**32, 2**33 + 5, 2**62 - 1])
def test_block_numbers_carry_into_the_second_word(block: int) -> None:
    assert device_words(7, 3, 4 * (block - 1), 1) == reference_words(7, 3, block)
    assert device_words(7, 2**32 + 3, 4 * block) == reference_words(7, 2**32 + 3, block)


# -- the layout -----------------------------------------------------------------------------------


def check(values: Any, expected: Any) -> None:
    np.testing.assert_array_equal(values.cpu().numpy(), expected)


@pytest.mark.parametrize("n", [1, 255, 256, 257, 1000])
def test_small_tensors_use_one_lane(generator: Generator, n: int, blocks: int) -> None:
    stream = Stream(SEED, blocks=blocks)
    for _ in range(2):  # the second call goes on where the first ended
        check(torch.rand(n, generator=generator, **GPU), stream.floats(n))
        assert generator.get_offset() == stream.offset
    assert generator.get_offset() == 8


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("turns", [1, 2, 4])
def test_around_whole_rounds(generator: Generator, turns: int, more: int, blocks: int) -> None:
    n = turns * blocks * THREADS + more
    stream = Stream(SEED, blocks=blocks)
    check(torch.rand(n, generator=generator, **GPU), stream.floats(n))
    assert generator.get_offset() == stream.offset == (8 if turns == 4 and more else 4)
    check(torch.rand(n, dtype=torch.float64, generator=generator, **GPU), stream.doubles(n))
    assert generator.get_offset() == stream.offset


def test_the_last_element_of_many(generator: Generator, blocks: int) -> None:
    n = 4194317
    values = torch.rand(n, generator=generator, **GPU)
    check(values, Stream(SEED, blocks=blocks).floats(n))


def test_no_elements_draw_nothing(generator: Generator) -> None:
    for empty in (
        torch.rand(0, generator=generator, **GPU),
        torch.randint(5, (0, 3), generator=generator, **GPU),
        torch.randperm(0, generator=generator, **GPU),
    ):
        assert empty.numel() == 0
    assert generator.get_offset() == 0


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    offset=st.integers(0, 2**62 - 2**20),
    n=st.integers(1, 3000),
)
def test_any_seed_and_offset(seed: int, offset: int, n: int) -> None:
    generator = torch.Generator("cuda").manual_seed(seed).set_offset(4 * offset)
    stream = Stream(seed, 4 * offset)
    check(torch.rand(n, generator=generator, **GPU), stream.floats(n))
    check(torch.randint(-5, 2**40, (n,), generator=generator, **GPU), stream.integers(n, -5, 2**40))
    assert generator.get_offset() == stream.offset == 4 * offset + 8


@pytest.mark.parametrize("start", [1, 2, 3])
def test_misaligned_memory(generator: Generator, start: int) -> None:
    base = torch.zeros(1000, **GPU)
    base[start:].uniform_(generator=generator)
    expected = Stream(SEED).floats(1000 - start)
    check(base[start:], expected)
    assert base[:start].sum().item() == 0


def test_elements_are_drawn_in_the_order_of_memory(generator: Generator) -> None:
    cases = [
        (lambda: torch.empty(5, 7, **GPU).t(), lambda t: t.t()),
        (lambda: torch.empty(3, 4, 5, **GPU).permute(2, 0, 1), lambda t: t.permute(1, 2, 0)),
        (lambda: torch.empty(2, 3, 4, 5, **GPU, memory_format=torch.channels_last),
         lambda t: t.permute(0, 2, 3, 1)),
        (lambda: torch.zeros(40, **GPU)[::2], lambda t: t),
        (lambda: torch.zeros(6, 10, **GPU)[:, 3:7], lambda t: t),
        (lambda: torch.zeros(10, 6, **GPU).t()[::3, 1:4], lambda t: t.t()),
        (lambda: torch.zeros((), **GPU), lambda t: t),
    ]  # fmt: skip
    for make, in_memory in cases:
        generator.manual_seed(SEED)
        filled = make().uniform_(generator=generator)
        expected = Stream(SEED).floats(filled.numel())
        check(in_memory(filled).reshape(-1), expected)


def test_only_the_view_is_written(generator: Generator) -> None:
    base = torch.full((8, 8), -1.0, **GPU)
    base[::2, 1:7:2].uniform_(generator=generator)
    mask = np.zeros((8, 8), bool)
    mask[::2, 1:7:2] = True
    values = base.cpu().numpy()
    assert (values[mask] >= 0).all()
    assert (values[~mask] == -1).all()


def test_a_tensor_whose_elements_share_memory_is_refused(generator: Generator) -> None:
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch.zeros(1, **GPU).expand(3).uniform_(generator=generator)


def test_complex_numbers_are_pairs(generator: Generator) -> None:
    values = torch.rand(100, dtype=torch.complex64, generator=generator, **GPU).cpu().numpy()
    np.testing.assert_array_equal(values.view(np.float32), Stream(SEED).floats(200))


def test_devices_agree_up_to_the_smaller_grid() -> None:
    """An A100 has 108 multiprocessors, an H200 132."""
    script = """
        import hashlib
        smaller = 108 * 2048
        torch.cuda.manual_seed(3)
        values = torch.rand(smaller + 1000, device="cuda").cpu().numpy()
        print(hashlib.sha256(values[:smaller].tobytes()).hexdigest())
        print(hashlib.sha256(values[smaller:].tobytes()).hexdigest())
    """
    first, second = (run_script(script, {"FLAMBEAU_VIRTUAL": m}) for m in ("a100", "h200"))
    assert first.lines[0] == second.lines[0]
    assert first.lines[1] != second.lines[1]


def test_seed_and_offset_from_device_memory(generator: Generator) -> None:
    """What a replay of a graph does: the kernel finds both in one-element tensors."""
    cells = torch.tensor([SEED, 40], **GPU)
    generator._begin_capture(cells.data_ptr(), cells.data_ptr() + 8)
    first = torch.rand(5, generator=generator, **GPU)
    second = torch.randint(9, (5,), generator=generator, **GPU)
    assert generator._end_capture() == 8
    stream = Stream(SEED, 40)
    check(first, stream.floats(5))
    check(second, stream.integers(5, 0, 9))
    assert generator.get_offset() == 0


# -- tensors that 32-bit offsets cannot reach -----------------------------------------------------


def test_far_reaching_views_are_split(generator: Generator) -> None:
    """Two rows that lie 2**31 bytes apart are two fills, after the share of one was left unused."""
    rows = torch.empty(2**29 + 16, **GPU).as_strided((2, 3), (2**29, 1))
    rows.uniform_(generator=generator)
    stream = Stream(SEED, 4)
    check(rows[0], stream.floats(3))
    check(rows[1], stream.floats(3))
    assert generator.get_offset() == stream.offset == 12


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_small_floats_never_reach_the_upper_bound(generator: Generator, dtype: Any) -> None:
    values = torch.rand(200_000, dtype=dtype, generator=generator, **GPU).float()
    assert values.max().item() < 1
    assert values.min().item() == 0  # what would round to 1 becomes the lower bound


@pytest.mark.parametrize(("low", "high"), [(1, 3), (-2, -1)])
def test_the_upper_bound_becomes_the_lower(generator: Generator, low: int, high: int) -> None:
    """In half precision many sums round up to the end of the range."""
    n = 50_000
    found = torch.empty(n, dtype=torch.float16, **GPU).uniform_(low, high, generator=generator)
    exact = Stream(SEED).floats(n).astype(np.float64) * (high - low) + low
    expected = exact.astype(np.float32).astype(np.float16)
    at_the_end = expected == high
    assert at_the_end.any()
    expected[at_the_end] = low
    check(found, expected)


def test_an_empty_range_gives_its_bound(generator: Generator) -> None:
    assert torch.empty(5, **GPU).uniform_(2.5, 2.5, generator=generator).tolist() == [2.5] * 5
    assert torch.empty(5, **GPU).uniform_(**{"from": 1, "to": 1}).tolist() == [1.0] * 5


def test_normal_numbers_come_sine_first(generator: Generator, blocks: int) -> None:
    n = 2 * blocks * THREADS
    values = torch.randn(n, generator=generator, **GPU).cpu().numpy()
    expected, radius = Stream(SEED, blocks=blocks).normals(n)
    error = np.abs(values - expected)
    # An H200's sine and cosine of angles up to 2 pi are off by 2**-20.48 at most.
    assert (error <= radius * 2.0**-20.4 + 2.0**-22 * np.abs(expected)).all()


def test_complex_normal_numbers_have_variance_one(generator: Generator) -> None:
    values = torch.randn(100_000, dtype=torch.complex64, generator=generator, **GPU).cpu().numpy()
    assert np.var(values.real) == pytest.approx(0.5, rel=0.02)
    assert np.var(values.imag) == pytest.approx(0.5, rel=0.02)
    constant = torch.empty(10, dtype=torch.complex64, **GPU).normal_(3, 0.0)
    assert constant[0].item() == 3 + 3j


# Words beyond these are the greatest and the least of all.
GREATEST, LEAST = 0xFFFFFF80, 0x00000400


def draw_one(name: str, thread: int, seed: int, *arguments: float) -> float:
    """The element of one thread of a fill."""
    out = torch.empty(thread + 1, **GPU)
    getattr(out, name)(*arguments, generator=torch.Generator("cuda").manual_seed(seed))
    return float(out[thread].item())


@pytest.fixture(scope="module")
def end_threads() -> dict[str, tuple[int, int]]:
    """A (seed, thread below 200,000) for each end of the words' range."""
    found: dict[str, tuple[int, int]] = {}
    threads = np.arange(200_000, dtype=np.uint64)
    seed = 0
    while len(found) < 2:
        words = philox(seed, threads, np.zeros_like(threads))[0]
        for end, hit in (("greatest", words >= GREATEST), ("least", words <= LEAST)):
            if hit.any() and end not in found:
                found[end] = (seed, int(np.flatnonzero(hit)[0]))
        seed += 1
    return found


def test_a_uniform_number_of_one(end_threads: dict[str, tuple[int, int]]) -> None:
    """The greatest words round to exactly 1, which every distribution survives."""
    seed, thread = end_threads["greatest"]
    assert draw_one("exponential_", thread, seed) == 2.0**-24
    assert draw_one("geometric_", thread, seed, 0.3) == 0
    assert draw_one("uniform_", thread, seed) == 0
    assert abs(draw_one("cauchy_", thread, seed)) < 1e8
    assert draw_one("bernoulli_", thread, seed, 1.0) == 0


def test_the_least_uniform_number(end_threads: dict[str, tuple[int, int]]) -> None:
    seed, thread = end_threads["least"]
    assert 0 < draw_one("uniform_", thread, seed) < 2.0**-21
    assert 14 < draw_one("exponential_", thread, seed) < 24
    assert -1e8 < draw_one("cauchy_", thread, seed) < -1e5
    assert np.isfinite(draw_one("normal_", thread, seed))


def test_geometric_integers_are_the_floats(generator: Generator) -> None:
    for dtype in (torch.int64, torch.int32, torch.float16):
        floats = torch.empty(1000, **GPU).geometric_(0.3, generator=generator.manual_seed(1))
        same = torch.empty(1000, dtype=dtype, **GPU).geometric_(
            0.3, generator=generator.manual_seed(1)
        )
        assert torch.equal(floats, same.float())


def test_bernoulli_of_certain_events(generator: Generator) -> None:
    assert torch.empty(1000, **GPU).bernoulli_(0.0, generator=generator).sum().item() == 0
    almost = torch.empty(1000, dtype=torch.bool, **GPU).bernoulli_(1.0, generator=generator)
    assert almost.all().item()


def test_factories_and_patterns(generator: Generator) -> None:
    pattern = torch.empty(4, 6, dtype=torch.float16, **GPU).t()
    like = torch.rand_like(pattern, generator=generator)
    assert (like.dtype, like.shape, like.stride()) == (torch.float16, (6, 4), (1, 6))
    assert torch.randn_like(pattern, dtype=torch.float64).dtype == torch.float64
    assert torch.randint_like(pattern, 3, 5).unique().tolist() == [3, 4]
    assert torch.randint_like(pattern, high=1).sum().item() == 0
    assert torch.rand(2, 3, **GPU).shape == torch.rand((2, 3), **GPU).shape == (2, 3)
    assert torch.rand(size=(2, 3), **GPU).shape == torch.randn([2, 3], **GPU).shape == (2, 3)
    assert torch.randint(high=5, size=(2,), **GPU).dtype == torch.int64
    out = torch.empty(0, **GPU)
    assert torch.rand(3, out=out) is out
    assert out.shape == (3,)
    assert torch.normal(1.0, 0.0, (2, 2), **GPU).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert torch.rand((), **GPU).shape == ()


def test_a_written_tensor_has_a_new_version() -> None:
    values = torch.zeros(3, **GPU)
    before = values._version
    values.uniform_()
    assert values._version == before + 1


def test_threads_share_a_generator(generator: Generator) -> None:
    """Each draw takes a part of the stream that no other draw gets."""
    drawn: list[int] = []

    def draw() -> None:
        for _ in range(50):
            values = torch.empty(1, dtype=torch.int64, **GPU)
            drawn.append(values.random_(-(2**63), None, generator=generator).item())

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert generator.get_offset() == 4 * 200
    blocks = np.arange(200, dtype=np.uint64)
    x, y, _, _ = (w.astype(np.uint64) for w in philox(SEED, np.zeros_like(blocks), blocks))
    expected = (x << np.uint64(32) | y).astype(np.int64)
    assert sorted(drawn) == sorted(expected.tolist())
