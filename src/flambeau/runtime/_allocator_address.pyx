# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Memory by address: for other libraries, and for tests of the allocators."""
from libc.stdint cimport uintptr_t

from flambeau.driver._table cimport CUstream
from flambeau.runtime cimport _state
from flambeau.runtime._allocator cimport (
    allocate_device, allocate_host, allocate_pinned, allocators, block_behind, record_pinned_use,
    record_stream_of,
)
from flambeau.runtime._allocator_types cimport Block, Storage

from flambeau.runtime import _allocator as _allocator_module


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
    cdef Block* block
    if nbytes == 0:
        return 0
    storage = allocate_device(device, nbytes, <CUstream>stream)
    block = block_behind(storage)
    if block != NULL:
        block.raw = True
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
    if _allocator_module.is_foreign():
        raise RuntimeError(
            f"Trying to free a pointer not allocated here: 0x{address:x} did not come from the "
            "allocator that change_current_allocator installed")
    raise RuntimeError(
        f"invalid device pointer: 0x{address:x}; no allocation made by address starts there, or it "
        "was deleted before")


def forget():
    """Every address is void."""
    raw_direct.clear()
