# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Operands of elementwise operations: what they are, where they are, and their common shape."""
from cpython.bool cimport PyBool_Check
from cpython.complex cimport PyComplex_Check
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_Check
from cpython.long cimport PyLong_Check
from cpython.object cimport PyObject_TypeCheck, PyTypeObject

from flambeau.runtime cimport _dtype
from flambeau.runtime._dims cimport shape_text
from flambeau.runtime._dtype cimport type_category
from flambeau.runtime._tensor cimport Tensor, result_class

cdef extern from "flambeau/runtime/_elementwise.hpp" namespace "flambeau" nogil:
    int64_t load_int(const char* p, int type)
    double load_real(const char* p, int type)
    double load_imag(const char* p, int type)

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int* overflow) except? -1


cdef int python_number(object value, Number* number, int8_t* type) except -1:
    """Read a Python number; 0 if it is none."""
    cdef int overflow = 0
    if PyFloat_Check(value):
        number.real = PyFloat_AS_DOUBLE(value)
        number.imag = 0
        type[0] = _dtype.Float64
    elif PyBool_Check(value):
        number.integer = value is True
        number.real = <double>number.integer
        number.imag = 0
        type[0] = _dtype.Bool
    elif PyLong_Check(value):
        number.integer = PyLong_AsLongLongAndOverflow(value, &overflow)
        number.real = <double>number.integer if not overflow else float(value)
        number.imag = 0
        if overflow > 0 and value < 1 << 64:
            number.integer = <int64_t><uint64_t>value
        elif overflow:
            raise RuntimeError(f"value cannot be converted to type int64_t without overflow: {value}")
        type[0] = _dtype.Int64
    elif PyComplex_Check(value):
        number.real, number.imag = value.real, value.imag
        type[0] = _dtype.Complex128
    elif hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return python_number(value.item(), number, type)   # a NumPy scalar
    elif hasattr(value, "__index__") and getattr(value, "ndim", 0) == 0:
        return python_number(value.__index__(), number, type)
    else:
        return 0
    return 1


cdef int _tensor_number(Tensor t, Number* number) except -1:
    number.real = load_real(t.data, t.scalar_type)
    number.imag = load_imag(t.data, t.scalar_type) if type_category[t.scalar_type] == 3 else 0
    if type_category[t.scalar_type] < 2:
        number.integer = load_int(t.data, t.scalar_type)
    return 0


cdef int _other_device(str name, int first, int second) except -1:
    raise RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{_device_name(first)} and {_device_name(second)}! ({name} needs its tensors in one place: "
        "move one with Tensor.to)")


cdef str _device_name(int index):
    return "cpu" if index < 0 else f"cuda:{index}"


cdef int classify(str name, PyObject** operands, Tensor out, Number* numbers, Call* c) except -1:
    """Types, ranks, device and numbers of the operands; 0 if one is neither tensor nor number."""
    cdef Tensor t
    cdef Tensor first = None
    cdef int i, d
    c.device = -1
    c.by_value = 0
    c.kinds = 0
    c.subclass = NULL
    c.uniform = True
    c.ndim = 0
    c.sizes = &c.broadcast_sizes[0]
    for i in range(c.n):
        if PyObject_TypeCheck(<object>operands[i], <PyTypeObject*>Tensor):
            t = <Tensor>operands[i]
            c.types[i] = t.scalar_type
            c.ranks[i] = DIMENSIONED if t.ndim_ else ZERO_DIM
            if t.device_index >= 0:
                if c.device < 0:
                    c.device = t.device_index
                elif c.device != t.device_index:
                    return _other_device(name, c.device, t.device_index)
            if type(t) is not Tensor:
                _note_subclass(c, type(t))
            if first is None:
                first = t
                c.ndim = t.ndim_
                c.sizes = t.sizes
                c.uniform = t.contiguous
            elif c.uniform:
                c.uniform = t.contiguous and t.ndim_ == c.ndim
                for d in range(c.ndim if c.uniform else 0):
                    if t.sizes[d] != c.sizes[d]:
                        c.uniform = False
                        break
        else:
            if not python_number(<object>operands[i], &numbers[i], &c.types[i]):
                return 0
            c.ranks[i] = PYTHON_SCALAR
            c.by_value |= 1 << i
        c.kinds |= <uint64_t>(c.types[i] * 3 + c.ranks[i] + 1) << (8 * i)
    if out is not None and out.device_index != c.device:
        if c.device >= 0:
            return _other_device(name, c.device, out.device_index)
        c.device = out.device_index
    if c.device >= 0:
        return _host_numbers(name, operands, numbers, c)
    return 1


cdef int _host_numbers(str name, PyObject** operands, Number* numbers, Call* c) except -1:
    """Host tensors without dimensions act as numbers beside CUDA tensors; others may not be there."""
    cdef Tensor t
    cdef int i
    for i in range(c.n):
        if c.by_value & 1 << i:
            continue
        t = <Tensor>operands[i]
        if t.device_index >= 0:
            continue
        if t.ndim_:
            return _other_device(name, c.device, -1)
        _tensor_number(t, &numbers[i])
        c.by_value |= 1 << i
        c.uniform = False
    return 1


cdef int _note_subclass(Call* c, object cls) except -1:
    """Remember the class of the results: the most derived of the operands'."""
    cls = result_class(cls)
    if cls is not Tensor and (c.subclass == NULL or issubclass(cls, <object>c.subclass)):
        c.subclass = <PyObject*>cls     # alive as long as the operand
    return 0


cdef int broadcast(PyObject** operands, Call* c) except -1:
    """The result's shape when the operands' shapes differ."""
    cdef Tensor t
    cdef int64_t[64] merged
    cdef int64_t mine
    cdef int ndim = 0
    cdef int i, d, shift
    for i in range(c.n):
        if c.ranks[i] == DIMENSIONED and (<Tensor>operands[i]).ndim_ > ndim:
            ndim = (<Tensor>operands[i]).ndim_
    for d in range(ndim):
        merged[d] = 1
    for i in range(c.n):
        if c.ranks[i] != DIMENSIONED:
            continue
        t = <Tensor>operands[i]
        shift = ndim - t.ndim_
        for d in range(t.ndim_ - 1, -1, -1):
            mine = t.sizes[d]
            if mine == merged[d + shift] or mine == 1:
                continue
            if merged[d + shift] != 1:
                raise RuntimeError(
                    f"The size of tensor a ({merged[d + shift]}) must match the size of tensor b ({mine}) "
                    f"at non-singleton dimension {d + shift}")
            merged[d + shift] = mine
    for d in range(ndim):
        c.broadcast_sizes[d] = merged[d]
    c.ndim = ndim
    c.sizes = &c.broadcast_sizes[0]
    return 0


cdef bint same_shape(Tensor t, Call* c) noexcept:
    cdef int d
    if t.ndim_ != c.ndim:
        return False
    for d in range(c.ndim):
        if t.sizes[d] != c.sizes[d]:
            return False
    return True


cdef int expand_into(Tensor out, Call* c) except -1:
    """Copies take the target's shape; the source must broadcast to it."""
    cdef int d, shift = out.ndim_ - c.ndim
    for d in range(c.ndim - 1, -1, -1):
        if shift + d < 0 or (c.sizes[d] != out.sizes[shift + d] and c.sizes[d] != 1):
            if shift < 0:
                raise RuntimeError(
                    f"output with shape {shape_text(out.ndim_, out.sizes)} doesn't match the broadcast "
                    f"shape {shape_text(c.ndim, c.sizes)}")
            raise RuntimeError(
                f"The size of tensor a ({out.sizes[shift + d]}) must match the size of tensor b "
                f"({c.sizes[d]}) at non-singleton dimension {shift + d}")
    c.uniform = c.uniform and (same_shape(out, c) or c.by_value == (1 << c.n) - 1)
    for d in range(out.ndim_):
        c.broadcast_sizes[d] = out.sizes[d]
    c.ndim = out.ndim_
    c.sizes = &c.broadcast_sizes[0]
    return 0
