# SPDX-License-Identifier: Apache-2.0
"""Generators as objects, and the CPU's streams."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch

FIRST_SEED = 67280421310721


class Twister:
    """NumPy's Mersenne Twister with the numbers that are made of its words."""

    def __init__(self, seed: int) -> None:
        self.state = np.random.RandomState(seed & 0xFFFFFFFF)
        self.kept: float | None = None

    def word(self) -> int:
        return int(self.state.randint(0, 2**32, dtype=np.uint32))

    def wide(self) -> int:
        return self.word() << 32 | self.word()

    def unit(self) -> float:
        return (self.word() & 0xFFFFFF) * 2.0**-24

    def double(self) -> float:
        return (self.wide() & (2**53 - 1)) * 2.0**-53

    def normal(self) -> float:
        if self.kept is not None:
            kept, self.kept = self.kept, None
            return kept
        angle, radius = 2 * np.pi * self.double(), np.sqrt(-2 * np.log1p(-self.double()))
        self.kept = float(radius * np.sin(angle))
        return float(radius * np.cos(angle))


def drawn(call: Any, n: int) -> Any:
    return np.array([call() for _ in range(n)])


# -- the CPU's streams ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2**32 + 5, 2**64 - 1])
def test_uniform_numbers(seed: int) -> None:
    g, twister = torch.Generator().manual_seed(seed), Twister(seed)
    for n in (3, 700):
        np.testing.assert_array_equal(
            torch.rand(n, generator=g).numpy(), drawn(twister.unit, n).astype(np.float32)
        )
        doubles = torch.rand(n, dtype=torch.float64, generator=g)
        np.testing.assert_array_equal(doubles.numpy(), drawn(twister.double, n))
    shifted = torch.empty(9, dtype=torch.float64).uniform_(-2, 3, generator=g)
    np.testing.assert_allclose(shifted.numpy(), drawn(twister.double, 9) * 5 - 2, rtol=1e-15)


def test_few_normal_numbers_keep_a_sine_for_later() -> None:
    g, twister = torch.Generator().manual_seed(3), Twister(3)
    for n in (5, 4, 15):
        found = torch.randn(n, dtype=torch.float64, generator=g).numpy()
        np.testing.assert_allclose(found, drawn(twister.normal, n), rtol=1e-14)
    transposed = torch.empty(4, 8, dtype=torch.float64).t().normal_(generator=g)
    np.testing.assert_allclose(
        transposed.t().reshape(-1).numpy(), drawn(twister.normal, 32), rtol=1e-14
    )


@pytest.mark.parametrize("n", [16, 20, 100])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_normal_numbers_come_in_chunks(n: int, dtype: str) -> None:
    g, twister = torch.Generator().manual_seed(3), Twister(3)
    unit = twister.unit if dtype == "float32" else twister.double

    def chunk(v: Any) -> Any:
        radius, angle = np.sqrt(-2 * np.log1p(-v[:8])), 2 * np.pi * v[8:]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])

    v = drawn(unit, n)
    for start in range(0, n - 15, 16):
        v[start : start + 16] = chunk(v[start : start + 16])
    if n % 16:
        v[-16:] = chunk(drawn(unit, 16))
    found = torch.randn(n, dtype=getattr(torch, dtype), generator=g).numpy()
    assert np.abs(found - v).max() < (6e-7 if dtype == "float32" else 1e-14)


def test_a_kept_sine_outlives_numbers_in_chunks() -> None:
    g, twister = torch.Generator().manual_seed(3), Twister(3)
    for n in (10, 5):
        found = torch.randn(n, dtype=torch.float64, generator=g).numpy()
        np.testing.assert_allclose(found, drawn(twister.normal, n), rtol=1e-14)
    torch.randn(20, generator=g)
    drawn(twister.unit, 20 + 16)
    found = torch.randn(3, dtype=torch.float64, generator=g).numpy()
    np.testing.assert_allclose(found, drawn(twister.normal, 3), rtol=1e-14)


def test_other_distributions() -> None:
    g, twister = torch.Generator().manual_seed(3), Twister(3)
    x = torch.empty(50, dtype=torch.float64)
    double = twister.double
    for name, arguments, expected in (
        ("exponential_", (1.5,), lambda: -np.log1p(-double()) / 1.5),
        ("cauchy_", (1, 2), lambda: 1 + 2 * np.tan(np.pi * (double() - 0.5))),
        ("geometric_", (0.3,), lambda: np.ceil(np.log(double()) / np.log1p(-0.3))),
        ("bernoulli_", (0.3,), lambda: double() < 0.3),
        ("log_normal_", (1, 2), lambda: np.exp(1 + 2 * twister.normal())),
    ):
        found = getattr(x, name)(*arguments, generator=g).numpy()
        np.testing.assert_allclose(found, drawn(expected, 50), rtol=1e-12)


def test_integers() -> None:
    g, twister = torch.Generator().manual_seed(3), Twister(3)
    for low, high in ((0, 10), (-5, 2**28 - 6), (0, 2**28), (-7, 2**40)):
        wide = high - low >= 1 << 28
        expected = [
            (twister.wide() if wide else twister.word()) % (high - low) + low for _ in range(9)
        ]
        assert torch.randint(low, high, (9,), generator=g).tolist() == expected
    assert torch.empty(4, dtype=torch.int32).random_(generator=g).tolist() == [
        twister.word() % 2**31 for _ in range(4)
    ]
    own = torch.bernoulli(torch.full((9,), 0.3), generator=g)
    assert own.tolist() == [float(twister.unit() < np.float32(0.3)) for _ in range(9)]
    order = list(range(10))
    for i in range(9):
        other = i + twister.word() % (10 - i)
        order[i], order[other] = order[other], order[i]
    assert torch.randperm(10, generator=g).tolist() == order


def test_elements_on_the_host_follow_memory_too() -> None:
    g = torch.Generator()
    flat = torch.rand(12, generator=g.manual_seed(1))
    turned = torch.empty(3, 4).t().uniform_(generator=g.manual_seed(1))
    assert torch.equal(turned.t().reshape(-1), flat)
    gaps = torch.zeros(24)[::2].uniform_(generator=g.manual_seed(1))
    assert torch.equal(gaps, flat)


# -- states ---------------------------------------------------------------------------------------


def test_the_layout_of_a_host_state() -> None:
    g = torch.Generator().manual_seed(5)
    fresh = bytes(g.get_state().tolist())
    assert len(fresh) == 5056
    assert struct.unpack_from("<QiiQ", fresh) == (5, 1, 1, 0)
    assert struct.unpack_from("<QQ", fresh, 24) == (5, 472231674)
    torch.rand(3, generator=g)
    torch.randn(3, generator=g)  # two pairs: a sine is left
    later = bytes(g.get_state().tolist())
    assert struct.unpack_from("<QiiQ", later) == (5, 614, 1, 11)
    _, sine, _, has_sine = struct.unpack_from("<dddi", later, 24 + 8 * 624)
    assert has_sine == 1
    assert torch.randn(1, dtype=torch.float64, generator=g).item() == sine


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), before=st.integers(0, 1300), normal=st.booleans())
def test_a_host_state_round_trips(seed: int, before: int, normal: bool) -> None:
    g = torch.Generator().manual_seed(seed)
    torch.rand(before, generator=g)
    if normal:
        torch.randn(1, generator=g)
    state = g.get_state()
    expected = torch.rand(700, generator=g), torch.randn(3, generator=g)
    other = torch.Generator().set_state(state)
    assert other.initial_seed() == seed
    assert torch.equal(torch.rand(700, generator=other), expected[0])
    assert torch.equal(torch.randn(3, generator=other), expected[1])
    assert torch.equal(other.get_state(), g.get_state())


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), offset=st.integers(0, 2**62 - 1))
def test_a_cuda_state_is_seed_and_offset(seed: int, offset: int) -> None:
    g = torch.Generator("cuda").manual_seed(seed).set_offset(4 * offset)
    state = g.get_state()
    assert struct.unpack("<QQ", bytes(state.tolist())) == (seed, 4 * offset)
    other = torch.Generator("cuda").set_state(state)
    assert (other.initial_seed(), other.get_offset()) == (seed, 4 * offset)
    other.set_state(state[:8])
    assert (other.initial_seed(), other.get_offset()) == (seed, 0)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_states_that_are_refused(device: str) -> None:
    g = torch.Generator(device)
    state = g.get_state()
    doubled = torch.stack([state, state], 1)[:, 0]
    for wrong, error, message in (
        ([1, 2], TypeError, "expected a torch.ByteTensor"),
        (state.float(), TypeError, "RNG state must be a torch.ByteTensor"),
        (state.cuda(), TypeError, "RNG state must be a torch.ByteTensor"),
        (doubled, RuntimeError, "RNG state must be contiguous"),
        (state[:7], RuntimeError, "RNG state is wrong size"),
    ):
        with pytest.raises(error, match=message):
            g.set_state(wrong)
    assert torch.equal(g.get_state(), state)


def test_contents_that_are_refused() -> None:
    with pytest.raises(RuntimeError, match="offset must be a multiple of 4"):
        torch.Generator("cuda").set_state(torch.tensor([0] * 8 + [3] + [0] * 7, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="offset must be a multiple of 4"):
        torch.Generator("cuda").set_offset(2)
    with pytest.raises(RuntimeError, match="Invalid mt19937 state"):
        torch.Generator().set_state(torch.zeros(5056, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="CPU Generator does not use offset"):
        torch.Generator().get_offset()
    with pytest.raises(ValueError, match="an offset lies from 0"):
        torch.Generator("cuda").set_offset(-4)


# -- objects --------------------------------------------------------------------------------------


def test_a_new_generator() -> None:
    for device in ("cpu", "cuda"):
        g = torch.Generator(device)
        assert g.initial_seed() == FIRST_SEED
        assert g.device.type == device
        assert g.manual_seed(3) is g
    last = torch.cuda.device_count() - 1
    assert torch.Generator(f"cuda:{last}").device == torch.device("cuda", last)
    assert torch.Generator("cuda").get_offset() == 0
    with pytest.raises(RuntimeError, match="is not supported for"):
        torch.Generator("meta")


def test_seeds() -> None:
    g = torch.Generator("cuda")
    assert g.manual_seed(-1).initial_seed() == 2**64 - 1
    assert g.manual_seed(-(2**63)).initial_seed() == 2**63
    assert g.manual_seed(np.int64(7)).initial_seed() == 7
    for wrong in (1.5, "5"):
        with pytest.raises(RuntimeError, match="manual_seed expected a long"):
            g.manual_seed(wrong)
    for wide in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match="Overflow when unpacking long long"):
            g.manual_seed(wide)
    assert g.initial_seed() == 7
    torch.rand(3, device="cuda", generator=g)
    assert g.manual_seed(7).get_offset() == 0
    seeds = {g.seed() for _ in range(8)}
    assert len(seeds) == 8
    assert all(seed < 2**53 for seed in seeds)
    assert torch.Generator().seed() != torch.Generator().seed()


def test_clones_are_independent_and_shared_states_are_not() -> None:
    g = torch.Generator("cuda").manual_seed(5)
    clone, alias = g.clone_state(), g.graphsafe_get_state()
    torch.rand(3, device="cuda", generator=g)
    assert (clone.get_offset(), alias.get_offset()) == (0, 4)
    other = torch.Generator("cuda").graphsafe_set_state(clone)
    clone.manual_seed(9)
    assert other.initial_seed() == 9
    host = torch.Generator().manual_seed(5)
    copy = host.clone_state()
    assert torch.equal(torch.rand(3, generator=host), torch.rand(3, generator=copy))
    with pytest.raises(RuntimeError, match="is for CUDA generators"):
        host.graphsafe_get_state()


def test_the_state_for_kernels_of_ones_own() -> None:
    g = torch.Generator("cuda").manual_seed(-2).set_offset(8)
    seed, offset = g.philox_state(5)
    assert (seed.item(), offset.item(), g.get_offset()) == (-2, 8, 16)
    assert seed.device == g.device
    with pytest.raises(RuntimeError, match="for CUDA generators"):
        torch.Generator().philox_state(4)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_pickles(device: str) -> None:
    g = torch.Generator(device).manual_seed(11)
    torch.rand(5, device=device, generator=g)
    made, (where,), (seed, offset, state) = g.__reduce__()
    assert made is torch.Generator
    assert where == g.device
    assert (seed, offset) == (11, 4 if device == "cuda" else None)
    assert torch.equal(state, g.get_state())
    again = pickle.loads(pickle.dumps(g))
    assert torch.equal(again.get_state(), g.get_state())


def test_while_a_graph_is_captured() -> None:
    g = torch.Generator("cuda").manual_seed(5)
    cells = torch.tensor([5, 0], device="cuda")
    g._begin_capture(cells.data_ptr(), cells.data_ptr() + 8)
    try:
        assert g.initial_seed() == 5
        assert g.get_state().tolist()[0] == 5
        g.manual_seed(5)
        with pytest.raises(RuntimeError, match="only if new seed is the same"):
            g.manual_seed(6)
        for call in (g.seed, g.get_offset, lambda: g.set_offset(4), g.clone_state):
            with pytest.raises(RuntimeError, match="during CUDA graph capture"):
                call()
        with pytest.raises(RuntimeError, match="being captured already"):
            g._begin_capture(0, 0)
    finally:
        assert g._end_capture() == 0
    assert g.get_offset() == 0
