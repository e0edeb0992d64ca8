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


cdef object figures(int device, const AllocationFailure& found, str refused_by):
    return out_of_memory.Figures(
        device=device,
        requested=found.requested,
        rounded=found.rounded,
        segment_size=found.segment_size,
        stream=<uintptr_t>found.stream,
        pool=(found.pool.first, found.pool.second),
        refused_by=refused_by,
        total=found.total,
        free=found.free,
        limit=None if found.limit == <size_t>-1 else found.limit,
        allocated=found.allocated,
        reserved=found.reserved,
        pending=found.balance.pending,
        idle_segments=found.balance.idle_segments,
        split_remainders=found.balance.split_remainders,
        pool_bytes=found.balance.private_free,
        own=free_memory(found.balance.own),
        other_stream=free_memory(found.balance.other_stream),
        other_pool=free_memory(found.balance.other_pool),
        other_kind=free_memory(found.balance.other_kind),
    )


def raise_failure(int device, uintptr_t address):
    cdef AllocationFailure failure = dereference(<AllocationFailure*>address)
    if failure.status != CUDA_ERROR_OUT_OF_MEMORY:
        check(failure.status)
    raise out_of_memory.error(figures(device, failure, refusal_name(failure.refusal)))


def memory_balance(int device):
    """Where the memory of a device is now, as `raise_failure` would say it."""
    cdef DeviceAllocator* allocator = allocator_of(device)
    cdef AllocationFailure now          # of nothing that was asked for
    now.limit = allocator.limit()
    now.balance = allocator.balance()
    _state.ensure_context(device)
    check(driver.MemGetInfo(&now.free, &now.total))
    _state.restore_context()
    now.allocated = allocator.allocated_bytes().current
    now.reserved = allocator.reserved_bytes().current
    return figures(device, now, "")
