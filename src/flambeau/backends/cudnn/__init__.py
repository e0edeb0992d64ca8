# SPDX-License-Identifier: Apache-2.0
"""Switches of cuDNN: ``torch.backends.cudnn``.

flambeau does not use cuDNN. The switches are there because programs set them: precisions are kept
and take part in how float32 precision resolves, the others have no effect.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from flambeau.backends import _precision

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "allow_tf32",
    "benchmark",
    "benchmark_limit",
    "conv",
    "deterministic",
    "enabled",
    "flags",
    "fp32_precision",
    "is_available",
    "rnn",
    "version",
]

enabled: bool = True
benchmark: bool = False
benchmark_limit: int = 10
deterministic: bool = False


class _Operation:
    """The precision of one kind of operation.

    Parameters
    ----------
    name
        ``"conv"`` or ``"rnn"``.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def fp32_precision(self) -> str:
        """``"none"``, ``"ieee"`` or ``"tf32"``; the latter by default."""
        return _precision.get_precision("cuda", self._name)

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        _precision.set_precision("cuda", self._name, precision)


conv = _Operation("conv")
"""Convolutions."""
rnn = _Operation("rnn")
"""Recurrent layers."""


def is_available() -> bool:
    """Whether cuDNN is used: no.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cudnn.is_available()
    False
    """
    return False


def version() -> int | None:
    """Give cuDNN's version: None, there is none.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.backends.cudnn.version() is None
    True
    """
    return None


@contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
    fp32_precision: str = "none",
) -> Iterator[None]:
    """Set the switches for the time of a ``with`` block.

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.backends.cudnn.flags(enabled=True, deterministic=True):
    ...     torch.backends.cudnn.deterministic
    True
    >>> torch.backends.cudnn.deterministic
    False
    """
    module = sys.modules[__name__]
    names = ("enabled", "benchmark", "benchmark_limit", "deterministic")
    before = {name: getattr(module, name) for name in names}
    given = (enabled, benchmark, benchmark_limit, deterministic)
    state = _precision.saved()
    for name, value in zip(names, given, strict=True):
        setattr(module, name, value)
    _precision.set_allow_cudnn_tf32(allow_tf32)
    _precision.set_precision("cuda", "all", fp32_precision)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)
        _precision.restore(state)


class _Cudnn(ModuleType):
    """A module two of whose names are settings."""

    @property
    def allow_tf32(self) -> bool:
        """Whether convolutions and recurrent layers may use tf32; True at first."""
        return _precision.allow_cudnn_tf32()

    @allow_tf32.setter
    def allow_tf32(self, allow: bool) -> None:
        _precision.set_allow_cudnn_tf32(allow)

    @property
    def fp32_precision(self) -> str:
        """The precision of all of CUDA: ``"none"``, ``"ieee"`` or ``"tf32"``."""
        return _precision.get_precision("cuda", "all")

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        _precision.set_precision("cuda", "all", precision)


sys.modules[__name__].__class__ = _Cudnn
