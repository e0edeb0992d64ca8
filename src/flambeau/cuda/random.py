# SPDX-License-Identifier: Apache-2.0
"""Seeds and states of the GPUs' default random number generators.

`manual_seed` seeds one GPU, the current one; `manual_seed_all` seeds all of them, and so does
`torch.manual_seed`. Calls before CUDA is initialised wait for that moment; of those that seed only
the latest of each kind counts.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from flambeau.runtime import _cuda_device, lazy_init
from flambeau.runtime._generator import checked_seed, default_cuda_generators, random_seed
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flambeau.cuda._utils import DeviceArgument
    from flambeau.runtime._generator import Generator

__all__ = [
    "default_generators",  # noqa: F822 - the module's __getattr__ answers
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def __getattr__(name: str) -> tuple[Generator, ...]:
    # They come into being when CUDA is initialised.
    if name == "default_generators":
        return default_cuda_generators()
    raise AttributeError(f"module 'flambeau.cuda.random' has no attribute {name!r}")


def _generator_of(device: DeviceArgument) -> Generator:
    index = _cuda_device.index_of(device, optional=True)
    generators = default_cuda_generators()
    if not 0 <= index < len(generators):
        raise IndexError(
            f"device {index} has no random number generator: this process sees "
            f"{len(generators)} devices, numbered from 0"
        )
    return generators[index]


def get_rng_state(device: DeviceArgument = "cuda") -> Tensor:
    """The state of a GPU's default generator. Initialises CUDA.

    Parameters
    ----------
    device
        Which; by default the current one.

    Returns
    -------
    Tensor
        16 bytes on the CPU, uint8: seed and offset, little endian.

    Raises
    ------
    IndexError
        There is no such device.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.manual_seed(42)
    >>> torch.cuda.get_rng_state()[:4].tolist()
    [42, 0, 0, 0]
    """
    lazy_init.lazy_init()
    return _generator_of(device).get_state()


def get_rng_state_all() -> list[Tensor]:
    """The states of all GPUs' default generators, by index. Initialises CUDA.

    Examples
    --------
    >>> import flambeau as torch
    >>> len(torch.cuda.get_rng_state_all()) == torch.cuda.device_count()
    True
    """
    lazy_init.lazy_init()
    return [generator.get_state() for generator in default_cuda_generators()]


def _get_rng_state_offset(device: DeviceArgument = "cuda") -> int:
    """How many numbers each thread has drawn from a GPU's default generator since its seed."""
    lazy_init.lazy_init()
    return _generator_of(device).get_offset()


def _set_rng_state_offset(offset: int, device: DeviceArgument = "cuda") -> None:
    """Go to that place, a multiple of 4, in the stream of a GPU's default generator."""
    lazy_init.lazy_call(lambda: _generator_of(device).set_offset(offset))


def set_rng_state(new_state: Tensor, device: DeviceArgument = "cuda") -> None:
    """Have a GPU's default generator go on from a state.

    Before CUDA is initialised a copy of the state waits for that moment.

    Parameters
    ----------
    new_state
        What `get_rng_state` gave; 8 bytes with a seed alone set the offset to 0.
    device
        Which; by default the one that is current when the state is set.

    Raises
    ------
    TypeError
        The state is no uint8 tensor on the CPU.
    RuntimeError
        It has another size, or the offset in it is no multiple of 4.
    IndexError
        There is no such device.

    Examples
    --------
    >>> import flambeau as torch
    >>> state = torch.cuda.get_rng_state()
    >>> first = torch.rand(3, device="cuda")
    >>> torch.cuda.set_rng_state(state)
    >>> torch.equal(torch.rand(3, device="cuda"), first)
    True
    """
    if not isinstance(new_state, Tensor):
        raise TypeError(f"expected a torch.ByteTensor, but got {type(new_state).__name__}")
    kept = new_state.clone()
    if not kept.is_contiguous():
        kept = kept.contiguous()
    lazy_init.lazy_call(lambda: _generator_of(device).set_state(kept))


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Set the states of the GPUs' default generators, by index; see `set_rng_state`.

    Examples
    --------
    >>> import flambeau as torch
    >>> states = torch.cuda.get_rng_state_all()
    >>> torch.cuda.manual_seed_all(3)
    >>> torch.cuda.set_rng_state_all(states)
    >>> torch.equal(torch.cuda.get_rng_state(), states[0])
    True
    """
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: Any) -> None:
    """Set the seed of the current GPU's default generator; `manual_seed_all` does all GPUs'.

    Without a GPU, or before CUDA is initialised, nothing happens yet: the device that is current
    at initialisation gets the seed.

    Parameters
    ----------
    seed
        What `int` makes a number from -2**63 to 2**64 - 1 of; negative ones in two's complement.

    Raises
    ------
    ValueError
        The seed is out of range.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.manual_seed(0)
    >>> torch.rand(1, device="cuda")
    tensor([0.3990], device='cuda:0')
    """
    number = checked_seed(seed)
    lazy_init.lazy_call(lambda: _generator_of(None).manual_seed(number), seed=True)


def _seed_each(number: int) -> None:
    for generator in default_cuda_generators():
        generator.manual_seed(number)


def manual_seed_all(seed: Any) -> None:
    """Set the seed of all GPUs' default generators; see `manual_seed`.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.manual_seed_all(3)
    >>> torch.cuda.initial_seed()
    3
    """
    lazy_init.lazy_call(functools.partial(_seed_each, checked_seed(seed)), seed_all=True)


def seed() -> None:
    """Seed the current GPU's default generator from the operating system, with 53 bits.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.seed()
    >>> 0 <= torch.cuda.initial_seed() < 2**53
    True
    """
    lazy_init.lazy_call(lambda: _generator_of(None).seed())


def seed_all() -> None:
    """Seed all GPUs' default generators from the operating system, all with one seed.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.seed_all()
    >>> len({generator.initial_seed() for generator in torch.cuda.default_generators})
    1
    """
    lazy_init.lazy_call(lambda: _seed_each(random_seed(53)))


def initial_seed() -> int:
    """The seed that the current GPU's default generator was given last. Initialises CUDA.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.manual_seed(5)
    >>> torch.cuda.initial_seed()
    5
    """
    lazy_init.lazy_init()
    return _generator_of(None).initial_seed()
