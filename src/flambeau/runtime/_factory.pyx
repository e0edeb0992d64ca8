# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Making tensors: empty ones, from Python numbers, over memory of others, and ``Tensor(...)``."""
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer)
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint64_t, uintptr_t

from flambeau.runtime cimport _allocator, _dtype, _elementwise, _state
from flambeau.runtime._allocator cimport Storage
from flambeau.runtime._copy cimport copy_into, new_like
from flambeau.runtime._device cimport resolve_device
from flambeau.runtime._dtype cimport dtype, dtype_of, integer_range, item_bytes, legacy_name, memory_format, type_category
from flambeau.runtime._storage cimport UntypedStorage
from flambeau.runtime._dims cimport channels_last_strides, count_of, parse_sizes, parse_varargs, shape_text
from flambeau.runtime._tensor cimport (
    MAX_DIMS, Tensor, adopt_storage, new_strided, new_tensor, refuse_uncounted, set_dims, share)

from flambeau.runtime import _elementwise as _elementwise_module
from flambeau.runtime import _tensor as _tensor_module

cdef extern from "flambeau/runtime/_fast_factory.hpp" namespace "flambeau":
    object make_fast_empty "flambeau::make_fast_factory<0>"(
        const char* name, object whole, const char* documentation, object (*one_size)(object, object, object))

cdef extern from "flambeau/runtime/_convert.hpp" namespace "flambeau" nogil:
    void store_int(char* p, int type, int64_t v)
    void store_uint(char* p, int type, uint64_t v)
    void store_double(char* p, int type, double v)
    void store_complex(char* p, int type, double real, double imag)

cdef extern from *:
    """
    #include "flambeau/runtime/storage.hpp"
    namespace flambeau {
    // Memory that something else owns: `owner` is a Python object to let go of.
    inline Storage *foreign_storage(char *data, std::size_t bytes, int device, void *owner,
                                    void (*release)(Storage *)) {
      Storage *storage = new Storage();
      storage->data = data;
      storage->bytes = bytes;
      storage->device = std::int16_t(device);
      storage->resizable = false;
      storage->owner = owner;
      storage->release = release;
      return storage;
    }
    inline void delete_storage(Storage *storage) { delete storage; }
    }
    """
    Storage* foreign_storage "flambeau::foreign_storage"(
        char* data, size_t bytes, int device, void* owner, void (*release)(Storage*) noexcept)
    void delete_storage "flambeau::delete_storage"(Storage*)

default_float = _dtype.Float32


def set_default_dtype(dtype d not None):
    """Set the dtype of floats that come without one."""
    global default_float
    if d.category != 2:
        raise TypeError(f"only floating-point types are supported as the default type, got torch.{d.name}")
    default_float = d.code
    _elementwise_module.forget_promotions()


def get_default_dtype():
    """The dtype of floats that come without one."""
    return dtype_of(default_float)


# -- empty -----------------------------------------------------------------------------------------

cdef int _code_of(object dtype_or_none) except -1:
    if dtype_or_none is None:
        return default_float
    if not isinstance(dtype_or_none, dtype):
        raise TypeError(f"argument 'dtype' must be torch.dtype, not {type(dtype_or_none).__name__}")
    return (<dtype>dtype_or_none).code


cdef Tensor _empty(int ndim, const int64_t* sizes, object dtype_or_none, object device, bint pin_memory):
    cdef int code = _code_of(dtype_or_none), index = resolve_device(device)
    cdef int64_t count
    cdef Storage* storage
    if pin_memory:
        if index >= 0:
            raise RuntimeError("Only dense CPU tensors can be pinned")
        _state.require_initialized()
        count = count_of(ndim, sizes)
        if count > INT64_MAX // item_bytes[code]:
            raise RuntimeError(f"Storage size calculation overflowed with sizes={shape_text(ndim, sizes)}")
        storage = _allocator.allocate_pinned(<size_t>count * item_bytes[code])
        return adopt_storage(storage, storage.data, code, ndim, sizes, NULL)
    if index >= 0:
        _state.ensure_context(index)
    return new_tensor(index, code, ndim, sizes)


cdef object _empty_of_one_size(object size, object device, object dtype_or_none):
    cdef int64_t extent = size
    return _empty(1, &extent, dtype_or_none, device, False)


cdef int _lay_out(Tensor fresh, memory_format wanted) except -1:
    """Give a row-major tensor that nobody has seen the order of a format; its bytes are the same."""
    cdef int64_t[64] strides
    if wanted.code >= 2:
        channels_last_strides(wanted.name, 4 if wanted.code == 2 else 5, fresh.ndim_, fresh.sizes, strides)
        set_dims(fresh, fresh.ndim_, fresh.sizes, strides)
    return 0


def empty(size=None, size1=None, size2=None, size3=None, size4=None, size5=None, size6=None, size7=None,
          size8=None, size9=None, *, out=None, dtype=None, layout=None, device=None, requires_grad=False,
          pin_memory=False, memory_format=None):
    cdef int64_t[64] sizes
    cdef int ndim
    cdef Tensor made
    if size1 is None:
        ndim = 0 if size is None else parse_sizes(size, sizes)
    else:
        ndim = parse_sizes(
            [s for s in (size, size1, size2, size3, size4, size5, size6, size7, size8, size9) if s is not None],
            sizes)
    if out is not None:
        return _resized_output(out, ndim, sizes)
    made = _empty(ndim, sizes, dtype, device, pin_memory)
    if memory_format is not None:
        _lay_out(made, memory_format)
    if requires_grad:
        made.requires_grad = True
    return made


cdef bytes _empty_documentation = b"""empty(size=None, size1=None, size2=None, size3=None, size4=None, \
size5=None, size6=None, size7=None, size8=None, size9=None, *, out=None, dtype=None, layout=None, \
device=None, requires_grad=False, pin_memory=False, memory_format=None)
--

A tensor whose memory is not cleared.

Parameters
----------
size, size1, ...
    The sizes: ``empty(2, 3)`` or ``empty((2, 3))``.
out
    A tensor to give these sizes instead.
dtype
    The element type; by default `get_default_dtype`.
device
    ``"cpu"``, ``"cuda"``, ``"cuda:1"``, an index or a `device`; by default the default device.
pin_memory
    Put a host tensor into pinned memory, which initialises CUDA.
memory_format
    The order of the dimensions in memory.

Raises
------
RuntimeError
    A size is negative.
OutOfMemoryError
    The device has no memory left.
"""
empty = make_fast_empty("empty", empty, _empty_documentation, _empty_of_one_size)


cdef Tensor _resized_output(Tensor out, int ndim, const int64_t* sizes):
    if out.device_index >= 0:
        _state.ensure_context(out.device_index)
    if count_of(ndim, sizes) == out.count and out.contiguous:
        set_dims(out, ndim, sizes, NULL)
    else:
        share(out, new_tensor(out.device_index, out.scalar_type, ndim, sizes))
    return out


def new_empty(sizes, dtype=None, device=None, pin_memory=False):
    """`empty` with the sizes as one sequence: what other factories build on."""
    cdef int64_t[64] wanted
    return _empty(parse_sizes(sizes, wanted), wanted, dtype, device, pin_memory)


def empty_strided(size, stride, *, dtype=None, layout=None, device=None, requires_grad=False,
                  pin_memory=False):
    """A tensor with these sizes and strides (in elements), memory not cleared."""
    cdef int64_t[64] sizes
    cdef int64_t[64] strides
    cdef int64_t reach = 1
    cdef int ndim = parse_sizes(size, sizes), index, i
    cdef Tensor made
    if parse_sizes(stride, strides) != ndim:
        raise RuntimeError(
            f"dimensionality of sizes ({ndim}) must match dimensionality of strides ({len(stride)})")
    for i in range(ndim):
        if strides[i] < 0:
            raise RuntimeError(f"strides must not be negative, got {shape_text(ndim, strides)}")
        reach = 0 if sizes[i] == 0 or reach == 0 else reach + (sizes[i] - 1) * strides[i]
    if pin_memory:
        made = _empty(1, &reach, dtype, device, True)
        set_dims(made, ndim, sizes, strides)
    else:
        index = resolve_device(device)
        if index >= 0:
            _state.ensure_context(index)
        made = new_strided(index, _code_of(dtype), ndim, sizes, strides)
    if requires_grad:
        made.requires_grad = True
    return made


def empty_like(Tensor input not None, *, dtype=None, layout=None, device=None, requires_grad=False,
               pin_memory=False, memory_format=None):
    """A tensor with the shape, dtype, device and order of dimensions of another, memory not cleared."""
    cdef int code = input.scalar_type if dtype is None else _code_of(dtype)
    cdef int index = input.device_index if device is None else resolve_device(device)
    cdef Tensor made
    if pin_memory:
        made = _empty(input.ndim_, input.sizes, dtype_of(code), "cpu" if index < 0 else f"cuda:{index}", True)
    elif memory_format is None or (<_dtype.memory_format?>memory_format).code == 1:
        made = new_like(input, index, code)
    else:
        if index >= 0:
            _state.ensure_context(index)
        made = new_tensor(index, code, input.ndim_, input.sizes)
        _lay_out(made, memory_format)
    if requires_grad:
        made.requires_grad = True
    if type(input) is not Tensor:
        return made.as_subclass(_tensor_module.result_class_of(type(input)))
    return made


def resize_(Tensor self, *sizes, memory_format=None):
    """Give this tensor other sizes, row-major, and more memory if they need it; it keeps its first elements.

    Views made before keep the old memory when it has to grow.
    """
    cdef int64_t[64] wanted
    cdef int ndim = parse_varargs(sizes, wanted)
    cdef int64_t count = count_of(ndim, wanted), kept
    cdef size_t needed = <size_t>count * item_bytes[self.scalar_type]
    cdef Tensor grown
    refuse_uncounted(self)
    if (self.storage != NULL and <size_t>count <= self.storage.bytes
            and <size_t>(self.data - self.storage.data) + needed <= self.storage.bytes):
        set_dims(self, ndim, wanted, NULL)
        return self
    if self.storage != NULL and not self.storage.resizable:
        raise RuntimeError("Trying to resize storage that is not resizable: its memory belongs to another object")
    if self.device_index >= 0:
        _state.ensure_context(self.device_index)
    grown = new_tensor(self.device_index, self.scalar_type, 1, &count)
    if self.storage != NULL and self.data != NULL:
        kept = <int64_t>(self.storage.bytes - (self.data - self.storage.data)) // item_bytes[self.scalar_type]
        kept = min(kept, count)
        if kept:
            copy_into(grown.narrow(0, 0, kept), self.as_strided((kept,), (1,)), False)
    share(self, grown)
    set_dims(self, ndim, wanted, NULL)
    return self


def set_(Tensor self, source=None, storage_offset=None, size=None, stride=None):
    """Have this tensor use the memory of another tensor or of a storage, with these sizes and strides."""
    cdef Tensor flat
    cdef int64_t zero = 0
    refuse_uncounted(self)
    if source is None:
        share(self, new_tensor(self.device_index, self.scalar_type, 1, &zero))
        return self
    if isinstance(source, Tensor):
        if (<Tensor>source).scalar_type != self.scalar_type:
            raise RuntimeError(
                f"Expected a Tensor of type {legacy_name(self.scalar_type)} but got a type "
                f"{legacy_name((<Tensor>source).scalar_type)} for the source")
        if size is None and storage_offset is None:
            share(self, source)
            return self
        source = source.untyped_storage()
    if hasattr(source, "untyped") and not isinstance(source, UntypedStorage):
        source = source.untyped()
    flat = source._bytes()
    count = flat.count // item_bytes[self.scalar_type]
    flat = flat.narrow(0, 0, count * item_bytes[self.scalar_type]).view(dtype_of(self.scalar_type))
    offset = storage_offset or 0
    if size is None:
        size = (count - offset,)
    if stride is None:
        stride, step = [], 1
        for extent in reversed(size):
            stride.insert(0, step)
            step *= extent
    share(self, flat.as_strided(size, stride, offset))
    return self


# -- from Python numbers -----------------------------------------------------------------------------

# The kind of the numbers in nested sequences: 0 bool, 1 int, 2 float, 3 complex.
cdef int _kind_of(object value) except -1:
    cdef int kind = 0
    if type(value) is float:
        return 2
    if type(value) is int:
        return 1
    if type(value) is bool:
        return 0
    if isinstance(value, (list, tuple)):
        for item in value:
            kind = max(kind, _kind_of(item))
        return kind if len(value) else 2
    if isinstance(value, Tensor):
        return type_category[(<Tensor>value).scalar_type]
    if isinstance(value, float):
        return 2
    if isinstance(value, complex):
        return 3
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return _kind_of(value.tolist())
    if hasattr(value, "__index__"):
        return 1
    if hasattr(value, "__getitem__") and hasattr(value, "__len__") and not isinstance(value, (str, bytes, dict)):
        return _kind_of(list(value))
    if isinstance(value, (str, bytes)):
        raise ValueError(f"too many dimensions '{type(value).__name__}'")
    raise RuntimeError(f"Could not infer dtype of {type(value).__name__}")


cdef bint _is_sequence(object value):
    if isinstance(value, (list, tuple)):
        return True
    if isinstance(value, (int, float, complex, str, bytes)):
        return False
    if isinstance(value, Tensor):
        return (<Tensor>value).ndim_ > 0
    return hasattr(value, "__getitem__") and hasattr(value, "__len__") and getattr(value, "ndim", 1) > 0


cdef int _shape_of(object data, int64_t* sizes) except -1:
    cdef int ndim = 0
    while _is_sequence(data):
        if ndim == MAX_DIMS:
            raise ValueError(f"too many dimensions: a tensor has at most {MAX_DIMS}")
        sizes[ndim] = len(data)
        ndim += 1
        if sizes[ndim - 1] == 0:
            break
        data = data[0]
    return ndim


cdef char* _store_nested(object data, char* to, int code, int dim, int ndim, const int64_t* sizes) except NULL:
    cdef int item = item_bytes[code]
    if dim == ndim:
        if _is_sequence(data):
            raise ValueError(f"expected a number at dim {dim} (got a {type(data).__name__})")
        _store_one(data, to, code)
        return to + item
    if not _is_sequence(data):
        raise TypeError(f"expected a sequence of length {sizes[dim]} at dim {dim} (got {data!r})")
    if len(data) != sizes[dim]:
        raise ValueError(f"expected sequence of length {sizes[dim]} at dim {dim} (got {len(data)})")
    if dim == ndim - 1:
        for value in data:
            if type(value) is float and type_category[code] == 2:
                store_double(to, code, value)
            elif _is_sequence(value):
                raise ValueError(f"expected a number at dim {ndim} (got a {type(value).__name__})")
            else:
                _store_one(value, to, code)
            to += item
        return to
    for part in data:
        to = _store_nested(part, to, code, dim + 1, ndim, sizes)
    return to


cdef int _store_one(object value, char* to, int code) except -1:
    cdef int category = type_category[code]
    if not isinstance(value, (int, float, complex)):
        if hasattr(value, "item"):
            value = value.item()        # a tensor, a NumPy scalar
        elif hasattr(value, "__index__"):
            value = value.__index__()
        elif category == 3:
            value = complex(value)
        else:
            value = float(value)
    if category == 3:
        value = complex(value)
        store_complex(to, code, value.real, value.imag)
    elif category == 2:
        if isinstance(value, complex):
            raise TypeError(f"can't convert complex {value} to {legacy_name(code)}")
        store_double(to, code, float(value))
    elif category == 0:
        store_int(to, code, bool(value))
    else:
        _store_integer(int(value), to, code)
    return 0


cdef int _store_integer(object value, char* to, int code) except -1:
    low, high = integer_range(code)
    if not low <= value <= high:
        if item_bytes[code] == 8:
            raise ValueError(f"Overflow when unpacking long long: {value} does not fit {legacy_name(code)}")
        raise RuntimeError(f"value cannot be converted to type {dtype_of(code).name} without overflow: {value}")
    store_uint(to, code, <uint64_t>(value & 0xFFFFFFFFFFFFFFFF))
    return 0


cdef Tensor from_data(object data, object dtype_or_none):
    cdef int64_t[64] sizes
    cdef int ndim = _shape_of(data, sizes), code
    cdef Tensor made
    if dtype_or_none is None:
        code = (<int>_dtype.Bool, <int>_dtype.Int64, default_float,
                <int>(_dtype.Complex128 if default_float == _dtype.Float64 else _dtype.Complex64))[_kind_of(data)]
    else:
        code = _code_of(dtype_or_none)
    made = new_tensor(-1, code, ndim, sizes)
    if made.count:
        _store_nested(data, made.data, code, 0, ndim, sizes)
    return made


def from_sequence(data, dtype=None):
    """A host tensor with the numbers of nested lists or tuples, or of one number.

    Parameters
    ----------
    data
        Numbers, possibly nested; tensors and NumPy scalars count as numbers.
    dtype
        The element type; by default bool, int64, the default float or a complex type, as the numbers
        need.

    Raises
    ------
    ValueError
        The nesting is ragged.
    RuntimeError
        A number does not fit the dtype, or something is not a number.
    """
    return from_data(data, dtype)


# -- memory of others --------------------------------------------------------------------------------

cdef void _release_object(Storage* storage) noexcept with gil:
    Py_DECREF(<object>storage.owner)
    delete_storage(storage)


def wrap_foreign(uintptr_t address, owner, sizes, strides=None, *, dtype dtype not None, int device=-1,
                 size_t nbytes=0):
    """A tensor over memory that something else owns.

    Parameters
    ----------
    address
        Of element 0, in host memory or in that of the CUDA device.
    owner
        Any object; it is kept alive as long as the memory is used.
    sizes, strides
        In elements; row-major without strides.
    dtype
        The element type.
    device
        A CUDA index, or -1 for the host.
    nbytes
        Size of the memory from `address` on; computed from the sizes when 0.
    """
    cdef int64_t[64] size_values
    cdef int64_t[64] stride_values
    cdef int64_t reach = 1
    cdef int64_t* given = NULL
    cdef int ndim = parse_sizes(sizes, size_values), i
    if strides is not None:
        given = stride_values
        if parse_sizes(strides, stride_values) != ndim:
            raise RuntimeError("mismatch in length of strides and shape")
    if not nbytes:
        for i in range(ndim):
            if size_values[i] == 0:
                reach = 0
                break
            reach += (size_values[i] - 1) * stride_values[i] if strides is not None else 0
        if strides is None:
            reach = count_of(ndim, size_values)
        nbytes = reach * dtype.itemsize
    Py_INCREF(owner)
    return adopt_storage(
        foreign_storage(<char*>address, nbytes, device, <void*>owner, _release_object), <char*>address,
        dtype.code, ndim, size_values, given)


cdef class _BufferOwner:
    """Keeps an exported buffer."""

    cdef Py_buffer view
    cdef bint held

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


def from_buffer(buffer, *, dtype dtype not None, Py_ssize_t count=-1, Py_ssize_t offset=0):
    """A one-dimensional host tensor over the memory of an object with a buffer.

    Parameters
    ----------
    buffer
        ``bytearray``, ``memoryview``, ``array.array``, …; a read-only one gives memory that must not be
        written.
    dtype
        The element type.
    count
        How many elements; all if negative.
    offset
        Bytes to leave out at the front.
    """
    cdef _BufferOwner owner = _BufferOwner.__new__(_BufferOwner)
    cdef int64_t size
    PyObject_GetBuffer(buffer, &owner.view, 0)
    owner.held = True
    if owner.view.len == 0:
        raise ValueError("both buffer length (0) and count must not be 0")
    if offset < 0 or offset >= owner.view.len:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length "
            f"({owner.view.len} bytes) minus 1")
    if count < 0:
        if (owner.view.len - offset) % dtype.itemsize:
            raise ValueError(
                f"buffer length ({owner.view.len - offset} bytes) after offset ({offset} bytes) must be a "
                f"multiple of element size ({dtype.itemsize})")
        size = (owner.view.len - offset) // dtype.itemsize
    else:
        size = count
        if size * dtype.itemsize + offset > owner.view.len:
            raise ValueError(
                f"requested buffer length ({size} * {dtype.itemsize} bytes) after offset ({offset} bytes) must "
                f"not be greater than actual buffer length ({owner.view.len} bytes)")
    return wrap_foreign(<uintptr_t>owner.view.buf + offset, owner, (size,), dtype=dtype)


# -- Tensor(...) -------------------------------------------------------------------------------------

def _construct(Tensor made not None, tuple arguments, keywords):
    """``Tensor()``, ``Tensor(2, 3)``, ``Tensor([1, 2])``, ``Tensor(other)``: always of the default dtype."""
    cdef int64_t[64] sizes
    cdef int index = resolve_device((keywords or {}).get("device"))
    if not arguments:
        sizes[0] = 0
        share(made, new_tensor(index, default_float, 1, sizes))
    elif len(arguments) == 1 and isinstance(arguments[0], Tensor):
        share(made, (<object>arguments[0]).to(dtype_of(default_float)))
    elif len(arguments) == 1 and not isinstance(arguments[0], int) and type(arguments[0]).__name__ != "Size":
        if not _is_sequence(arguments[0]):
            raise TypeError(f"new(): data must be a sequence (got {type(arguments[0]).__name__})")
        share(made, (<object>from_data(arguments[0], dtype_of(default_float))).to(
            "cpu" if index < 0 else f"cuda:{index}"))
    else:
        if index >= 0:
            _state.ensure_context(index)
        share(made, new_tensor(index, default_float, parse_varargs(arguments, sizes), sizes))


_tensor_module.install_constructor(_construct)
_tensor_module.install_methods({"resize_": resize_, "set_": set_})
for _made in (empty, empty_like, empty_strided, from_buffer, from_sequence, get_default_dtype, new_empty,
              set_default_dtype, wrap_foreign):
    setattr(_tensor_module, _made.__name__, _made)     # `_tensor` may be the later one to finish importing
