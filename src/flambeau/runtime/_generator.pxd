# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Random number generators, for compiled callers."""
from libc.stdint cimport int64_t, uint64_t

from flambeau.runtime._device cimport device
from flambeau.runtime._tensor cimport Tensor

cdef extern from "flambeau/runtime/mt19937.hpp" namespace "flambeau" nogil:
    cdef cppclass Mt19937:
        Mt19937(uint64_t)
        void reseed(uint64_t)
        uint64_t seed()
        double unit_double()
        void save(void*)
        bint restore(const void*)

# What kernels get by value: the seed and the offset, or the addresses of one-element device tensors
# that hold them (while a graph is captured: every replay writes them), and what to add to the latter.
cdef struct PhiloxArguments:
    uint64_t seed
    uint64_t offset
    uint64_t graph_offset
    uint64_t captured

cdef class PhiloxState:
    cdef uint64_t seed
    cdef uint64_t offset
    cdef PhiloxArguments cells          # while capturing
    cdef int set_seed(self, uint64_t seed) except -1
    cdef int refuse_in_capture(self, str what) except -1

cdef class Generator:
    cdef readonly device device
    cdef PhiloxState philox             # of a CUDA generator; graphsafe_set_state shares it
    cdef Mt19937* host                  # of a CPU generator
    cdef object __weakref__
    cdef int _reseed(self, uint64_t seed) except -1
    cdef int _set_host_state(self, Tensor state) except -1
    cdef int _set_philox_state(self, Tensor state) except -1
    cdef int _require_philox(self, str what) except -1

# Take `increment` draws per thread, rounded up to a multiple of 4.
cdef PhiloxArguments take(Generator generator, uint64_t increment) except *
# The generator that an argument means, for tensors on a device (-1: the host): None is the default.
cdef Generator choose(object generator, int device)
cdef Generator default_cuda(int device)
cdef uint64_t parse_seed(object seed) except? 0
