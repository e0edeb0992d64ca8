# SPDX-License-Identifier: Apache-2.0
"""Seeding and the states of the default generators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import flambeau as torch
from flambeau import cuda
from support import run_script

if TYPE_CHECKING:
    from collections.abc import Callable

NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "FLAMBEAU_VIRTUAL": None}


@pytest.fixture(autouse=True)
def _initialized() -> None:
    cuda.init()


def seeds() -> list[int]:
    return [generator.initial_seed() for generator in cuda.default_generators]


def test_the_default_generators() -> None:
    assert len(cuda.default_generators) == cuda.device_count()
    assert cuda.random.default_generators == cuda.default_generators
    for index, generator in enumerate(cuda.default_generators):
        assert generator.device == torch.device("cuda", index)
    script = """
        print(torch.cuda.default_generators)
        torch.cuda.init()
        first = [g.initial_seed() for g in torch.cuda.default_generators]
        print(len(set(first)) == len(first) == torch.cuda.device_count())
        print(all(0 <= seed < 2**53 for seed in first))
    """
    assert run_script(script).lines == ["()", "True", "True"]


@pytest.mark.parametrize(
    ("seed", "expected"),
    [(-1, 2**64 - 1), (2**64 - 1, 2**64 - 1), ("5", 5), (1.7, 1), (-(2**63), 2**63), (True, 1)],
)
@pytest.mark.parametrize("function", [torch.manual_seed, cuda.manual_seed, cuda.manual_seed_all])
def test_seeds(function: Callable[[Any], Any], seed: Any, expected: int) -> None:
    function(seed)
    assert cuda.initial_seed() == expected
    assert cuda.default_generators[0].get_offset() == 0


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
@pytest.mark.parametrize("function", [torch.manual_seed, cuda.manual_seed, cuda.manual_seed_all])
def test_seeds_out_of_range(function: Callable[[Any], Any], seed: int) -> None:
    with pytest.raises(ValueError, match="Overflow when unpacking long long"):
        function(seed)


def test_which_generators_are_seeded(gpus: Callable[[int], list[Any]]) -> None:
    gpus(2)
    torch.manual_seed(1)
    assert set(seeds()) == {1}
    assert torch.initial_seed() == 1
    with cuda.device(1):
        assert cuda.manual_seed(2) is None
    assert seeds()[:2] == [1, 2]
    assert cuda.manual_seed_all(3) is None
    assert set(seeds()) == {3}
    assert cuda.seed() is None
    assert seeds()[0] != 3
    assert seeds()[1] == 3
    assert cuda.seed_all() is None
    assert len(set(seeds())) == 1
    assert seeds()[0] not in {1, 2, 3}


def test_the_host_generator() -> None:
    generator = torch.manual_seed(7)
    assert generator is torch.default_generator
    assert torch.initial_seed() == 7
    state = torch.get_rng_state()
    expected = torch.rand(5)
    torch.set_rng_state(state)
    assert torch.equal(torch.rand(5), expected)
    seed = torch.seed()
    assert torch.initial_seed() == seed
    assert set(seeds()) == {seed}


def test_states() -> None:
    cuda.manual_seed(42)
    fresh = cuda.get_rng_state()
    assert fresh.dtype == torch.uint8
    assert fresh.device.type == "cpu"
    assert fresh.tolist() == [42, *[0] * 15]
    expected = torch.rand(1000, device="cuda")
    assert cuda.get_rng_state(0).tolist() == [42, *[0] * 7, 4, *[0] * 7]
    cuda.set_rng_state(fresh, "cuda:0")
    assert torch.equal(torch.rand(1000, device="cuda"), expected)
    cuda.set_rng_state(fresh[:8])
    assert torch.equal(torch.rand(1000, device="cuda"), expected)


def test_offsets_alone() -> None:
    cuda.manual_seed(42)
    torch.rand(1000, device="cuda")
    assert cuda._get_rng_state_offset() == 4
    cuda._set_rng_state_offset(8, "cuda:0")
    assert cuda.get_rng_state().tolist() == [42, *[0] * 7, 8, *[0] * 7]
    with pytest.raises(RuntimeError, match="offset must be a multiple of 4"):
        cuda._set_rng_state_offset(3)


def test_states_of_all_devices(gpus: Callable[[int], list[Any]]) -> None:
    gpus(2)
    cuda.manual_seed_all(1)
    cuda.default_generators[1].set_offset(8)
    states = cuda.get_rng_state_all()
    torch.rand(3, device="cuda:0"), torch.rand(3, device="cuda:1")
    cuda.set_rng_state_all(states)
    assert [g.get_offset() for g in cuda.default_generators[:2]] == [0, 8]


def test_states_that_are_refused() -> None:
    state = cuda.get_rng_state()
    for wrong, error, message in (
        ([1, 2], TypeError, "expected a torch.ByteTensor"),
        (state.float(), TypeError, "RNG state must be a torch.ByteTensor"),
        (state.cuda(), TypeError, "RNG state must be a torch.ByteTensor"),
        (state[:5], RuntimeError, "RNG state is wrong size"),
        (torch.tensor([1] * 16, dtype=torch.uint8), RuntimeError, "offset must be a multiple of 4"),
    ):
        with pytest.raises(error, match=message):
            cuda.set_rng_state(wrong)
    for index in (-1, cuda.device_count()):
        with pytest.raises(IndexError, match="has no random number generator"):
            cuda.get_rng_state(index)
        with pytest.raises(IndexError, match="has no random number generator"):
            cuda.set_rng_state(state, index)
    assert cuda.get_rng_state().tolist() == state.tolist()
    every_second = torch.stack([state, state], 1)[:, 0]
    cuda.set_rng_state(every_second)  # a copy is made, so gaps do no harm
    assert cuda.get_rng_state().tolist() == state.tolist()


def test_devices_have_streams_of_their_own(gpus: Callable[[int], list[Any]]) -> None:
    gpus(2)
    torch.manual_seed(5)
    first, second = (torch.rand(10, device=f"cuda:{i}").cpu() for i in (0, 1))
    assert torch.equal(first, second)


# -- before initialisation ------------------------------------------------------------------------


def test_only_the_latest_seeds_count_in_their_order() -> None:
    script = """
        import sys
        def seeds(): return [g.initial_seed() for g in torch.cuda.default_generators]
        for word in sys.argv[1:] or {order!r}:
            getattr(torch.cuda, word[0])(word[1])
        assert not torch.cuda.is_initialized()
        torch.cuda.init()
        print(seeds())
    """
    one, every = "manual_seed", "manual_seed_all"
    for order, expected in (
        ([(one, 1), (every, 2), (one, 3)], [3, 2]),
        ([(one, 1), (every, 2)], [2, 2]),
        ([(every, 1), (one, 5), (every, 2)], [2, 2]),
        ([(every, 4), (every, 1), (one, 2), (one, 3)], [3, 1]),
    ):
        done = run_script(script.format(order=order), {"FLAMBEAU_VIRTUAL": "h200:2"})
        assert done.lines == [str(expected)]


def test_queued_states_and_seeds() -> None:
    script = """
        state = torch.tensor([9] + [0] * 7 + [4] + [0] * 7, dtype=torch.uint8)
        torch.cuda.set_rng_state(state)
        state.zero_()  # the queued copy stays
        torch.manual_seed(3)
        assert not torch.cuda.is_initialized()
        print(torch.cuda.get_rng_state().tolist()[:9])
    """
    assert run_script(script).lines == ["[3, 0, 0, 0, 0, 0, 0, 0, 0]"]
    alone = script.replace("torch.manual_seed(3)", "")
    assert run_script(alone).lines == ["[9, 0, 0, 0, 0, 0, 0, 0, 4]"]


def test_a_queued_failure_names_its_call() -> None:
    script = """
        def restore():
            torch.cuda.set_rng_state(torch.zeros(5, dtype=torch.uint8))
        restore()
        try:
            torch.cuda.init()
        except torch.cuda.DeferredCudaCallError as error:
            print("RNG state is wrong size" in str(error), "in restore" in str(error))
    """
    assert run_script(script).lines == ["True True"]


def test_without_a_gpu() -> None:
    script = """
        torch.manual_seed(1), torch.seed()
        torch.cuda.manual_seed(1), torch.cuda.manual_seed_all(1)
        torch.cuda.seed(), torch.cuda.seed_all()
        torch.cuda.set_rng_state(torch.zeros(16, dtype=torch.uint8))
        torch.cuda.set_rng_state_all([])
        print(torch.cuda.default_generators, torch.rand(2).shape)
        with torch.random.fork_rng():
            torch.rand(1)
        for call in (torch.cuda.get_rng_state, torch.cuda.initial_seed):
            try:
                call()
            except RuntimeError as error:
                print("no" in str(error).lower())
    """
    lines = run_script(script, NO_GPU).lines
    assert lines == ["() torch.Size([2])", "True", "True"]


def test_a_fork_may_seed_and_draw_on_the_host() -> None:
    script = """
        import os
        torch.cuda.init()
        child = os.fork()
        if child == 0:
            torch.manual_seed(4)
            os._exit(0 if torch.initial_seed() == 4 and torch.rand(1).item() < 1 else 1)
        print(os.waitpid(child, 0)[1])
    """
    assert run_script(script).lines == ["0"]


# -- fork_rng -------------------------------------------------------------------------------------


@pytest.fixture
def both_states() -> Callable[[], list[Any]]:
    torch.manual_seed(11)
    return lambda: [torch.get_rng_state().tolist(), cuda.get_rng_state().tolist()]


def test_fork_rng_restores(both_states: Callable[[], list[Any]]) -> None:
    before = both_states()
    with torch.random.fork_rng(devices=[0]):
        torch.manual_seed(3)
        torch.rand(3), torch.rand(3, device="cuda")
        assert both_states() != before
    assert both_states() == before


def test_fork_rng_restores_after_an_exception(both_states: Callable[[], list[Any]]) -> None:
    before = both_states()

    def fail() -> None:
        with torch.random.fork_rng(devices=["cuda:0"]):
            torch.manual_seed(3)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert both_states() == before


def test_fork_rng_can_be_off_or_for_the_host(both_states: Callable[[], list[Any]]) -> None:
    before = both_states()
    with torch.random.fork_rng(enabled=False):
        torch.manual_seed(3)
    assert both_states() != before
    torch.manual_seed(11)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
    assert torch.get_rng_state().tolist() == before[0]
    assert cuda.initial_seed() == 3
    with (
        pytest.raises(ValueError, match="knows the device types"),
        torch.random.fork_rng(device_type="tpu"),
    ):
        pass


def test_fork_rng_warns_once_of_many_devices() -> None:
    script = """
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                with torch.random.fork_rng():
                    torch.cuda.manual_seed_all(3)
        message, where = str(caught[0].message), caught[0].filename
        print(len(caught), "devices=[0]" in message, where == "<string>")
    """
    assert run_script(script, {"FLAMBEAU_VIRTUAL": "h200:2"}).lines == ["1 True True"]
