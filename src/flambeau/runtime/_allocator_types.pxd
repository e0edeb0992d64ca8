# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The allocators' C++ classes, for the modules that are their Python face."""
from libc.stdint cimport int16_t, int64_t, uint32_t, uint64_t
from libcpp.memory cimport shared_ptr
from libcpp.string cimport string
from libcpp.utility cimport pair
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
    cdef cppclass StackNode:
        pass
    cdef cppclass StreamUse:
        CUcontext context
        CUstream stream
    cdef enum class BlockState:
        free
        allocated
        pending
    cdef cppclass Segment:
        CUstream stream
    cdef cppclass Block(Storage):
        bint sent
        size_t size, requested
        Segment* segment

cdef extern from "flambeau/runtime/pool.hpp" namespace "flambeau" nogil:
    cdef cppclass PoolId:
        PoolId()
        PoolId(int64_t, int64_t)
        int64_t first, second
    cdef cppclass StreamReserve:
        CUstream stream
        double share
        size_t bytes
    cdef cppclass AllocatorSettings:
        size_t large_segment, max_split_size, max_non_split_rounding
        double garbage_threshold, configured_fraction
        unsigned* roundup_divisions
        bint reject_early, expandable, reuse_in_capture
        double reserve_share
        size_t reserve_bytes
        vector[StreamReserve] stream_reserves
    cdef cppclass SegmentSource:
        void* (*allocate)(Py_ssize_t, int, CUstream) noexcept
        void (*release)(void*, size_t, int, CUstream) noexcept
    ctypedef bint (*RouteFilter)(void*, CUstream) noexcept nogil

cdef extern from "flambeau/runtime/allocator_history.hpp" namespace "flambeau" nogil:
    cdef enum class TraceAction:
        alloc
        free_requested
        free_completed
        segment_alloc
        segment_free
        segment_map
        segment_unmap
        snapshot
        oom
        annotate
    cdef enum class StackUse:
        none
        state
        alloc
        all
    ctypedef shared_ptr[const string] Metadata
    cdef cppclass TraceEntry:
        TraceAction action
        CUdeviceptr address
        size_t size
        CUstream stream
        PoolId pool
        const StackNode* stack
        int64_t time_us
        Metadata metadata

cdef extern from "flambeau/runtime/allocator_reports.hpp" namespace "flambeau" nogil:
    cdef enum class Refusal:
        driver
        limit
        rejection
        source
        reserve
        overlap
    cdef cppclass FreeMemory:
        size_t bytes, largest
        CUstream stream
        PoolId pool
    cdef cppclass Balance:
        size_t live, pending, idle_segments, split_remainders, private_free
        FreeMemory own, other_stream, other_pool, other_kind
    cdef cppclass AllocationFailure:
        CUresult status
        Refusal refusal
        size_t requested, rounded, segment_size, allocated, reserved, free, total, limit
        CUstream stream
        PoolId pool
        Balance balance
    cdef cppclass Whereabouts:
        CUdeviceptr base
        size_t offset, page
        vector[uint64_t] pages
    cdef cppclass BlockInfo:
        CUdeviceptr address
        size_t size, requested
        BlockState state
        const StackNode* stack
    cdef cppclass SegmentInfo:
        CUdeviceptr address
        size_t size
        CUstream stream
        PoolKind kind
        PoolId pool
        bint expandable
        const StackNode* stack
        vector[BlockInfo] blocks

cdef extern from "flambeau/runtime/device_allocator.hpp" namespace "flambeau" nogil:
    cdef cppclass DeviceAllocator:
        DeviceAllocator(int, const DriverTable*, const AllocatorSettings*)
        void locate(const Block*, Whereabouts*)
        void set_context(CUcontext)
        void set_total(size_t)
        void allow_expanding(const vector[int]&)
        Block* allocate_cached(size_t, CUstream)
        Block* allocate(size_t, CUstream, const StackNode*, AllocationFailure*)
        void record_use(Block*, StreamUse)
        CUresult empty_cache()
        void retain_pool(PoolId)
        void retain_pool(PoolId, const SegmentSource*, bint, bint)
        bint drop_pool(PoolId)
        int64_t pool_users(PoolId)
        bint begin_route(PoolId, RouteFilter, void*, bint)
        bint end_route(PoolId, void*, bint)
        bint has_route(PoolId, void*)
        CUresult flush_dead()
        vector[pair[PoolId, StatArray]] pool_stats()
        void start_history(StackUse, size_t, unsigned, bint)
        void stop_history()
        void clear_history()
        vector[TraceEntry] trace()
        void note_snapshot()
        void annotate(const Block*, Metadata, const StackNode*)
        const StackNode* stack_at(CUdeviceptr)
        vector[SegmentInfo] snapshot()
        Balance balance()
        DeviceStats stats()
        Stat allocated_bytes()
        Stat reserved_bytes()
        void reset_peak()
        void reset_accumulated()
        void set_limit(size_t)
        size_t limit()
        bint rejection_is_idle()
        void pause()
        void resume()
        void die()
        bint is_dead()
    bint owns_block "flambeau::DeviceAllocator::owns"(const Storage*)

cdef extern from "flambeau/runtime/host_allocator.hpp" namespace "flambeau" nogil:
    cdef cppclass HostBlock(Storage):
        pass
    cdef cppclass HostSettings:
        bint use_register, free_catch_all, background
        unsigned register_threads
        size_t max_round_threshold, max_cached_size, reserve_segment
    cdef cppclass HostBlockInfo:
        char* address
        size_t size, requested
        BlockState state
        const StackNode* stack
    cdef cppclass Timing:
        int64_t total, max, min, count
    cdef cppclass HostStats:
        Stat allocations, allocated_bytes, active_requests, active_bytes
        Timing alloc_time, free_time
    cdef cppclass PinnedAllocator:
        PinnedAllocator(const DriverTable*, const HostSettings*)
        HostBlock* allocate(size_t, const StackNode*, CUresult*)
        void start_history(StackUse, size_t, unsigned)
        void stop_history()
        void clear_history()
        vector[TraceEntry] trace()
        vector[HostBlockInfo] snapshot()
        CUresult unpin_doomed()
        bint take_retired()
        void watch(bint)
        void record_use(HostBlock*, const StreamUse&)
        void record_captured_use(HostBlock*)
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
