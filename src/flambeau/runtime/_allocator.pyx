# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""The caching allocators: device memory in stream order, pinned and ordinary host memory."""
from libc.stdint cimport uintptr_t
from libcpp.vector cimport vector

from flambeau.driver._table cimport (
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUcontext, CUdevice, CUdeviceptr, CUresult,
    DriverTable, check, driver,
)
from flambeau.runtime cimport _state
from flambeau.runtime._allocator_types cimport (
    AllocationFailure, Block, DeviceAllocator, HostBlock, Metadata, PinnedAllocator, SegmentSource,
    StackNode, StreamUse, allocate_host_storage, owns_block, owns_host_block,
)

from flambeau.runtime import _state as _state_module

cdef object defer_call = _state_module.defer_call  # nothing can be imported when the program ends

cdef extern from "flambeau/runtime/device_allocator.hpp" namespace "flambeau" nogil:
    KeepSent keep_sent "flambeau::DeviceAllocator::keep_sent"
    CollectSent collect_sent "flambeau::DeviceAllocator::collect_sent"
    ReleaseObserver on_release "flambeau::DeviceAllocator::on_release"
    StackSource gather_at_free "flambeau::History::gather_at_free"
    Metadata this_thread_metadata "flambeau::History::this_thread_metadata"

cdef extern from "flambeau/runtime/host_allocator.hpp" namespace "flambeau" nogil:
    void (*on_doomed "flambeau::PinnedAllocator::on_doomed")() noexcept nogil

cdef extern from "flambeau/runtime/direct_allocator.hpp" namespace "flambeau" nogil:
    cdef cppclass AllocatorHooks:
        void (*initialize)(int) noexcept
        void (*reset)() noexcept
        void (*memory_fraction)(double, int) noexcept
        void (*record_stream)(void*, CUstream) noexcept
    cdef cppclass DirectStorage(Storage):
        pass
    DirectStorage* make_direct "flambeau::DirectAllocator::make"(
        void*, size_t, int, CUcontext, CUstream, const SegmentSource*, const AllocatorHooks*)
    bint owns_direct "flambeau::DirectAllocator::owns"(const Storage*)
    CUresult free_dead_direct "flambeau::DirectAllocator::free_dead"(const DriverTable*)
    void forget_direct "flambeau::DirectAllocator::forget"()
    void (*on_dead "flambeau::DirectAllocator::on_dead")() noexcept nogil

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
initial_max_split_size = <size_t>-1
initial_fraction = 1.0
idle_settings = False
cdef size_t EXABYTE = <size_t>1 << 60
observed = False
on_allocation = NULL
cdef bint caching = True
cdef bint told_of_retired = False
cdef StackSource gather_at_allocation = NULL
# The user's allocator in place of ours, if one was installed.
cdef const SegmentSource* foreign = NULL
cdef const AllocatorHooks* foreign_hooks = NULL
allocate_async = NULL
record_async = NULL
record_received = NULL
begin_async_capture = NULL
end_async_capture = NULL
cdef bint direct = False            # no cache: caching is off, or the allocator is the user's


# -- device memory ---------------------------------------------------------------------------------

cdef size_t total_of(int device) except 0:
    cdef CUdevice handle
    cdef size_t total = 0
    check(driver.DeviceGet(&handle, device))
    check(driver.DeviceTotalMem(&total, handle))
    return total


cdef int allow_expanding(int device, DeviceAllocator* allocator) except -1:
    cdef int can = 0, peer
    cdef CUdevice handle, other
    cdef vector[int] peers
    check(driver.DeviceGet(&handle, device))
    # CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    if driver.DeviceGetAttribute(&can, 102, handle) != CUDA_SUCCESS or not can:
        return 0
    for peer in range(_state.device_total):
        if peer == device:
            continue
        check(driver.DeviceGet(&other, peer))
        if driver.DeviceCanAccessPeer(&can, other, handle) == CUDA_SUCCESS and can:
            peers.push_back(peer)
    allocator.allow_expanding(peers)
    return 0


cdef DeviceAllocator* allocator_of(int device) except NULL:
    cdef DeviceAllocator* allocator
    cdef size_t total
    _state.require_initialized()
    _state.check_device(device)
    if allocators[device] == NULL or allocators[device].is_dead():
        total = total_of(device)
        allocator = new DeviceAllocator(device, driver, &settings)
        allocator.set_total(total)
        allow_expanding(device, allocator)
        if initial_fraction < 1:
            allocator.set_limit(<size_t>(initial_fraction * total + 0.5))
        allocators[device] = allocator
        from flambeau.runtime import _allocator_history, _allocator_observation
        _allocator_history.follow(device)
        _allocator_observation.follow()
    return allocators[device]


cdef Storage* allocate_device(int device, size_t bytes, CUstream stream) except NULL:
    cdef Storage* storage
    if bytes == 0:
        return empty_storage(device, False)
    if (_state.initialized and not direct and 0 <= device < _state.device_total
            and allocators[device] != NULL and bytes < EXABYTE):  # beyond it no free list has a place
        storage = allocators[device].allocate_cached(bytes, stream)
        if storage == NULL:
            storage = allocate_slowly(device, bytes, stream)
    else:
        storage = allocate_slowly(device, bytes, stream)
    if on_allocation != NULL:
        on_allocation(storage, bytes, device, stream)
    return storage


cdef Storage* allocate_slowly(int device, size_t bytes, CUstream stream) except NULL:
    cdef DeviceAllocator* allocator = allocator_of(device)
    cdef const StackNode* stack = NULL
    cdef AllocationFailure failure
    cdef Block* block
    if bytes >= EXABYTE:
        from flambeau.runtime import out_of_memory
        raise out_of_memory.beyond_exabyte(device, bytes)
    _state.note_call()
    _state.ensure_context(device)
    if allocate_async != NULL:
        return allocate_async(device, bytes, stream)
    if direct:
        return allocate_directly(device, bytes, stream)
    if idle_settings:
        warn_of_idle_settings(allocator)
    if gather_at_allocation != NULL:
        stack = gather_at_allocation()
    allocator.set_context(_state.context_of(device))
    with nogil:
        block = allocator.allocate(bytes, stream, stack, &failure)
    if block == NULL:
        from flambeau.runtime import _allocator_report
        _allocator_report.raise_failure(device, <uintptr_t>&failure)
    return block


cdef int record_stream(Storage* storage, CUstream stream) except -1:
    return record_stream_of(storage, stream, -1)


cdef int record_stream_of(Storage* storage, CUstream stream, int device) except -1:
    cdef StreamUse use
    if storage != NULL and foreign_hooks != NULL and owns_direct(storage):
        if foreign_hooks.record_stream != NULL:
            foreign_hooks.record_stream(storage.data, stream)
        return 0
    if storage == NULL or not (
            owns_block(storage) or record_async != NULL or record_received != NULL):
        return 0
    use.stream = stream
    if device >= 0:
        use.context = _state.context_of(device)
    elif stream == NULL:
        use.context = _state.context_of(storage.device)
    else:
        check(driver.StreamGetCtx(stream, &use.context))
    if record_async != NULL and record_async(storage, use):
        return 0
    if record_received != NULL and record_received(storage, use):
        return 0
    if not owns_block(storage):
        return 0
    allocator_of_block(as_block(storage)).record_use(as_block(storage), use)
    if observed:
        from flambeau.runtime import observers
        observers.notify("memory_use", <uintptr_t>storage.data, <uintptr_t>stream,
                         _state.device_of_context(use.context))
    return 0


cdef Block* block_behind(Storage* storage) noexcept:
    return as_block(storage) if owns_block(storage) else NULL


def empty_cache():
    cdef int device
    cdef CUresult status = CUDA_SUCCESS
    if not _state.initialized:
        return
    _state.note_call()
    if allocate_async != NULL:
        from flambeau.runtime import _allocator_async
        _allocator_async.empty_cache()
    for device in range(_state.device_total):
        if allocators[device] != NULL:
            with nogil:
                status = allocators[device].empty_cache()
            check(status)
            if observed:
                from flambeau.runtime import observers
                observers.notify("memory_return", device)
    if foreign_hooks != NULL and foreign_hooks.reset != NULL:
        foreign_hooks.reset()


cdef void set_sent_hooks(KeepSent keep, CollectSent collect) noexcept:
    global keep_sent, collect_sent
    keep_sent = keep
    collect_sent = collect


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
        if not forked:
            end_watch()
        pinned.die()
        if not forked:
            pinned = NULL
    forget_direct()
    if record_received != NULL:
        from flambeau.runtime import _sharing
        _sharing.forget(forked)
    if allocate_async != NULL:
        from flambeau.runtime import _allocator_async
        _allocator_async.forget()
    from flambeau.runtime import _allocator_address
    _allocator_address.forget()


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
        pinned = new PinnedAllocator(driver, &host_settings)
        watch_pinned()
        from flambeau.runtime import _allocator_history
        _allocator_history.tell_host()
    return pinned


def watch_pinned():
    """Start or end the thread that looks for uses of pinned memory that have ended."""
    cdef bint on = host_settings.background
    if pinned == NULL:
        return
    if on:
        import atexit
        atexit.register(end_watch)  # no thread may call a driver that goes away
    with nogil:
        pinned.watch(on)


def end_watch():
    if pinned != NULL:
        with nogil:
            pinned.watch(False)


cdef Storage* allocate_pinned(size_t bytes) except NULL:
    cdef PinnedAllocator* allocator
    cdef HostBlock* block
    cdef CUresult status
    cdef const StackNode* stack = NULL
    if bytes == 0:
        return empty_storage(-1, False)
    allocator = pinned_allocator()
    if allocator.take_retired():
        warn_of_retired()
    if gather_at_allocation != NULL:
        stack = gather_at_allocation()
    _state.note_call()
    _state.ensure_context(_state.thread_state().device)
    with nogil:
        block = allocator.allocate(bytes, stack, &status)
    if block == NULL:
        if status == CUDA_ERROR_OUT_OF_MEMORY:
            from flambeau.runtime import out_of_memory
            raise out_of_memory.pinned_error(bytes)
        check(status)
    if observed:
        from flambeau.runtime import observers
        observers.notify("pinned_allocation", <uintptr_t>block.data, bytes)
    return block


cdef int warn_of_retired() except -1:
    """Once: pinned memory is lost to the cache."""
    global told_of_retired
    if not told_of_retired:
        told_of_retired = True
        import warnings
        warnings.warn(
            "a pinned block was freed while the device may use it, and no event could be recorded to "
            "tell when that ends: the block is never used again", RuntimeWarning, stacklevel=2)
    return 0


def unpin_doomed():
    """Free the pinned blocks that were too large to be kept."""
    cdef CUresult status
    if pinned == NULL or not _state.initialized:
        return
    _state.ensure_context(_state.thread_state().device)
    with nogil:
        status = pinned.unpin_doomed()
    check(status)


cdef void note_doomed() noexcept nogil:
    with gil:
        defer_call(unpin_doomed)


on_doomed = note_doomed


cdef int record_pinned_use(Storage* storage, CUstream stream) except -1:
    cdef StreamUse use
    if storage == NULL or not owns_host_block(storage):
        return 0
    if _state.is_captured(stream):
        allocator_of_host_block(as_host_block(storage)).record_captured_use(as_host_block(storage))
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
    if status != CUDA_SUCCESS and host_settings.free_catch_all:
        import warnings
        warnings.warn(
            f"freeing pinned memory failed with status {status}; pinned_free_catch_all is on, so "
            "it is not raised", RuntimeWarning, stacklevel=2)
        return
    check(status)


# -- without a cache -------------------------------------------------------------------------------

cdef Storage* allocate_directly(int device, size_t bytes, CUstream stream) except NULL:
    cdef CUcontext context = _state.context_of(device)
    cdef CUdeviceptr address = 0
    cdef CUresult status = CUDA_SUCCESS
    cdef const SegmentSource* source = foreign
    cdef void* memory
    if source == NULL:
        with nogil:
            status = driver.MemAlloc(&address, bytes)
            if status == CUDA_ERROR_OUT_OF_MEMORY:  # the cache may hold what is missing
                allocators[device].empty_cache()
                status = driver.MemAlloc(&address, bytes)
        memory = <void*>address
    else:
        with nogil:
            memory = source.allocate(bytes, device, stream)
        if memory == NULL:
            status = CUDA_ERROR_OUT_OF_MEMORY
    if status == CUDA_SUCCESS:
        return make_direct(memory, bytes, device, context, stream, source, foreign_hooks)
    return raise_direct_failure(device, bytes, stream, status)


cdef Storage* raise_direct_failure(
    int device, size_t bytes, CUstream stream, CUresult status
) except NULL:
    if status != CUDA_ERROR_OUT_OF_MEMORY:
        check(status)
    import dataclasses
    from flambeau.runtime import _allocator_report, out_of_memory
    raise out_of_memory.error(dataclasses.replace(
        _allocator_report.memory_balance(device), requested=bytes, rounded=bytes, segment_size=bytes,
        stream=<uintptr_t>stream, refused_by="source" if foreign != NULL else "driver"))


def free_dead():
    """Free what tensors left behind that did not come from the cache."""
    cdef CUresult status
    if not _state.initialized:
        return
    with nogil:
        status = free_dead_direct(driver)
    check(status)


cdef void note_dead() noexcept nogil:
    with gil:
        defer_call(free_dead)


on_dead = note_dead


def set_caching(bint on):
    global caching, direct
    caching = on
    direct = not caching or foreign != NULL or allocate_async != NULL


def is_caching():
    return caching


def install_foreign(uintptr_t source, uintptr_t hooks):
    """Let functions of the user's serve all requests: a SegmentSource and AllocatorHooks."""
    global foreign, foreign_hooks, direct
    foreign = <const SegmentSource*>source
    foreign_hooks = <const AllocatorHooks*>hooks
    direct = True


def foreign_initialized():
    """CUDA has been initialised: the user's allocator may want to know how many devices."""
    if foreign_hooks != NULL and foreign_hooks.initialize != NULL:
        foreign_hooks.initialize(_state.device_total)


def is_foreign():
    return foreign != NULL


cdef int install_async() except -1:
    global direct
    direct = True
    return 0


def is_async():
    return allocate_async != NULL


cdef int require_native(str what) except -1:
    if foreign != NULL:
        raise RuntimeError(
            f"the pluggable allocator does not yet support {what}: change_current_allocator "
            "installed functions that keep no such books. A MemPool with this allocator keeps them.")
    if allocate_async != NULL:
        raise RuntimeError(
            f"backend:cudaMallocAsync does not yet support {what}, which are not meaningful there: "
            "blocks and segments are the driver's own. Use backend:native for them.")
    return 0


def check_native(str what):
    require_native(what)


# -- who asks for memory, for histories ------------------------------------------------------------

cdef void set_stack_sources(StackSource at_allocation, StackSource at_free) noexcept:
    global gather_at_allocation, gather_at_free
    gather_at_allocation = at_allocation
    gather_at_free = at_free


cdef void set_release_observer(ReleaseObserver observer) noexcept:
    global on_release
    on_release = observer


cdef void set_thread_metadata(Metadata metadata) noexcept:
    global this_thread_metadata
    this_thread_metadata = metadata


cdef Metadata thread_metadata() noexcept:
    return this_thread_metadata


# -- limits ----------------------------------------------------------------------------------------

cdef int warn_of_idle_settings(DeviceAllocator* allocator) except -1:
    """Once: settings that cannot do anything, as the limits are."""
    global idle_settings
    cdef size_t limit = allocator.limit()
    from flambeau.runtime import _allocator_settings
    idle_settings = False
    if settings.garbage_threshold > 0 and limit == <size_t>-1:
        _allocator_settings.warn_of_idle("garbage_collection_threshold")
    if allocator.rejection_is_idle():
        _allocator_settings.warn_of_idle("throw_on_cudamalloc_oom")
    return 0


cdef DeviceAllocator* existing(int device) noexcept:
    if _state.initialized and 0 <= device < _state.device_total:
        return allocators[device]
    return NULL


def set_memory_limit(int device, limit):
    if allocate_async != NULL:
        from flambeau.runtime import _allocator_async
        return _allocator_async.set_limit(device, limit)
    if foreign_hooks != NULL:
        if foreign_hooks.memory_fraction != NULL:
            foreign_hooks.memory_fraction(1.0 if limit is None else limit / total_of(device), device)
        return
    allocator_of(device).set_limit(<size_t>-1 if limit is None else <size_t>limit)


def get_memory_limit(int device):
    if allocate_async != NULL:
        from flambeau.runtime import _allocator_async
        return _allocator_async.get_limit(device)
    require_native("memory limits")
    cdef size_t limit = allocator_of(device).limit()
    return None if limit == <size_t>-1 else limit


from flambeau.runtime._allocator_address import (  # noqa: E402, F401
    Allocation, allocate, allocate_on_host, raw_alloc, raw_delete,
)
from flambeau.runtime._allocator_control import (  # noqa: E402, F401
    allocated_bytes, configure, configure_host, cycle_seconds, host_allocator_address,
    initialize_settings, max_allocated_bytes, max_reserved_bytes, reserved_bytes,
)
from flambeau.runtime._allocator_observation import (  # noqa: E402, F401
    publish_blocks, set_observed,
)
from flambeau.runtime._memory_stats import (  # noqa: E402, F401
    host_memory_stats_raw, memory_snapshot_raw, memory_stats_raw, reset_accumulated,
    reset_accumulated_host, reset_peak, reset_peak_host,
)
