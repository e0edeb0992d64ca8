# SPDX-License-Identifier: Apache-2.0
"""What deterministic mode does with memory that nobody has written: ``torch.utils.deterministic``.

``fill_uninitialized_memory`` says whether `empty`, `empty_like`, `empty_strided` and `new_empty`
fill what they make while `flambeau.use_deterministic_algorithms` is on: with NaN, True, or the
greatest integer. It is True at first.
"""

from __future__ import annotations

import sys
from types import ModuleType

from flambeau.ops import determinism

__all__ = ["fill_uninitialized_memory"]  # noqa: F822 - a property of the module


class _Deterministic(ModuleType):
    """A module whose one name is a setting."""

    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether new memory is filled in deterministic mode."""
        return determinism.get_fill()

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, fill: bool) -> None:
        determinism.set_fill(fill)


sys.modules[__name__].__class__ = _Deterministic
