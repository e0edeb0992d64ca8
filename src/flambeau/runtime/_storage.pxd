# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Storages as Python objects, for compiled callers."""
from flambeau.runtime._allocator cimport Storage
from flambeau.runtime._tensor cimport Tensor

cdef class UntypedStorage:
    cdef Storage* storage               # one reference

cdef UntypedStorage storage_of(Tensor t)
