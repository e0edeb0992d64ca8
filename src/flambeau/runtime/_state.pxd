# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Initialisation, the current device and the current streams, for compiled callers."""
from libc.stdint cimport int64_t, uint32_t
from flambeau.driver._table cimport CUcontext, CUevent, CUstream

cdef extern from "flambeau/runtime/thread_state.hpp" namespace "flambeau" nogil:
    const int MAX_DEVICES
    const uint32_t UNCOUNTED
    cdef struct ThreadState:
        int device
        int context_device
        CUstream* streams
        int64_t* stream_ids
        uint32_t first_version

cdef bint initialized            # CUDA is initialised in this process (not in a forked child)
cdef int device_total            # devices of the driver; 0 before initialisation
cdef bint observed               # somebody observes calls: tell runtime.observers.notify
cdef int epoch                   # counts how often all handles became void (fork, replaced driver)
cdef int captures                # stream captures that CUDAGraphs have under way
cdef int sync_debug_mode         # 0 silent, 1 warn, 2 raise when an operation waits for the device

cdef ThreadState* thread_state() noexcept nogil
cdef int require_initialized() except -1                # lazy initialisation; raises what init raises
cdef int ensure_context(int device) except -1           # its primary context is current in this thread
cdef CUcontext context_of(int device) except? NULL      # primary context, retained at first use
cdef int device_of_context(CUcontext context) noexcept  # device whose primary context it is, or -1
cdef int note_call() except -1                          # raise what finalizers and host callbacks queued
cdef int check_device(int device) except -1             # error 101 unless 0 <= device < device_total
cdef int switch_device(int device) except -1            # make it current, with its context
cdef int return_to_device(int device) except -1         # the same without creating a context there
cdef int restore_context() except -1                    # the current device's, if another was needed
# An operation named `what` is about to wait for the device: warn or raise, as the mode says.
cdef int check_sync(str what) except -1
# Whether a stream's work goes into a graph now. Asks the driver only while captures are under way.
cdef bint is_captured(CUstream stream) except -1
# Destroy this event at the next call that may: finalizers must not call the driver. `made_in` is the
# epoch in which it was created.
cdef void defer_event(CUevent event, int made_in) noexcept
