# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Settings of the allocators, and the figures that are asked for often."""
from libc.stdint cimport uintptr_t

from flambeau.driver._table cimport CUstream
from flambeau.runtime cimport _allocator, _state
from flambeau.runtime._allocator cimport (
    allocate_device, existing, pinned_allocator, require_native, settings,
)
from flambeau.runtime._allocator_types cimport (
    AllocatorSettings, DeviceAllocator, HostSettings, StreamReserve,
)

from flambeau.runtime import _allocator as _module


def configure(
    *, size_t large_segment=20 << 20, max_split_size=None, size_t max_non_split_rounding=20 << 20,
    double garbage_threshold=0, roundup_divisions=(0,) * 16, bint reject_early=False,
    double configured_fraction=1.0, bint expandable=False, double reserve_share=0,
    size_t reserve_bytes=0, stream_reserves=(), bint reuse_in_capture=False,
):
    """Replace all settings; the caller has validated them."""
    cdef AllocatorSettings new
    cdef StreamReserve of_stream
    new.large_segment = large_segment
    new.max_split_size = or_unlimited(max_split_size)
    new.max_non_split_rounding = max_non_split_rounding
    new.garbage_threshold = garbage_threshold
    new.reject_early = reject_early
    new.configured_fraction = configured_fraction
    new.expandable = expandable
    new.reserve_share = reserve_share
    new.reserve_bytes = reserve_bytes
    new.reuse_in_capture = reuse_in_capture
    for stream, share, nbytes in stream_reserves:
        of_stream.stream = <CUstream><uintptr_t>stream
        of_stream.share = share
        of_stream.bytes = nbytes
        new.stream_reserves.push_back(of_stream)
    for interval, divisions in enumerate(roundup_divisions):
        new.roundup_divisions[interval] = divisions
    _module.pause()
    _allocator.settings = new
    _module.resume()
    _allocator.idle_settings = garbage_threshold > 0 or reject_early


def configure_host(
    *, bint use_register=False, unsigned register_threads=1, max_round_threshold=None,
    max_cached_size=None, size_t reserve_segment=0, bint free_catch_all=False,
    bint background=False,
):
    """Replace all settings of the pinned cache; the caller has validated them."""
    cdef HostSettings new
    new.use_register = use_register
    new.register_threads = register_threads
    new.max_round_threshold = or_unlimited(max_round_threshold)
    new.max_cached_size = or_unlimited(max_cached_size)
    new.reserve_segment = reserve_segment
    new.free_catch_all = free_catch_all
    new.background = background
    _module.pause()
    _allocator.host_settings = new
    _module.resume()
    _module.watch_pinned()


cdef size_t or_unlimited(size) except? 0:
    return <size_t>-1 if size is None else <size_t>size


def host_allocator_address():
    """Where the pinned cache's own object is."""
    return <uintptr_t>pinned_allocator()


def initialize_settings():
    """Take note of settings that count as they are when CUDA is initialised."""
    _allocator.initial_fraction = settings.configured_fraction
    _allocator.initial_max_split_size = settings.max_split_size


cdef object async_module():
    from flambeau.runtime import _allocator_async
    return _allocator_async


def allocated_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    if _allocator.allocate_async != NULL:
        return async_module().used(device)
    require_native("memory statistics")
    _state.note_call()
    return 0 if allocator == NULL else allocator.allocated_bytes().current


def max_allocated_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    if _allocator.allocate_async != NULL:
        return async_module().used(device, True)
    require_native("memory statistics")
    _state.note_call()
    return 0 if allocator == NULL else allocator.allocated_bytes().peak


def reserved_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    if _allocator.allocate_async != NULL:
        return async_module().reserved(device)
    require_native("memory statistics")
    _state.note_call()
    return 0 if allocator == NULL else allocator.reserved_bytes().current


def max_reserved_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    if _allocator.allocate_async != NULL:
        return async_module().reserved(device, True)
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
