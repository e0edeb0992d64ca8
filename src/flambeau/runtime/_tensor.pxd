# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The tensor's layout, for compiled callers."""
from libc.stdint cimport int8_t, int16_t, int64_t
from flambeau.runtime._allocator cimport Storage

cdef enum:
    INLINE_DIMS = 6
    MAX_DIMS = 64

cdef class dtype:
    cdef readonly int code              # ScalarType
    cdef readonly int itemsize          # bytes
    cdef readonly int category          # 0 bool, 1 integer, 2 float, 3 complex
    cdef readonly str name              # "float32"

cdef class device:
    cdef readonly str type              # "cpu", "cuda" or "meta"
    cdef readonly object index          # int or None

cdef class Tensor:
    cdef char* data                     # address of element 0
    cdef Storage* storage               # null for an empty tensor without memory
    cdef int64_t count                  # number of elements
    cdef int64_t* sizes                 # inline_dims or, above INLINE_DIMS dimensions, on the heap
    cdef int64_t* strides               # in elements
    cdef int64_t[12] inline_dims
    cdef int16_t ndim_
    cdef int16_t device_index           # -1: host
    cdef int8_t scalar_type             # ScalarType
    cdef bint contiguous                # row-major without gaps
    cdef object extra                   # None, the base of a view, or a TensorExtra
    cdef object __weakref__

cdef dtype dtype_of(int scalar_type)
# A new contiguous tensor of the base class, memory not cleared. device -1 is the host. For CUDA the
# context must be current and the block is for the thread's current stream there.
cdef Tensor new_tensor(int device, int scalar_type, int ndim, const int64_t* sizes)
cdef Tensor new_strided(int device, int scalar_type, int ndim, const int64_t* sizes, const int64_t* strides)
# A view of `base`: same storage, `offset` elements further, dims to be set by set_dims.
cdef Tensor new_view(Tensor base, int64_t offset, int ndim, const int64_t* sizes, const int64_t* strides)
