# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""What a graph reads and writes that was not made in its capture, and whether it is still there."""
from libc.stdint cimport int64_t, uintptr_t
from libcpp.vector cimport vector

from flambeau.runtime._allocator_types cimport Storage
from flambeau.runtime._tensor cimport Tensor

from flambeau.runtime import _allocator, capture_report

cdef extern from *:
    """
    #include "flambeau/runtime/storage.hpp"
    namespace flambeau {
    inline std::int64_t references_of(const Storage *storage) { return storage->references.load(); }
    }
    """
    int64_t references_of "flambeau::references_of"(const Storage*) nogil


cdef class WatchedInputs:
    """Memory that captured work uses. It is held until the graph goes, so that it cannot become
    another tensor's unseen."""

    cdef vector[Storage*] storages
    cdef vector[char*] addresses
    cdef list notes
    cdef set known                      # storages
    cdef list segments                  # of the graph's pool, as begin and end
    cdef tuple pool

    def __cinit__(self, pool):
        self.pool = tuple(pool)
        self.notes = []
        self.known = set()
        self.segments = []

    def __dealloc__(self):
        self.drop_all()

    cdef int drop_all(self) noexcept:
        cdef size_t i
        for i in range(self.storages.size()):
            self.storages[i].drop()
        self.storages.clear()
        self.addresses.clear()
        return 0

    def close(self):
        self.drop_all()
        self.notes = []
        self.known = set()

    cdef bint is_in_pool(self, uintptr_t address) except -1:
        """Whether an address is memory of the graph; the capture may have got more since."""
        if any(begin <= address < end for begin, end in self.segments):
            return True
        self.segments = [
            (segment["address"], segment["address"] + segment["total_size"])
            for segment in _allocator.memory_snapshot_raw()
            if tuple(segment["segment_pool_id"]) == self.pool]
        return any(begin <= address < end for begin, end in self.segments)

    def watch(self, str operation, tensors):
        cdef Tensor tensor
        cdef Storage* storage
        for tensor in tensors:
            storage = tensor.storage
            if storage == NULL or <uintptr_t>storage in self.known:
                continue
            if self.is_in_pool(<uintptr_t>storage.data):
                continue
            storage.retain()
            self.known.add(<uintptr_t>storage)
            self.storages.push_back(storage)
            self.addresses.push_back(storage.data)
            self.notes.append(
                f"{tensor.dtype} tensor of shape {tuple(tensor.shape)} at 0x{<uintptr_t>tensor.data:x}, "
                f"used by {operation} in the capture: {capture_report.place()}")

    def dead(self):
        cdef size_t i
        return [
            self.notes[i] for i in range(self.storages.size())
            if references_of(self.storages[i]) == 1 or self.storages[i].data != self.addresses[i]]
