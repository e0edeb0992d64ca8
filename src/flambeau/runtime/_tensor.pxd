# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The tensor's layout, for compiled callers."""
from cpython.object cimport PyObject
from libc.stdint cimport int8_t, int16_t, int64_t, uint32_t
from flambeau.runtime._allocator cimport Storage
from flambeau.runtime._device cimport device
from flambeau.runtime._dtype cimport dtype, dtype_of

cdef extern from "flambeau/runtime/thread_state.hpp" namespace "flambeau" nogil:
    const uint32_t UNCOUNTED            # in the version of inference tensors' memory

cdef enum:
    INLINE_DIMS = 6
    MAX_DIMS = 64

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
    cdef PyObject* attributes           # the dict of those that Python code added, else null
    cdef object __weakref__
    cdef int _one_dim(self, object dim) except -1
    cdef object _one_value(self)
    cdef Tensor _alias(self, object cls)

cdef class TensorExtra:
    cdef Tensor base                    # of a view, else None
    cdef object grad
    cdef bint requires_grad

# Installed operators by slot: an ElementwiseOp, any callable, or None.
cdef enum Slot:
    SLOT_ADD, SLOT_SUB, SLOT_MUL, SLOT_TRUEDIV, SLOT_FLOORDIV, SLOT_MOD, SLOT_POW, SLOT_MATMUL
    SLOT_AND, SLOT_OR, SLOT_XOR, SLOT_LSHIFT, SLOT_RSHIFT
    SLOT_LT, SLOT_LE, SLOT_GT, SLOT_GE, SLOT_EQ, SLOT_NE
    SLOT_NEG, SLOT_POS, SLOT_ABS, SLOT_INVERT
    SLOT_COPY, SLOT_FILL, SLOT_GETITEM, SLOT_SETITEM, SLOT_REPR, SLOT_FORMAT, SLOT_CONTAINS
    SLOT_COUNT

cdef list operators

# What other modules of the runtime put in at import.
ctypedef object (*BinaryCall)(object op, object a, object b, Tensor out, bint in_place)
ctypedef object (*UnaryCall)(object op, object a, Tensor out, bint in_place)
cdef BinaryCall call_binary
cdef UnaryCall call_unary
cdef object elementwise_class           # ElementwiseOp
ctypedef object (*ViewExtra)(Tensor root)
cdef ViewExtra view_extra               # the rare slot of a view of a tensor that has something there
cdef object extra_class                 # a TensorExtra

# A new contiguous tensor of the base class, memory not cleared. device -1 is the host. For CUDA the
# context must be current and the block is for the thread's current stream there.
cdef Tensor new_tensor(int device, int scalar_type, int ndim, const int64_t* sizes)
cdef Tensor new_strided(int device, int scalar_type, int ndim, const int64_t* sizes, const int64_t* strides)
# A view of `base`: same storage, `offset` elements further; of the class of `base`.
cdef Tensor new_view(Tensor base, int64_t offset, int ndim, const int64_t* sizes, const int64_t* strides)
# A tensor over memory that `storage` owns; takes over one reference to it.
cdef Tensor adopt_storage(Storage* storage, char* data, int scalar_type, int ndim, const int64_t* sizes,
                          const int64_t* strides)
cdef Tensor new_of_class(object cls)                    # no dims, no memory
cdef int set_dims(Tensor t, int ndim, const int64_t* sizes, const int64_t* strides) except -1
cdef int share(Tensor into, Tensor source) except -1    # the same memory and dims
cdef object result_class(object cls)                    # what class results of operations on `cls` have
cdef int mark_written(Tensor t) noexcept                # an in-place write happened
cdef int check_writable(Tensor t) except -1             # refuse inference tensors outside their mode

cdef inline int refuse_uncounted(Tensor t) except -1:   # the same, at the cost of a look
    if t.storage != NULL and t.storage.version & UNCOUNTED:
        check_writable(t)
    return 0

cdef Tensor base_of(Tensor t)                           # None unless a view
ctypedef object (*GetItem)(Tensor, object)
ctypedef int (*SetItem)(Tensor, object, object) except -1
ctypedef object (*GetValue)(Tensor)
ctypedef int (*FillBuffer)(Tensor, Py_buffer*, int) except -1
cdef FillBuffer fill_buffer
cdef GetItem get_item
cdef SetItem set_item
cdef GetValue get_value
