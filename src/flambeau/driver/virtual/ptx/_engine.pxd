# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The block executor as other extension modules see it: one per process, behind these calls.

    from flambeau.driver.virtual.ptx._engine cimport KernelCode, Launch, Outcome, info, run
"""
from libc.stdint cimport uint32_t, uint64_t
from libcpp.vector cimport vector

cdef extern from "flambeau/driver/virtual/ptx/engine.hpp" namespace "flambeau::ptx" nogil:
    cdef cppclass MemoryRange:
        uint64_t begin, end
    cdef cppclass MemoryMap:
        vector[MemoryRange] ranges
    cdef cppclass Watcher:
        pass
    cdef cppclass KernelCode:
        pass
    cdef cppclass KernelInfo:
        const char* name
        uint32_t static_shared, local_bytes, max_threads, registers, parameter_count
        const uint32_t* parameter_offsets
        const uint32_t* parameter_sizes
        uint32_t parameter_bytes
        double global_bytes_per_thread, operations_per_thread
    cdef cppclass Launch:
        const KernelCode* code
        uint32_t grid[3]
        uint32_t block[3]
        uint32_t dynamic_shared
        const void* parameters
        const MemoryMap* memory
        int workers, multiprocessors
        uint64_t clock_start
        int cooperative
        Watcher* watcher
    cdef cppclass Outcome:
        int status
        uint64_t address
        uint32_t access_bytes
        uint32_t block[3]
        uint32_t thread[3]
        char access[32]
        char source[256]
        char message[512]
        uint64_t clock_cycles
        double global_bytes, operations

cdef void run(const Launch* launch, Outcome* outcome) noexcept nogil
cdef const KernelInfo* info(const KernelCode* code) noexcept nogil
