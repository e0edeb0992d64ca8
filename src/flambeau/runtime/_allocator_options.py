# SPDX-License-Identifier: Apache-2.0
"""The options of the allocators, as a text says them: what there is, and how it is read.

The text is ``key:value,key:value``, with lists in brackets; spaces mean nothing. It counts as a
whole or not at all.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flambeau.driver.errors import FlambeauError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "KEYS",
    "AllocatorSettingsError",
    "Options",
    "Reserve",
    "parse",
]

MIB = 1 << 20
GIB = 1 << 30
BACKENDS = ("native", "cudaMallocAsync")
INTERVALS = 16


class AllocatorSettingsError(FlambeauError, ValueError, RuntimeError):
    """A text of allocator options is wrong; the message says where. Nothing of it was applied."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """How many addresses a segment reserves: bytes, or a share of the device's memory."""

    share: float = 0.0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Options:
    """What a text of options says; sizes in bytes, None for no limit."""

    max_split_size: int | None = None
    max_non_split_rounding: int | None = None
    garbage_collection_threshold: float = 0.0
    roundup_power2_divisions: tuple[int, ...] = (0,) * INTERVALS
    large_segment_size: int = 20 * MIB
    per_process_memory_fraction: float = 1.0
    throw_on_cudamalloc_oom: bool = False
    backend: str = "native"
    expandable_segments: bool = False
    expandable_segments_reserve: Reserve | None = None
    expandable_segments_reserve_by_class: tuple[tuple[str, Reserve], ...] = ()
    graph_capture_record_stream_reuse: bool = False
    release_lock_on_cudamalloc: bool = False
    pinned_use_cuda_host_register: bool = False
    pinned_num_register_threads: int = 1
    pinned_reserve_segment_size: int = 0
    pinned_max_round_threshold: int | None = None
    pinned_max_cached_size: int | None = None
    pinned_free_catch_all: bool = False
    pinned_use_background_threads: bool = False
    text: str = field(default="", compare=False)


_RESET_BY_EACH_TEXT = (
    "max_split_size",
    "max_non_split_rounding",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    position: int


class _Reader:
    """Goes through a text of options token by token."""

    def __init__(self, text: str, origin: str) -> None:
        self.text = text
        self.origin = origin
        self._tokens = [
            _Token(found.group(), found.start())
            for found in re.finditer(r"[,:\[\]]|[^\s,:\[\]]+", text)
        ]
        self._next = 0

    def peek(self) -> str:
        return self._tokens[self._next].text if self._next < len(self._tokens) else ""

    def take(self) -> _Token:
        if self._next == len(self._tokens):
            return _Token("", len(self.text))
        self._next += 1
        return self._tokens[self._next - 1]

    def expect(self, punctuation: str, after: str) -> None:
        token = self.take()
        if token.text != punctuation:
            raise self.error(f"Expected {punctuation!r} after {after}", token)

    def value(self, key: str) -> _Token:
        token = self.take()
        if token.text in {"", ",", ":", "[", "]"}:
            raise self.error(f"Missing value of {key}", token)
        return token

    def error(self, problem: str, token: _Token) -> AllocatorSettingsError:
        found = f"found {token.text!r}" if token.text else "the text ends"
        return AllocatorSettingsError(
            f"{problem}: {found} at position {token.position} of {self.origin}{self.text!r}. "
            "None of these options was applied."
        )


# --- values -------------------------------------------------------------------------------------


def _boolean(reader: _Reader, key: str) -> bool:
    token = reader.value(key)
    if token.text not in {"True", "False"}:
        raise reader.error(f"Expected 'True' or 'False' for {key}", token)
    return token.text == "True"


def _number(reader: _Reader, key: str) -> tuple[float, _Token]:
    """A number, of which what follows its digits is ignored."""
    token = reader.value(key)
    found = re.match(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf)", token.text, re.I)
    if not found:
        raise reader.error(f"Expected a number for {key}", token)
    return float(found.group()), token


def _integer(reader: _Reader, key: str) -> tuple[int, _Token]:
    token = reader.value(key)
    found = re.match(r"[+-]?\d+", token.text)
    if not found:
        raise reader.error(f"Expected a whole number for {key}", token)
    number = int(found.group())
    if number < 0:
        raise reader.error(f"{key} must not be negative; leave it out for no limit", token)
    return number, token


def _mebibytes(reader: _Reader, key: str) -> int:
    return _integer(reader, key)[0] * MIB


def _positive_mebibytes(reader: _Reader, key: str) -> int:
    number, token = _integer(reader, key)
    if number == 0:
        raise reader.error(f"{key} must be greater than 0", token)
    return number * MIB


def _large_segment(reader: _Reader, key: str) -> int:
    number, token = _integer(reader, key)
    if number <= 10:
        raise reader.error(f"{key} too small, it must be greater than 10", token)
    return number * MIB


def _threshold(reader: _Reader, key: str) -> float:
    number, token = _number(reader, key)
    if not 0 < number < 1:
        raise reader.error(f"{key} must be between 0 and 1, both excluded", token)
    return number


def _fraction(reader: _Reader, key: str) -> float:
    number, token = _number(reader, key)
    if not 0 <= number <= 1:
        raise reader.error(f"{key} must be from 0 to 1", token)
    return number


def _register_threads(reader: _Reader, key: str) -> int:
    number, token = _integer(reader, key)
    if not _is_power_of_two(number) or number > 128:
        raise reader.error(f"{key} must be a power of two up to 128", token)
    return number


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _divisions(reader: _Reader, key: str) -> tuple[int, ...]:
    if reader.peek() != "[":
        number, token = _integer(reader, key)
        if not _is_power_of_two(number):
            raise reader.error(f"{key} must be a power of two", token)
        return (number,) * INTERVALS
    reader.take()
    result = [0] * INTERVALS
    last = -1
    while reader.peek() != "]":
        interval = _interval(reader, key, last)
        reader.expect(":", f"a size of {key}")
        number, token = _integer(reader, key)
        if number and not _is_power_of_two(number):
            raise reader.error(f"the divisions of {key} are powers of two or 0", token)
        if interval is None:
            result[max(last, 0) + 1 :] = [number] * (INTERVALS - 1 - max(last, 0))
        else:
            result[0 if last < 0 else interval : interval + 1] = [number] * (
                interval + 1 if last < 0 else 1
            )
            last = interval
        if reader.peek() == ",":
            reader.take()
        elif reader.peek() != "]":
            raise reader.error(f"Unclosed list of {key}", reader.take())
    reader.take()
    return tuple(result)


def _interval(reader: _Reader, key: str, last: int) -> int | None:
    """The interval that a size in MiB starts, or None for all behind the last one."""
    if reader.peek() == ">":
        reader.take()
        return None
    size, token = _integer(reader, key)
    if not _is_power_of_two(size):
        raise reader.error(f"the sizes of {key} are powers of two or '>'", token)
    interval = min(size.bit_length() - 1, INTERVALS - 1)
    if interval <= last:
        raise reader.error(f"the sizes of {key} must increase", token)
    return interval


def _backend(reader: _Reader, key: str) -> str:
    token = reader.value(key)
    if token.text not in BACKENDS:
        raise reader.error(
            f"Unknown allocator backend, the options are {' and '.join(BACKENDS)}", token
        )
    return token.text


def _reserve(reader: _Reader, key: str) -> Reserve | None:
    """A share of the device, or gibibytes with a G; what is neither is ignored with a warning."""
    token = reader.value(key)
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?(G?)", token.text)
    number = float(found.group(1) + (found.group(2) or "")) if found else 0.0
    if found is None or not 0 < number < float("inf"):
        warnings.warn(
            f"{key}:{token.text} is ignored: it is a share of the device's memory greater than 0, "
            "such as 1.5, or gibibytes, such as 64G",
            UserWarning,
            stacklevel=2,
        )
        return None
    return Reserve(bytes=int(number * GIB)) if found.group(3) else Reserve(share=number)


def _reserve_by_class(reader: _Reader, key: str) -> tuple[tuple[str, Reserve], ...]:
    if reader.peek() != "[":
        raise reader.error(f"Expected a list for {key}", reader.take())
    reader.take()
    result: list[tuple[str, Reserve]] = []
    while reader.peek() != "]":
        name = reader.value(key).text
        reader.expect(":", f"a class of {key}")
        if (reserve := _reserve(reader, key)) is not None:
            result.append((name, reserve))
        if reader.peek() == ",":
            reader.take()
        elif reader.peek() != "]":
            raise reader.error(f"Unclosed list of {key}", reader.take())
    reader.take()
    return tuple(result)


# The table of keys: the field of Options that it sets, if any, and who reads the value.
KEYS: dict[str, tuple[str | None, Callable[[_Reader, str], Any]]] = {
    "backend": ("backend", _backend),
    "max_split_size_mb": ("max_split_size", _mebibytes),
    "max_non_split_rounding_mb": ("max_non_split_rounding", _mebibytes),
    "large_segment_size_mb": ("large_segment_size", _large_segment),
    "garbage_collection_threshold": ("garbage_collection_threshold", _threshold),
    "roundup_power2_divisions": ("roundup_power2_divisions", _divisions),
    "expandable_segments": ("expandable_segments", _boolean),
    "expandable_segments_reserve": ("expandable_segments_reserve", _reserve),
    "expandable_segments_reserve_by_class": (
        "expandable_segments_reserve_by_class",
        _reserve_by_class,
    ),
    "release_lock_on_cudamalloc": ("release_lock_on_cudamalloc", _boolean),
    "release_lock_on_hipmalloc": ("release_lock_on_cudamalloc", _boolean),
    "graph_capture_record_stream_reuse": ("graph_capture_record_stream_reuse", _boolean),
    "per_process_memory_fraction": ("per_process_memory_fraction", _fraction),
    "throw_on_cudamalloc_oom": ("throw_on_cudamalloc_oom", _boolean),
    "pinned_use_cuda_host_register": ("pinned_use_cuda_host_register", _boolean),
    "pinned_use_hip_host_register": ("pinned_use_cuda_host_register", _boolean),
    "pinned_num_register_threads": ("pinned_num_register_threads", _register_threads),
    "pinned_use_background_threads": ("pinned_use_background_threads", _boolean),
    "pinned_reserve_segment_size_mb": ("pinned_reserve_segment_size", _positive_mebibytes),
    "pinned_max_round_threshold_mb": ("pinned_max_round_threshold", _mebibytes),
    "pinned_max_cached_size_mb": ("pinned_max_cached_size", _mebibytes),
    "pinned_free_catch_all": ("pinned_free_catch_all", _boolean),
}


# --- the text -----------------------------------------------------------------------------------


def parse(text: str, before: Options | None = None, origin: str = "") -> Options:
    """Read a text of options.

    Parameters
    ----------
    text
        The options.
    before
        What the text does not mention stays as it is here, except splitting, rounding and the
        garbage threshold: these go back to their defaults.
    origin
        What to write before the text in a message, such as ``"PYTORCH_ALLOC_CONF="``.

    Raises
    ------
    AllocatorSettingsError
        The text is wrong; the message tells the position.
    """
    reader = _Reader(text, origin)
    defaults = Options()
    values: dict[str, Any] = {name: getattr(defaults, name) for name in _RESET_BY_EACH_TEXT}
    at: dict[str, _Token] = {}
    while reader.peek():
        token = reader.take()
        if token.text not in KEYS:
            raise reader.error(f"Unrecognized key {token.text!r} in the allocator options", token)
        reader.expect(":", token.text)
        name, read = KEYS[token.text]
        value = read(reader, token.text)
        if name is not None:
            values[name] = value
            at[name] = token
        if reader.peek():
            reader.expect(",", f"the value of {token.text}")
    options = replace(before or defaults, **values, text=text)
    for name in ("max_split_size", "max_non_split_rounding"):
        size = getattr(options, name)
        if size is not None and size < options.large_segment_size:
            raise reader.error(
                f"{name}_mb too small, it must be at least the {options.large_segment_size // MIB} "
                "of large_segment_size_mb",
                at[name] if name in at else _Token("", 0),
            )
    return options
