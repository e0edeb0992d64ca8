# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Elementwise dispatch: promotion, broadcasting, output, kernel choice and launch, in C.

After the first call with a combination of dtypes no Python object is made but the result.
"""
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, int8_t, int32_t, uintptr_t

from flambeau.driver._table cimport CUfunction
from flambeau.runtime cimport _launch, _state, _tensor
from flambeau.runtime._autograd cimport grad_state
from flambeau.runtime._dims cimport shape_text
from flambeau.runtime._dtype cimport item_bytes, legacy_name, type_category
from flambeau.runtime._operands cimport (
    PYTHON_SCALAR, Call, Number, broadcast, classify, expand_into, python_number, same_shape)
from flambeau.runtime._tensor cimport Tensor, mark_written, new_strided, new_tensor, refuse_uncounted, share

import operator
import warnings
from types import MethodType

from flambeau.runtime import lazy_init

cdef extern from "flambeau/runtime/_elementwise.hpp" namespace "flambeau" nogil:
    const int LAYOUT_DIMS
    cdef struct Layout:
        int32_t ndim
    cdef cppclass Space:
        int ndim
        int operands
        int64_t sizes[64]
        int64_t strides[5][64]
        bint inner(int, int)
        void simplify()
        int64_t reach()
        int64_t count()
        bint fill(Layout*)
        bint transposing(Layout*)
    int inner_width(const Space&, char** addresses, const int* types, int width)
    int64_t transposing_tiles(const Layout&)
    cdef struct Parameter:
        double imag
    Parameter parameter_of(const Number&, int compute_type)
    bint can_cast(int source, int to)
    int vector_width(int widest_bytes)

cdef extern from "flambeau/runtime/_recorded.hpp" namespace "flambeau":
    object short_answer_capsule(void* answer)

ctypedef object (*ShortAnswer)(PyObject* op, PyObject** operands, Py_ssize_t count)

cdef int _generation = 0                # of promotion rules
cdef int _driver_generation = 0         # of kernels


def forget_promotions():
    """Have every operation ask `promote` again, after the default dtype changed."""
    global _generation
    _generation += 1


def forget_kernels():
    """Drop every cached kernel; for a driver that has been replaced."""
    global _driver_generation
    _driver_generation += 1


cdef class ElementwiseOp:
    """An operation that works element by element, ``op(*operands, out=None, scalars=())``.

    Parameters
    ----------
    name
        For messages and observers.
    arity
        How many operands, 1 to 4; each a tensor or a Python number.
    promote
        ``promote(op, kinds) -> (result_type, compute_type)`` with one ``(scalar_type, rank_class)``
        per operand; rank class 0 is a tensor with dimensions, 1 one without, 2 a Python number (of
        type Bool, Int64, Float64 or Complex128). Asked once per combination.
    compile
        ``compile(op, device, in_types, scalar_mask, out_type, compute_type, layout_class) ->
        CUfunction`` as an int. Bit i of `scalar_mask`: operand i is passed by value.
    host
        ``host(op, operands, out, result_type, compute_type)`` for host tensors; with `scalars` it
        gets them as a last argument. Returns the result, or writes it into `out`.
    scalars
        How many numbers are passed along, the same for all elements.
    any_output
        Whether ``out`` may have any dtype, as for copies.
    """

    def __init__(self, str name not None, int arity, *, promote, compile, host, int scalars=0,
                 bint any_output=False):
        if not 1 <= arity <= MAX_OPERANDS:
            raise ValueError(f"an elementwise operation takes 1 to {MAX_OPERANDS} operands, got {arity}")
        self.name, self.arity, self.scalars, self.any_output = name, arity, scalars, any_output
        self._promote, self._compile, self._host = promote, compile, host
        self._generation = _generation
        self._driver_generation = _driver_generation

    def __call__(self, *operands, Tensor out=None, tuple scalars=()):
        return _call_tuple(self, operands, out, False, scalars)

    # The same with a fixed number of operands: what functions of one and two operands call.

    def unary(self, input, Tensor out=None):
        """``op(input, out=out)`` of a tensor; anything else is a TypeError."""
        if not isinstance(input, Tensor):
            raise TypeError(f"{self.name}(): argument 'input' (position 1) must be Tensor, "
                            f"not {type(input).__name__}")
        return _call_unary(self, input, out, False)

    def unary_in_place(self, Tensor target not None):
        """``op.in_place(target)``."""
        return _call_unary(self, target, target, True)

    def binary(self, input, other, Tensor out=None):
        """``op(input, other, out=out)``."""
        result = _call_binary(self, input, other, out, False)
        if result is NotImplemented:
            _refuse_operand(self, (input, other))
        return result

    def binary_in_place(self, Tensor target not None, other):
        """``op.in_place(target, other)``."""
        result = _call_binary(self, target, other, target, True)
        if result is NotImplemented:
            _refuse_operand(self, (target, other))
        return result

    def in_place(self, Tensor target not None, *operands, tuple scalars=()):
        """``op(target, *operands)`` written into `target`, which is not resized; returns it."""
        return _call_tuple(self, (target, *operands), target, True, scalars)

    def short_answer(self, *, bint in_place=False):
        """For `recorded`: this operation on its operands alone; None where it has others than one or two."""
        cdef ShortAnswer answer = _answer
        if self.scalars or self.arity > 2:
            return None
        if in_place:
            answer = _answer_in_place
        return self, short_answer_capsule(<void*>answer)

    def forget(self):
        """Drop what was cached: promotion results and kernels."""
        self._promotions.clear()
        self._kernels.clear()

    def __get__(self, instance, owner):
        return self if instance is None else MethodType(self, instance)

    def __repr__(self):
        return f"<elementwise operation {self.name}>"


cdef object _call_tuple(ElementwiseOp op, tuple operands, Tensor out, bint in_place, tuple scalars):
    cdef PyObject* pointers[MAX_OPERANDS]
    cdef int i
    if len(operands) != op.arity:
        raise TypeError(f"{op.name}() takes {op.arity} operands, got {len(operands)}")
    for i in range(op.arity):
        pointers[i] = <PyObject*>operands[i]
    result = call(op, pointers, out, in_place, scalars)
    if result is NotImplemented:
        _refuse_operand(op, operands)
    return result


cdef object _refuse_operand(ElementwiseOp op, tuple operands):
    for position, operand in enumerate(operands):
        if not isinstance(operand, (Tensor, int, float, complex)):
            raise TypeError(
                f"{op.name}(): operand {position} must be a Tensor or a number, "
                f"not {type(operand).__name__}")
    raise TypeError(f"{op.name}() cannot work with these operands")


# -- promotion -------------------------------------------------------------------------------------

cdef int _promote(ElementwiseOp op, Call* c) except -1:
    cdef uint64_t* found
    cdef int i
    if op._generation != _generation:
        op._promotions.clear()
        op._generation = _generation
    found = op._promotions.find(c.kinds)
    if found == NULL:
        kinds = tuple([(<int>c.types[i], <int>c.ranks[i]) for i in range(c.n)])
        result, compute = op._promote(op, kinds)
        op._promotions.put(c.kinds, <uint64_t><int>result | <uint64_t><int>compute << 8)
        found = op._promotions.find(c.kinds)
    c.result_type = found[0] & 0xFF
    c.compute_type = found[0] >> 8
    return 0


# -- the output ------------------------------------------------------------------------------------

cdef int _check_output(ElementwiseOp op, PyObject** operands, Tensor out, bint in_place, Call* c) except -1:
    cdef Tensor t
    cdef int d, i
    refuse_uncounted(out)
    if not op.any_output and not can_cast(c.result_type, out.scalar_type):
        raise RuntimeError(
            f"result type {legacy_name(c.result_type)} can't be cast to the desired output type "
            f"{legacy_name(out.scalar_type)}")
    if op.any_output:
        expand_into(out, c)
    elif not same_shape(out, c):
        if in_place:
            raise RuntimeError(
                f"output with shape {shape_text(out.ndim_, out.sizes)} doesn't match the broadcast shape "
                f"{shape_text(c.ndim, c.sizes)}")
        _resize_output(op, out, c)
    for d in range(out.ndim_):
        if out.strides[d] == 0 and out.sizes[d] > 1:
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a single "
                "memory location. Please clone() the tensor before performing the operation.")
    for i in range(c.n):
        if not c.by_value & 1 << i:
            t = <Tensor>operands[i]
            if t is not out and t.storage == out.storage and t.storage != NULL and _partial_overlap(t, out):
                raise RuntimeError(
                    "unsupported operation: some elements of the input tensor and the written-to tensor "
                    "refer to a single memory location. Please clone() the tensor before performing the "
                    "operation.")
    return 0


cdef bint _partial_overlap(Tensor a, Tensor b) noexcept:
    """Whether two dense tensors share some elements but are not the same view."""
    cdef char* a_end = a.data + a.count * item_bytes[a.scalar_type]
    cdef char* b_end = b.data + b.count * item_bytes[b.scalar_type]
    if not a.contiguous or not b.contiguous or a.count == 0 or b.count == 0:
        return False
    if a.data == b.data and a_end == b_end:
        return False
    return a.data < b_end and b.data < a_end


cdef int _resize_output(ElementwiseOp op, Tensor out, Call* c) except -1:
    if out.count:
        warnings.warn(
            f"An output with one or more elements was resized since it had shape "
            f"{shape_text(out.ndim_, out.sizes)}, which does not match the required output shape "
            f"{shape_text(c.ndim, c.sizes)}. Give out= of that shape, or an empty tensor.", stacklevel=2)
    share(out, new_tensor(out.device_index, out.scalar_type, c.ndim, c.sizes))
    return 0


cdef Tensor _new_output(PyObject** operands, Call* c):
    """An output with the operands' order of dimensions, dense."""
    cdef Space space
    cdef Tensor t
    cdef int64_t[64] strides
    cdef int[64] order
    cdef int64_t step = 1
    cdef int i, d, e, dim, used = 0
    cdef bint row_major = True
    space.ndim = c.ndim
    for i in range(c.n):
        if c.by_value & 1 << i:
            continue
        t = <Tensor>operands[i]
        row_major &= t.contiguous and t.ndim_ == c.ndim
        for d in range(c.ndim):
            e = d - (c.ndim - t.ndim_)
            space.strides[used][d] = 0 if e < 0 or t.sizes[e] == 1 else t.strides[e]
        used += 1
    if row_major or c.ndim < 2:
        return new_tensor(c.device, c.result_type, c.ndim, c.sizes)
    space.operands = used
    for d in range(c.ndim):
        order[d] = c.ndim - 1 - d       # innermost first
    for d in range(1, c.ndim):
        e = d
        while e > 0 and space.inner(order[e], order[e - 1]):
            order[e], order[e - 1] = order[e - 1], order[e]
            e -= 1
    for d in range(c.ndim):
        dim = order[d]
        strides[dim] = step
        step *= c.sizes[dim] if c.sizes[dim] > 1 else 1
    return new_strided(c.device, c.result_type, c.ndim, c.sizes, strides)


# -- launching -------------------------------------------------------------------------------------
# Every elementwise kernel begins with griddepcontrol.wait, so launches may overlap.

cdef CUfunction _kernel(ElementwiseOp op, Call* c, int out_type, int layout_class) except NULL:
    cdef uint64_t key = (c.kinds | <uint64_t>out_type << 32 | <uint64_t>c.device << 40
                         | <uint64_t>c.by_value << 50 | <uint64_t>c.compute_type << 54
                         | <uint64_t>layout_class << 59)
    cdef uint64_t* found
    cdef uintptr_t function
    cdef int i
    if op._driver_generation != _driver_generation:
        op._kernels.clear()
        op._driver_generation = _driver_generation
    found = op._kernels.find(key)
    if found != NULL:
        return <CUfunction><uintptr_t>found[0]
    types = tuple([<int>c.types[i] for i in range(c.n)])
    function = op._compile(op, c.device, types, c.by_value, out_type, c.compute_type, layout_class)
    if function == 0:
        raise RuntimeError(f"no kernel for {op.name} of {[legacy_name(t) for t in types]}")
    op._kernels.put(key, <uint64_t>function)
    return <CUfunction>function


# What a launch passes on: pointers of the output and the tensors, then numbers.
cdef struct Arguments:
    int pointers
    int numbers
    int widest                          # bytes of the largest element
    char* addresses[5]
    int[5] types
    Parameter[12] values


cdef int _launch_vectorised(ElementwiseOp op, Call* c, Arguments* a, int64_t n) except -1:
    cdef void* parameters[20]
    cdef int i, used = 0
    cdef int64_t per_block = 256 * vector_width(a.widest)
    cdef CUfunction function = _kernel(op, c, a.types[0], 0)
    for i in range(a.pointers):
        parameters[used] = &a.addresses[i]
        used += 1
    for i in range(a.numbers):
        parameters[used] = &a.values[i]
        used += 1
    parameters[used] = &n
    return _launch.launch_overlapping(function, <unsigned>((n + per_block - 1) // per_block), 1, 1, 256, 1, 1, 0,
                                      _state.thread_state().streams[c.device], parameters)


cdef int _launch_strided(ElementwiseOp op, Call* c, Arguments* a, Space* space) except -1:
    cdef void* parameters[20]
    cdef Layout layout
    cdef Space rest
    cdef Arguments moved
    cdef int64_t n = space.count(), step
    cdef int i, outer, used = 0
    if not space.fill(&layout):         # too many dimensions that do not merge: one launch per index
        outer = space.ndim - 1
        for step in range(space.sizes[outer]):
            rest = space[0]
            rest.ndim = outer
            moved = a[0]
            for i in range(a.pointers):
                moved.addresses[i] += step * space.strides[i][outer] * item_bytes[a.types[i]]
            _launch_strided(op, c, &moved, &rest)
        return 0
    cdef int width = inner_width(space[0], a.addresses, a.types, vector_width(a.widest))
    cdef int64_t blocks = (n // width + 255) // 256
    cdef int layout_class = 3
    if width == 1:
        layout_class = 1 if n <= INT32_MAX and space.reach() <= INT32_MAX else 2
        if a.pointers == 2 and a.widest <= 8 and space.transposing(&layout):
            layout_class = 4
            blocks = transposing_tiles(layout)
    cdef CUfunction function = _kernel(op, c, a.types[0], layout_class)
    for i in range(a.pointers):
        parameters[used] = &a.addresses[i]
        used += 1
    for i in range(a.numbers):
        parameters[used] = &a.values[i]
        used += 1
    parameters[used] = &n
    parameters[used + 1] = &layout
    return _launch.launch_overlapping(function, <unsigned>blocks, 1, 1, 256, 1, 1, 0,
                                      _state.thread_state().streams[c.device], parameters)


cdef int _launch_on(ElementwiseOp op, PyObject** operands, Tensor out, Call* c, Number* numbers,
                    tuple scalars) except -1:
    cdef Arguments a
    cdef Space space
    cdef Tensor t
    cdef uintptr_t alignment
    cdef int i, d, e
    if out.count == 0:
        return 0
    a.addresses[0] = out.data
    a.types[0] = out.scalar_type
    a.pointers = 1
    a.numbers = 0
    a.widest = item_bytes[out.scalar_type]
    alignment = <uintptr_t>out.data
    for i in range(c.n):
        if c.by_value & 1 << i:
            a.values[a.numbers] = parameter_of(numbers[i], c.compute_type)
            a.numbers += 1
            continue
        t = <Tensor>operands[i]
        a.addresses[a.pointers] = t.data
        a.types[a.pointers] = t.scalar_type
        alignment |= <uintptr_t>t.data
        if item_bytes[t.scalar_type] > a.widest:
            a.widest = item_bytes[t.scalar_type]
        a.pointers += 1
    if op.scalars:
        _extra_numbers(op, scalars, c, &a)
    if c.uniform and out.contiguous and not alignment & 15:
        return _launch_vectorised(op, c, &a, out.count)
    space.operands = a.pointers
    space.ndim = out.ndim_
    for d in range(out.ndim_):
        space.sizes[d] = out.sizes[out.ndim_ - 1 - d]
        space.strides[0][d] = out.strides[out.ndim_ - 1 - d]
    a.pointers = 1
    for i in range(c.n):
        if c.by_value & 1 << i:
            continue
        t = <Tensor>operands[i]
        for d in range(out.ndim_):
            e = t.ndim_ - 1 - d
            space.strides[a.pointers][d] = 0 if e < 0 or t.sizes[e] == 1 else t.strides[e]
        a.pointers += 1
    space.simplify()
    if not alignment & 15 and _all_unit(&space):
        return _launch_vectorised(op, c, &a, out.count)
    return _launch_strided(op, c, &a, &space)


cdef bint _all_unit(Space* space) noexcept:
    cdef int i
    if space.ndim == 0:
        return True
    if space.ndim > 1:
        return False
    for i in range(space.operands):
        if space.strides[i][0] != 1:
            return False
    return True


cdef int _extra_numbers(ElementwiseOp op, tuple scalars, Call* c, Arguments* a) except -1:
    cdef Number number
    cdef int8_t type
    if len(scalars) != op.scalars:
        raise TypeError(f"{op.name}() takes {op.scalars} scalars, got {len(scalars)}")
    for value in scalars:
        if isinstance(value, Tensor):
            value = value.item()
        if not python_number(value, &number, &type):
            raise TypeError(f"{op.name}(): scalars are numbers, got {value!r}")
        if type_category[type] >= 2 and type_category[c.compute_type] < 2:
            number.integer = <int64_t>number.real
        a.values[a.numbers] = parameter_of(number, c.compute_type)
        a.numbers += 1
    return 0


cdef object _plain(object operand):
    """Tensors and Python's own numbers as they are, other numbers as Python's."""
    if isinstance(operand, Tensor) or type(operand) in (bool, int, float, complex):
        return operand
    return operand.item() if hasattr(operand, "item") else operator.index(operand)


cdef object _on_host(ElementwiseOp op, PyObject** operands, Tensor out, tuple scalars, Call* c):
    given = tuple([_plain(<object>operands[i]) for i in range(c.n)])
    if _launch.observed:
        from flambeau.runtime import observers
        observers.notify("host_access", op.name, tuple([t for t in given if isinstance(t, Tensor)]),
                         () if out is None else (out,))
    if op.scalars:
        if len(scalars) != op.scalars:
            raise TypeError(f"{op.name}() takes {op.scalars} scalars, got {len(scalars)}")
        return op._host(op, given, out, c.result_type, c.compute_type, scalars)
    return op._host(op, given, out, c.result_type, c.compute_type)


cdef int _tell_observers(ElementwiseOp op, PyObject** operands, Tensor result, Call* c) except -1:
    from flambeau.runtime import observers
    read = tuple([<object>operands[i] for i in range(c.n) if not c.by_value & 1 << i])
    observers.notify("operation", op.name, read, (result,),
                     <uintptr_t>_state.thread_state().streams[c.device])
    return 0


# -- the call --------------------------------------------------------------------------------------

cdef object call(ElementwiseOp op, PyObject** operands, Tensor out, bint in_place, tuple scalars):
    cdef Call c
    cdef Number[MAX_OPERANDS] numbers
    cdef Tensor result
    cdef int i
    c.n = op.arity
    if not classify(op.name, operands, out, numbers, &c):
        return NotImplemented
    for i in range(c.n):
        if c.ranks[i] != PYTHON_SCALAR and (<Tensor>operands[i]).extra is not None:
            if grad_state().grad:
                recorded = record(op, operands, c.n, out, in_place, scalars)
                if recorded is not None:
                    return recorded
            break
    if c.device >= 0:
        _state.ensure_context(c.device)
    _promote(op, &c)
    if not c.uniform:
        broadcast(operands, &c)
    if out is not None:
        _check_output(op, operands, out, in_place, &c)
    if c.device < 0:
        result = _on_host(op, operands, out, scalars, &c)
    else:
        result = out
        if out is None:
            if c.uniform:
                result = new_tensor(c.device, c.result_type, c.ndim, c.sizes)
            else:
                result = _new_output(operands, &c)
        _launch_on(op, operands, result, &c, numbers, scalars)
        if _launch.observed:
            _tell_observers(op, operands, result, &c)
    if out is not None:
        mark_written(out)
        return out
    if c.subclass != NULL and type(result) is Tensor:
        return result.as_subclass(<object>c.subclass)
    return result


cdef object _call_binary(object op, object a, object b, Tensor out, bint in_place):
    cdef PyObject* operands[MAX_OPERANDS]
    if (<ElementwiseOp>op).arity != 2:
        raise TypeError(f"{(<ElementwiseOp>op).name} does not take two operands")
    operands[0] = <PyObject*>a
    operands[1] = <PyObject*>b
    return call(<ElementwiseOp>op, operands, out, in_place, ())


cdef object _call_unary(object op, object a, Tensor out, bint in_place):
    cdef PyObject* operands[MAX_OPERANDS]
    if (<ElementwiseOp>op).arity != 1:
        raise TypeError(f"{(<ElementwiseOp>op).name} does not take one operand")
    operands[0] = <PyObject*>a
    return call(<ElementwiseOp>op, operands, out, in_place, ())


# -- short answers: nothing but operands ----------------------------------------------------------------

cdef object _answer(PyObject* op, PyObject** operands, Py_ssize_t count):
    if count != (<ElementwiseOp>op).arity or (count == 1 and not isinstance(<object>operands[0], Tensor)):
        return NotImplemented
    return call(<ElementwiseOp>op, operands, None, False, ())


cdef object _answer_in_place(PyObject* op, PyObject** operands, Py_ssize_t count):
    if count != (<ElementwiseOp>op).arity or not isinstance(<object>operands[0], Tensor):
        return NotImplemented
    return call(<ElementwiseOp>op, operands, <Tensor>operands[0], True, ())


_tensor.call_binary = _call_binary
_tensor.call_unary = _call_unary
_tensor.elementwise_class = ElementwiseOp
lazy_init.on_forget(forget_kernels)
