# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The caching allocators, for compiled callers."""
from libcpp cimport bool as cbool
from flambeau.driver._table cimport CUstream
from flambeau.runtime._allocator_types cimport (
    AllocatorSettings, Block, DeviceAllocator, HostSettings, Metadata, PinnedAllocator, StackNode,
    Storage, StreamUse,
)

# A block of at least `bytes` for work on `stream`; one reference. Raises OutOfMemoryError.
cdef Storage* allocate_device(int device, size_t bytes, CUstream stream) except NULL
# A pinned host block; one reference.
cdef Storage* allocate_pinned(size_t bytes) except NULL
# An ordinary host block, 64-byte aligned, not cleared; one reference.
cdef Storage* allocate_host(size_t bytes) except NULL
# The block is used on `stream` too: it is not reused before that stream has passed this use. A null
# stream is the default one of the block's own device.
cdef int record_stream(Storage* storage, CUstream stream) except -1
# The same for a stream of a device that the caller knows.
cdef int record_stream_of(Storage* storage, CUstream stream, int device) except -1
# Work on `stream` reads or writes this pinned block: it is not recycled before that is done. The
# stream's device must be current.
cdef int record_pinned_use(Storage* storage, CUstream stream) except -1
# Whether an address lies in pinned memory that we or the driver know of.
cdef bint is_pinned_address(const void* address) except -1

# Somebody observes memory: tell runtime.observers.notify.
cdef bint observed
# Told of each allocation; null for nobody.
ctypedef int (*AllocationObserver)(
    Storage* storage, size_t bytes, int device, CUstream stream) except -1
cdef AllocationObserver on_allocation

# What the other faces of the allocators read.
cdef AllocatorSettings settings
cdef HostSettings host_settings
cdef double initial_fraction                            # of each device that may be reserved at first
cdef bint idle_settings                                 # warn of settings that prove to do nothing
cdef DeviceAllocator* allocators[64]                    # by device; null before its first use
cdef PinnedAllocator* pinned                            # null before its first use
cdef DeviceAllocator* allocator_of(int device) except NULL
cdef DeviceAllocator* existing(int device) noexcept     # null before its first use
cdef PinnedAllocator* pinned_allocator() except NULL
cdef Block* block_behind(Storage* storage) noexcept     # null if it is not the cache's
cdef size_t initial_max_split_size                      # as it was at initialisation
# The backend cudaMallocAsync in place of the cache, if it is on: `record_async` says whether a storage
# is its own.
ctypedef Storage* (*AllocateAsync)(int device, size_t bytes, CUstream stream) except NULL
ctypedef int (*RecordAsync)(Storage* storage, StreamUse use) except -1
cdef AllocateAsync allocate_async
cdef RecordAsync record_async
# A graph takes memory, on one device more or less; `of` stands for the capture. One at a time.
ctypedef int (*CaptureAsync)(void* of) except -1
cdef CaptureAsync begin_async_capture
cdef CaptureAsync end_async_capture
cdef int install_async() except -1
# Memory that other processes were given: whether a block must stay though nobody here holds it, and a
# look for such blocks that may go. Null for nobody.
ctypedef cbool (*KeepSent)(Block*) noexcept nogil
ctypedef cbool (*CollectSent)() noexcept nogil
cdef void set_sent_hooks(KeepSent keep, CollectSent collect) noexcept
# The same question of memory that another process shares.
cdef RecordAsync record_received
# Refuse, with the words of torch, what only flambeau's own allocator can do.
cdef int require_native(str what) except -1

# Have a function say where in the program memory is allocated, and freed; null for nobody. It is
# called with the GIL, or without it where a storage dies.
ctypedef const StackNode* (*StackSource)() noexcept nogil
cdef void set_stack_sources(StackSource at_allocation, StackSource at_free) noexcept
# Have a function told of each block before it is taken back, with the GIL or without; null for nobody.
ctypedef void (*ReleaseObserver)(Block*) noexcept nogil
cdef void set_release_observer(ReleaseObserver observer) noexcept
# What the present thread adds to the entries of histories.
cdef void set_thread_metadata(Metadata metadata) noexcept
cdef Metadata thread_metadata() noexcept
