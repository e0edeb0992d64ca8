# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""What can be asked of a loaded kernel and set on it, and the context that loading needs."""
from libc.stdint cimport uintptr_t

from flambeau.driver._table cimport CUfunction, check, driver
from flambeau.runtime cimport _state

MAX_THREADS_PER_BLOCK = 0
STATIC_SHARED_BYTES = 1
LOCAL_BYTES = 3
REGISTERS = 4
MAX_DYNAMIC_SHARED_BYTES = 8


def use_context(int device):
    _state.require_initialized()
    _state.check_device(device)
    _state.ensure_context(device)


def get_attribute(uintptr_t function, int attribute):
    cdef int value = 0
    check(driver.FuncGetAttribute(&value, attribute, <CUfunction>function))
    return value


def set_attribute(uintptr_t function, int attribute, int value):
    check(driver.FuncSetAttribute(<CUfunction>function, attribute, value))
