# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Private pools: who allocates where, and for how long a pool's memory is kept."""
from libc.stdint cimport int64_t, uintptr_t

from flambeau.driver._table cimport (
    CUDA_SUCCESS, CUresult, CUstream, DriverTable, check, driver,
)
from flambeau.runtime cimport _state
from flambeau.runtime._allocator cimport (
    allocator_of, begin_async_capture, end_async_capture, existing, require_native,
)
from flambeau.runtime._allocator_types cimport DeviceAllocator, PoolId, SegmentSource

cdef extern from *:
    """
    namespace flambeau {
    inline void *this_thread_token() {
      static thread_local char token;
      return &token;
    }
    inline bool is_this_thread(void *context, CUstream) { return context == this_thread_token(); }
    }
    """
    void* this_thread_token "flambeau::this_thread_token"() nogil
    bint is_this_thread "flambeau::is_this_thread"(void*, CUstream) noexcept nogil

cdef extern from *:
    """
    namespace flambeau {
    inline const DriverTable *managed_driver = nullptr;
    // Segments of managed memory, which host and devices reach by one address.
    inline void *allocate_managed(ssize_t bytes, int, CUstream) {
      CUdeviceptr address = 0;
      const CUresult status =
          managed_driver->MemAllocManaged(&address, static_cast<std::size_t>(bytes), 1);
      return status == CUDA_SUCCESS ? reinterpret_cast<void *>(address) : nullptr;
    }
    inline void release_managed(void *memory, std::size_t, int, CUstream) {
      managed_driver->MemFree(reinterpret_cast<CUdeviceptr>(memory));
    }
    }
    """
    const DriverTable* managed_driver "flambeau::managed_driver"
    void* allocate_managed "flambeau::allocate_managed"(Py_ssize_t, int, CUstream) nogil
    void release_managed "flambeau::release_managed"(void*, size_t, int, CUstream) nogil


def managed_functions():
    """The addresses of two functions that give a pool managed memory."""
    global managed_driver
    managed_driver = driver
    return <uintptr_t>allocate_managed, <uintptr_t>release_managed


cdef int64_t user_pools = 0
cdef int64_t graph_pools = 0


def new_user_id():
    """The id of a pool that a user makes: (0, n)."""
    global user_pools
    user_pools += 1
    return (0, user_pools)


def new_graph_id():
    """The id of the pool of a graph that was given none: (n, 0)."""
    global graph_pools
    graph_pools += 1
    return (graph_pools, 0)


cdef PoolId pool_id(object pair) except *:
    cdef int64_t first, second
    first, second = pair
    return PoolId(first, second)


def retain_pool(int device, pair, uintptr_t source=0, bint use_on_oom=False, bint no_split=False):
    require_native("private pools")
    allocator_of(device).retain_pool(
        pool_id(pair), <const SegmentSource*>source, use_on_oom, not no_split)


def drop_pool(int device, pair):
    cdef DeviceAllocator* allocator = existing(device)
    return allocator != NULL and allocator.drop_pool(pool_id(pair))


def pool_users(int device, pair):
    cdef DeviceAllocator* allocator = existing(device)
    return 0 if allocator == NULL else allocator.pool_users(pool_id(pair))


def flush_dead(int device):
    cdef DeviceAllocator* allocator = existing(device)
    cdef CUresult status = CUDA_SUCCESS
    if allocator != NULL:
        with nogil:
            status = allocator.flush_dead()
    check(status)


# -- routes ----------------------------------------------------------------------------------------

cdef int begin_allocate_to_pool(
    int device, PoolId pool, RouteFilter filter, void* context, bint capturing
) except -1:
    cdef DeviceAllocator* allocator = allocator_of(device)
    if begin_async_capture != NULL:
        return begin_async_capture(context)
    allocator.retain_pool(pool)
    if not allocator.begin_route(pool, filter, context, capturing):
        raise RuntimeError("the pool went away while an allocation was routed to it")
    return 0


cdef int end_allocate_to_pool(int device, PoolId pool, void* context, bint capturing) except -1:
    cdef DeviceAllocator* allocator = existing(device)
    if end_async_capture != NULL:
        return end_async_capture(context)
    if allocator != NULL and not allocator.end_route(pool, context, capturing):
        raise RuntimeError(
            f"allocations on device {device} are not being routed to the pool "
            f"{(pool.first, pool.second)}")
    return 0


def begin_for_this_thread(int device, pair, *, bint capturing=False):
    cdef PoolId pool = pool_id(pair)
    require_native("private pools")
    if allocator_of(device).has_route(pool, this_thread_token()):
        raise RuntimeError(
            f"this thread is already recording to mempool_id {tuple(pair)} on device {device}; "
            "leave the inner use_mem_pool out")
    begin_allocate_to_pool(device, pool, is_this_thread, this_thread_token(), capturing)


def end_for_this_thread(int device, pair, *, bint capturing=False):
    end_allocate_to_pool(device, pool_id(pair), this_thread_token(), capturing)
