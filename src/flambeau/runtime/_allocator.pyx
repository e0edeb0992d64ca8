# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""The caching allocators: device memory in stream order, pinned and ordinary host memory."""
from libc.stdint cimport int64_t, uintptr_t
from libcpp.string cimport string

from flambeau.driver._table cimport (
    CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUcontext, CUdevice, CUdeviceptr, CUresult,
    DriverTable, check, driver,
)
from flambeau.runtime cimport _state
from flambeau.runtime._allocator_types cimport (
    AllocationFailure, AllocatorSettings, Block, DeviceAllocator, FreeMemory, HostBlock,
    HostSettings, Metadata, PinnedAllocator, PoolId, Refusal, SegmentSource, StackNode, StreamUse, allocate_host_storage,
    owns_block, owns_host_block,
)

cdef extern from "flambeau/runtime/device_allocator.hpp" namespace "flambeau" nogil:
    void (*on_release "flambeau::DeviceAllocator::on_release")(Block*) noexcept nogil
    StackSource gather_at_free "flambeau::History::gather_at_free"
    Metadata thread_metadata "flambeau::History::this_thread_metadata"

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
cdef HostSettings host_settings
cdef bint observed = False
cdef bint caching = True
cdef double initial_fraction = 1.0  # of each device's memory that may be reserved at first
cdef bint idle_settings = False     # settings that may prove to do nothing are to be warned of
cdef StackSource gather_at_allocation = NULL
# The user's allocator in place of ours, if one was installed.
cdef const SegmentSource* foreign = NULL
cdef const AllocatorHooks* foreign_hooks = NULL
cdef bint direct = False            # no cache: caching is off, or the allocator is the user's


# -- device memory ---------------------------------------------------------------------------------

cdef size_t total_of(int device) except 0:
    cdef CUdevice handle
    cdef size_t total = 0
    check(driver.DeviceGet(&handle, device))
    check(driver.DeviceTotalMem(&total, handle))
    return total


cdef DeviceAllocator* allocator_of(int device) except NULL:
    cdef DeviceAllocator* allocator
    cdef size_t total
    _state.require_initialized()
    _state.check_device(device)
    if allocators[device] == NULL or allocators[device].is_dead():
        total = total_of(device)
        allocator = new DeviceAllocator(device, driver, &settings)
        allocator.set_total(total)
        if initial_fraction < 1:
            allocator.set_limit(<size_t>(initial_fraction * total + 0.5))
        allocators[device] = allocator
        from flambeau.runtime import _allocator_history
        _allocator_history.follow(device)
    return allocators[device]


cdef Storage* allocate_device(int device, size_t bytes, CUstream stream) except NULL:
    cdef Storage* storage
    if bytes == 0:
        return empty_storage(device, False)
    if (_state.initialized and not direct and 0 <= device < _state.device_total
            and allocators[device] != NULL):
        storage = allocators[device].allocate_cached(bytes, stream)
        if storage == NULL:
            storage = allocate_slowly(device, bytes, stream)
    else:
        storage = allocate_slowly(device, bytes, stream)
    if observed:
        from flambeau.runtime import observers
        observers.notify("memory_allocation", <uintptr_t>storage.data, bytes, device,
                         <uintptr_t>stream)
    return storage


cdef Storage* allocate_slowly(int device, size_t bytes, CUstream stream) except NULL:
    cdef DeviceAllocator* allocator = allocator_of(device)
    cdef const StackNode* stack = NULL
    cdef AllocationFailure failure
    cdef Block* block
    if bytes >= (<size_t>1 << 60):
        from flambeau.runtime import out_of_memory
        raise out_of_memory.beyond_exabyte(device, bytes)
    _state.note_call()
    _state.ensure_context(device)
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
        raise_failure(device, failure)
    return block


cdef object free_memory(const FreeMemory& memory):
    from flambeau.runtime.out_of_memory import FreeMemory as Words
    return Words(
        bytes=memory.bytes, largest=memory.largest, stream=<uintptr_t>memory.stream,
        pool=(memory.pool.first, memory.pool.second))


cdef str refusal_name(Refusal refusal):
    if refusal == Refusal.limit:
        return "limit"
    if refusal == Refusal.rejection:
        return "rejection"
    if refusal == Refusal.overlap:
        return "overlap"
    return "source" if refusal == Refusal.source else "driver"


cdef int raise_failure(int device, AllocationFailure& failure) except -1:
    if failure.status != CUDA_ERROR_OUT_OF_MEMORY:
        return check(failure.status)
    from flambeau.runtime import out_of_memory
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
    from flambeau.runtime import out_of_memory
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


cdef int record_stream(Storage* storage, CUstream stream) except -1:
    return record_stream_of(storage, stream, -1)


cdef int record_stream_of(Storage* storage, CUstream stream, int device) except -1:
    cdef StreamUse use
    if storage != NULL and foreign_hooks != NULL and owns_direct(storage):
        if foreign_hooks.record_stream != NULL:
            foreign_hooks.record_stream(storage.data, stream)
        return 0
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
    forget_direct()
    raw_direct.clear()


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
        from flambeau.runtime import _allocator_history
        _allocator_history.tell_host()
    return pinned


cdef Storage* allocate_pinned(size_t bytes) except NULL:
    cdef PinnedAllocator* allocator
    cdef HostBlock* block
    cdef CUresult status
    cdef const StackNode* stack = NULL
    if bytes == 0:
        return empty_storage(-1, False)
    allocator = pinned_allocator()
    if gather_at_allocation != NULL:
        stack = gather_at_allocation()
    _state.note_call()
    _state.ensure_context(_state.thread_state().device)
    with nogil:
        block = allocator.allocate(bytes, stack, &status)
    if block == NULL:
        check(status)
    if observed:
        from flambeau.runtime import observers
        observers.notify("pinned_allocation", <uintptr_t>block.data, bytes)
    return block


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
        from flambeau.runtime import _state as state
        state.defer_call(unpin_doomed)


on_doomed = note_doomed


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
    if status != CUDA_SUCCESS and host_settings.free_catch_all:
        import warnings
        warnings.warn(
            f"freeing pinned memory failed with status {status}; pinned_free_catch_all is on, so "
            "it is not raised", RuntimeWarning, stacklevel=2)
        return
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


cdef dict raw_direct = {}  # allocations by address that did not come from the cache


def raw_alloc(size_t nbytes, int device, uintptr_t stream):
    cdef Allocation allocation
    cdef Storage* storage
    if nbytes == 0:
        return 0
    storage = allocate_device(device, nbytes, <CUstream>stream)
    if owns_block(storage):
        as_block(storage).raw = True
    else:
        allocation = Allocation.__new__(Allocation)
        allocation.storage = storage
        raw_direct[<uintptr_t>storage.data] = allocation
    return <uintptr_t>storage.data


def raw_delete(uintptr_t address):
    cdef int device
    cdef Block* block
    if address == 0:
        return
    if address in raw_direct:
        raw_direct.pop(address).close()
        if _state.initialized:
            _state.note_call()
        return
    if _state.initialized:
        for device in range(_state.device_total):
            if allocators[device] != NULL:
                block = allocators[device].claim_raw(address)
                if block != NULL:
                    (<Storage*>block).drop()
                    return
    if foreign != NULL:
        raise RuntimeError(
            f"Trying to free a pointer not allocated here: 0x{address:x} did not come from the "
            "allocator that change_current_allocator installed")
    raise RuntimeError(
        f"invalid device pointer: 0x{address:x}; no allocation made by address starts there, or it "
        "was deleted before")


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
    from flambeau.runtime import out_of_memory
    raise out_of_memory.error(dataclasses.replace(
        memory_balance(device), requested=bytes, rounded=bytes, segment_size=bytes,
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
        from flambeau.runtime import _state as state
        state.defer_call(free_dead)


on_dead = note_dead


def set_caching(bint on):
    global caching, direct
    caching = on
    direct = not caching or foreign != NULL


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


cdef int require_native(str what) except -1:
    if foreign != NULL:
        raise RuntimeError(
            f"the pluggable allocator does not yet support {what}: change_current_allocator "
            "installed functions that keep no such books. A MemPool with this allocator keeps them.")
    return 0


def check_native(str what):
    require_native(what)


# -- who asks for memory, for histories ------------------------------------------------------------

cdef void set_stack_sources(StackSource at_allocation, StackSource at_free) noexcept:
    global gather_at_allocation, gather_at_free
    gather_at_allocation = at_allocation
    gather_at_free = at_free


cdef extern from *:
    """
    namespace flambeau {
    inline void set_thread_metadata(const std::string &text) {
      History::this_thread_metadata =
          text.empty() ? nullptr : std::make_shared<const std::string>(text);
    }
    inline std::string thread_metadata_text() {
      return History::this_thread_metadata ? *History::this_thread_metadata : std::string();
    }
    }
    """
    void set_thread_metadata "flambeau::set_thread_metadata"(const string&)
    string thread_metadata_text "flambeau::thread_metadata_text"()


def set_metadata(str text):
    set_thread_metadata(text.encode())


def get_metadata():
    return thread_metadata_text().decode()


# -- settings, limits and the figures that are asked for often -------------------------------------

def configure(
    *, large_segment=20 << 20, max_split_size=None, max_non_split_rounding=20 << 20,
    double garbage_threshold=0, roundup_divisions=(0,) * 16, bint reject_early=False,
    double configured_fraction=1.0,
):
    """Replace all settings; the caller has validated them."""
    global idle_settings
    pause()
    settings.large_segment = large_segment
    settings.max_split_size = <size_t>-1 if max_split_size is None else <size_t>max_split_size
    settings.max_non_split_rounding = max_non_split_rounding
    settings.garbage_threshold = garbage_threshold
    settings.reject_early = reject_early
    settings.configured_fraction = configured_fraction
    for interval, divisions in enumerate(roundup_divisions):
        settings.roundup_divisions[interval] = divisions
    resume()
    idle_settings = garbage_threshold > 0 or reject_early


def configure_host(
    *, bint use_register=False, int register_threads=1, max_round_threshold=None,
    max_cached_size=None, size_t reserve_segment=0, bint free_catch_all=False,
):
    """Replace all settings of the pinned cache; the caller has validated them."""
    pause()
    host_settings.use_register = use_register
    host_settings.register_threads = register_threads
    host_settings.max_round_threshold = (
        <size_t>-1 if max_round_threshold is None else <size_t>max_round_threshold)
    host_settings.max_cached_size = (
        <size_t>-1 if max_cached_size is None else <size_t>max_cached_size)
    host_settings.reserve_segment = reserve_segment
    host_settings.free_catch_all = free_catch_all
    resume()


def host_allocator_address():
    """Where the pinned cache's own object is."""
    return <uintptr_t>pinned_allocator()


def initialize_settings():
    """Take note of settings that count as they are when CUDA is initialised."""
    global initial_fraction, initial_max_split_size
    initial_fraction = settings.configured_fraction
    initial_max_split_size = settings.max_split_size


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
    if foreign_hooks != NULL:
        if foreign_hooks.memory_fraction != NULL:
            foreign_hooks.memory_fraction(1.0 if limit is None else limit / total_of(device), device)
        return
    allocator_of(device).set_limit(<size_t>-1 if limit is None else <size_t>limit)


def get_memory_limit(int device):
    require_native("memory limits")
    cdef size_t limit = allocator_of(device).limit()
    return None if limit == <size_t>-1 else limit


def allocated_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    require_native("memory statistics")
    _state.note_call()
    return 0 if allocator == NULL else allocator.allocated_bytes().current


def max_allocated_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    require_native("memory statistics")
    _state.note_call()
    return 0 if allocator == NULL else allocator.allocated_bytes().peak


def reserved_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    require_native("memory statistics")
    _state.note_call()
    return 0 if allocator == NULL else allocator.reserved_bytes().current


def max_reserved_bytes(int device):
    cdef DeviceAllocator* allocator = existing(device)
    require_native("memory statistics")
    _state.note_call()
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
