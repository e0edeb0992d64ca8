# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Element types, shapes and layouts, for compiled callers."""
from libc.stdint cimport int64_t

cdef extern from "flambeau/runtime/_tensor.hpp" namespace "flambeau" nogil:
    const int SCALAR_TYPE_COUNT
    const int item_bytes[20]
    const int type_category[20]
    const char* scalar_type_names[20]
    const char* legacy_type_names[20]
    cdef enum ScalarType:
        Bool, UInt8, Int8, Int16, Int32, Int64, UInt16, UInt32, UInt64, Float16, BFloat16
        Float32, Float64, Complex32, Complex64, Complex128
        Float8E4M3FN, Float8E5M2, Float8E4M3FNUZ, Float8E5M2FNUZ

cdef class dtype:
    cdef readonly int code              # ScalarType
    cdef readonly int itemsize          # bytes
    cdef readonly int category          # 0 bool, 1 integer, 2 float, 3 complex
    cdef readonly str name              # "float32"

cdef class memory_format:
    cdef readonly str name
    cdef int code                       # 0 contiguous, 1 preserve, 2 channels_last, 3 channels_last_3d

cdef memory_format contiguous_format, preserve_format, channels_last, channels_last_3d

cdef dtype dtype_of(int scalar_type)
cdef object make_size(int ndim, const int64_t* sizes)   # a Size
cdef str legacy_name(int scalar_type)
# Least and greatest int that an element takes: an unsigned one takes negative ints, in two's complement.
cdef tuple integer_range(int scalar_type)
cdef int set_public_name(object cls, const char* name) except -1
