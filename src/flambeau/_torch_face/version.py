# SPDX-License-Identifier: Apache-2.0
"""The type of ``torch.__version__``."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["TorchVersion"]

_LEADING_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


class TorchVersion(str):
    """A version string whose order is that of its numbers, against strings and tuples.

    Only the release counts: what follows it (``"+flambeau.0.1.0"``, ``"rc1"``) is ignored.

    Examples
    --------
    >>> TorchVersion("2.15.0+flambeau.0.1.0") >= "2.4"
    True
    >>> TorchVersion("2.15.0") < (3, 0)
    True
    >>> print(TorchVersion("2.15.0"))
    2.15.0
    """

    __slots__ = ()

    def __lt__(self, other: Any) -> bool:
        return _release(self) < _release(other)

    def __le__(self, other: Any) -> bool:
        return _release(self) <= _release(other)

    def __gt__(self, other: Any) -> bool:
        return _release(self) > _release(other)

    def __ge__(self, other: Any) -> bool:
        return _release(self) >= _release(other)


def _release(version: object) -> tuple[int, ...]:
    """The numbers of a version without trailing zeros."""
    if isinstance(version, str):
        match = _LEADING_NUMBERS.match(version)
        numbers = [int(part) for part in match[0].split(".")] if match else []
    elif isinstance(version, tuple):
        numbers = [int(part) for part in version]
    else:
        raise TypeError(
            f"a version compares with a string or a tuple of numbers, not {type(version).__name__}"
        )
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
