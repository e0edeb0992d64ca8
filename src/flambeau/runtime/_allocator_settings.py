# SPDX-License-Identifier: Apache-2.0
"""The options of the allocators in effect: from the environment, or set at run time."""

from __future__ import annotations

import os
import re
import warnings
from typing import Any

from flambeau.runtime import _allocator, _state
from flambeau.runtime._allocator_options import KEYS, Options, Reserve, parse

__all__ = [
    "attach_class",
    "current",
    "describe",
    "is_async",
    "prepare",
    "set_",
]

VARIABLES = (
    "FLAMBEAU_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
)
NO_CACHING = "PYTORCH_NO_CUDA_MEMORY_CACHING"

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
    keys = {key for key in KEYS if re.search(rf"(^|,)\s*{key}\s*:", text)}
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
