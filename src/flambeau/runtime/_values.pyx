# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Elements as Python numbers: ``item``, ``tolist``."""
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from flambeau.runtime cimport _dtype, _launch, _tensor
from flambeau.runtime._copy cimport read_bytes, tell_host_access
from flambeau.runtime._dtype cimport item_bytes, type_category
from flambeau.runtime._tensor cimport Tensor

from flambeau.runtime import _tensor as _tensor_module

cdef extern from "flambeau/runtime/_convert.hpp" namespace "flambeau" nogil:
    int64_t load_int(const char* p, int type)
    double load_double(const char* p, int type)
    double load_real(const char* p, int type)
    double load_imag(const char* p, int type)


cdef object _python_value(const char* p, int scalar_type):
    cdef uint64_t wide
    cdef int category = type_category[scalar_type]
    if category == 2:
        return load_double(p, scalar_type)
    if category == 3:
        return complex(load_real(p, scalar_type), load_imag(p, scalar_type))
    if category == 0:
        return load_int(p, scalar_type) != 0
    if scalar_type == _dtype.UInt64:
        memcpy(&wide, p, 8)
        return wide
    return load_int(p, scalar_type)


cdef object _get_value(Tensor t):
    cdef char element[16]
    if t.count != 1:
        raise RuntimeError(f"a Tensor with {t.count} elements cannot be converted to Scalar")
    if t.device_index < 0:
        if _launch.observed:
            tell_host_access("item", (t,), ())
        return _python_value(t.data, t.scalar_type)
    read_bytes(t, element, item_bytes[t.scalar_type])
    return _python_value(element, t.scalar_type)


cdef object _nested(Tensor t, const char* p, int dim):
    cdef int64_t i
    cdef int64_t step
    if dim == t.ndim_:
        return _python_value(p, t.scalar_type)
    step = t.strides[dim] * item_bytes[t.scalar_type]
    return [_nested(t, p + i * step, dim + 1) for i in range(t.sizes[dim])]


def tolist(Tensor self):
    """The elements as nested lists of Python numbers; a number without dimensions. Waits for the device."""
    cdef Tensor host = self
    if self.device_index >= 0 and self.count:
        host = (<object>self).cpu()
    elif _launch.observed:
        tell_host_access("tolist", (self,), ())
    return _nested(host, host.data, 0)


_tensor.get_value = _get_value
_tensor_module.install_methods({"tolist": tolist})
