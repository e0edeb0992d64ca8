# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Streams, for compiled callers."""
from libc.stdint cimport int64_t
from flambeau.driver._table cimport CUstream

cdef class BaseStream:
    cdef CUstream handle
    cdef int index                      # of its device
    cdef int64_t id                     # 0 default, odd of a pool, else the handle
    cdef list entered                   # a StreamContext per open `with`
    cdef dict __dict__
    cdef object __weakref__

cdef class Stream(BaseStream):
    pass

# What an argument that should be a stream is: None is the current stream of the current device,
# an object with __cuda_stream__ is taken. Raises RuntimeError for anything else.
cdef int resolve_stream(object stream, CUstream* handle, int* device) except -1
cdef Stream make_stream(int device, CUstream handle, int64_t id)
# A stream argument as a stream; an object with __cuda_stream__ is wrapped.
cdef BaseStream as_stream(object stream)
# Make it current for its device, and its device current.
cdef int set_current(BaseStream stream) except -1
