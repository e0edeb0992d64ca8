# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The streams that a device has, for compiled callers."""
from libc.stdint cimport int64_t
from flambeau.driver._table cimport CUstream

cdef int take(int device, int priority, CUstream* handle, int64_t* id) except -1
cdef int find_by_id(int device, int64_t id, CUstream* handle) except -1
cdef int lowest_priority() except? 1
