# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""What operands of an operation are, and what shape they have together; for compiled callers."""
from cpython.object cimport PyObject
from libc.stdint cimport int8_t, int64_t, uint64_t
from flambeau.runtime._tensor cimport Tensor

cdef extern from "flambeau/runtime/_elementwise.hpp" namespace "flambeau" nogil:
    cdef cppclass Number:
        double real
        double imag
        int64_t integer

cdef enum RankClass:
    DIMENSIONED, ZERO_DIM, PYTHON_SCALAR

# One call: what is known of its operands, and what was decided.
cdef struct Call:
    int n
    int device                          # -1: all on the host
    int result_type
    int compute_type
    int by_value                        # bit i: operand i is passed as a number
    uint64_t kinds                      # a byte per operand: dtype and rank class, not 0
    PyObject* subclass                  # of an operand, or NULL
    bint uniform                        # tensor operands: one shape, contiguous
    int ndim
    int64_t* sizes                      # of the result: broadcast_sizes or a tensor's own
    int64_t[64] broadcast_sizes
    int8_t[4] types
    int8_t[4] ranks

# Read a Python number; 0 if it is none.
cdef int python_number(object value, Number* number, int8_t* type) except -1
# Types, ranks, device and numbers of `c.n` operands; 0 if one is neither tensor nor number.
cdef int classify(str name, PyObject** operands, Tensor out, Number* numbers, Call* c) except -1
# The result's shape when the operands' shapes differ.
cdef int broadcast(PyObject** operands, Call* c) except -1
# For copies: the target's shape; the source must broadcast to it.
cdef int expand_into(Tensor out, Call* c) except -1
cdef bint same_shape(Tensor t, Call* c) noexcept
