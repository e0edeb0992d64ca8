# SPDX-License-Identifier: Apache-2.0
"""Seeds and states of the random number generators: the CPU's, and all GPUs' where it says so."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

from flambeau.runtime._generator import Generator, checked_seed, default_generator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flambeau.runtime._tensor import Tensor

__all__ = [
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]

_warned_of_many_devices = False


def manual_seed(seed: Any) -> Generator:
    """Set the seed of the default generators of the CPU and of all GPUs.

    GPUs are not initialised for it: they get the seed when that happens.

    Parameters
    ----------
    seed
        What `int` makes a number from -2**63 to 2**64 - 1 of; negative ones in two's complement.

    Returns
    -------
    Generator
        The CPU's.

    Raises
    ------
    ValueError
        The seed is out of range.

    Examples
    --------
    >>> import flambeau as torch
    >>> g = torch.manual_seed(7)
    >>> torch.initial_seed()
    7
    """
    number = checked_seed(seed)
    _seed_all_gpus(number)
    return default_generator.manual_seed(number)


def _seed_all_gpus(number: int) -> None:
    from flambeau.cuda import random as cuda_random
    from flambeau.runtime import lazy_init

    if not lazy_init.in_bad_fork():
        cuda_random.manual_seed_all(number)


def seed() -> int:
    """Seed the default generators of the CPU and of all GPUs from the operating system.

    Returns
    -------
    int
        The seed.
    """
    number = default_generator.seed()
    _seed_all_gpus(number)
    return number


def initial_seed() -> int:
    """The seed that the CPU's default generator was given last."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the CPU's default generator, 5056 bytes; `torch.cuda.get_rng_state` for GPUs."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Have the CPU's default generator go on from a state that `get_rng_state` gave."""
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str = "cuda",
) -> Iterator[None]:
    """Put the default generators back to where they were, at the end of a block.

    Parameters
    ----------
    devices
        The GPUs to do this for, besides the CPU; by default all, with a warning once if there are
        several.
    enabled
        False makes the block an ordinary one.
    device_type
        ``"cuda"``.

    Raises
    ------
    ValueError
        There are no generators for that type of device.

    Examples
    --------
    >>> import flambeau as torch
    >>> g = torch.manual_seed(1)
    >>> with torch.random.fork_rng(devices=[0]):
    ...     x = torch.rand(3)
    >>> torch.equal(torch.rand(3), x)
    True
    """
    if device_type not in {"cuda", "cpu"}:
        raise ValueError(f"fork_rng() knows the device types 'cuda' and 'cpu', got {device_type!r}")
    if not enabled:
        yield
        return
    from flambeau import cuda

    chosen = [] if device_type == "cpu" else _devices_to_fork(devices, _caller, _devices_kw)
    host_state = default_generator.get_state()
    states = [cuda.get_rng_state(device) for device in chosen]
    try:
        yield
    finally:
        default_generator.set_state(host_state)
        for device, state in zip(chosen, states, strict=True):
            cuda.set_rng_state(state, device)


def _devices_to_fork(devices: Iterable[Any] | None, caller: str, keyword: str) -> list[Any]:
    global _warned_of_many_devices
    from flambeau import cuda

    if devices is not None:
        return list(devices)
    count = cuda.device_count()
    if count > 1 and not _warned_of_many_devices:
        _warned_of_many_devices = True
        warnings.warn(
            f"{caller} keeps the random state of all {count} GPUs, which initialises each of "
            f"them. Name those that the block draws on, as in {caller}({keyword}=[0]).",
            stacklevel=4,
        )
    return list(range(count))
