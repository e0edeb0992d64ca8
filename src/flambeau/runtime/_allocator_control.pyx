# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Settings of the allocators, and the figures that are asked for often."""
from libc.stdint cimport uintptr_t

from flambeau.runtime cimport _allocator, _state
from flambeau.runtime._allocator cimport (
    allocate_device, existing, host_settings, pinned_allocator, require_native, settings,
)
from flambeau.runtime._allocator_types cimport DeviceAllocator

from flambeau.runtime import _allocator as _module


def configure(
    *, large_segment=20 << 20, max_split_size=None, max_non_split_rounding=20 << 20,
    double garbage_threshold=0, roundup_divisions=(0,) * 16, bint reject_early=False,
    double configured_fraction=1.0,
):
    """Replace all settings; the caller has validated them."""
    _module.pause()
    settings.large_segment = large_segment
    settings.max_split_size = <size_t>-1 if max_split_size is None else <size_t>max_split_size
    settings.max_non_split_rounding = max_non_split_rounding
    settings.garbage_threshold = garbage_threshold
    settings.reject_early = reject_early
    settings.configured_fraction = configured_fraction
    for interval, divisions in enumerate(roundup_divisions):
        settings.roundup_divisions[interval] = divisions
    _module.resume()
    _allocator.idle_settings = garbage_threshold > 0 or reject_early


def configure_host(
    *, bint use_register=False, int register_threads=1, max_round_threshold=None,
    max_cached_size=None, size_t reserve_segment=0, bint free_catch_all=False,
):
    """Replace all settings of the pinned cache; the caller has validated them."""
    _module.pause()
    host_settings.use_register = use_register
    host_settings.register_threads = register_threads
    host_settings.max_round_threshold = (
        <size_t>-1 if max_round_threshold is None else <size_t>max_round_threshold)
    host_settings.max_cached_size = (
        <size_t>-1 if max_cached_size is None else <size_t>max_cached_size)
    host_settings.reserve_segment = reserve_segment
    host_settings.free_catch_all = free_catch_all
    _module.resume()


def host_allocator_address():
    """Where the pinned cache's own object is."""
    return <uintptr_t>pinned_allocator()


def initialize_settings():
    """Take note of settings that count as they are when CUDA is initialised."""
    _allocator.initial_fraction = settings.configured_fraction
    _allocator.initial_max_split_size = settings.max_split_size


def allocated_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    require_native("memory statistics")
    _state.note_call()
    return 0 if allocator == NULL else allocator.allocated_bytes().current


def max_allocated_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    require_native("memory statistics")
    _state.note_call()
    return 0 if allocator == NULL else allocator.allocated_bytes().peak


def reserved_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    require_native("memory statistics")
    _state.note_call()
    return 0 if allocator == NULL else allocator.reserved_bytes().current


def max_reserved_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    require_native("memory statistics")
    _state.note_call()
    return 0 if allocator == NULL else allocator.reserved_bytes().peak


def cycle_seconds(size_t nbytes, int device, int count):
    """Seconds that `count` cached allocations and frees take; for benchmarks."""
    cdef int i
    import time
    start = time.perf_counter()
    for i in range(count):
        allocate_device(device, nbytes, NULL).drop()
    return time.perf_counter() - start
