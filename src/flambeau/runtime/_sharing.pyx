# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Memory that several processes hold: device memory by handles of the driver, host memory by files."""
from libc.errno cimport errno
from libc.stdint cimport int16_t, int64_t, uint64_t, uintptr_t
from libc.string cimport memcpy, strerror
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

from flambeau.driver._table cimport (
    CUDA_SUCCESS, CUcontext, CUdeviceptr, CUevent, CUipcHandle, CUresult, CUstream, DriverTable,
    check, driver,
)
from flambeau.runtime cimport _allocator, _state
from flambeau.runtime._allocator cimport block_behind, require_native
cdef extern from "flambeau/runtime/device_allocator.hpp":
    pass

from flambeau.runtime._allocator_types cimport (
    Block, DeviceAllocator, Storage, StreamUse, Whereabouts,
)
from flambeau.runtime._storage cimport UntypedStorage

import os
import struct
import sys

cdef extern from "flambeau/runtime/sent_blocks.hpp" namespace "flambeau" nogil:
    cdef cppclass CounterFile:
        string name
    cdef cppclass Send:
        CounterFile* file
        size_t slot
        CUevent event
        CUcontext context
        vector[int] descriptors
    const Send* add_send "flambeau::SentBlocks::add"(Block*, Send)
    bint may_have_event "flambeau::SentBlocks::may_have_event"()
    vector[int] descriptors_of "flambeau::SentBlocks::descriptors_of"(Block*)
    cbool keep_sent "flambeau::SentBlocks::keep"(Block*) noexcept
    cbool collect_sent "flambeau::SentBlocks::collect"() noexcept
    void drop_files "flambeau::SentBlocks::drop_files"()
    size_t limbo_size "flambeau::SentBlocks::limbo_size"()
    size_t many_in_limbo "flambeau::SentBlocks::MANY_IN_LIMBO"
    vector[Block*] limbo_blocks "flambeau::SentBlocks::limbo"()
    size_t outstanding_sends "flambeau::SentBlocks::outstanding"()
    Block* reclaim "flambeau::SentBlocks::reclaim"(const string&, size_t)
    void forget_sent "flambeau::SentBlocks::forget"(bint)
    const DriverTable* sent_driver "flambeau::SentBlocks::driver"

cdef extern from "flambeau/runtime/received_storage.hpp" namespace "flambeau" nogil:
    cdef cppclass RemoteMapping:
        pass
    cdef cppclass ReceivedStorage(Storage):
        pass
    bint owns_received "flambeau::RemoteMemory::owns"(const Storage*)
    ReceivedStorage* as_received "flambeau::RemoteMemory::as_own"(Storage*)
    void record_received "flambeau::RemoteMemory::record_use"(ReceivedStorage*, StreamUse)
    RemoteMapping* open_mapping "flambeau::RemoteMemory::open"(
        const string&, const CUipcHandle&, CUcontext, CUresult*)
    RemoteMapping* open_pages "flambeau::RemoteMemory::open_pages"(
        const string&, const vector[int]&, size_t, int, CUcontext, CUresult*)
    ReceivedStorage* make_received "flambeau::RemoteMemory::make"(
        RemoteMapping*, size_t, size_t, int, const string&, size_t, StreamUse)
    bint decrement "flambeau::RemoteMemory::decrement"(const string&, size_t)
    void forget_received "flambeau::RemoteMemory::forget"()
    const DriverTable* received_driver "flambeau::RemoteMemory::driver"

cdef extern from "flambeau/runtime/shared_memory.hpp" namespace "flambeau" nogil:
    cdef cppclass SharedStorage(Storage):
        int descriptor
        string name
    bint owns_shared "flambeau::SharedMemory::owns"(const Storage*)
    SharedStorage* as_shared "flambeau::SharedMemory::as_own"(Storage*)
    SharedStorage* create_shared "flambeau::SharedMemory::create"(size_t, bint)
    SharedStorage* open_descriptor "flambeau::SharedMemory::open"(int, size_t)
    SharedStorage* open_name "flambeau::SharedMemory::open"(const string&, size_t)
    void hold_shared "flambeau::SharedMemory::hold"(SharedStorage*)
    void let_go_of_all "flambeau::SharedMemory::let_go_of_all"()

cdef extern from *:
    """
    namespace flambeau {
    inline DeviceAllocator *sending_allocator(Block *block) { return block->allocator; }
    }
    """
    DeviceAllocator* sending_allocator "flambeau::sending_allocator"(Block*)

cdef int HANDLE_VERSION = 3
cdef str NO_EXPANDABLE = "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC"
cdef object PAGES = struct.Struct("<iiQ")  # process, number of descriptors, bytes of a page
cdef bint warned_of_limbo = False
cdef bint ends_watched = False


cdef UntypedStorage face_of(Storage* storage):
    """A storage as an object, which takes over the reference."""
    cdef UntypedStorage face = UntypedStorage.__new__(UntypedStorage)
    face.storage = storage
    return face


cdef int use_driver() except -1:
    global sent_driver, received_driver
    sent_driver = driver
    _allocator.set_sent_hooks(keep_sent, collect_sent)
    received_driver = driver
    return 0


# -- device memory, where it is made ---------------------------------------------------------------

def share_cuda(UntypedStorage self):
    """_share_cuda_() -> what another process needs to hold this device memory too.

    A tuple of the device, a handle, the bytes, where they begin in what the handle means, the name
    of a file of counters and the place there, the handle of an event, and whether to wait for it.
    """
    cdef Storage* storage = self.storage
    cdef Block* block
    cdef Send send
    cdef const Send* made
    if storage.device < 0:
        raise RuntimeError("_share_cuda_: only available on CUDA; this storage is the host's")
    if storage.bytes == 0:
        return storage.device, None, 0, 0, None, 0, None, None
    if owns_received(storage):
        raise RuntimeError(
            "Attempted to send CUDA tensor received from another process; this is not currently "
            "supported. Consider cloning before sending.")
    require_native("memory between processes")
    block = block_behind(storage)
    if block == NULL:
        raise RuntimeError(
            "only memory of the caching allocator can be sent to other processes: this came from "
            "elsewhere. Consider cloning before sending.")
    use_driver()
    _state.note_call()
    _state.ensure_context(storage.device)
    collect_sent()
    where = handle_of(block, &send.descriptors)
    event_handle = record_send(storage.device, &send)
    made = add_send(block, send)
    _state.restore_context()
    if made == NULL:
        raise OSError(errno, f"no shared memory for counters: {strerror(errno).decode()}")
    watch_the_end()
    warn_of_limbo()
    return (
        storage.device, where[0], storage.bytes, where[1], bytes(made.file.name), made.slot,
        event_handle, made.event != NULL,
    )


cdef tuple handle_of(Block* block, vector[int]* descriptors):
    """The handle of the memory around a block, and where the block begins there."""
    cdef CUipcHandle handle
    cdef Whereabouts found
    sending_allocator(block).locate(block, &found)
    if found.page == 0:
        check(driver.IpcGetMemHandle(&handle, found.base))
        packed = (<char*>handle.reserved)[:64]
        return bytes([HANDLE_VERSION]) + b"c" + packed, found.offset
    if os.environ.get(NO_EXPANDABLE) == "0":
        raise RuntimeError(
            f"memory of an expandable segment is not sent to other processes: {NO_EXPANDABLE}=0 "
            "forbids it. Take that out, or use expandable_segments:False for what is to be sent.")
    descriptors[0] = descriptors_of(block)
    if descriptors.empty():
        export_pages(found.pages, descriptors)
    numbers = struct.pack(f"<{descriptors.size()}i", *list(descriptors[0]))
    header = PAGES.pack(os.getpid(), descriptors.size(), found.page)
    return bytes([HANDLE_VERSION]) + b"e" + header + numbers, found.offset


def descriptor_numbers(bytes handle):
    """The descriptors that a handle of pages names, in the process that made it."""
    _, count, _ = PAGES.unpack_from(handle, 2)
    return struct.unpack_from(f"<{count}i", handle, 2 + PAGES.size)


cdef int export_pages(vector[uint64_t]& pages, vector[int]* descriptors) except -1:
    cdef int descriptor = 0
    cdef CUresult status
    for page in pages:
        status = driver.MemExportToShareableHandle(&descriptor, page, 1, 0)
        if status != CUDA_SUCCESS:
            for opened in descriptors[0]:
                os.close(opened)
            descriptors.clear()
            check(status)
        descriptors.push_back(descriptor)
    return 0


cdef bytes record_send(int device, Send* send):
    """Mark the present end of the current stream, or wait for it if too many marks are open.

    The answer is the handle of the mark.
    """
    cdef CUstream stream = _state.thread_state().streams[device]
    cdef CUipcHandle packed
    cdef CUevent event = NULL
    cdef CUresult status
    send.event = NULL
    send.context = _state.context_of(device)
    if may_have_event():
        check(driver.EventCreate(&event, 6))  # CU_EVENT_INTERPROCESS, CU_EVENT_DISABLE_TIMING
        status = driver.EventRecord(event, stream)
        if status == CUDA_SUCCESS:
            status = driver.IpcGetEventHandle(&packed, event)
        if status == CUDA_SUCCESS:
            send.event = event
            return (<char*>packed.reserved)[:64]
        driver.EventDestroy(event)
        check(status)
    with nogil:
        status = driver.StreamSynchronize(stream)
    check(status)
    return b""


cdef int warn_of_limbo() except -1:
    global warned_of_limbo
    if warned_of_limbo or limbo_size() <= many_in_limbo:
        return 0
    warned_of_limbo = True
    import warnings
    warnings.warn(
        f"{limbo_size()} tensors that were sent to other processes are gone here and still held "
        "there, so that their memory stays. Let the receivers drop what they do not need",
        UserWarning, stacklevel=3)


def collect():
    """Take back the memory that no other process holds any more."""
    collect_sent()
    drop_files()


def in_limbo():
    """The blocks that only other processes hold: pairs of address and bytes."""
    return [(<uintptr_t>block.data, block.size) for block in limbo_blocks()]


def watch_the_end():
    """At the end of the process, say what others still hold, and remove what has a name."""
    global ends_watched
    if ends_watched:
        return
    ends_watched = True
    import atexit
    atexit.register(end, os.getpid())


def end(int process):
    if process != os.getpid():
        return  # a child that was forked: what there is belongs to its parent
    collect_sent()
    if outstanding_sends():
        sys.stderr.write(
            "Producer process has been terminated before all shared CUDA tensors released: "
            f"{outstanding_sends()} that were sent are still held, or were never received.\n")
    _allocator.set_sent_hooks(NULL, NULL)
    forget_sent(False)
    let_go_of_all()


def forget(bint forked):
    """The driver's handles are void."""
    global ends_watched
    if forked:
        ends_watched = False
    _allocator.set_sent_hooks(NULL, NULL)
    forget_sent(forked)
    forget_received()


# -- device memory, where it is received -----------------------------------------------------------

def new_shared_cuda(
    int device, handle, size_t nbytes, size_t offset, counters, size_t slot, event_handle,
    bint needs_wait, descriptors=None,
):
    """_new_shared_cuda(device, handle, ...) -> a storage over device memory of another process.

    The arguments are what `_share_cuda_` gave there; `descriptors` are those of an expandable
    segment's pages if somebody has passed them already.
    """
    cdef Block* own
    cdef CUcontext context
    cdef RemoteMapping* mapping
    cdef ReceivedStorage* storage
    cdef StreamUse use
    _state.require_initialized()
    _state.check_device(device)
    if handle is None:
        return empty_on(device)
    use_driver()
    own = reclaim(counters, slot)
    if own != NULL:
        return face_of(<Storage*>own)
    _state.note_call()
    _state.ensure_context(device)
    context = _state.context_of(device)
    use.context = context
    use.stream = _state.thread_state().streams[device]
    try:
        if needs_wait:
            wait_for(event_handle, use.stream)
        mapping = open_handle(device, handle, context, descriptors)
        storage = make_received(mapping, offset, nbytes, device, counters, slot, use)
        if storage == NULL:
            raise RuntimeError(
                f"the process that sent this tensor is gone: its counters {counters!r} are not there. "
                "It has to live, and to keep the tensor, until this process has received it.")
        return face_of(storage)
    finally:
        _state.restore_context()


cdef object empty_on(int device):
    from flambeau.runtime import _factory
    return _factory.new_empty((0,), device=f"cuda:{device}").untyped_storage()


cdef int wait_for(bytes handle, CUstream stream) except -1:
    cdef CUipcHandle packed
    cdef CUevent event = NULL
    cdef CUresult status
    if len(handle) != 64:
        raise ValueError(f"the handle of an event has 64 bytes, got {len(handle)}")
    memcpy(packed.reserved, <char*>handle, 64)
    check(driver.IpcOpenEventHandle(&event, packed))
    status = driver.StreamWaitEvent(stream, event, 0)
    driver.EventDestroy(event)
    return check(status)


cdef RemoteMapping* open_handle(
    int device, bytes handle, CUcontext context, descriptors
) except NULL:
    cdef CUipcHandle packed
    cdef RemoteMapping* mapping
    cdef CUresult status = CUDA_SUCCESS
    cdef vector[int] pages
    if not handle or handle[0] != HANDLE_VERSION:
        raise RuntimeError(
            f"a handle of version {HANDLE_VERSION} is expected, this one begins with {handle[:1]!r}: "
            "both processes must run the same version")
    if handle[1:2] == b"c" and len(handle) == 66:
        memcpy(packed.reserved, <char*>handle + 2, 64)
        mapping = open_mapping(handle, packed, context, &status)
    elif handle[1:2] == b"e":
        process, count, page = PAGES.unpack_from(handle, 2)
        opened = descriptors
        if opened is None:
            from flambeau.runtime.descriptors import fetch
            opened = fetch(process, descriptor_numbers(handle))
        try:
            pages = opened
            mapping = open_pages(handle, pages, page, device, context, &status)
        finally:
            for descriptor in opened:
                os.close(descriptor)
    else:
        raise RuntimeError(f"a handle of an unknown kind: {handle[1:2]!r}")
    if mapping == NULL:
        check(status)
    return mapping


def release_ipc_counter(counters, size_t slot, device=None):
    """_release_ipc_counter(counters, slot): what was sent under this counter is not needed."""
    decrement(counters, slot)


def is_received(UntypedStorage storage):
    """Whether the memory is another process's."""
    return owns_received(storage.storage)


cdef int record(Storage* storage, StreamUse use) except -1:
    if owns_received(storage):
        record_received(as_received(storage), use)
        return 1
    return 0


# -- host memory -----------------------------------------------------------------------------------

def new_shared(size_t nbytes, *, bint named=False):
    """New host memory, all zero, that other processes can map: by a descriptor, or by a name."""
    cdef SharedStorage* storage = create_shared(nbytes, named)
    if storage == NULL:
        raise RuntimeError(
            f"unable to get {nbytes} bytes of shared memory: {strerror(errno).decode()}")
    if named:
        watch_the_end()
    return face_of(storage)


def open_shared(source, size_t nbytes):
    """Shared memory by its descriptor, which is taken over, or by its name."""
    cdef SharedStorage* storage
    if isinstance(source, int):
        storage = open_descriptor(<int>source, nbytes)
    else:
        storage = open_name(<string>source, nbytes)
        watch_the_end()
    if storage == NULL:
        raise RuntimeError(f"unable to open shared memory {source!r}: {strerror(errno).decode()}")
    return face_of(storage)


def is_shared(UntypedStorage self):
    """is_shared() -> whether other processes can map this memory; device memory always."""
    return self.storage.device >= 0 or owns_shared(self.storage)


def descriptor_of(UntypedStorage storage):
    """The descriptor of shared memory; -1 if it has a name or is not shared."""
    return as_shared(storage.storage).descriptor if owns_shared(storage.storage) else -1


def name_of(UntypedStorage storage):
    """The name of shared memory, which a message holds from now on."""
    hold_shared(as_shared(storage.storage))
    return bytes(as_shared(storage.storage).name)


_allocator.record_received = record
