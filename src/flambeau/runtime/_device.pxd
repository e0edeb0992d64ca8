# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Devices as values, for compiled callers."""

cdef enum DeviceKind:
    KIND_CPU, KIND_CUDA, KIND_META

cdef class device:
    cdef readonly str type              # "cpu", "cuda" or "meta"
    cdef readonly object index          # int or None
    cdef int kind
    cdef int number                     # index, -1 for None
    cdef list entered                   # defaults to go back to, one per `with`

cdef device device_of(int index)                        # -1: the host; else cuda:index
# Device argument of a factory or a copy -> -1 for the host or a CUDA index. None is the default
# device. A CUDA device is initialised and its number checked.
cdef int resolve_device(object argument) except -2
cdef device parse_device(object argument)
