# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any, Self

from flambeau.runtime._device import device as device_type
from flambeau.runtime._tensor import Tensor

class Generator:
    def __init__(self, device: Any = None) -> None: ...
    @property
    def device(self) -> device_type: ...
    def manual_seed(self, seed: int) -> Self: ...
    def seed(self) -> int: ...
    def initial_seed(self) -> int: ...
    def get_state(self) -> Tensor: ...
    def set_state(self, _new_state: Tensor) -> Self: ...
    def get_offset(self) -> int: ...
    def set_offset(self, offset: int) -> Self: ...
    def philox_state(self, increment: int) -> tuple[Tensor, Tensor]: ...
    def clone_state(self) -> Generator: ...
    def graphsafe_get_state(self) -> Generator: ...
    def graphsafe_set_state(self, _new_state: Generator) -> Self: ...
    def _begin_capture(self, seed_address: int, offset_address: int) -> None:
        """Have kernels read seed and offset from device memory until `_end_capture`."""

    def _end_capture(self) -> int:
        """Go back to drawing; by how much one replay advances the offset."""

default_generator: Generator
"""The generator of the CPU."""

def checked_seed(seed: Any) -> int:
    """A seed as an int from 0 to 2**64 - 1; what `int` takes is taken.

    Raises
    ------
    ValueError
        It is below -2**63 or above 2**64 - 1, or no number.
    """

def random_seed(bits: int = 64) -> int:
    """A seed from the operating system."""

def set_joiner(join: Callable[[Generator], object]) -> None:
    """Set what makes a generator part of the capture that draws from it first."""

def default_cuda_generators() -> tuple[Generator, ...]:
    """The default generator of each CUDA device; none before CUDA is initialised."""
