# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The allocators' C++ classes, for the modules that are their Python face."""
from libc.stdint cimport int16_t, int64_t, uint32_t
from libcpp.vector cimport vector
from flambeau.driver._table cimport CUcontext, CUdeviceptr, CUresult, CUstream, DriverTable

cdef extern from "flambeau/runtime/storage.hpp" namespace "flambeau" nogil:
    cdef cppclass Storage:
        int64_t references
        char* data
        size_t bytes
        int16_t device
        bint pinned
        bint resizable
        uint32_t version
        void* owner
        void (*release)(Storage*) noexcept
        void retain()
        void drop()

cdef extern from "flambeau/runtime/stats.hpp" namespace "flambeau" nogil:
    cdef cppclass Stat:
        int64_t current, peak, allocated, freed
    cdef cppclass StatArray:
        Stat* of_ "of"
    cdef cppclass DeviceStats:
        StatArray allocation, segment, active, inactive_split
        StatArray allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes
        StatArray requested_bytes
        Stat oversize_allocations, oversize_segments
        int64_t alloc_retries, ooms, sync_all_streams, device_allocs, device_frees, oom_rejections
    ctypedef enum PoolKind:
        ALL_POOLS
        LARGE_POOL
        SMALL_POOL

cdef extern from "flambeau/runtime/block.hpp" namespace "flambeau" nogil:
    cdef cppclass StreamUse:
        CUcontext context
        CUstream stream
    cdef enum class BlockState:
        free
        allocated
        pending
    cdef cppclass Block(Storage):
        bint raw
        size_t size

cdef extern from "flambeau/runtime/pool.hpp" namespace "flambeau" nogil:
    cdef cppclass PoolId:
        int64_t first, second
    cdef cppclass AllocatorSettings:
        size_t large_segment, max_split_size, max_non_split_rounding
        double garbage_threshold
        unsigned* roundup_divisions

cdef extern from "flambeau/runtime/device_allocator.hpp" namespace "flambeau" nogil:
    cdef cppclass AllocationFailure:
        CUresult status
        size_t requested, segment_size, allocated, reserved, private_free, largest_free, limit
    cdef cppclass BlockInfo:
        CUdeviceptr address
        size_t size, requested
        BlockState state
    cdef cppclass SegmentInfo:
        CUdeviceptr address
        size_t size
        CUstream stream
        PoolKind kind
        PoolId pool
        vector[BlockInfo] blocks
    cdef cppclass DeviceAllocator:
        DeviceAllocator(int, const DriverTable*, const AllocatorSettings*)
        void set_context(CUcontext)
        Block* allocate_cached(size_t, CUstream)
        Block* allocate(size_t, CUstream, AllocationFailure*)
        void record_use(Block*, const StreamUse&)
        CUresult empty_cache()
        Block* claim_raw(CUdeviceptr)
        vector[SegmentInfo] snapshot()
        DeviceStats stats()
        Stat allocated_bytes()
        Stat reserved_bytes()
        void reset_peak()
        void reset_accumulated()
        void set_limit(size_t)
        size_t limit()
        void pause()
        void resume()
        void die()
        bint is_dead()
    bint owns_block "flambeau::DeviceAllocator::owns"(const Storage*)

cdef extern from "flambeau/runtime/host_allocator.hpp" namespace "flambeau" nogil:
    cdef cppclass HostBlock(Storage):
        pass
    cdef cppclass Timing:
        int64_t total, max, min, count
    cdef cppclass HostStats:
        Stat allocations, allocated_bytes, active_requests, active_bytes
        Timing alloc_time, free_time
    cdef cppclass PinnedAllocator:
        PinnedAllocator(const DriverTable*)
        HostBlock* allocate(size_t, CUresult*)
        void record_use(HostBlock*, const StreamUse&)
        CUresult empty_cache()
        bint contains(const void*)
        HostStats stats()
        void reset_peak()
        void reset_accumulated()
        void pause()
        void resume()
        void die()
        bint is_dead()
    bint owns_host_block "flambeau::PinnedAllocator::owns"(const Storage*)
    Storage* allocate_host_storage(size_t)
