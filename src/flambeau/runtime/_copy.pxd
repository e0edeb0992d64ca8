# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Copies, for compiled callers."""
from libc.stdint cimport int64_t
from flambeau.driver._table cimport CUstream
from flambeau.runtime._tensor cimport Tensor

cdef int copy_into(Tensor to, Tensor source, bint non_blocking) except -1   # broadcasts, converts
cdef Tensor new_like(Tensor t, int device, int scalar_type)  # same shape, same order of dimensions, dense
cdef Tensor contiguous_of(Tensor t)
cdef int read_bytes(Tensor t, void* to, size_t bytes) except -1   # from the start of a tensor; waits
cdef void like_strides(Tensor t, int64_t* strides) noexcept     # dense, in the order of the tensor's own
cdef bint flat(Tensor a, Tensor b) noexcept             # both dense, with one order of dimensions
cdef bint has_kernels(int scalar_type) noexcept         # whether operations are generated for a type
cdef Tensor as_integers(Tensor t)                       # the same memory as integers of the elements' size
# What the host itself read and wrote; while _launch.observed.
cdef int tell_host_access(str name, tuple read, tuple written) except -1
cdef int tell_observers(str name, tuple read, Tensor written, CUstream stream) except -1
