# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Questions about a stream that is known by its handle."""
from libc.stdint cimport uint64_t, uintptr_t

from flambeau.driver._table cimport CUstream, check, driver
from flambeau.runtime cimport _state

cdef enum:
    NON_BLOCKING = 1   # CU_STREAM_NON_BLOCKING


def waits_for_default(uintptr_t stream, int device):
    cdef unsigned flags = 0
    _state.ensure_context(device)
    try:
        check(driver.StreamGetFlags(<CUstream>stream, &flags))
    finally:
        _state.restore_context()
    return not flags & NON_BLOCKING


def capture_of(uintptr_t stream, int device):
    cdef int status = 0
    cdef uint64_t capture = 0
    _state.ensure_context(device)
    try:
        check(driver.StreamGetCaptureInfo(<CUstream>stream, &status, &capture, NULL, NULL, NULL, NULL))
    finally:
        _state.restore_context()
    return capture if status else None
