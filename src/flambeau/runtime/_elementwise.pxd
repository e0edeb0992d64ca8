# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Elementwise dispatch, for compiled callers."""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from flambeau.runtime._tensor cimport Tensor

cdef enum:
    MAX_OPERANDS = 4

cdef extern from "flambeau/runtime/_elementwise.hpp" namespace "flambeau" nogil:
    cdef cppclass FlatTable:
        uint64_t* find(uint64_t)
        void put(uint64_t, uint64_t)
        void clear()

cdef class ElementwiseOp:
    cdef readonly str name
    cdef readonly int arity
    cdef readonly int scalars
    cdef readonly bint any_output
    cdef object _promote
    cdef object _compile
    cdef object _host
    cdef FlatTable _promotions
    cdef FlatTable _kernels
    cdef int _generation
    cdef int _driver_generation

# The operation on `op.arity` operands (borrowed). NotImplemented if one is neither tensor nor number.
# `in_place`: out is not resized.
cdef object call(ElementwiseOp op, PyObject** operands, Tensor out, bint in_place, tuple scalars)

# The same, recorded for the backward pass; None if no operand takes part. Put in by _recording.
ctypedef object (*Record)(object op, PyObject** operands, int n, Tensor out, bint in_place, tuple scalars)
cdef Record record
