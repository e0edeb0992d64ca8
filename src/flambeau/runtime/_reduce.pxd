# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Reductions, for compiled callers."""
from flambeau.runtime._elementwise cimport FlatTable

cdef class ReductionOp:
    cdef readonly str name
    cdef readonly bint positions
    cdef object _compile
    cdef FlatTable _kernels
    cdef int _known
