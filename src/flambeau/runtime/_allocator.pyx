# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""The caching allocators: device memory in stream order, pinned and ordinary host memory."""
from libc.stdint cimport uintptr_t

from flambeau.driver._table cimport (
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdeviceptr, CUresult, check, driver,
)
from flambeau.runtime cimport _state
from flambeau.runtime._allocator_types cimport (
    AllocationFailure, AllocatorSettings, Block, DeviceAllocator, HostBlock, PinnedAllocator,
    StreamUse, allocate_host_storage, owns_block, owns_host_block,
)

cdef extern from "flambeau/runtime/device_allocator.hpp" namespace "flambeau" nogil:
    void (*on_release "flambeau::DeviceAllocator::on_release")(Block*) noexcept nogil

cdef extern from *:
    """
    namespace flambeau {
    inline DeviceAllocator *allocator_of_block(Block *block) { return block->allocator; }
    inline PinnedAllocator *allocator_of_host_block(HostBlock *block) {
      return static_cast<PinnedAllocator *>(block->owner);
    }
    inline Block *as_block(Storage *storage) { return static_cast<Block *>(storage); }
    inline HostBlock *as_host_block(Storage *storage) { return static_cast<HostBlock *>(storage); }
    // Storage of no bytes and no memory.
    inline Storage *empty_storage(int device, bool pinned) {
      Storage *storage = new Storage();
      storage->device = static_cast<std::int16_t>(device);
      storage->pinned = pinned;
      storage->release = [](Storage *dead) { delete dead; };
      return storage;
    }
    }
    """
    DeviceAllocator* allocator_of_block "flambeau::allocator_of_block"(Block*) nogil
    PinnedAllocator* allocator_of_host_block "flambeau::allocator_of_host_block"(HostBlock*) nogil
    Block* as_block "flambeau::as_block"(Storage*) nogil
    HostBlock* as_host_block "flambeau::as_host_block"(Storage*) nogil
    Storage* empty_storage "flambeau::empty_storage"(int, bint) nogil

pinned = NULL
cdef bint observed = False


# -- device memory ---------------------------------------------------------------------------------

cdef DeviceAllocator* allocator_of(int device) except NULL:
    _state.require_initialized()
    _state.check_device(device)
    if allocators[device] == NULL or allocators[device].is_dead():
        allocators[device] = new DeviceAllocator(device, driver, &settings)
    return allocators[device]


cdef Storage* allocate_device(int device, size_t bytes, CUstream stream) except NULL:
    cdef Block* block
    if bytes == 0:
        return empty_storage(device, False)
    if _state.initialized and 0 <= device < _state.device_total and allocators[device] != NULL:
        block = allocators[device].allocate_cached(bytes, stream)
        if block == NULL:
            block = allocate_slowly(device, bytes, stream)
    else:
        block = allocate_slowly(device, bytes, stream)
    if observed:
        from flambeau.runtime import observers
        observers.notify("memory_allocation", <uintptr_t>block.data)
    return block


cdef Block* allocate_slowly(int device, size_t bytes, CUstream stream) except NULL:
    cdef DeviceAllocator* allocator = allocator_of(device)
    cdef AllocationFailure failure
    cdef Block* block
    if bytes >= (<size_t>1 << 60):
        from flambeau.runtime import out_of_memory
        raise out_of_memory.beyond_exabyte(device, bytes)
    _state.note_call()
    _state.ensure_context(device)
    allocator.set_context(_state.context_of(device))
    with nogil:
        block = allocator.allocate(bytes, stream, &failure)
    if block == NULL:
        raise_failure(device, failure)
    return block


cdef int raise_failure(int device, AllocationFailure& failure) except -1:
    cdef size_t free = 0, total = 0
    if failure.status != CUDA_ERROR_OUT_OF_MEMORY:
        return check(failure.status)
    driver.MemGetInfo(&free, &total)
    from flambeau.runtime import out_of_memory
    raise out_of_memory.error(out_of_memory.Figures(
        device=device,
        requested=failure.requested,
        segment_size=failure.segment_size,
        total=total,
        free=free,
        limit=None if failure.limit == <size_t>-1 else failure.limit,
        allocated=failure.allocated,
        reserved=failure.reserved,
        pool_bytes=failure.private_free,
        largest_free_block=failure.largest_free,
    ))


cdef int record_stream(Storage* storage, CUstream stream) except -1:
    return record_stream_of(storage, stream, -1)


cdef int record_stream_of(Storage* storage, CUstream stream, int device) except -1:
    cdef StreamUse use
    if storage == NULL or not owns_block(storage):
        return 0
    use.stream = stream
    if device >= 0:
        use.context = _state.context_of(device)
    elif stream == NULL:
        use.context = _state.context_of(storage.device)
    else:
        check(driver.StreamGetCtx(stream, &use.context))
    allocator_of_block(as_block(storage)).record_use(as_block(storage), use)
    return 0


def empty_cache():
    cdef int device
    cdef CUresult status = CUDA_SUCCESS
    if not _state.initialized:
        return
    _state.note_call()
    for device in range(_state.device_total):
        if allocators[device] != NULL:
            with nogil:
                status = allocators[device].empty_cache()
            check(status)


cdef void report_release(Block* block) noexcept nogil:
    with gil:
        from flambeau.runtime import observers
        observers.notify("memory_deallocation", <uintptr_t>block.data)


def set_observed(bint on):
    global observed, on_release
    observed = on
    if on:
        on_release = report_release
    else:
        on_release = NULL


def pause():
    """Let no thread be in the middle of a change: for a fork."""
    cdef int device
    for device in range(_state.MAX_DEVICES):
        if allocators[device] != NULL:
            allocators[device].pause()
    if pinned != NULL:
        pinned.pause()


def resume():
    """Undo `pause`, in the parent."""
    cdef int device
    for device in range(_state.MAX_DEVICES):
        if allocators[device] != NULL:
            allocators[device].resume()
    if pinned != NULL:
        pinned.resume()


def forget(bint forked):
    """Every handle is void: let the allocators keep their books and call the driver no more."""
    global pinned
    cdef int device
    for device in range(_state.MAX_DEVICES):
        if allocators[device] != NULL:
            allocators[device].die()
            if not forked:
                allocators[device] = NULL
    if pinned != NULL:
        pinned.die()
        if not forked:
            pinned = NULL


# -- host memory -----------------------------------------------------------------------------------

cdef Storage* allocate_host(size_t bytes) except NULL:
    cdef Storage* storage = allocate_host_storage(bytes)
    if storage == NULL:
        raise RuntimeError(
            f"not enough memory: you tried to allocate {bytes} bytes of host memory, and the "
            "operating system refused")
    return storage


cdef PinnedAllocator* pinned_allocator() except NULL:
    global pinned
    _state.require_initialized()
    if pinned == NULL or pinned.is_dead():
        pinned = new PinnedAllocator(driver)
    return pinned


cdef Storage* allocate_pinned(size_t bytes) except NULL:
    cdef PinnedAllocator* allocator
    cdef HostBlock* block
    cdef CUresult status
    if bytes == 0:
        return empty_storage(-1, False)
    allocator = pinned_allocator()
    _state.note_call()
    _state.ensure_context(_state.thread_state().device)
    with nogil:
        block = allocator.allocate(bytes, &status)
    if block == NULL:
        check(status)
    return block


cdef int record_pinned_use(Storage* storage, CUstream stream) except -1:
    cdef StreamUse use
    if storage == NULL or not owns_host_block(storage):
        return 0
    use.stream = stream
    check(driver.CtxGetCurrent(&use.context))
    allocator_of_host_block(as_host_block(storage)).record_use(as_host_block(storage), use)
    return 0


cdef bint is_pinned_address(const void* address) except -1:
    cdef int memory_type = 0
    if pinned != NULL and not pinned.is_dead() and pinned.contains(address):
        return True
    if not _state.initialized or address == NULL:
        return False
    _state.ensure_context(_state.thread_state().device)
    # CU_POINTER_ATTRIBUTE_MEMORY_TYPE is 2; CU_MEMORYTYPE_HOST is 1. Unknown memory is an error.
    return driver.PointerGetAttribute(
        &memory_type, 2, <CUdeviceptr>address) == CUDA_SUCCESS and memory_type == 1


def is_pinned(uintptr_t address):
    return is_pinned_address(<const void*>address)


def empty_host_cache():
    cdef CUresult status
    if pinned == NULL or not _state.initialized:
        return
    _state.note_call()
    _state.ensure_context(_state.thread_state().device)
    with nogil:
        status = pinned.empty_cache()
    check(status)


# -- memory by address -----------------------------------------------------------------------------

cdef class Allocation:
    cdef Storage* storage

    def __dealloc__(self):
        if self.storage != NULL:
            self.storage.drop()

    def close(self):
        cdef Storage* storage = self.storage
        self.storage = NULL
        if storage != NULL:
            storage.drop()

    @property
    def address(self):
        return 0 if self.storage == NULL else <uintptr_t>self.storage.data

    @property
    def nbytes(self):
        return 0 if self.storage == NULL else self.storage.bytes

    @property
    def device(self):
        return -1 if self.storage == NULL else self.storage.device

    def record_stream(self, uintptr_t stream, int device=-1):
        if self.storage != NULL and self.storage.device >= 0:
            record_stream_of(self.storage, <CUstream>stream, device)
        else:
            record_pinned_use(self.storage, <CUstream>stream)


def allocate(size_t nbytes, int device, uintptr_t stream=0):
    cdef Allocation allocation = Allocation.__new__(Allocation)
    allocation.storage = allocate_device(device, nbytes, <CUstream>stream)
    return allocation


def allocate_on_host(size_t nbytes, *, bint pin=False):
    cdef Allocation allocation = Allocation.__new__(Allocation)
    allocation.storage = allocate_pinned(nbytes) if pin else allocate_host(nbytes)
    return allocation


def raw_alloc(size_t nbytes, int device, uintptr_t stream):
    cdef Storage* storage
    if nbytes == 0:
        return 0
    storage = allocate_device(device, nbytes, <CUstream>stream)
    as_block(storage).raw = True
    return <uintptr_t>storage.data


def raw_delete(uintptr_t address):
    cdef int device
    cdef Block* block
    if address == 0:
        return
    if _state.initialized:
        for device in range(_state.device_total):
            if allocators[device] != NULL:
                block = allocators[device].claim_raw(address)
                if block != NULL:
                    (<Storage*>block).drop()
                    return
    raise RuntimeError(
        f"invalid device pointer: 0x{address:x}; no allocation made by address starts there, or it "
        "was deleted before")


# -- limits and the figures that are asked for often -----------------------------------------------

def configure(
    *, large_segment=20 << 20, max_split_size=None, max_non_split_rounding=20 << 20,
    double garbage_threshold=0, roundup_divisions=(0,) * 16,
):
    """Replace all settings; the caller has validated them."""
    settings.large_segment = large_segment
    settings.max_split_size = <size_t>-1 if max_split_size is None else <size_t>max_split_size
    settings.max_non_split_rounding = max_non_split_rounding
    settings.garbage_threshold = garbage_threshold
    for interval, divisions in enumerate(roundup_divisions):
        settings.roundup_divisions[interval] = divisions


cdef DeviceAllocator* existing(int device) noexcept:
    if _state.initialized and 0 <= device < _state.device_total:
        return allocators[device]
    return NULL


def set_memory_limit(int device, limit):
    allocator_of(device).set_limit(<size_t>-1 if limit is None else <size_t>limit)


def get_memory_limit(int device):
    cdef size_t limit = allocator_of(device).limit()
    return None if limit == <size_t>-1 else limit


def allocated_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    return 0 if allocator == NULL else allocator.allocated_bytes().current


def max_allocated_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    return 0 if allocator == NULL else allocator.allocated_bytes().peak


def reserved_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    return 0 if allocator == NULL else allocator.reserved_bytes().current


def max_reserved_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    return 0 if allocator == NULL else allocator.reserved_bytes().peak


def cycle_seconds(size_t nbytes, int device, int count):
    """Seconds that `count` cached allocations and frees take; for benchmarks."""
    cdef int i
    import time
    start = time.perf_counter()
    for i in range(count):
        allocate_device(device, nbytes, NULL).drop()
    return time.perf_counter() - start


from flambeau.runtime._memory_stats import (  # noqa: E402, F401
    host_memory_stats_raw, memory_snapshot_raw, memory_stats_raw, reset_accumulated,
    reset_accumulated_host, reset_peak, reset_peak_host,
)
