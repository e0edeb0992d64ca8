# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

from flambeau.runtime._dtype import dtype
from flambeau.runtime._generator import Generator
from flambeau.runtime._tensor import Tensor

def grid_threads(device: int, count: int) -> int:
    """Threads of the logical grid that draws `count` numbers on a device; 256 to a block."""

def draw(generator: Generator | None, device: int, increment: int) -> bytes:
    """Take draws of a CUDA generator for a kernel of ours.

    Parameters
    ----------
    generator
        None is the device's default one.
    device
        The index of the CUDA device.
    increment
        How many 32-bit numbers each thread may draw; rounded up to a multiple of 4.

    Returns
    -------
    bytes
        The ``Philox`` of random.cuh.
    """

class RandomFill:
    """A distribution that fills tensors in place, on the host and on CUDA devices.

    Parameters
    ----------
    name
        ``uniform``, ``normal``, ``log_normal``, ``exponential``, ``cauchy``, ``geometric``,
        ``bernoulli``, ``random32`` or ``random64``.
    compile
        ``compile(fill, device, scalar_type, strided)`` gives the ``CUfunction`` for an element type;
        it is asked once per combination.
    """

    def __init__(self, name: str, compile: Callable[[RandomFill, int, int, bool], int]) -> None: ...
    @property
    def name(self) -> str: ...
    def __call__(
        self,
        target: Tensor,
        generator: Any = None,
        a: float = 0,
        b: float = 0,
        range: int = 0,
        base: int = 0,
    ) -> Tensor:
        """Fill a tensor, in the order of its memory, and return it.

        Parameters
        ----------
        target
            A complex one is filled as pairs of real numbers.
        generator
            None is the default one of the tensor's device.
        a, b
            The distribution's parameters: low and high, mean and deviation, rate, median and scale,
            probability.
        range, base
            Of ``random32`` and ``random64``: ``base + word mod range``; range 0 is the word itself.

        Raises
        ------
        RuntimeError
            The generator is of another kind of device, or elements of the tensor share memory.
        """

def rand(
    *shape: Any,
    size: Any = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor: ...
def randn(
    *shape: Any,
    size: Any = None,
    generator: Generator | None = None,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor: ...
def bernoulli_on_host(out: Tensor, p: Tensor, generator: Generator | None = None) -> Tensor:
    """Fill `out` with 1 where a uniform number is below `p` (float32 or float64), else 0."""

def permute_on_host(n: int, generator: Generator | None = None) -> Tensor:
    """0 to n - 1 in random order, int64."""

def choose_on_host(out: Tensor, weights: Tensor, generator: Generator | None = None) -> Tensor:
    """Fill each row of `out` (int64) with positions drawn by the weights of that row."""

def poisson_on_host(out: Tensor, rates: Tensor, generator: Generator | None = None) -> Tensor:
    """Fill `out` with numbers of events by `rates`; both float64."""
