# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""The tensor: memory, dims and strides, and the operators, which other modules install."""
cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_CLEAR
from libc.stdint cimport INT64_MAX, uintptr_t
from libc.stdlib cimport free, malloc

from flambeau.runtime cimport _allocator, _dtype, _state
from flambeau.runtime._allocator cimport Storage
from flambeau.runtime._device cimport device_of
from flambeau.runtime._dims cimport contiguous_strides, count_of, shape_text, wrap_dim
from flambeau.runtime._dtype cimport item_bytes, make_size, set_public_name, type_category

from flambeau.runtime import _dtype as _dtype_module

cdef extern from "flambeau/runtime/_type_slots.hpp" namespace "flambeau":
    object new_instance(object cls)
    void hook_constructor(object cls)
    void set_constructor(object construct)
    int set_class_attribute(object cls, object name, object value) except -1

cdef extern from "flambeau/runtime/_lazy_dict.hpp" namespace "flambeau":
    int add_lazy_dict(object cls, object instance, void* where) except -1

cdef extern from *:
    bint __builtin_mul_overflow(int64_t a, int64_t b, int64_t* product) nogil
    bint __builtin_add_overflow(int64_t a, int64_t b, int64_t* sum) nogil

operators = [None] * SLOT_COUNT
cdef dict _slots = {
    "add": SLOT_ADD, "sub": SLOT_SUB, "mul": SLOT_MUL, "truediv": SLOT_TRUEDIV,
    "floordiv": SLOT_FLOORDIV, "mod": SLOT_MOD, "pow": SLOT_POW, "matmul": SLOT_MATMUL,
    "and": SLOT_AND, "or": SLOT_OR, "xor": SLOT_XOR, "lshift": SLOT_LSHIFT, "rshift": SLOT_RSHIFT,
    "lt": SLOT_LT, "le": SLOT_LE, "gt": SLOT_GT, "ge": SLOT_GE, "eq": SLOT_EQ, "ne": SLOT_NE,
    "neg": SLOT_NEG, "pos": SLOT_POS, "abs": SLOT_ABS, "invert": SLOT_INVERT,
    "copy": SLOT_COPY, "fill": SLOT_FILL, "getitem": SLOT_GETITEM, "setitem": SLOT_SETITEM,
    "repr": SLOT_REPR, "format": SLOT_FORMAT, "contains": SLOT_CONTAINS,
}
call_binary = NULL
call_unary = NULL
fill_buffer = NULL
view_extra = NULL

# -- making tensors --------------------------------------------------------------------------------

cdef int set_dims(Tensor t, int ndim, const int64_t* sizes, const int64_t* strides) except -1:
    cdef int64_t count = count_of(ndim, sizes)
    cdef int64_t* heap = NULL
    cdef int64_t step = 1
    cdef int i
    if ndim > INLINE_DIMS:
        if ndim > MAX_DIMS:
            raise RuntimeError(f"a tensor has at most {MAX_DIMS} dimensions, got {ndim}")
        heap = <int64_t*>malloc(2 * ndim * sizeof(int64_t))
        if heap == NULL:
            raise MemoryError
    if strides == NULL:
        contiguous_strides(ndim, sizes, heap + ndim if heap != NULL else &t.inline_dims[INLINE_DIMS])
    else:
        # sizes and strides may be the tensor's own, so move before anything is freed
        memcpy_dims(heap + ndim if heap != NULL else &t.inline_dims[INLINE_DIMS], strides, ndim)
    memcpy_dims(heap if heap != NULL else &t.inline_dims[0], sizes, ndim)
    if t.sizes != &t.inline_dims[0]:
        free(t.sizes)
    t.sizes = heap if heap != NULL else &t.inline_dims[0]
    t.strides = t.sizes + ndim if heap != NULL else &t.inline_dims[INLINE_DIMS]
    t.ndim_ = <int16_t>ndim
    t.count = count
    t.contiguous = True
    if strides != NULL and count != 0:
        for i in range(ndim - 1, -1, -1):
            if t.sizes[i] != 1:
                if t.strides[i] != step:
                    t.contiguous = False
                    break
                step *= t.sizes[i]
    return 0


cdef inline void memcpy_dims(int64_t* to, const int64_t* source, int n) noexcept:
    cdef int i
    for i in range(n):
        to[i] = source[i]


cdef Tensor new_of_class(object cls):
    return <Tensor>new_instance(cls)


cdef inline int _allocate(Tensor t, int device, int64_t count) except -1:
    cdef size_t bytes = <size_t>count * item_bytes[t.scalar_type]
    cdef _state.ThreadState* state = _state.thread_state()
    t.device_index = <int16_t>device
    if count > INT64_MAX // 16 and count > INT64_MAX // item_bytes[t.scalar_type]:
        raise RuntimeError(
            f"Storage size calculation overflowed: {count} elements of {item_bytes[t.scalar_type]} bytes")
    if bytes == 0:
        return 0
    if device < 0:
        t.storage = _allocator.allocate_host(bytes)
    else:
        t.storage = _allocator.allocate_device(device, bytes, state.streams[device])
    if state.first_version:
        t.storage.version = state.first_version
    t.data = t.storage.data
    return 0


cdef Tensor new_tensor(int device, int scalar_type, int ndim, const int64_t* sizes):
    cdef Tensor t = Tensor.__new__(Tensor)
    t.scalar_type = <int8_t>scalar_type
    set_dims(t, ndim, sizes, NULL)
    _allocate(t, device, t.count)
    return t


cdef Tensor new_strided(int device, int scalar_type, int ndim, const int64_t* sizes, const int64_t* strides):
    cdef Tensor t = Tensor.__new__(Tensor)
    cdef int64_t reach = 0, step = 0
    cdef bint overflow = False
    cdef int i
    t.scalar_type = <int8_t>scalar_type
    set_dims(t, ndim, sizes, strides)
    if t.count:
        for i in range(ndim):
            overflow |= __builtin_mul_overflow(sizes[i] - 1, strides[i], &step)
            overflow |= __builtin_add_overflow(reach, step, &reach)
        overflow |= __builtin_add_overflow(reach, 1, &reach)
    if overflow:
        raise RuntimeError(
            f"Storage size calculation overflowed: sizes {shape_text(ndim, sizes)} with strides "
            f"{shape_text(ndim, strides)}")
    _allocate(t, device, reach)
    return t


cdef object result_class(object cls):
    """Operations on a subclass give the subclass, unless it switched that off."""
    if cls is Tensor or getattr(cls, "__torch_function__", None) is _disabled_torch_function_impl:
        return Tensor
    return cls


def result_class_of(cls):
    """The class that results of operations on `cls` have: itself, or `Tensor`."""
    return result_class(cls)


cdef Tensor base_of(Tensor t):
    if t.extra is None:
        return None
    if isinstance(t.extra, TensorExtra):
        return (<TensorExtra>t.extra).base
    return <Tensor>t.extra


cdef Tensor new_view(Tensor base, int64_t offset, int ndim, const int64_t* sizes, const int64_t* strides):
    cdef Tensor t
    cdef Tensor root
    if type(base) is Tensor:
        t = Tensor.__new__(Tensor)
    else:
        t = new_of_class(result_class(type(base)))
    t.scalar_type = base.scalar_type
    t.device_index = base.device_index
    set_dims(t, ndim, sizes, strides)
    t.storage = base.storage
    if t.storage != NULL:
        t.storage.retain()
        t.data = base.data + offset * item_bytes[base.scalar_type]
    if base.extra is None:
        t.extra = base
        return t
    root = base_of(base)
    if root is None:
        root = base
    t.extra = root if root.extra is None else view_extra(root)
    return t


cdef Tensor adopt_storage(Storage* storage, char* data, int scalar_type, int ndim, const int64_t* sizes,
                          const int64_t* strides):
    cdef Tensor t = Tensor.__new__(Tensor)
    t.scalar_type = <int8_t>scalar_type
    if storage.references == 1 and _state.thread_state().first_version:
        storage.version = _state.thread_state().first_version
    t.storage = storage
    t.data = data
    t.device_index = storage.device
    set_dims(t, ndim, sizes, strides)
    return t


cdef int share(Tensor into, Tensor source) except -1:
    cdef Storage* before = into.storage
    set_dims(into, source.ndim_, source.sizes, source.strides)
    if source.storage != NULL:
        source.storage.retain()
    into.storage = source.storage
    into.data = source.data
    into.device_index = source.device_index
    into.scalar_type = source.scalar_type
    if before != NULL:
        before.drop()
    return 0


cdef int mark_written(Tensor t) noexcept:
    if t.storage != NULL:
        t.storage.version = t.storage.version + 1
    return 0


cdef int check_writable(Tensor t) except -1:
    if t.storage != NULL and t.storage.version & UNCOUNTED and not _state.thread_state().first_version:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed. It was made inside "
            "torch.inference_mode(), which keeps no track of writes: write to a clone() of it, or inside the mode.")
    return 0


# -- operators -------------------------------------------------------------------------------------

cdef object _binary(int slot, object a, object b):
    cdef object op = operators[slot]
    if type(op) is elementwise_class:
        return call_binary(op, a, b, None, False)
    if op is None:
        return NotImplemented
    return op(a, b)


cdef object _in_place(int slot, object a, object b):
    cdef object op = operators[slot]
    if type(op) is elementwise_class:
        return call_binary(op, a, b, <Tensor>a, True)
    if op is None:
        return NotImplemented
    return op(a, b, out=a)


cdef object _unary(int slot, Tensor a):
    cdef object op = operators[slot]
    if type(op) is elementwise_class:
        return call_unary(op, a, None, False)
    return _installed(slot)(a)


cdef object _installed(int slot):
    cdef object op = operators[slot]
    if op is None:
        name = next(key for key, number in _slots.items() if number == slot)
        raise NotImplementedError(f"no operator is installed as {name!r}; import flambeau installs them")
    return op


def install_operators(dict table):
    """Give tensors their operators.

    Parameters
    ----------
    table
        Callables by the special method's name without underscores: ``{"add": op, "neg": op}``.
        ``add`` serves ``+``, its reflected form and ``+=``; what is no `ElementwiseOp` is called as
        ``f(a, b)``, for ``+=`` with ``out=a``. Others: ``copy(source, out=target)``,
        ``fill(value, out=target)``, ``getitem(tensor, index)`` and ``setitem(tensor, index, value)``
        for advanced indices, ``repr(tensor)``, ``format(tensor, spec)``, ``contains(tensor, value)``.
    """
    unknown = set(table) - set(_slots)
    if unknown:
        raise ValueError(f"no operators are called {sorted(unknown)}; there are {sorted(_slots)}")
    for name, op in table.items():
        operators[_slots[name]] = op


def operator_of(str name not None):
    """What is installed as an operator, or None."""
    return operators[_slots[name]]


def install_methods(dict table):
    """Add methods and properties to `Tensor`, by name; what is there already is replaced."""
    for name, value in table.items():
        set_class_attribute(Tensor, name, value)


def install_constructor(construct):
    """Set what ``Tensor(...)`` does: ``construct(instance, args, kwargs)``."""
    set_constructor(construct)


def _disabled_torch_function_impl(function, types, args=(), kwargs=None):
    """Stands as ``__torch_function__`` in subclasses whose operations give plain tensors."""
    return function(*args, **(kwargs or {}))


cdef class TensorExtra:
    """What few tensors have."""


extra_class = TensorExtra               # _autograd puts its own here


@cython.freelist(64)
cdef class Tensor:
    """A multi-dimensional array of one element type, on the host or on a CUDA device.

    Make one with `tensor`, `empty`, `zeros` and the other factories. Slices, transposes and
    reshapes are views: they share memory with the tensor they came from.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.ones(2, 3)
    >>> x[0].shape
    torch.Size([3])
    """

    __array_priority__ = 1000   # NumPy leaves mixed operators to us

    def __cinit__(self):
        self.sizes = &self.inline_dims[0]
        self.strides = &self.inline_dims[INLINE_DIMS]
        self.count = 1
        self.contiguous = True
        self.device_index = -1
        self.scalar_type = _dtype.Float32

    def __dealloc__(self):
        if self.sizes != &self.inline_dims[0]:
            free(self.sizes)
        if self.storage != NULL:
            self.storage.drop()
        Py_CLEAR(self.attributes)

    # -- description -------------------------------------------------------------------------------

    @property
    def shape(self):
        """The sizes, as a `Size`."""
        return make_size(self.ndim_, self.sizes)

    def size(self, dim=None):
        """The sizes, or the size of one dimension."""
        if dim is None:
            return make_size(self.ndim_, self.sizes)
        return self.sizes[self._one_dim(dim)]

    def stride(self, dim=None):
        """The strides in elements, or the stride of one dimension."""
        if dim is None:
            return tuple([self.strides[i] for i in range(self.ndim_)])
        return self.strides[self._one_dim(dim)]

    cdef int _one_dim(self, object dim) except -1:
        if self.ndim_ == 0:
            raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
        return wrap_dim(dim, self.ndim_)

    @property
    def ndim(self):
        """How many dimensions."""
        return self.ndim_

    def dim(self):
        """How many dimensions."""
        return self.ndim_

    ndimension = dim

    def numel(self):
        """How many elements."""
        return self.count

    nelement = numel

    def element_size(self):
        """Bytes of one element."""
        return item_bytes[self.scalar_type]

    @property
    def itemsize(self):
        """Bytes of one element."""
        return item_bytes[self.scalar_type]

    @property
    def nbytes(self):
        """Bytes of all elements."""
        return self.count * item_bytes[self.scalar_type]

    @property
    def dtype(self):
        """The element type."""
        return dtype_of(self.scalar_type)

    @property
    def device(self):
        """Where the memory is."""
        return device_of(self.device_index)

    @property
    def layout(self):
        """Always ``torch.strided``."""
        return _dtype_module.constants["strided"]

    @property
    def is_cuda(self):
        """Whether the memory is a CUDA device's."""
        return self.device_index >= 0

    @property
    def is_cpu(self):
        """Whether the memory is the host's."""
        return self.device_index < 0

    is_sparse = is_meta = is_mps = is_quantized = is_xpu = is_mkldnn = is_nested = False

    def get_device(self):
        """The CUDA device's index; -1 for a host tensor."""
        return self.device_index

    def is_floating_point(self):
        """Whether the elements are real floating-point numbers."""
        return type_category[self.scalar_type] == 2

    def is_complex(self):
        """Whether the elements are complex."""
        return type_category[self.scalar_type] == 3

    def is_signed(self):
        """Whether the element type has negative values."""
        return dtype_of(self.scalar_type).is_signed

    def is_conj(self):
        """Always False: conjugation is computed at once."""
        return False

    def is_neg(self):
        """Always False: negation is computed at once."""
        return False

    def is_contiguous(self, memory_format=None):
        """Whether elements lie in row-major order without gaps, or in the order of a format."""
        cdef _dtype.memory_format wanted
        if memory_format is None:
            return self.contiguous
        wanted = <_dtype.memory_format?>memory_format
        if wanted.code < 2:
            return self.contiguous
        return _is_channels_last(self, 4 if wanted.code == 2 else 5)

    def data_ptr(self):
        """The address of element 0, an int; 0 for a tensor without memory."""
        return <uintptr_t>self.data

    def storage_offset(self):
        """How many elements into its storage this tensor begins."""
        if self.storage == NULL:
            return 0
        return (self.data - self.storage.data) // item_bytes[self.scalar_type]

    @property
    def _cdata(self):
        return <uintptr_t><void*>self

    @property
    def _base(self):
        """The tensor that this one is a view of, or None."""
        return base_of(self)

    def _is_view(self):
        return base_of(self) is not None

    def _mark_written(self):
        """Count an in-place write that was made behind the tensor's back, by a kernel."""
        mark_written(self)

    @property
    def _version(self):
        """How many in-place writes this memory has seen.

        Raises
        ------
        RuntimeError
            It is the memory of inference tensors, whose writes nobody counts.
        """
        if self.storage != NULL and self.storage.version & UNCOUNTED:
            raise RuntimeError(
                "Inference tensors do not track version counter. Only tensors made outside "
                "torch.inference_mode() have one; a clone() is.")
        return 0 if self.storage == NULL else self.storage.version

    def is_pinned(self, device=None):
        """Whether a device can reach this host memory directly."""
        if self.device_index >= 0 or self.storage == NULL:
            return False
        return self.storage.pinned or _allocator.is_pinned_address(self.data)

    @property
    def data(self):
        """The tensor's memory as a tensor of its own, without gradients."""
        return self._alias(result_class(type(self)))

    @data.setter
    def data(self, Tensor value not None):
        share(self, value)

    cdef Tensor _alias(self, object cls):
        cdef Tensor t = new_of_class(cls)
        share(t, self)
        return t

    def as_subclass(self, cls):
        """The tensor's memory as an instance of a subclass of `Tensor`.

        Parameters
        ----------
        cls
            `Tensor` or a class derived from it; its ``__init__`` is not called.
        """
        if not (isinstance(cls, type) and issubclass(cls, Tensor)):
            raise TypeError(f"cls must be a type that inherits from Tensor, got {cls!r}")
        return self._alias(cls)

    @staticmethod
    def _make_subclass(cls, Tensor data not None, require_grad=False):
        """An instance of `cls` over the memory of `data`, without calling ``__init__``."""
        made = data.as_subclass(cls)
        made.requires_grad = require_grad
        return made

    # -- protocols -----------------------------------------------------------------------------------

    def __len__(self):
        if self.ndim_ == 0:
            raise TypeError("len() of a 0-d tensor")
        return self.sizes[0]

    def __iter__(self):
        if self.ndim_ == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __hash__(self):
        return <Py_hash_t>(<uintptr_t><void*>self >> 4)

    def __repr__(self):
        cdef object op = operators[SLOT_REPR]
        if op is not None:
            return op(self)
        return (f"<{type(self).__name__} {shape_text(self.ndim_, self.sizes)} "
                f"torch.{dtype_of(self.scalar_type).name} on {device_of(self.device_index)}>")

    def __format__(self, spec):
        cdef object op = operators[SLOT_FORMAT]
        if op is not None:
            return op(self, spec)
        return format(self.item() if self.ndim_ == 0 else str(self), spec)

    def __contains__(self, value):
        return _installed(SLOT_CONTAINS)(self, value)

    def __getbuffer__(self, Py_buffer* view, int flags):
        fill_buffer(self, view, flags)

    def __releasebuffer__(self, Py_buffer* view):
        free(view.shape)
        if view.internal != NULL:
            (<Storage*>view.internal).drop()

    # -- operators -----------------------------------------------------------------------------------

    def __add__(self, other): return _binary(SLOT_ADD, self, other)
    def __radd__(self, other): return _binary(SLOT_ADD, other, self)
    def __iadd__(self, other): return _in_place(SLOT_ADD, self, other)
    def __sub__(self, other): return _binary(SLOT_SUB, self, other)
    def __rsub__(self, other): return _binary(SLOT_SUB, other, self)
    def __isub__(self, other): return _in_place(SLOT_SUB, self, other)
    def __mul__(self, other): return _binary(SLOT_MUL, self, other)
    def __rmul__(self, other): return _binary(SLOT_MUL, other, self)
    def __imul__(self, other): return _in_place(SLOT_MUL, self, other)
    def __truediv__(self, other): return _binary(SLOT_TRUEDIV, self, other)
    def __rtruediv__(self, other): return _binary(SLOT_TRUEDIV, other, self)
    def __itruediv__(self, other): return _in_place(SLOT_TRUEDIV, self, other)
    def __floordiv__(self, other): return _binary(SLOT_FLOORDIV, self, other)
    def __rfloordiv__(self, other): return _binary(SLOT_FLOORDIV, other, self)
    def __ifloordiv__(self, other): return _in_place(SLOT_FLOORDIV, self, other)
    def __mod__(self, other): return _binary(SLOT_MOD, self, other)
    def __rmod__(self, other): return _binary(SLOT_MOD, other, self)
    def __imod__(self, other): return _in_place(SLOT_MOD, self, other)
    def __pow__(self, other, modulus): return NotImplemented if modulus is not None else _binary(SLOT_POW, self, other)
    def __rpow__(self, other, modulus): return NotImplemented if modulus is not None else _binary(SLOT_POW, other, self)
    def __ipow__(self, other): return _in_place(SLOT_POW, self, other)
    def __matmul__(self, other): return _binary(SLOT_MATMUL, self, other)
    def __rmatmul__(self, other): return _binary(SLOT_MATMUL, other, self)
    def __and__(self, other): return _binary(SLOT_AND, self, other)
    def __rand__(self, other): return _binary(SLOT_AND, other, self)
    def __iand__(self, other): return _in_place(SLOT_AND, self, other)
    def __or__(self, other): return _binary(SLOT_OR, self, other)
    def __ror__(self, other): return _binary(SLOT_OR, other, self)
    def __ior__(self, other): return _in_place(SLOT_OR, self, other)
    def __xor__(self, other): return _binary(SLOT_XOR, self, other)
    def __rxor__(self, other): return _binary(SLOT_XOR, other, self)
    def __ixor__(self, other): return _in_place(SLOT_XOR, self, other)
    def __lshift__(self, other): return _binary(SLOT_LSHIFT, self, other)
    def __rlshift__(self, other): return _binary(SLOT_LSHIFT, other, self)
    def __ilshift__(self, other): return _in_place(SLOT_LSHIFT, self, other)
    def __rshift__(self, other): return _binary(SLOT_RSHIFT, self, other)
    def __rrshift__(self, other): return _binary(SLOT_RSHIFT, other, self)
    def __irshift__(self, other): return _in_place(SLOT_RSHIFT, self, other)
    def __lt__(self, other): return _binary(SLOT_LT, self, other)
    def __le__(self, other): return _binary(SLOT_LE, self, other)
    def __gt__(self, other): return _binary(SLOT_GT, self, other)
    def __ge__(self, other): return _binary(SLOT_GE, self, other)
    def __eq__(self, other): return _binary(SLOT_EQ, self, other)
    def __ne__(self, other): return _binary(SLOT_NE, self, other)
    def __neg__(self): return _unary(SLOT_NEG, self)
    def __pos__(self): return _unary(SLOT_POS, self)
    def __abs__(self): return _unary(SLOT_ABS, self)
    def __invert__(self): return _unary(SLOT_INVERT, self)

    # -- indexing and values: see _indexing and _values ------------------------------------------------

    def __getitem__(self, index):
        return get_item(self, index)

    def __setitem__(self, index, value):
        set_item(self, index, value)

    def item(self):
        """The only element, as a Python number. Waits for the device."""
        return get_value(self)

    def __bool__(self):
        if self.count != 1:
            what = "no values" if self.count == 0 else "more than one value"
            raise RuntimeError(f"Boolean value of Tensor with {what} is ambiguous")
        return bool(get_value(self))

    def __int__(self):
        return int(self._one_value())

    def __float__(self):
        return float(self._one_value())

    def __complex__(self):
        return complex(self._one_value())

    def __index__(self):
        if self.count != 1 or type_category[self.scalar_type] > 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(get_value(self))

    cdef object _one_value(self):
        if self.count != 1:
            raise ValueError(
                f"only one element tensors can be converted to Python scalars, this one has {self.count}")
        return get_value(self)


cdef bint _is_channels_last(Tensor t, int ndim):
    """Whether dimension 1 is the innermost and the others follow in order."""
    cdef int64_t step = 1
    cdef int i, dim
    if t.ndim_ != ndim:
        return False
    for i in range(ndim):
        dim = 1 if i == 0 else (0 if i == ndim - 1 else ndim - i)
        if t.sizes[dim] != 1 and t.strides[dim] != step:
            return False
        step *= t.sizes[dim]
    return True


set_public_name(Tensor, b"flambeau.Tensor")
hook_constructor(Tensor)


cdef int _give_attributes() except -1:
    cdef Tensor made = Tensor.__new__(Tensor)
    return add_lazy_dict(Tensor, made, &made.attributes)


_give_attributes()

from flambeau.runtime import (  # noqa: E402, F401
    _autograd, _autograd_tensor, _conversion, _copy, _dlpack, _elementwise, _factory, _fill, _indexing, _recording,
    _serialize, _storage, _values, _views)
from flambeau.runtime._device import (  # noqa: E402, F401
    device, device_index, get_default_device, set_default_device)
from flambeau.runtime._dtype import Size, dtype, finfo, iinfo, layout, memory_format  # noqa: E402, F401
