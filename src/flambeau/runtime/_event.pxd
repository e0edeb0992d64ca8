# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Events, for compiled callers."""
from flambeau.driver._table cimport CUevent

cdef class BaseEvent:
    cdef CUevent handle                 # null until it is needed
    cdef int index                      # of its device; -1 without handle
    cdef int flags                      # 1 blocking, 2 untimed, 4 interprocess
    cdef int made_in                    # _state.epoch at creation
    cdef bint external
    cdef bint recorded
    cdef dict __dict__
    cdef object __weakref__

cdef class Event(BaseEvent):
    pass
