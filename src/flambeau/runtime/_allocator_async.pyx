# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""The backend cudaMallocAsync: device memory from the driver's own pools, and what it can tell."""
from libc.stdint cimport int64_t, uint64_t, uintptr_t

from flambeau.driver._table cimport (
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUcontext, CUdevice, CUdeviceptr, CUmemPool, CUresult,
    CUstream, DriverTable, check, driver,
)
from flambeau.runtime cimport _allocator, _state
from flambeau.runtime._allocator_types cimport Storage, StreamUse

cdef extern from "flambeau/runtime/async_allocator.hpp" namespace "flambeau" nogil:
    cdef cppclass AsyncStorage(Storage):
        pass
    AsyncStorage* make "flambeau::AsyncAllocator::make"(
        CUdeviceptr, size_t, int, CUcontext, CUstream, bint)
    bint owns "flambeau::AsyncAllocator::owns"(const Storage*)
    AsyncStorage* as_own "flambeau::AsyncAllocator::as_own"(Storage*)
    bint record_use "flambeau::AsyncAllocator::record_use"(AsyncStorage*, StreamUse)
    void set_capturing "flambeau::AsyncAllocator::set_capturing"(bint)
    CUresult free_stranded "flambeau::AsyncAllocator::free_stranded"()
    void forget_async "flambeau::AsyncAllocator::forget"()
    const DriverTable* async_driver "flambeau::AsyncAllocator::driver"

# CUmemPool_attribute
cdef enum:
    REUSE_FOLLOW_EVENT_DEPENDENCIES = 1
    REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3
    RELEASE_THRESHOLD = 4
    RESERVED_CURRENT = 5
    RESERVED_HIGH = 6
    USED_CURRENT = 7
    USED_HIGH = 8

cdef CUmemPool pools[64]   # the default pool of each device; null before its first use
cdef size_t limits[64]     # bytes that tensors may hold; the largest number for no limit
cdef void* capture = NULL  # of whom memory belongs to a graph now
cdef int capture_devices = 0
cdef bint warned_of_own_stream = False
cdef bint warned_of_sums = False
cdef int device_index
for device_index in range(64):
    limits[device_index] = <size_t>-1


cdef CUmemPool pool_of(int device) except NULL:
    cdef CUdevice handle
    cdef uint64_t threshold = <uint64_t>-1
    cdef int on = 1
    cdef int attribute
    _state.require_initialized()
    _state.check_device(device)
    if pools[device] == NULL:
        check(driver.DeviceGet(&handle, device))
        check(driver.DeviceGetDefaultMemPool(&pools[device], handle))
        check(driver.MemPoolSetAttribute(pools[device], RELEASE_THRESHOLD, &threshold))
        for attribute in range(
                REUSE_FOLLOW_EVENT_DEPENDENCIES, REUSE_ALLOW_INTERNAL_DEPENDENCIES + 1):
            check(driver.MemPoolSetAttribute(pools[device], attribute, &on))
    return pools[device]


cdef uint64_t figure(int device, int attribute) except? 0:
    cdef uint64_t value = 0
    check(driver.MemPoolGetAttribute(pool_of(device), attribute, &value))
    return value


# -- allocation ------------------------------------------------------------------------------------

cdef Storage* allocate(int device, size_t bytes, CUstream stream) except NULL:
    cdef CUcontext context = _state.context_of(device)
    cdef CUdeviceptr address = 0
    cdef CUresult status = CUDA_ERROR_OUT_OF_MEMORY
    cdef bint captured = capture != NULL and _state.is_captured(stream)
    cdef CUmemPool pool = pool_of(device)
    global async_driver
    async_driver = driver
    with nogil:
        check_stranded()
        if not exceeds(device, bytes, pool):
            status = driver.MemAllocAsync(&address, bytes, stream)
            if status == CUDA_ERROR_OUT_OF_MEMORY and not captured:
                driver.CtxSynchronize()  # what was freed in the order of streams is free then
                driver.MemPoolTrimTo(pool, 0)
                status = driver.MemAllocAsync(&address, bytes, stream)
    if status == CUDA_ERROR_OUT_OF_MEMORY:
        raise_out_of_memory(device, bytes)
    check(status)
    return make(address, bytes, device, context, stream, captured)


cdef void check_stranded() noexcept nogil:
    if capture == NULL:
        free_stranded()


cdef bint exceeds(int device, size_t bytes, CUmemPool pool) noexcept nogil:
    cdef uint64_t used = 0
    if limits[device] == <size_t>-1:
        return False
    return (driver.MemPoolGetAttribute(pool, USED_CURRENT, &used) == CUDA_SUCCESS
            and used + bytes > limits[device])


cdef int raise_out_of_memory(int device, size_t bytes) except -1:
    cdef size_t free = 0, total = 0
    from flambeau.runtime import out_of_memory
    check(driver.MemGetInfo(&free, &total))
    raise out_of_memory.async_error(
        device, bytes, allocated=figure(device, USED_CURRENT),
        reserved=figure(device, RESERVED_CURRENT), total=total, free=free,
        limit=None if limits[device] == <size_t>-1 else limits[device])


cdef int record(Storage* storage, StreamUse use) except -1:
    """Whether the storage is this backend's; then the stream uses it."""
    global warned_of_own_stream
    if not owns(storage):
        return 0
    if not record_use(as_own(storage), use) and not warned_of_own_stream:
        warned_of_own_stream = True
        import warnings
        warnings.warn(
            "record_stream was called with the stream that the tensor was made on. That is "
            "unnecessary and has no effect", UserWarning, stacklevel=2)
    return 1


def install():
    """Serve all requests for device memory from the driver's pools."""
    _allocator.allocate_async = allocate
    _allocator.record_async = record
    _allocator.begin_async_capture = begin_capture
    _allocator.end_async_capture = end_capture
    _allocator.install_async()


def empty_cache():
    """Give what the pools hold and nobody uses back, and what graphs hold in reserve."""
    cdef int device
    cdef CUresult status = CUDA_SUCCESS
    cdef CUdevice handle
    for device in range(_state.device_total):
        if pools[device] == NULL:
            continue
        _state.ensure_context(device)
        check(driver.DeviceGet(&handle, device))
        with nogil:
            if capture == NULL:
                status = free_stranded()
                if status == CUDA_SUCCESS:
                    status = driver.CtxSynchronize()
            if status == CUDA_SUCCESS:
                status = driver.MemPoolTrimTo(pools[device], 0)
            if status == CUDA_SUCCESS:
                status = driver.DeviceGraphMemTrim(handle)
        check(status)
    _state.restore_context()


def forget():
    """Every handle is void."""
    global capture, capture_devices
    cdef int device
    for device in range(64):
        pools[device] = NULL
        limits[device] = <size_t>-1
    capture = NULL
    capture_devices = 0
    forget_async()


# -- graphs ----------------------------------------------------------------------------------------

cdef int begin_capture(void* of) except -1:
    """Memory is a graph's from now on; once for each of its devices."""
    global capture, capture_devices
    if capture != NULL and capture != of:
        raise RuntimeError(
            "Only one capture at a time is allowed in a process with backend:cudaMallocAsync. End "
            "the other capture first, or use backend:native")
    capture = of
    capture_devices += 1
    set_capturing(True)
    return 0


cdef int end_capture(void* of) except -1:
    global capture, capture_devices
    if capture == NULL or capture != of:
        return 0
    capture_devices -= 1
    if capture_devices == 0:
        capture = NULL
        set_capturing(False)
    return 0


# -- figures ---------------------------------------------------------------------------------------

def set_limit(int device, limit):
    pool_of(device)
    limits[device] = <size_t>-1 if limit is None else <size_t>limit


def get_limit(int device):
    pool_of(device)
    return None if limits[device] == <size_t>-1 else limits[device]


def used(int device, bint peak=False):
    """Bytes that tensors hold."""
    return figure(device, USED_HIGH if peak else USED_CURRENT)


def reserved(int device, bint peak=False):
    """Bytes that the pool has from the device."""
    return figure(device, RESERVED_HIGH if peak else RESERVED_CURRENT)


cdef dict NONE = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}


cdef dict array(current=0, peak=0):
    return {
        "all": {"current": current, "peak": peak, "allocated": 0, "freed": 0},
        "large_pool": dict(NONE), "small_pool": dict(NONE),
    }


def stats(int device):
    """Those of memory_stats: the driver tells four figures, the rest is 0."""
    result = {
        name: array() for name in
        ("allocation", "segment", "active", "inactive_split", "inactive_split_bytes",
         "requested_bytes")
    }
    for name in ("allocated_bytes", "active_bytes"):
        result[name] = array(used(device), used(device, True))
    result["reserved_bytes"] = array(reserved(device), reserved(device, True))
    for name in ("oversize_allocations", "oversize_segments"):
        result[name] = dict(NONE)
    for name in ("max_split_size", "num_alloc_retries", "num_device_alloc", "num_device_free",
                 "num_oom_rejections", "num_ooms", "num_sync_all_streams"):
        result[name] = 0
    result["reserved_bytes_by_private_pools"] = {}
    return result


def reset_peak(int device):
    cdef uint64_t zero = 0
    check(driver.MemPoolSetAttribute(pool_of(device), USED_HIGH, &zero))
    check(driver.MemPoolSetAttribute(pool_of(device), RESERVED_HIGH, &zero))


def reset_accumulated(int device):
    global warned_of_sums
    pool_of(device)
    if warned_of_sums:
        return
    warned_of_sums = True
    import warnings
    warnings.warn(
        "backend:cudaMallocAsync keeps no accumulated statistics: there is nothing to reset",
        UserWarning, stacklevel=4)
