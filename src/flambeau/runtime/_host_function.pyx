# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Python functions in a stream's work."""
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uintptr_t

from flambeau.driver._table cimport CUresult, CUstream, check, driver
from flambeau.runtime cimport _state

from flambeau.runtime._state import defer_error

ctypedef void (*HostFunction)(void*) noexcept nogil

cdef list _captured = []                # functions of captures that nobody here knows the graph of


cdef void call_again(void* data) noexcept with gil:
    """Of a graph, which holds the function."""
    function = <object>data
    try:
        function()
    except BaseException as error:  # noqa: BLE001 - nobody is above this frame
        defer_error(error)


cdef void call_once(void* data) noexcept with gil:
    call_again(data)
    Py_DECREF(<object>data)


cdef bint becomes_node(CUstream stream, function) except -1:
    """Whether the stream is being captured: then the function is kept for the replays."""
    cdef int capturing = 0
    driver.StreamIsCapturing(stream, &capturing)
    if capturing:
        from flambeau.runtime import _graph
        if not _graph.keep_function(<uintptr_t>stream, function):
            _captured.append(function)
    return capturing


def launch_host_function(uintptr_t stream, function):
    cdef CUresult status
    cdef void* data = <void*>function
    cdef HostFunction call = <HostFunction>call_again
    cdef bint kept
    _state.require_initialized()
    _state.note_call()
    _state.ensure_context(_state.thread_state().device)
    kept = becomes_node(<CUstream>stream, function)
    if not kept:
        call = <HostFunction>call_once
        Py_INCREF(function)
    with nogil:
        status = driver.LaunchHostFunc(<CUstream>stream, call, data)
    if status != 0 and not kept:
        Py_DECREF(function)
    check(status)
