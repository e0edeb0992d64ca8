# SPDX-License-Identifier: Apache-2.0
"""Which GPUs of the machine this process sees: the one reader of ``CUDA_VISIBLE_DEVICES``.

An *ordinal* is what programs use: 0 to ``device_count() - 1``. An *index* is the management
library's number of a GPU in the machine. This module maps the one to the other.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["MAX_VISIBLE", "VARIABLE", "is_bare_prefix", "is_mig", "parse", "read", "resolve"]

VARIABLE = "CUDA_VISIBLE_DEVICES"
MAX_VISIBLE = 64
"""How many devices are listed when the variable does not say."""

T = TypeVar("T")

_LEADING_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UUID_PREFIXES = ("GPU-", "MIG-")


def read() -> str | None:
    """The variable as it is now, or None when it is not set."""
    return os.environ.get(VARIABLE)


def parse(value: str | None) -> list[int] | list[str]:
    """What a value of ``CUDA_VISIBLE_DEVICES`` lists, before the machine is asked.

    Parameters
    ----------
    value
        The variable's text; None when it is not set.

    Returns
    -------
    list
        Machine indices, or the beginnings of UUIDs when the text starts with ``GPU-`` or ``MIG-``.
        Reading stops at the first entry of another form. An entry that comes twice makes
        the whole list empty.

    Examples
    --------
    >>> parse("2, +3, -0, 5")
    [2, 3, 0, 5]
    >>> parse("0, 1, 2, -1, 3")
    [0, 1, 2]
    >>> parse("GPU-9e2c,GPU-77,1")
    ['GPU-9e2c', 'GPU-77']
    """
    if value is None:
        return list(range(MAX_VISIBLE))
    entries = [entry.strip() for entry in value.split(",")]
    for prefix in _UUID_PREFIXES:
        if value.startswith(prefix):
            return _without_repeats(_leading_uuids(entries, prefix))
    return _without_repeats(_leading_integers(entries))


def resolve(value: str | None, count: int, uuid: Callable[[int], str]) -> list[int]:
    """The machine index of each ordinal.

    Parameters
    ----------
    value
        The variable's text; None when it is not set.
    count
        How many GPUs the machine has.
    uuid
        Gives the UUID of an index, ``GPU-`` and 36 characters. Only called for lists of UUIDs.

    Returns
    -------
    list of int
        Element `i` is the index of ordinal `i`. The list ends before the first entry that names
        no GPU, or more than one.
    """
    entries = parse(value)
    if is_mig(entries):
        return []
    known = [uuid(index) for index in range(count)] if _are_uuids(entries) else []
    found: list[int] = []
    for entry in entries:
        index = _unique_match(entry, known) if isinstance(entry, str) else entry
        if index is None or index >= count:
            break
        found.append(index)
    return _without_repeats(found)


def is_mig(entries: Sequence[int] | Sequence[str]) -> bool:
    """Whether a parsed list names MIG instances, which the management library cannot count."""
    return bool(entries) and isinstance(entries[0], str) and entries[0].startswith("MIG-")


def is_bare_prefix(value: str | None) -> bool:
    """Whether a value begins with ``GPU-`` or ``MIG-`` and no digit of a UUID after it."""
    return value is not None and value.split(",")[0].strip() in _UUID_PREFIXES


def _are_uuids(entries: Sequence[int] | Sequence[str]) -> bool:
    return bool(entries) and isinstance(entries[0], str)


def _leading_uuids(entries: list[str], prefix: str) -> list[str]:
    found = []
    for entry in entries:
        if not entry.startswith(prefix):
            break
        found.append(entry)
    return found


def _leading_integers(entries: list[str]) -> list[int]:
    found = []
    for entry in entries:
        match = _LEADING_INTEGER.match(entry)
        if match is None or int(match[0]) < 0:
            break
        found.append(int(match[0]))
    return found


def _without_repeats(entries: list[T]) -> list[T]:
    return entries if len(set(entries)) == len(entries) else []


def _unique_match(prefix: str, uuids: Sequence[str]) -> int | None:
    matches = [index for index, text in enumerate(uuids) if text.startswith(prefix)]
    return matches[0] if len(matches) == 1 else None


def _parse_visible_devices() -> list[int] | list[str]:
    """What ``CUDA_VISIBLE_DEVICES`` lists now, before the machine is asked."""
    return parse(read())
