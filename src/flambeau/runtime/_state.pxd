# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Initialisation, the current device and the current streams, for compiled callers."""
from libc.stdint cimport int64_t
from flambeau.driver._table cimport CUcontext, CUstream

cdef extern from "flambeau/runtime/thread_state.hpp" namespace "flambeau" nogil:
    const int MAX_DEVICES
    cdef struct ThreadState:
        int device
        int context_device
        CUstream* streams
        int64_t* stream_ids

cdef bint initialized            # CUDA is initialised in this process (not in a forked child)
cdef int device_total            # devices of the driver; 0 before initialisation

cdef ThreadState* thread_state() noexcept nogil
cdef int require_initialized() except -1                # lazy initialisation; raises what init raises
cdef int ensure_context(int device) except -1           # its primary context is current in this thread
cdef CUcontext context_of(int device) except? NULL      # primary context, retained at first use
cdef int note_call() except -1                          # raise what finalizers and host callbacks queued
