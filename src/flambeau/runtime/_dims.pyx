# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Sizes and strides as numbers: reading, checking and counting them."""
from libc.stdint cimport int64_t

cdef extern from *:
    bint __builtin_mul_overflow(int64_t a, int64_t b, int64_t* product) nogil


cdef int wrap_dim(int64_t dim, int ndim) except -1:
    """A dimension number from 0 on; a tensor without dimensions has 0 and -1."""
    cdef int most = ndim if ndim > 0 else 1
    if dim < -most or dim >= most:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-most}, {most - 1}], but got {dim})")
    return <int>(dim + most if dim < 0 else dim)


cdef str shape_text(int ndim, const int64_t* sizes):
    return "[" + ", ".join([str(sizes[i]) for i in range(ndim)]) + "]"


cdef int64_t count_of(int ndim, const int64_t* sizes) except -1:
    cdef int64_t n = 1
    cdef int i
    cdef bint empty = False, overflow = False, negative = False
    for i in range(ndim):
        negative |= sizes[i] < 0
        empty |= sizes[i] == 0
        overflow |= __builtin_mul_overflow(n, sizes[i], &n)
    if negative:
        for i in range(ndim):
            if sizes[i] < 0:
                raise RuntimeError(
                    f"Trying to create tensor with negative dimension {sizes[i]}: {shape_text(ndim, sizes)}")
    if empty:
        return 0
    if overflow:
        raise RuntimeError(
            f"a tensor of sizes {shape_text(ndim, sizes)} has more elements than 64 bits can count")
    return n


cdef void contiguous_strides(int ndim, const int64_t* sizes, int64_t* strides) noexcept:
    cdef int64_t step = 1
    cdef int i
    for i in range(ndim - 1, -1, -1):
        strides[i] = step
        if sizes[i] > 1:
            step *= sizes[i]


cdef int channels_last_strides(str format, int rank, int ndim, const int64_t* sizes, int64_t* strides) except -1:
    cdef int64_t step = 1
    cdef int i, dim
    if ndim != rank:
        raise RuntimeError(f"required rank {rank} tensor to use {format} format, this one has rank {ndim}")
    for i in range(ndim):
        dim = 1 if i == 0 else (0 if i == ndim - 1 else ndim - i)
        strides[dim] = step
        step *= sizes[dim] if sizes[dim] > 1 else 1
    return 0


cdef int _parse_one(object value, int64_t* to) except -1:
    if type(value) is int:
        to[0] = value
        return 0
    if isinstance(value, (float, str)) or not hasattr(value, "__index__"):
        raise TypeError(f"sizes must be ints, got {value!r} of type {type(value).__name__}")
    to[0] = value.__index__()
    return 0


cdef int parse_sizes(object argument, int64_t* sizes) except -1:
    cdef Py_ssize_t n, i
    if type(argument) is int:
        sizes[0] = argument
        return 1
    if type(argument) is tuple or type(argument) is list or isinstance(argument, tuple):
        n = len(argument)
        if n > MOST_DIMS:
            raise RuntimeError(f"a tensor has at most {MOST_DIMS} dimensions, got {n}")
        for i in range(n):
            _parse_one(argument[i], &sizes[i])
        return <int>n
    if isinstance(argument, (str, float)):
        raise TypeError(f"argument 'size' must be tuple of ints, not {type(argument).__name__}")
    if hasattr(argument, "__index__"):
        return 1 + _parse_one(argument, sizes)
    return parse_sizes(tuple(argument), sizes)


cdef int parse_varargs(tuple arguments, int64_t* sizes) except -1:
    if len(arguments) == 1:
        return parse_sizes(arguments[0], sizes)
    return parse_sizes(arguments, sizes)
