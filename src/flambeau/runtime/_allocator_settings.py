# SPDX-License-Identifier: Apache-2.0
"""The options of the allocators: their text, from the environment or at run time, and their effect.

The text is ``key:value,key:value``, with lists in brackets; spaces mean nothing. It counts as a
whole or not at all.
"""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flambeau.driver.errors import FlambeauError
from flambeau.runtime import _allocator, _state

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "AllocatorSettingsError",
    "Options",
    "Reserve",
    "current",
    "describe",
    "is_async",
    "parse",
    "prepare",
    "set_",
]

MIB = 1 << 20
GIB = 1 << 30
BACKENDS = ("native", "cudaMallocAsync")
VARIABLES = (
    "FLAMBEAU_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
)
NO_CACHING = "PYTORCH_NO_CUDA_MEMORY_CACHING"
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
_KEYS: dict[str, tuple[str | None, Callable[[_Reader, str], Any]]] = {
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
        if token.text not in _KEYS:
            raise reader.error(f"Unrecognized key {token.text!r} in the allocator options", token)
        reader.expect(":", token.text)
        name, read = _KEYS[token.text]
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


# --- in effect ----------------------------------------------------------------------------------

_current = Options()
_environment_read = False
_stream_classes: dict[int, str] = {}  # by the stream's handle


def current() -> Options:
    """The options in effect."""
    return _current


def prepare() -> None:
    """Take over the environment, before CUDA is initialised; raises each time until it is right."""
    _read_environment()
    _allocator.initialize_settings()


def set_(text: str) -> None:
    """Change the options at run time; see `parse` for the errors."""
    if not isinstance(text, str):
        raise TypeError(f"allocator options are a str, got {type(text).__name__}")
    _read_environment()
    options = parse(text, _current)
    if options.backend != _current.backend:
        raise RuntimeError(
            f"The allocator backend is fixed when CUDA's options are read: it is "
            f"{_current.backend} and cannot become {options.backend}. Set it in the environment, "
            f"PYTORCH_CUDA_ALLOC_CONF=backend:{options.backend}. None of these options was applied."
        )
    if _state.is_initialized() and (
        options.per_process_memory_fraction != _current.per_process_memory_fraction
    ):
        warnings.warn(
            "per_process_memory_fraction does not change the limits of devices that are in use; "
            "call torch.cuda.set_per_process_memory_fraction for that",
            UserWarning,
            stacklevel=3,
        )
    _apply(options)


def attach_class(stream: int, name: str | None) -> None:
    """Let a class of ``expandable_segments_reserve_by_class`` count for a stream; None for none."""
    _read_environment()
    if name is None:
        _stream_classes.pop(stream, None)
    else:
        _stream_classes[stream] = name
    _apply(_current)


def _stream_reserves(options: Options) -> list[tuple[int, float, int]]:
    reserves = dict(options.expandable_segments_reserve_by_class)
    return [
        (stream, reserves[name].share, reserves[name].bytes)
        for stream, name in _stream_classes.items()
        if name in reserves
    ]


def describe() -> dict[str, Any]:
    """The options as snapshots show them."""
    split = _current.max_split_size
    return {
        "PYTORCH_CUDA_ALLOC_CONF": _current.text,
        "max_split_size": -1 if split is None else split,
        "garbage_collection_threshold": _current.garbage_collection_threshold,
        "expandable_segments": _current.expandable_segments,
        "pinned_num_register_threads": _current.pinned_num_register_threads,
        "release_lock_on_cudamalloc": _current.release_lock_on_cudamalloc,
        "pinned_use_cuda_host_register": _current.pinned_use_cuda_host_register,
        "graph_capture_record_stream_reuse": _current.graph_capture_record_stream_reuse,
        "max_round_threshold": _or_unlimited(_current.pinned_max_round_threshold),
        "max_cached_size": _or_unlimited(_current.pinned_max_cached_size),
        "roundup_power2_divisions": {
            str(1 << interval): divisions
            for interval, divisions in enumerate(_current.roundup_power2_divisions)
        },
    }


def is_async() -> bool:
    """Whether the environment asks for the backend cudaMallocAsync."""
    _read_environment()
    return _current.backend == "cudaMallocAsync"


def warn_of_idle(option: str) -> None:
    """Warn of an option that is on and cannot do anything as the limits are."""
    reasons = {
        "garbage_collection_threshold": "it is a share of a limit, and no limit is set: call "
        "torch.cuda.set_per_process_memory_fraction with less than 1.0",
        "throw_on_cudamalloc_oom": "the device's limit is not above the configured "
        "per_process_memory_fraction, so that the limit comes first",
    }
    warnings.warn(f"{option} does nothing: {reasons[option]}", UserWarning, stacklevel=2)


def _or_unlimited(size: int | None) -> int:
    return (1 << 63) - 1 if size is None else size


def _read_environment() -> None:
    global _environment_read
    if _environment_read:
        return
    name = next((name for name in VARIABLES if os.environ.get(name)), None)
    if name is not None:
        options = parse(os.environ[name], origin=f"{name}=")
        _apply(options)
        if options.backend == "cudaMallocAsync":
            _install_async(os.environ[name])
    caching = os.environ.get(NO_CACHING)
    _environment_read = True
    if caching == "1":
        _allocator.set_caching(False)
    elif caching not in {None, "0"}:
        warnings.warn(
            f"{NO_CACHING}={caching!r} is ignored: only 1 (no caching) and 0 mean something",
            UserWarning,
            stacklevel=2,
        )


def _install_async(text: str) -> None:
    """Let the driver's pools serve, and warn of options that then do nothing."""
    from flambeau.runtime import _allocator_async

    _allocator_async.install()
    keys = {key for key in _KEYS if re.search(rf"(^|,)\s*{key}\s*:", text)}
    shared = ("backend", "per_process_memory_fraction")
    idle = sorted(key for key in keys if key not in shared and not key.startswith("pinned_"))
    if idle:
        warnings.warn(
            f"backend:cudaMallocAsync ignores {', '.join(idle)}: they are options of the native "
            "allocator",
            UserWarning,
            stacklevel=2,
        )


def _apply(options: Options) -> None:
    global _current
    rounding = options.max_non_split_rounding
    reserve = options.expandable_segments_reserve or Reserve()
    _allocator.configure(
        large_segment=options.large_segment_size,
        max_split_size=options.max_split_size,
        max_non_split_rounding=options.large_segment_size if rounding is None else rounding,
        garbage_threshold=options.garbage_collection_threshold,
        roundup_divisions=options.roundup_power2_divisions,
        reject_early=options.throw_on_cudamalloc_oom,
        configured_fraction=options.per_process_memory_fraction,
        expandable=options.expandable_segments,
        reserve_share=reserve.share,
        reserve_bytes=reserve.bytes,
        stream_reserves=_stream_reserves(options),
        reuse_in_capture=options.graph_capture_record_stream_reuse,
    )
    _allocator.configure_host(
        use_register=options.pinned_use_cuda_host_register,
        register_threads=options.pinned_num_register_threads,
        max_round_threshold=options.pinned_max_round_threshold,
        max_cached_size=options.pinned_max_cached_size,
        reserve_segment=options.pinned_reserve_segment_size,
        free_catch_all=options.pinned_free_catch_all,
        background=options.pinned_use_background_threads,
    )
    _current = options
