# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Python functions in a stream's work."""
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uintptr_t

from flambeau.driver._table cimport CUresult, CUstream, check, driver
from flambeau.runtime cimport _state

from flambeau.runtime._state import defer_error


cdef void call_from_driver(void* data) noexcept with gil:
    function = <object>data
    try:
        function()
    except BaseException as error:  # noqa: BLE001 - nobody is above this frame
        defer_error(error)
    finally:
        Py_DECREF(function)


def launch_host_function(uintptr_t stream, function):
    cdef CUresult status
    cdef void* data = <void*>function
    _state.require_initialized()
    _state.note_call()
    _state.ensure_context(_state.thread_state().device)
    Py_INCREF(function)
    with nogil:
        status = driver.LaunchHostFunc(
            <CUstream>stream, <void (*)(void*) noexcept nogil>call_from_driver, data)
    if status != 0:
        Py_DECREF(function)
    check(status)
