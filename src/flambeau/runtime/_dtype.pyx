# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Element types, shapes, layouts and memory formats: what describes a tensor without its data."""
import math

from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_SET_ITEM

cdef extern from *:
    """
    static PyObject *flambeau_alloc_tuple(PyObject *cls, Py_ssize_t n) {
      return ((PyTypeObject *)cls)->tp_alloc((PyTypeObject *)cls, n);
    }
    static PyObject *flambeau_size_class = nullptr;

    // A slice of a Size is a Size; an item is an int. A slot, so that shape[0] stays a plain lookup.
    static PyObject *flambeau_size_subscript(PyObject *self, PyObject *key) {
      PyObject *item = PyTuple_Type.tp_as_mapping->mp_subscript(self, key);
      if (!item || !PyTuple_CheckExact(item)) return item;
      Py_ssize_t n = PyTuple_GET_SIZE(item);
      PyObject *size = flambeau_alloc_tuple(flambeau_size_class, n);
      if (size)
        for (Py_ssize_t i = 0; i < n; ++i)
          PyTuple_SET_ITEM(size, i, Py_NewRef(PyTuple_GET_ITEM(item, i)));
      Py_DECREF(item);
      return size;
    }
    static void flambeau_set_size_class(PyObject *cls) {
      flambeau_size_class = cls;
      ((PyTypeObject *)cls)->tp_as_mapping->mp_subscript = flambeau_size_subscript;
      PyType_Modified((PyTypeObject *)cls);
    }
    static void flambeau_set_type_name(PyObject *cls, const char *name) {
      ((PyTypeObject *)cls)->tp_name = name;
      PyType_Modified((PyTypeObject *)cls);
    }
    """
    object flambeau_alloc_tuple(object cls, Py_ssize_t n)
    void flambeau_set_size_class(object cls)
    void flambeau_set_type_name(object cls, const char* name)


cdef int set_public_name(object cls, const char* name) except -1:
    """Give a compiled class the module that users import it from; `name` must live for ever."""
    flambeau_set_type_name(cls, name)
    return 0


cdef class dtype:
    def __init__(self):
        raise TypeError("cannot create 'torch.dtype' instances; use one of torch.float32, torch.int64, …")

    @property
    def is_floating_point(self):
        return self.category == 2

    @property
    def is_complex(self):
        return self.category == 3

    @property
    def is_signed(self):
        return self.code not in (Bool, UInt8, UInt16, UInt32, UInt64)

    def to_real(self):
        if self.category != 3:
            return self
        return dtype_of({Complex32: Float16, Complex64: Float32, Complex128: Float64}[self.code])

    def to_complex(self):
        if self.category == 3:
            return self
        code = {Float16: Complex32, Float32: Complex64, Float64: Complex128, BFloat16: Complex64}.get(self.code)
        if code is None:
            raise RuntimeError(
                f"Unknown Complex ScalarType for {legacy_name(self.code)}: torch.{self.name} has no complex "
                "counterpart; float16, bfloat16, float32 and float64 have one")
        return dtype_of(code)

    def __repr__(self):
        return f"torch.{self.name}"

    def __reduce__(self):
        return dtype_named, (self.name,)



cdef list _dtypes = []


cdef _make_dtypes():
    cdef dtype made
    cdef int code
    for code in range(SCALAR_TYPE_COUNT):
        made = dtype.__new__(dtype)
        made.code = code
        made.itemsize = item_bytes[code]
        made.category = type_category[code]
        made.name = (<bytes>scalar_type_names[code]).decode()
        _dtypes.append(made)


_make_dtypes()
set_public_name(dtype, b"flambeau.dtype")

_ALIASES = {
    "float": "float32", "double": "float64", "half": "float16", "cfloat": "complex64",
    "cdouble": "complex128", "chalf": "complex32", "uint8": "uint8", "short": "int16",
    "int": "int32", "long": "int64",
}
# Every name that a program may use for a dtype.
dtypes = {made.name: made for made in _dtypes}
dtypes.update({alias: dtypes[name] for alias, name in _ALIASES.items()})


cdef dtype dtype_of(int scalar_type):
    return <dtype>_dtypes[scalar_type]


cdef str legacy_name(int scalar_type):
    return (<bytes>legacy_type_names[scalar_type]).decode()


# 2**7, 2**15, 2**31, 2**63 by bytes.
cdef dict _HALVES = {1: 128, 2: 32768, 4: 2147483648, 8: 9223372036854775808}


cdef tuple integer_range(int scalar_type):
    half = _HALVES[item_bytes[scalar_type]]
    if scalar_type in (UInt8, UInt16, UInt32, UInt64):
        return -half, half + half - 1
    return -half, half - 1


def dtype_named(str name):
    """The dtype of a name: ``"float32"``, ``"float"``."""
    try:
        return dtypes[name]
    except KeyError:
        raise ValueError(f"no dtype is called {name!r}; there are {', '.join(sorted(dtypes))}") from None


def dtype_from_code(int code):
    """The dtype of a scalar type number."""
    if not 0 <= code < SCALAR_TYPE_COUNT:
        raise ValueError(f"scalar types are numbered 0 to {SCALAR_TYPE_COUNT - 1}, got {code}")
    return dtype_of(code)


def legacy_type_name(dtype of not None):
    """What error messages and legacy tensor classes call a dtype: ``"Float"`` for float32."""
    return legacy_name(of.code)


class Size(tuple):
    """The shape of a tensor: a tuple of ints.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.Size([2, 3]).numel()
    6
    """

    __slots__ = ()
    __module__ = "flambeau"

    def __new__(cls, iterable=()):
        cdef list values = list(iterable)
        for position, value in enumerate(values):
            if type(value) is int:
                continue
            try:
                values[position] = value.__index__()
            except (AttributeError, TypeError):
                raise TypeError(
                    f"torch.Size() takes an iterable of 'int' (item {position} is "
                    f"'{type(value).__name__}')") from None
        return tuple.__new__(cls, values)

    def numel(self):
        """The product of the sizes: how many elements such a tensor has."""
        return math.prod(self)

    def __add__(self, other):
        return Size(tuple.__add__(self, tuple(other))) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other):
        return Size(tuple.__add__(tuple(other), self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, count):
        repeated = tuple.__mul__(self, count)
        return repeated if repeated is NotImplemented else Size(repeated)

    __rmul__ = __mul__

    def __repr__(self):
        return f"torch.Size({list(self)})"

    def __reduce__(self):
        return Size, (tuple(self),)


flambeau_set_size_class(Size)
cdef object _size_class = Size


cdef object make_size(int ndim, const int64_t* sizes):
    cdef object size = flambeau_alloc_tuple(_size_class, ndim)
    cdef object item
    cdef int i
    for i in range(ndim):
        item = sizes[i]
        Py_INCREF(item)
        PyTuple_SET_ITEM(size, i, item)
    return size


cdef class layout:
    """How elements lie in memory; `strided` is the only one."""

    cdef readonly str name

    def __init__(self):
        raise TypeError("cannot create 'torch.layout' instances; use torch.strided")

    def __repr__(self):
        return f"torch.{self.name}"

    def __reduce__(self):
        return _constant_named, (self.name,)


cdef class memory_format:
    """An order of the dimensions in memory, for `contiguous`, `to`, `empty_like`."""

    def __init__(self):
        raise TypeError("cannot create 'torch.memory_format' instances; use torch.contiguous_format")

    def __repr__(self):
        return f"torch.{self.name}"

    def __reduce__(self):
        return _constant_named, (self.name,)


cdef memory_format _make_format(str name, int code):
    cdef memory_format made = memory_format.__new__(memory_format)
    made.name = name
    made.code = code
    return made


cdef layout _make_layout(str name):
    cdef layout made = layout.__new__(layout)
    made.name = name
    return made


set_public_name(layout, b"flambeau.layout")
set_public_name(memory_format, b"flambeau.memory_format")
contiguous_format = _make_format("contiguous_format", 0)
preserve_format = _make_format("preserve_format", 1)
channels_last = _make_format("channels_last", 2)
channels_last_3d = _make_format("channels_last_3d", 3)
# Layouts and memory formats by name.
constants = {made.name: made for made in (
    contiguous_format, preserve_format, channels_last, channels_last_3d, _make_layout("strided"))}


def _constant_named(str name):
    return constants[name]


# name: (bits, mantissa bits, largest exponent, largest significand, smallest normal's exponent,
#        decimal digits that survive)
_FLOATS = {
    "float16": (16, 10, 15, 2 - 2.0**-10, -14, 3),
    "bfloat16": (16, 7, 127, 2 - 2.0**-7, -126, 2),
    "float32": (32, 23, 127, 2 - 2.0**-23, -126, 6),
    "float64": (64, 52, 1023, 2 - 2.0**-52, -1022, 15),
    "float8_e4m3fn": (8, 3, 8, 1.75, -6, 0),
    "float8_e5m2": (8, 2, 15, 1.75, -14, 0),
    "float8_e4m3fnuz": (8, 3, 7, 1.875, -7, 0),
    "float8_e5m2fnuz": (8, 2, 15, 1.75, -15, 0),
}


class finfo:
    """Limits of a floating-point dtype.

    Parameters
    ----------
    type
        A floating-point or complex dtype; float32 when left out.

    Attributes
    ----------
    bits : int
    eps, max, min, tiny, smallest_normal, resolution : float
        ``tiny`` and ``smallest_normal`` are the smallest normal number.
    dtype : str

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.finfo(torch.float16).max
    65504.0
    """

    __module__ = "flambeau"

    def __init__(self, type=None):
        if type is None:
            type = dtypes["float32"]
        if not isinstance(type, dtype) or (<dtype>type).category < 2:
            raise TypeError(
                f"torch.finfo() requires a floating point input type, got {type!r}. "
                "Use torch.iinfo to handle integer types")
        self.dtype = type.to_real().name
        self.bits, mantissa, exponent, largest, smallest, digits = _FLOATS[self.dtype]
        self.eps = 2.0**-mantissa
        self.max = largest * 2.0**exponent
        self.min = -self.max
        self.tiny = self.smallest_normal = 2.0**smallest
        self.resolution = float(f"1e-{digits}")

    def __eq__(self, other):
        return isinstance(other, finfo) and self.dtype == other.dtype

    def __hash__(self):
        return hash((finfo, self.dtype))

    def __repr__(self):
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
                f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, "
                f"dtype={self.dtype})")


class iinfo:
    """Limits of an integer dtype.

    Parameters
    ----------
    type
        An integer dtype.

    Attributes
    ----------
    bits, max, min : int
    dtype : str

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.iinfo(torch.int8).min
    -128
    """

    __module__ = "flambeau"

    def __init__(self, type):
        if not isinstance(type, dtype) or (<dtype>type).category >= 2:
            raise TypeError(
                f"torch.iinfo() requires an integer input type, got {type!r}. "
                "Use torch.finfo to handle floating point types")
        if (<dtype>type).category == 0:
            raise TypeError("torch.bool is not supported by torch.iinfo: it has two values, not a range")
        self.dtype = type.name
        self.bits = 8 * type.itemsize
        value_bits = self.bits - type.is_signed
        self.max = 2**value_bits - 1
        self.min = -(2**value_bits) if type.is_signed else 0

    def __eq__(self, other):
        return isinstance(other, iinfo) and self.dtype == other.dtype

    def __hash__(self):
        return hash((iinfo, self.dtype))

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
