# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""The allocators' counters and snapshots as Python objects."""
from libc.stdint cimport uintptr_t
from libcpp.utility cimport pair
from libcpp.vector cimport vector

from flambeau.runtime cimport _state
from flambeau.runtime._allocator cimport (
    allocate_async, allocator_of, allocators, initial_max_split_size, pinned, pinned_allocator, require_native,
)
from flambeau.runtime._allocator_history cimport frames_of
from flambeau.runtime._allocator_types cimport (
    ALL_POOLS, LARGE_POOL, SMALL_POOL, BlockState, DeviceStats, HostBlockInfo, HostStats, PoolId,
    SegmentInfo, Stat, StatArray, Timing,
)


cdef dict stat_dict(const Stat& stat):
    return {
        "current": stat.current, "peak": stat.peak,
        "allocated": stat.allocated, "freed": stat.freed,
    }


cdef dict array_dict(const StatArray& array):
    return {
        "all": stat_dict(array.of_[<int>ALL_POOLS]),
        "large_pool": stat_dict(array.of_[<int>LARGE_POOL]),
        "small_pool": stat_dict(array.of_[<int>SMALL_POOL]),
    }


cdef dict pools_dict(int device):
    cdef vector[pair[PoolId, StatArray]] pools = allocator_of(device).pool_stats()
    return {(one.first.first, one.first.second): array_dict(one.second) for one in pools}


cdef object async_module():
    from flambeau.runtime import _allocator_async
    return _allocator_async


def memory_stats_raw(int device):
    cdef DeviceStats stats
    if not _state.initialized:
        return {}
    if allocate_async != NULL:
        _state.note_call()
        return async_module().stats(device)
    require_native("memory statistics")
    _state.note_call()
    stats = allocator_of(device).stats()
    return {
        "active": array_dict(stats.active),
        "active_bytes": array_dict(stats.active_bytes),
        "allocated_bytes": array_dict(stats.allocated_bytes),
        "allocation": array_dict(stats.allocation),
        "inactive_split": array_dict(stats.inactive_split),
        "inactive_split_bytes": array_dict(stats.inactive_split_bytes),
        "max_split_size": (
            -1 if initial_max_split_size == <size_t>-1 else initial_max_split_size),
        "num_alloc_retries": stats.alloc_retries,
        "num_device_alloc": stats.device_allocs,
        "num_device_free": stats.device_frees,
        "num_oom_rejections": stats.oom_rejections,
        "num_ooms": stats.ooms,
        "num_sync_all_streams": stats.sync_all_streams,
        "oversize_allocations": stat_dict(stats.oversize_allocations),
        "oversize_segments": stat_dict(stats.oversize_segments),
        "requested_bytes": array_dict(stats.requested_bytes),
        "reserved_bytes": array_dict(stats.reserved_bytes),
        "reserved_bytes_by_private_pools": pools_dict(device),
        "segment": array_dict(stats.segment),
    }


def reset_peak(int device):
    if allocate_async != NULL:
        return async_module().reset_peak(device)
    require_native("resets of memory statistics")
    allocator_of(device).reset_peak()


def reset_accumulated(int device):
    if allocate_async != NULL:
        return async_module().reset_accumulated(device)
    require_native("resets of memory statistics")
    allocator_of(device).reset_accumulated()


cdef dict timing_dict(const Timing& timing):
    return {
        "total": timing.total, "max": timing.max, "min": timing.min, "count": timing.count,
        "avg": timing.total / timing.count if timing.count else 0,
    }


def host_memory_stats_raw():
    cdef HostStats stats
    if not _state.initialized:
        return {}
    stats = pinned_allocator().stats()
    return {
        "active_bytes": stat_dict(stats.active_bytes),
        "active_requests": stat_dict(stats.active_requests),
        "allocated_bytes": stat_dict(stats.allocated_bytes),
        "allocations": stat_dict(stats.allocations),
        "host_alloc_time": timing_dict(stats.alloc_time),
        "host_free_time": timing_dict(stats.free_time),
        "num_host_alloc": stats.allocations.allocated,
        "num_host_free": stats.allocations.freed,
    }


def reset_peak_host():
    if pinned != NULL:
        pinned.reset_peak()


def reset_accumulated_host():
    if pinned != NULL:
        pinned.reset_accumulated()


# -- snapshots -------------------------------------------------------------------------------------

cdef str state_name(BlockState state):
    if state == BlockState.allocated:
        return "active_allocated"
    return "active_pending_free" if state == BlockState.pending else "inactive"


cdef dict segment_dict(int device, SegmentInfo& segment, dict known):
    cdef size_t allocated = 0, active = 0, requested = 0
    blocks = []
    for block in segment.blocks:
        if block.state != BlockState.free:
            active += block.size
            requested += block.requested
            if block.state == BlockState.allocated:
                allocated += block.size
        blocks.append({
            "address": block.address, "size": block.size, "requested_size": block.requested,
            "state": state_name(block.state), "frames": frames_of(block.stack, known),
        })
    return {
        "device": device,
        "address": segment.address,
        "total_size": segment.size,
        "allocated_size": allocated,
        "active_size": active,
        "requested_size": requested,
        "stream": <uintptr_t>segment.stream,
        "segment_type": "small" if segment.kind == SMALL_POOL else "large",
        "segment_pool_id": (segment.pool.first, segment.pool.second),
        "is_expandable": segment.expandable,
        "frames": frames_of(segment.stack, known),
        "blocks": blocks,
    }


def memory_snapshot_raw(known=None):
    cdef int device
    cdef vector[SegmentInfo] segments
    require_native("snapshots")
    _state.note_call()
    snapshot = []
    known = {} if known is None else known
    for device in range(_state.MAX_DEVICES):
        if allocators[device] != NULL:
            segments = allocators[device].snapshot()
            for segment in segments:
                snapshot.append(segment_dict(device, segment, known))
    return snapshot


def host_snapshot_raw(known):
    cdef vector[HostBlockInfo] blocks
    snapshot = []
    if pinned != NULL:
        blocks = pinned.snapshot()
        for block in blocks:
            snapshot.append(host_segment_dict(block, known))
    return snapshot


cdef dict host_segment_dict(const HostBlockInfo& block, dict known):
    cdef bint active = block.state != BlockState.free
    frames = frames_of(block.stack, known)
    return {
        "device": -1,
        "address": <uintptr_t>block.address,
        "total_size": block.size,
        "allocated_size": block.size if block.state == BlockState.allocated else 0,
        "active_size": block.size if active else 0,
        "requested_size": block.requested if active else 0,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": frames,
        "blocks": [{
            "address": <uintptr_t>block.address, "size": block.size,
            "requested_size": block.requested, "state": state_name(block.state), "frames": frames,
        }],
    }
