# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Methods that give another tensor with the same values: ``clone``, ``contiguous``, ``to`` and its kin."""
from libc.stdint cimport INT64_MAX, int64_t, uintptr_t

from flambeau.driver._table cimport CUstream
from flambeau.runtime cimport _allocator, _dtype, _state
from flambeau.runtime._allocator cimport Storage
from flambeau.runtime._copy cimport contiguous_of, copy_into, like_strides, new_like
from flambeau.runtime._device cimport resolve_device
from flambeau.runtime._dims cimport channels_last_strides
from flambeau.runtime._dtype cimport dtype, item_bytes, legacy_name, memory_format
from flambeau.runtime._stream cimport resolve_stream
from flambeau.runtime._tensor cimport Tensor, adopt_storage, new_strided, new_tensor, result_class

from flambeau.runtime import _dtype as _dtypes
from flambeau.runtime import _tensor as _tensor_module


def clone(Tensor self, *, memory_format=None):
    """A copy on the same device, with the same order of dimensions in memory."""
    cdef Tensor made
    if memory_format is not None and (<_dtype.memory_format?>memory_format).code != 1:
        made = _new_in_format(self, <_dtype.memory_format>memory_format)
    else:
        made = new_like(self, self.device_index, self.scalar_type)
    copy_into(made, self, False)
    return _fresh(made, self)


cdef Tensor _fresh(Tensor made, Tensor source):
    """A new tensor as a result: of the source's class, and never written to in place."""
    if made.storage != NULL:
        made.storage.version = made.storage.version & _state.UNCOUNTED
    if type(source) is Tensor:
        return made
    cls = result_class(type(source))
    return made if cls is Tensor else made.as_subclass(cls)


cdef Tensor _new_in_format(Tensor t, memory_format wanted):
    cdef int64_t strides[64]
    if t.device_index >= 0:
        _state.ensure_context(t.device_index)
    if wanted.code == 0:
        return new_tensor(t.device_index, t.scalar_type, t.ndim_, t.sizes)
    channels_last_strides(wanted.name, 4 if wanted.code == 2 else 5, t.ndim_, t.sizes, strides)
    return new_strided(t.device_index, t.scalar_type, t.ndim_, t.sizes, strides)


def contiguous(Tensor self, memory_format=None):
    """The tensor if its elements lie in row-major order (or in that of a format), else such a copy."""
    cdef Tensor made
    if memory_format is None or (<_dtype.memory_format?>memory_format).code == 0:
        return self if self.contiguous else _fresh(contiguous_of(self), self)
    if (<_dtype.memory_format>memory_format).code == 1:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    if self.is_contiguous(memory_format):
        return self
    made = _new_in_format(self, <_dtype.memory_format>memory_format)
    copy_into(made, self, False)
    return _fresh(made, self)


cdef Tensor _pinned_like(Tensor t, int scalar_type):
    cdef int64_t strides[64]
    cdef Storage* storage
    cdef Tensor made
    _state.require_initialized()
    if t.count > INT64_MAX // item_bytes[scalar_type]:  # of a view that repeats elements
        raise RuntimeError(
            f"Storage size calculation overflowed: {t.count} elements of {item_bytes[scalar_type]} bytes")
    like_strides(t, strides)
    storage = _allocator.allocate_pinned(<size_t>t.count * item_bytes[scalar_type])
    return adopt_storage(storage, storage.data, scalar_type, t.ndim_, t.sizes, strides)


def pin_memory(Tensor self, device=None):
    """The tensor if its memory is pinned, else a copy in pinned host memory.

    Pinned memory is what makes ``non_blocking=True`` copies asynchronous. Initialises CUDA.
    """
    cdef Tensor made
    if self.device_index >= 0:
        raise RuntimeError(f"cannot pin 'torch.cuda.{legacy_name(self.scalar_type)}Tensor' only dense CPU tensors "
                           "can be pinned")
    if self.is_pinned():
        return self
    made = _pinned_like(self, self.scalar_type)
    copy_into(made, self, False)
    return _fresh(made, self)


def record_stream(Tensor self, s):
    """Declare that a stream works on this tensor too.

    When the tensor dies, its memory is given out again only after `s` has passed the point
    that it has reached then. Without this only the stream that it was made on is waited for.

    Parameters
    ----------
    s
        A `flambeau.cuda.Stream`, or an object with ``__cuda_stream__``.

    Raises
    ------
    RuntimeError
        The tensor is in host memory, or `s` is no stream.
    """
    cdef CUstream handle
    cdef int device
    if self.device_index < 0:
        raise RuntimeError("record_stream is for tensors in device memory; this one is on the cpu, whose "
                           "memory needs no stream: keep the tensor until the copy is done")
    if s is None:
        raise RuntimeError("record_stream needs a stream, not None; the current one is "
                           "torch.cuda.current_stream()")
    resolve_stream(s, &handle, &device)
    if self.storage != NULL:
        _allocator.record_stream_of(self.storage, handle, device)


cdef Tensor _to(Tensor t, int device, int scalar_type, bint non_blocking, bint copy, memory_format wanted):
    cdef Tensor made
    if not copy and device == t.device_index and scalar_type == t.scalar_type and (
            wanted is None or wanted.code == 1 or t.is_contiguous(wanted)):
        return t
    if wanted is not None and wanted.code != 1:
        made = _new_in_format(new_like(t, device, scalar_type), wanted)
    elif device < 0 and t.device_index >= 0 and non_blocking:
        made = _pinned_like(t, scalar_type)
    else:
        made = new_like(t, device, scalar_type)
    copy_into(made, t, non_blocking)
    return _fresh(made, t)


cdef int _target(Tensor t, object device) except -2:
    """The index for a device argument; ``cuda`` without an index keeps a CUDA tensor where it is not."""
    return t.device_index if device is None else resolve_device(device)


def to(Tensor self, *args, device=None, dtype=None, non_blocking=False, copy=False, memory_format=None):
    """The tensor with another dtype, on another device, or both; itself if nothing changes.

    Parameters
    ----------
    *args
        ``to(dtype)``, ``to(device)``, ``to(device, dtype)`` or ``to(other_tensor)``, each followed by
        `non_blocking` and `copy` if wanted.
    non_blocking
        Return before a copy between host and device is done; the host tensor is then pinned memory
        that holds the data only after a synchronisation.
    copy
        Always copy.
    """
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        device, dtype = rest[0].device, rest[0].dtype
        rest.pop(0)
    elif rest and isinstance(rest[0], _dtype.dtype):
        dtype = rest.pop(0)
    elif rest:
        device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], _dtype.dtype)):
            dtype = rest.pop(0)
    if rest:
        non_blocking = rest.pop(0)
    if rest:
        copy = rest.pop(0)
    if rest:
        raise TypeError(f"to() takes a device, a dtype, non_blocking and copy; {rest!r} is too much")
    return _to(self, _target(self, device), self.scalar_type if dtype is None else (<_dtype.dtype?>dtype).code,
               non_blocking, copy, memory_format)


def cpu(Tensor self, memory_format=None):
    """The tensor if it is in host memory, else a copy there. Waits for the device."""
    return _to(self, -1, self.scalar_type, False, False, memory_format)


def cuda(Tensor self, device=None, non_blocking=False, memory_format=_dtype.preserve_format):
    """The tensor if it is on that CUDA device, else a copy there.

    Parameters
    ----------
    device
        A device, its index, or None for the current one.
    non_blocking
        Return before a copy from pinned memory is done.
    """
    cdef int index = resolve_device("cuda" if device is None else device)
    if index < 0:
        raise RuntimeError(f"Invalid device, must be cuda device, got {device!r}")
    return _to(self, index, self.scalar_type, non_blocking, False, memory_format)


def type_(Tensor self, dtype=None, non_blocking=False, **kwargs):
    """The name of the legacy class, ``"torch.cuda.FloatTensor"``; with a dtype or such a name, a conversion."""
    if dtype is None:
        place = "cuda." if self.device_index >= 0 else ""
        return f"torch.{place}{legacy_name(self.scalar_type)}Tensor"
    if isinstance(dtype, _dtype.dtype):
        return _to(self, self.device_index, (<_dtype.dtype>dtype).code, non_blocking, False, None)
    name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
    place, _, kind = name.rpartition(".")
    for made in _dtypes.dtypes.values():
        if place in ("torch", "torch.cuda", "flambeau", "flambeau.cuda") and f"{legacy_name(made.code)}Tensor" == kind:
            target = resolve_device("cuda") if place.endswith("cuda") else -1
            if place.endswith("cuda") and self.device_index >= 0:
                target = self.device_index
            return _to(self, target, made.code, non_blocking, False, None)
    raise ValueError(f"invalid type: {name!r}; give a dtype, or a name like 'torch.cuda.FloatTensor'")


def type_as(Tensor self, Tensor other not None):
    """The tensor with the dtype and on the device of another."""
    return _to(self, other.device_index, other.scalar_type, False, False, None)


def _converter(str name, int code):
    def convert(Tensor self, memory_format=None):
        return _to(self, self.device_index, code, False, False, memory_format)

    convert.__name__ = name
    convert.__qualname__ = f"Tensor.{name}"
    convert.__doc__ = f"The tensor as {_dtypes.dtype_from_code(code)!r}; itself if it is that already."
    return convert


_tensor_module.install_methods({
    "clone": clone, "contiguous": contiguous, "pin_memory": pin_memory, "to": to, "cpu": cpu, "cuda": cuda, "type": type_,
    "type_as": type_as, "record_stream": record_stream,
    **{name: _converter(name, code) for name, code in {
        "float": _dtype.Float32, "half": _dtype.Float16, "bfloat16": _dtype.BFloat16, "double": _dtype.Float64,
        "int": _dtype.Int32, "long": _dtype.Int64, "short": _dtype.Int16, "char": _dtype.Int8,
        "byte": _dtype.UInt8, "bool": _dtype.Bool, "cfloat": _dtype.Complex64, "cdouble": _dtype.Complex128,
        "chalf": _dtype.Complex32}.items()},
})
