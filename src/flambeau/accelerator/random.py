# SPDX-License-Identifier: Apache-2.0
"""Device-neutral questions to the default generators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.accelerator._devices import index_of, require_accelerator
from flambeau.cuda import random

if TYPE_CHECKING:
    from flambeau.cuda._utils import DeviceArgument
    from flambeau.runtime._tensor import Tensor

__all__ = ["get_rng_state", "get_rng_state_all", "initial_seed"]


def initial_seed(device: DeviceArgument = None, /) -> int:
    """The seed in force on a GPU; None is the current one.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.manual_seed(7)
    >>> torch.accelerator.random.initial_seed()
    7
    """
    return random._generator_of(index_of(device)).initial_seed()


def get_rng_state(device: DeviceArgument = None, /) -> Tensor:
    """The state of a GPU's generator, as bytes on the host; None is the current one.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.equal(torch.accelerator.random.get_rng_state(), torch.cuda.get_rng_state())
    True
    """
    return random.get_rng_state(index_of(device))


def get_rng_state_all() -> list[Tensor]:
    """The states of all GPUs' generators.

    Examples
    --------
    >>> import flambeau as torch
    >>> len(torch.accelerator.random.get_rng_state_all()) == torch.accelerator.device_count()
    True
    """
    require_accelerator()
    return random.get_rng_state_all()
