# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Reductions on CUDA tensors: result, choice of kernel and launch, in C."""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t, uintptr_t

from flambeau.driver._table cimport CUfunction, CUstream
from flambeau.runtime cimport _launch, _state
from flambeau.runtime._dtype cimport type_category
from flambeau.runtime._elementwise cimport FlatTable
from flambeau.runtime import lazy_init
from flambeau.runtime._tensor cimport Tensor, new_tensor, result_class

cdef extern from "flambeau/runtime/_reduce.hpp" namespace "flambeau" nogil:
    const int REDUCE_THREADS
    const int REDUCE_STATE_BYTES
    cdef struct Layout:
        int ndim
    cdef struct ReduceShape:
        Layout kept
        Layout reduced
        int64_t outputs
        int64_t count
        int64_t slices
    cdef cppclass ReduceSpace:
        int ndim
        int64_t* sizes
        void push(int64_t size, int64_t stride)
        void merge()
        void simplify()
        bint fill(Layout*)
        int64_t innermost_step()
    cdef enum ReduceVariant:
        PER_THREAD
        PER_WARP
        PER_BLOCK
        PARTIALS
    ReduceVariant plan_reduction(ReduceShape&, bint across)
    int64_t ceil_div(int64_t, int64_t)

cdef extern from "flambeau/runtime/scalar_type.hpp" namespace "flambeau" nogil:
    const int Int64
    const int UInt8

cdef extern from "flambeau/runtime/_recorded.hpp" namespace "flambeau":
    object short_answer_capsule(void* answer)

ctypedef object (*ShortAnswer)(PyObject* op, PyObject** operands, Py_ssize_t count)

_VARIANTS = ("per_thread", "per_warp", "per_block", "partials")

cdef int _generation = 0


def forget_kernels():
    global _generation
    _generation += 1


lazy_init.on_forget(forget_kernels)


cdef class ReductionOp:

    def __init__(self, str name not None, *, compile, bint positions=False):
        self.name = name
        self.positions = positions
        self._compile = compile
        self._known = _generation

    def __repr__(self):
        return f"<reduction {self.name}>"

    def __call__(self, Tensor input not None, dims, bint keepdim, int out_code, *,
                 bint values=True, bint indices=False):
        cdef bint reduced[64]
        cdef int64_t sizes[64]
        cdef int d, ndim = 0
        cdef Tensor out = None, where = None
        if input.device_index < 0:
            raise RuntimeError(f"{self.name} reduces CUDA tensors here, got one on the host")
        _mark(input, dims, reduced)
        for d in range(input.ndim_):
            if reduced[d] and not keepdim:
                continue
            sizes[ndim] = 1 if reduced[d] else input.sizes[d]
            ndim += 1
        _state.ensure_context(input.device_index)
        if values:
            out = new_tensor(input.device_index, out_code, ndim, sizes)
        if indices:
            where = new_tensor(input.device_index, Int64, ndim, sizes)
        if _run(self, input, reduced, out, where, out_code) == 0:
            _run(self, <Tensor>(<object>input).contiguous(), reduced, out, where, out_code)
        if _launch.observed:
            _tell_observers(self, input, out, where)
        if type(input) is not Tensor:
            return _as_class(out, type(input)), _as_class(where, type(input))
        return out, where

    def short_answer(self):
        """For `recorded`: the sum of all elements of a CUDA tensor, of integers as int64."""
        return self, short_answer_capsule(<void*><ShortAnswer>_answer_total)


cdef object _answer_total(PyObject* op, PyObject** operands, Py_ssize_t count):
    cdef bint reduced[64]
    cdef Tensor input, out
    cdef int d, code
    if count != 1 or type(<object>operands[0]) is not Tensor or _launch.observed:
        return NotImplemented
    input = <Tensor>operands[0]
    if input.device_index < 0:
        return NotImplemented
    for d in range(input.ndim_):
        reduced[d] = True
    code = input.scalar_type if type_category[input.scalar_type] >= 2 else Int64
    _state.ensure_context(input.device_index)
    out = new_tensor(input.device_index, code, 0, NULL)
    return out if _run(<ReductionOp>op, input, reduced, out, None, code) else NotImplemented


cdef int _mark(Tensor input, dims, bint* reduced) except -1:
    cdef int d
    for d in range(input.ndim_):
        reduced[d] = dims is None
    if dims is None:
        return 0
    for d in dims:
        if not 0 <= d < input.ndim_:
            raise IndexError(f"dimension {d} is not one of the tensor's {input.ndim_}")
        reduced[d] = True
    return 0


cdef object _as_class(Tensor t, cls):
    cls = result_class(cls)
    return t if t is None or cls is Tensor else t.as_subclass(cls)


cdef CUfunction _kernel(ReductionOp op, int device, int in_code, int out_code, int variant) except NULL:
    cdef uint64_t key = 1 | in_code << 8 | out_code << 16 | variant << 24 | <uint64_t>device << 32
    cdef uint64_t* found
    if op._known != _generation:
        op._kernels.clear()
        op._known = _generation
    found = op._kernels.find(key)
    if found == NULL:
        made = <uint64_t>op._compile(op, device, in_code, out_code, _VARIANTS[variant])
        op._kernels.put(key, made)
        return <CUfunction><uintptr_t>made
    return <CUfunction><uintptr_t>found[0]


cdef int _run(ReductionOp op, Tensor input, bint* reduced, Tensor out, Tensor where,
               int out_code) except -1:
    """0 if the dimensions are too scattered for a kernel; a contiguous copy never is."""
    cdef ReduceSpace kept, gone
    cdef ReduceShape shape
    cdef int d
    shape.outputs = 1
    shape.count = 1
    for d in range(input.ndim_ - 1, -1, -1):
        if reduced[d]:
            gone.push(input.sizes[d], input.strides[d])
            shape.count *= input.sizes[d]
        else:
            kept.push(input.sizes[d], input.strides[d])
            shape.outputs *= input.sizes[d]
    if shape.outputs == 0:
        return 1
    kept.merge()
    if op.positions:
        gone.merge()
    else:
        gone.simplify()
    if not kept.fill(&shape.kept) or not gone.fill(&shape.reduced):
        return 0
    _launch_plan(op, input, out, where, out_code, &shape,
                 kept.ndim > 0 and gone.ndim > 0 and kept.innermost_step() < gone.innermost_step())
    return 1


cdef int _launch_plan(ReductionOp op, Tensor input, Tensor out, Tensor where, int out_code,
                      ReduceShape* shape, bint across) except -1:
    cdef int variant = plan_reduction(shape[0], across)
    cdef int device = input.device_index
    cdef int in_code = input.scalar_type
    cdef CUstream stream = _state.thread_state().streams[device]
    cdef char* out_address = NULL
    cdef char* where_address = NULL
    cdef char* partial_address = NULL
    cdef Tensor partial = None
    cdef int64_t bytes
    cdef unsigned grid = <unsigned>shape.outputs
    cdef unsigned grid_y = 1
    cdef void* parameters[5]
    if out is not None:
        out_address = out.data
    if where is not None:
        where_address = where.data
    if shape.slices > 1:
        bytes = shape.outputs * shape.slices * REDUCE_STATE_BYTES
        partial = new_tensor(device, UInt8, 1, &bytes)
        partial_address = partial.data
    if variant == PER_THREAD:
        grid = <unsigned>ceil_div(shape.outputs, REDUCE_THREADS)
        grid_y = <unsigned>shape.slices
    elif variant == PER_WARP:
        grid = <unsigned>ceil_div(shape.outputs, REDUCE_THREADS // 32)
    else:
        grid = <unsigned>(shape.outputs * shape.slices)
    parameters[0] = &out_address
    parameters[1] = &where_address
    parameters[2] = &input.data
    parameters[3] = shape
    parameters[4] = &partial_address
    _launch.launch_overlapping(_kernel(op, device, in_code, out_code, variant), grid, grid_y, 1,
                               REDUCE_THREADS, 1, 1, 0, stream, parameters)
    if shape.slices > 1:
        parameters[2] = &partial_address
        parameters[3] = &shape.slices
        parameters[4] = &shape.count
        _launch.launch_overlapping(_kernel(op, device, in_code, out_code, PARTIALS),
                                   <unsigned>shape.outputs, 1, 1, REDUCE_THREADS, 1, 1, 0, stream,
                                   parameters)
    return 0


cdef int _tell_observers(ReductionOp op, Tensor input, Tensor out, Tensor where) except -1:
    from flambeau.runtime import observers
    observers.notify("operation", op.name, (input,), tuple([t for t in (out, where) if t is not None]),
                     <uintptr_t>_state.thread_state().streams[input.device_index])
    return 0
