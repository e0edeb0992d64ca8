# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Filling tensors with a number, and assigning to parts of them."""
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from flambeau.driver._table cimport CUdeviceptr, CUstream, check, driver
from flambeau.runtime cimport _dtype, _launch, _state
from flambeau.runtime._copy cimport (
    as_integers, copy_into, flat, has_kernels, tell_host_access, tell_observers)
from flambeau.runtime._dtype cimport integer_range, item_bytes, legacy_name, type_category
from flambeau.runtime._tensor cimport SLOT_FILL, Tensor, mark_written, new_view, operators

from flambeau.runtime import _tensor as _tensor_module

cdef extern from "flambeau/runtime/_host_copy.hpp" namespace "flambeau" nogil:
    cdef cppclass Space:
        int ndim
        int operands
        int64_t sizes[64]
        int64_t strides[5][64]
        void simplify()
    void host_copy(char* to, int to_type, const char* source, int from_type, const Space& space)
    int64_t load_int(const char* p, int type)
    void store_int(char* p, int type, int64_t v)
    void store_uint(char* p, int type, uint64_t v)
    void store_double(char* p, int type, double v)
    void store_complex(char* p, int type, double real, double imag)


cdef int _encode(object value, int scalar_type, char* to) except -1:
    """A Python number as an element."""
    if isinstance(value, complex):
        if type_category[scalar_type] != 3 and value.imag != 0:
            raise RuntimeError(f"value cannot be converted to type {_name(scalar_type)} without overflow: {value}")
        store_complex(to, scalar_type, value.real, value.imag)
    elif isinstance(value, int):
        _encode_int(value, scalar_type, to)
    else:
        value = float(value)
        if type_category[scalar_type] == 1:
            _encode_int(int(value), scalar_type, to)
        else:
            store_double(to, scalar_type, value)
    return 0


cdef int _encode_int(object value, int scalar_type, char* to) except -1:
    if type_category[scalar_type] == 1:
        low, high = integer_range(scalar_type)
        if not low <= value <= high:
            raise RuntimeError(f"value cannot be converted to type {_name(scalar_type)} without overflow: {value}")
        store_uint(to, scalar_type, <uint64_t>(value & 0xFFFFFFFFFFFFFFFF))
    elif scalar_type == _dtype.Bool:
        store_int(to, scalar_type, value != 0)
    else:
        store_double(to, scalar_type, float(value))
    return 0


cdef str _name(int scalar_type):
    name = (<bytes>_dtype.scalar_type_names[scalar_type]).decode()
    return name + "_t" if "int" in name else name


cdef int _memset(Tensor t, const char* element) except -1:
    """Fill dense device memory with a repeated pattern of up to 4 bytes; 0 if it is longer."""
    cdef CUstream stream = _state.thread_state().streams[t.device_index]
    cdef int item = item_bytes[t.scalar_type], i, width = item
    cdef uint32_t word
    cdef uint16_t short_word
    while width > 1 and memcmp(element, element + width // 2, width // 2) == 0:
        width //= 2
    _state.ensure_context(t.device_index)
    if width > 4:
        return 0
    if width == 1:
        check(driver.MemsetD8Async(<CUdeviceptr>t.data, <unsigned char>element[0], t.count * item, stream))
    elif width == 2:
        memcpy(&short_word, element, 2)
        check(driver.MemsetD16Async(<CUdeviceptr>t.data, short_word, t.count * item // 2, stream))
    else:
        memcpy(&word, element, 4)
        check(driver.MemsetD32Async(<CUdeviceptr>t.data, word, t.count * item // 4, stream))
    if _launch.observed:
        tell_observers("fill_", (), t, stream)
    return 1


cdef int _fill(Tensor t, object value) except -1:
    cdef char element[16]
    cdef int64_t zeros[64]
    cdef Space space
    cdef int d
    if t.count == 0:
        mark_written(t)
        return 0
    _encode(value, t.scalar_type, element)
    if t.device_index < 0:
        if _launch.observed:
            tell_host_access("fill_", (), (t,))
        space.ndim = t.ndim_
        space.operands = 2
        for d in range(t.ndim_):
            space.sizes[d] = t.sizes[t.ndim_ - 1 - d]
            space.strides[0][d] = t.strides[t.ndim_ - 1 - d]
            space.strides[1][d] = 0
        space.simplify()
        host_copy(t.data, t.scalar_type, element, t.scalar_type, space)
        mark_written(t)
        return 0
    if flat(t, t) and _memset(t, element):
        mark_written(t)
        return 0
    op = operators[SLOT_FILL]
    if op is None:
        raise NotImplementedError("this fill needs the operations that import flambeau installs")
    if has_kernels(t.scalar_type):
        op(value, out=t)
    else:
        _fill_bits(t, op, element)
    return 0


cdef int _fill_bits(Tensor t, object op, const char* element) except -1:
    cdef Tensor bits = as_integers(t)
    cdef int64_t words[2]
    cdef int item = item_bytes[t.scalar_type], part
    if item == 16:
        memcpy(words, element, 16)
        for part in range(2):
            op(words[part], out=bits.select(-1, part))
    else:
        op(load_int(element, bits.scalar_type), out=bits)
    return 0


def fill_(Tensor self, value):
    """Set every element to a number, or to the value of a tensor without dimensions."""
    if isinstance(value, Tensor):
        if (<Tensor>value).ndim_:
            raise RuntimeError(
                "fill_ only supports 0-dimension value tensor but got tensor with "
                f"{(<Tensor>value).ndim_} dimensions.")
        copy_into(self, value, False)
    else:
        _fill(self, value)
    return self


def zero_(Tensor self):
    """Set every element to 0."""
    _fill(self, 0)
    return self


def _assign(Tensor self, value):
    """What ``t[index] = value`` does with the view ``t[index]``."""
    cdef Tensor source
    cdef int extra = 0
    if isinstance(value, Tensor):
        source = <Tensor>value
        while source.ndim_ - extra > self.ndim_ and source.sizes[extra] == 1:
            extra += 1
        if extra:
            source = new_view(source, 0, source.ndim_ - extra, source.sizes + extra, source.strides + extra)
        copy_into(self, source, False)
    elif isinstance(value, (int, float, complex)):
        _fill(self, value)
    elif hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        _fill(self, value.item())
    else:
        raise TypeError(f"can't assign a {type(value).__name__} to a {legacy_name(self.scalar_type)} tensor; "
                        "make a tensor of it first")


_tensor_module.install_methods({"fill_": fill_, "zero_": zero_, "_assign": _assign})
