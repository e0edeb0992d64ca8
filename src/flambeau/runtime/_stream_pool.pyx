# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""The streams that a device has: 32 of each priority, handed out in turn and never destroyed."""
from libc.stdint cimport uintptr_t

from flambeau.driver._table cimport check, driver
from flambeau.runtime cimport _state

cdef enum:
    STREAMS_PER_POOL = 32
    POOLS = 4          # priorities 0, -1, -2, -3
    NON_BLOCKING = 1   # CU_STREAM_NON_BLOCKING: does not wait for the default stream

cdef CUstream pool_streams[64][POOLS][STREAMS_PER_POOL]
cdef int pool_count[64]         # priorities that the device has; 0 until its streams are made
cdef unsigned pool_next[64][POOLS]


cdef int make_pools(int device) except -1:
    """Make all pool streams of a device; its context must be current."""
    cdef int least = 0, greatest = 0, level, i
    check(driver.CtxGetStreamPriorityRange(&least, &greatest))
    for level in range(min(POOLS, least - greatest + 1)):
        for i in range(STREAMS_PER_POOL):
            if pool_streams[device][level][i] == NULL:
                check(driver.StreamCreateWithPriority(
                    &pool_streams[device][level][i], NON_BLOCKING, -level))
                if _state.observed:
                    from flambeau.runtime import observers
                    observers.notify(
                        "stream_creation", <uintptr_t>pool_streams[device][level][i], device)
    pool_count[device] = min(POOLS, least - greatest + 1)
    return 0


cdef int need_pools(int device) except -1:
    _state.require_initialized()
    _state.check_device(device)
    if pool_count[device] == 0:
        _state.ensure_context(device)
        make_pools(device)
        _state.restore_context()
    return 0


cdef int lowest_priority() except? 1:
    """The last priority that streams of the current context can have; 0 is the first."""
    cdef int least = 0, greatest = 0
    check(driver.CtxGetStreamPriorityRange(&least, &greatest))
    return max(1 - POOLS, greatest)


cdef int take(int device, int priority, CUstream* handle, int64_t* id) except -1:
    """The next stream of a device with this priority, or the nearest one there is."""
    cdef int level, turn
    need_pools(device)
    level = min(max(-priority, 0), pool_count[device] - 1)
    turn = pool_next[device][level] % STREAMS_PER_POOL
    pool_next[device][level] += 1
    handle[0] = pool_streams[device][level][turn]
    id[0] = (turn << 5) | ((1 + level) << 1) | 1
    return 0


cdef int find_by_id(int device, int64_t id, CUstream* handle) except -1:
    """The handle that belongs to an id: 0 the default stream, odd one of ours, else the handle."""
    cdef int level, i
    if id == 0 or id & 1 == 0:
        handle[0] = <CUstream><uintptr_t>id
        return 0
    need_pools(device)
    level = <int>((id >> 1) & 15) - 1
    i = <int>(id >> 5)
    if not (0 <= level < pool_count[device] and 0 <= i < STREAMS_PER_POOL):
        raise RuntimeError(f"invalid StreamId {id}: device {device} has no such stream")
    handle[0] = pool_streams[device][level][i]
    return 0


def forget():
    """Every handle is void."""
    cdef int device, level, i
    for device in range(64):
        pool_count[device] = 0
        for level in range(POOLS):
            pool_next[device][level] = 0
            for i in range(STREAMS_PER_POOL):
                pool_streams[device][level][i] = NULL
