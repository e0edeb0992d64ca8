# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Sizes and strides as numbers, for compiled callers."""
from libc.stdint cimport int64_t

cdef enum:
    MOST_DIMS = 64

cdef int wrap_dim(int64_t dim, int ndim) except -1
cdef int64_t count_of(int ndim, const int64_t* sizes) except -1   # product; negative sizes are refused
cdef void contiguous_strides(int ndim, const int64_t* sizes, int64_t* strides) noexcept
cdef int channels_last_strides(str format, int rank, int ndim, const int64_t* sizes, int64_t* strides) except -1
cdef int parse_sizes(object argument, int64_t* sizes) except -1   # an int or a sequence of ints -> how many
cdef int parse_varargs(tuple arguments, int64_t* sizes) except -1   # f(2, 3) or f((2, 3))
cdef str shape_text(int ndim, const int64_t* sizes)
