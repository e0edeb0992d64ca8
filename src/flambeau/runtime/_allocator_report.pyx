# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Where the memory of a device is: for errors, and for who asks."""
from cython.operator cimport dereference
from libc.stdint cimport uintptr_t

from flambeau.driver._table cimport CUDA_ERROR_OUT_OF_MEMORY, check, driver
from flambeau.runtime cimport _state
from flambeau.runtime._allocator cimport allocator_of
from flambeau.runtime._allocator_types cimport (
    AllocationFailure, DeviceAllocator, FreeMemory, Refusal,
)

from flambeau.runtime import out_of_memory


cdef object free_memory(const FreeMemory& memory):
    return out_of_memory.FreeMemory(
        bytes=memory.bytes, largest=memory.largest, stream=<uintptr_t>memory.stream,
        pool=(memory.pool.first, memory.pool.second))


cdef str refusal_name(Refusal refusal):
    if refusal == Refusal.limit:
        return "limit"
    if refusal == Refusal.rejection:
        return "rejection"
    if refusal == Refusal.overlap:
        return "overlap"
    if refusal == Refusal.reserve:
        return "reserve"
    return "source" if refusal == Refusal.source else "driver"


def raise_failure(int device, uintptr_t address):
    cdef AllocationFailure failure = dereference(<AllocationFailure*>address)
    if failure.status != CUDA_ERROR_OUT_OF_MEMORY:
        check(failure.status)
    raise out_of_memory.error(out_of_memory.Figures(
        device=device,
        requested=failure.requested,
        rounded=failure.rounded,
        segment_size=failure.segment_size,
        stream=<uintptr_t>failure.stream,
        pool=(failure.pool.first, failure.pool.second),
        refused_by=refusal_name(failure.refusal),
        total=failure.total,
        free=failure.free,
        limit=None if failure.limit == <size_t>-1 else failure.limit,
        allocated=failure.allocated,
        reserved=failure.reserved,
        pending=failure.balance.pending,
        idle_segments=failure.balance.idle_segments,
        split_remainders=failure.balance.split_remainders,
        pool_bytes=failure.balance.private_free,
        own=free_memory(failure.balance.own),
        other_stream=free_memory(failure.balance.other_stream),
        other_pool=free_memory(failure.balance.other_pool),
        other_kind=free_memory(failure.balance.other_kind),
    ))


def memory_balance(int device):
    """Where the memory of a device is now, as `raise_failure` would say it."""
    cdef DeviceAllocator* allocator = allocator_of(device)
    cdef AllocationFailure now
    cdef size_t limit = allocator.limit()
    now.balance = allocator.balance()
    _state.ensure_context(device)
    check(driver.MemGetInfo(&now.free, &now.total))
    _state.restore_context()
    return out_of_memory.Figures(
        device=device, requested=0, rounded=0, segment_size=0, stream=0, pool=(0, 0),
        refused_by="",
        total=now.total,
        free=now.free,
        limit=None if limit == <size_t>-1 else limit,
        allocated=allocator.allocated_bytes().current,
        reserved=allocator.reserved_bytes().current,
        pending=now.balance.pending,
        idle_segments=now.balance.idle_segments,
        split_remainders=now.balance.split_remainders,
        pool_bytes=now.balance.private_free,
        own=free_memory(now.balance.own),
        other_stream=free_memory(now.balance.other_stream),
        other_pool=free_memory(now.balance.other_pool),
        other_kind=free_memory(now.balance.other_kind),
    )
