# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Random fills, for compiled callers."""
from libc.stdint cimport int64_t, uint64_t

from flambeau.runtime._elementwise cimport FlatTable

cdef extern from "flambeau/runtime/host_random.hpp" namespace "flambeau" nogil:
    cdef enum RandomKind:
        UNIFORM, NORMAL, LOG_NORMAL, EXPONENTIAL, CAUCHY, GEOMETRIC, BERNOULLI, RANDOM32, RANDOM64
    cdef struct RandomNumbers:
        double a
        double b
        uint64_t range "range"
        uint64_t reciprocal
        int64_t base

cdef class RandomFill:
    cdef readonly str name
    cdef RandomKind kind
    cdef object compile_kernel
    cdef FlatTable kernels
    cdef int epoch                      # in which the kernels are valid
