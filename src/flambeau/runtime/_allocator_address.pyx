# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Memory by address: for other libraries, and for tests of the allocators."""
from cython.operator cimport dereference
from libc.stdint cimport uintptr_t
from libcpp.unordered_map cimport unordered_map

from flambeau.driver._table cimport CUstream
from flambeau.runtime cimport _state
from flambeau.runtime._allocator cimport (
    allocate_device, allocate_host, allocate_pinned, record_pinned_use, record_stream_of,
)
from flambeau.runtime._allocator_types cimport Storage

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


cdef unordered_map[uintptr_t, Storage*] raw  # by address; guarded by Python's lock


def raw_alloc(size_t nbytes, int device, uintptr_t stream):
    cdef Storage* storage
    if nbytes == 0:
        return 0
    storage = allocate_device(device, nbytes, <CUstream>stream)
    raw[<uintptr_t>storage.data] = storage
    return <uintptr_t>storage.data


def raw_delete(uintptr_t address):
    cdef Storage* storage
    cdef unordered_map[uintptr_t, Storage*].iterator found
    if address == 0:
        return
    found = raw.find(address)
    if found != raw.end():
        storage = dereference(found).second
        raw.erase(found)
        storage.drop()
        if _state.initialized:
            _state.note_call()
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
    raw.clear()
