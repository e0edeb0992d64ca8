# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Copies: between devices, dtypes and strides, and the methods that are made of them.

Between host and device a contiguous copy of one dtype is one ``cuMemcpy…Async`` on the device's current
stream; the blocking form then waits for that stream only.
"""
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from cpython.object cimport PyObject
from libc.string cimport memcmp, memcpy

from flambeau.driver._table cimport (
    CUcontext, CUdeviceptr, CUevent, CUresult, CUstream, check, driver)
from flambeau.runtime cimport _allocator, _dtype, _launch, _state
from flambeau.runtime._allocator cimport Storage
from flambeau.runtime._device cimport parse_device, resolve_device
from flambeau.runtime._dtype cimport dtype, integer_range, item_bytes, legacy_name, memory_format, type_category
from flambeau.runtime._elementwise cimport ElementwiseOp, call
from flambeau.runtime._dims cimport contiguous_strides, shape_text
from flambeau.runtime._tensor cimport (
    SLOT_COPY, SLOT_FILL, Tensor, adopt_storage, mark_written, new_strided, new_tensor, new_view,
    operators, result_class)
from flambeau.runtime._stream cimport resolve_stream
from flambeau.runtime._views cimport expand_to

from flambeau.runtime import _dtype as _dtypes
from flambeau.runtime import _tensor as _tensor_module

cdef extern from "flambeau/runtime/_host_copy.hpp" namespace "flambeau" nogil:
    cdef cppclass Space:
        int ndim
        int operands
        int64_t sizes[64]
        int64_t strides[5][64]
        bint inner(int, int)
        void simplify()
    void host_copy(char* to, int to_type, const char* source, int from_type, const Space& space)
    int64_t load_int(const char* p, int type)
    void store_int(char* p, int type, int64_t v)
    void store_uint(char* p, int type, uint64_t v)
    void store_double(char* p, int type, double v)
    void store_complex(char* p, int type, double real, double imag)

cdef Tensor _NOTHING = Tensor.__new__(Tensor)     # stands for host memory that is no tensor's

cdef enum:
    EVENT_DISABLE_TIMING = 2
    RELEASE_GIL_BYTES = 1 << 16


# -- layouts ---------------------------------------------------------------------------------------

cdef void _like_strides(Tensor t, int64_t* strides) noexcept:
    """Dense strides in the order of the tensor's own."""
    cdef Space space
    cdef int order[64]
    cdef int64_t step = 1
    cdef int d, e, dim
    if t.contiguous:
        contiguous_strides(t.ndim_, t.sizes, strides)
        return
    space.ndim = t.ndim_
    space.operands = 1
    for d in range(t.ndim_):
        space.strides[0][d] = 0 if t.sizes[d] == 1 else t.strides[d]
        order[d] = t.ndim_ - 1 - d
    for d in range(1, t.ndim_):
        e = d
        while e > 0 and space.inner(order[e], order[e - 1]):
            order[e], order[e - 1] = order[e - 1], order[e]
            e -= 1
    for d in range(t.ndim_):
        dim = order[d]
        strides[dim] = step
        step *= t.sizes[dim] if t.sizes[dim] > 1 else 1


cdef Tensor new_like(Tensor t, int device, int scalar_type):
    cdef int64_t strides[64]
    if device >= 0:
        _state.ensure_context(device)
    if t.contiguous:
        return new_tensor(device, scalar_type, t.ndim_, t.sizes)
    _like_strides(t, strides)
    return new_strided(device, scalar_type, t.ndim_, t.sizes, strides)


cdef bint _flat(Tensor a, Tensor b) noexcept:
    """Whether both are dense with one order of dimensions: then one block of bytes is the other."""
    cdef int64_t dense[64]
    cdef int d
    if a.ndim_ != b.ndim_:
        return False
    for d in range(a.ndim_):
        if a.sizes[d] != b.sizes[d]:
            return False
    if a.contiguous and b.contiguous:
        return True
    _like_strides(a, dense)
    for d in range(a.ndim_):
        if a.sizes[d] != 1 and (a.strides[d] != dense[d] or b.strides[d] != dense[d]):
            return False
    return True


cdef Tensor contiguous_of(Tensor t):
    cdef Tensor made
    if t.contiguous:
        return t
    if t.device_index >= 0:
        _state.ensure_context(t.device_index)
    made = new_tensor(t.device_index, t.scalar_type, t.ndim_, t.sizes)
    copy_into(made, t, False)
    return made


# -- copies by where the two ends are ----------------------------------------------------------------

cdef int _host_to_host(Tensor to, Tensor source) except -1:
    cdef Space space
    cdef int d, last = to.ndim_ - 1
    space.ndim = to.ndim_
    space.operands = 2
    for d in range(to.ndim_):
        space.sizes[d] = to.sizes[last - d]
        space.strides[0][d] = to.strides[last - d]
        space.strides[1][d] = source.strides[last - d]
    space.simplify()
    if to.count * item_bytes[to.scalar_type] < RELEASE_GIL_BYTES:
        host_copy(to.data, to.scalar_type, source.data, source.scalar_type, space)
    else:
        with nogil:
            host_copy(to.data, to.scalar_type, source.data, source.scalar_type, space)
    return 0


cdef int _tell_observers(str name, tuple read, Tensor written, CUstream stream) except -1:
    from flambeau.runtime import observers
    observers.notify("operation", name, read, (written,) if written.device_index >= 0 else (),
                     <uintptr_t>stream)
    return 0


cdef bint _pinned(Tensor t) except -1:
    return t.storage.pinned or _allocator.is_pinned_address(t.data)


cdef int _wait(CUstream stream) except -1:
    cdef CUresult status
    with nogil:
        status = driver.StreamSynchronize(stream)
    return check(status)


cdef int _up(Tensor to, Tensor source, bint non_blocking) except -1:
    """Host to device, one block of bytes."""
    cdef CUstream stream
    cdef CUresult status
    cdef size_t bytes = <size_t>to.count * item_bytes[to.scalar_type]
    if not non_blocking:
        _state.check_sync("a blocking copy to a CUDA device")
    _state.ensure_context(to.device_index)
    stream = _state.thread_state().streams[to.device_index]
    if _launch.observed:
        _tell_observers("copy_", (), to, stream)
    if non_blocking and _pinned(source):
        check(driver.MemcpyHtoDAsync(<CUdeviceptr>to.data, source.data, bytes, stream))
        if source.storage.pinned:
            _allocator.record_pinned_use(source.storage, stream)
        return 0
    with nogil:
        status = driver.MemcpyHtoDAsync(<CUdeviceptr>to.data, source.data, bytes, stream)
    check(status)
    return 0 if non_blocking else _wait(stream)


cdef int _down(Tensor to, Tensor source, bint non_blocking) except -1:
    """Device to host, one block of bytes."""
    cdef CUstream stream
    cdef CUresult status
    cdef size_t bytes = <size_t>to.count * item_bytes[to.scalar_type]
    if not non_blocking:
        _state.check_sync("a blocking copy from a CUDA device")
    _state.ensure_context(source.device_index)
    stream = _state.thread_state().streams[source.device_index]
    if _launch.observed:
        _tell_observers("copy_", (source,), to, stream)
    if non_blocking and _pinned(to):
        check(driver.MemcpyDtoHAsync(to.data, <CUdeviceptr>source.data, bytes, stream))
        if to.storage.pinned:
            _allocator.record_pinned_use(to.storage, stream)
        return 0
    with nogil:
        status = driver.MemcpyDtoHAsync(to.data, <CUdeviceptr>source.data, bytes, stream)
    check(status)
    return 0 if non_blocking else _wait(stream)


cdef int _wait_for(int device, CUstream stream, int other, CUstream other_stream) except -1:
    """Have a stream wait for what is queued on another device's stream."""
    cdef CUevent event = NULL
    cdef CUresult status
    _state.ensure_context(other)
    check(driver.EventCreate(&event, EVENT_DISABLE_TIMING))
    status = driver.EventRecord(event, other_stream)
    if status == 0:
        _state.ensure_context(device)
        status = driver.StreamWaitEvent(stream, event, 0)
    driver.EventDestroy(event)
    return check(status)


cdef int _across(Tensor to, Tensor source) except -1:
    """Device to another device, one block of bytes, on the source's stream and ordered with both."""
    cdef int here = to.device_index, there = source.device_index
    cdef CUstream to_stream = _state.thread_state().streams[here]
    cdef CUstream from_stream = _state.thread_state().streams[there]
    cdef CUcontext to_context = _state.context_of(here), from_context = _state.context_of(there)
    cdef size_t bytes = <size_t>to.count * item_bytes[to.scalar_type]
    _wait_for(there, from_stream, here, to_stream)
    _state.ensure_context(there)
    if _launch.observed:
        _tell_observers("copy_", (source,), to, from_stream)
    check(driver.MemcpyPeerAsync(<CUdeviceptr>to.data, to_context, <CUdeviceptr>source.data, from_context,
                                 bytes, from_stream))
    _wait_for(here, to_stream, there, from_stream)
    return 0


cdef bint _has_kernels(int scalar_type) noexcept:
    """Whether operations are generated for a type; the others are moved as integers of their size."""
    return type_category[scalar_type] != 3 and scalar_type not in (
        _dtype.UInt16, _dtype.UInt32, _dtype.UInt64) and scalar_type < _dtype.Float8E4M3FN


cdef Tensor _as_integers(Tensor t):
    """The same memory as integers of the elements' size, two per element of 16 bytes."""
    cdef int64_t sizes[65]
    cdef int64_t strides[65]
    cdef Tensor made
    cdef int d, item = item_bytes[t.scalar_type]
    cdef int parts = 2 if item == 16 else 1
    for d in range(t.ndim_):
        sizes[d], strides[d] = t.sizes[d], t.strides[d] * parts
    sizes[t.ndim_], strides[t.ndim_] = 2, 1
    made = new_view(t, 0, t.ndim_ + parts - 1, sizes, strides)
    made.scalar_type = (_dtype.UInt8 if item == 1 else _dtype.Int16 if item == 2
                        else _dtype.Int32 if item == 4 else _dtype.Int64)
    return made


cdef int _on_device(Tensor to, Tensor source) except -1:
    """Within one device: the copy operation, or a memcpy while none is installed."""
    cdef object op = operators[SLOT_COPY]
    cdef PyObject* operands[4]
    if to.scalar_type == source.scalar_type and not _has_kernels(to.scalar_type):
        to, source = _as_integers(to), _as_integers(source)
    if type(op) is ElementwiseOp:
        operands[0] = <PyObject*>source
        call(<ElementwiseOp>op, operands, to, True, ())
        return 0
    if op is not None:
        op(source, out=to)
        return 0
    if to.scalar_type != source.scalar_type or not _flat(to, source):
        raise NotImplementedError("copies between layouts or dtypes on a device need the operations that "
                                  "import flambeau installs")
    _state.ensure_context(to.device_index)
    return check(driver.MemcpyDtoDAsync(
        <CUdeviceptr>to.data, <CUdeviceptr>source.data, <size_t>to.count * item_bytes[to.scalar_type],
        _state.thread_state().streams[to.device_index]))


cdef int _up_any(Tensor to, Tensor source, bint non_blocking) except -1:
    """Host to device with another dtype or layout: through a block in the target's order."""
    cdef Tensor staged
    cdef bint flat = _flat(to, source)
    if flat and to.scalar_type == source.scalar_type:
        return _up(to, source, non_blocking)
    if non_blocking:        # convert on the device: the copy itself stays asynchronous
        if not flat:
            staged = new_like(to, -1, source.scalar_type)
            _host_to_host(staged, source)
            source = staged
        staged = new_like(source, to.device_index, source.scalar_type)
        _up(staged, source, True)
        return _on_device(to, staged)
    staged = new_like(to, -1, to.scalar_type)
    _host_to_host(staged, source)
    if _flat(to, staged):
        return _up(to, staged, False)
    source = new_like(to, to.device_index, to.scalar_type)
    _up(source, staged, False)
    return _on_device(to, source)


cdef int _down_any(Tensor to, Tensor source, bint non_blocking) except -1:
    """Device to host with another dtype or layout."""
    cdef Tensor staged
    cdef bint flat = _flat(to, source)
    if flat and to.scalar_type == source.scalar_type:
        return _down(to, source, non_blocking)
    if non_blocking and _flat(to, to):
        staged = new_like(to, source.device_index, to.scalar_type)
        _on_device(staged, source)
        return _down(to, staged, True)
    if not _flat(source, source):
        staged = new_like(source, source.device_index, source.scalar_type)
        _on_device(staged, source)
        source = staged
    staged = new_like(source, -1, source.scalar_type)
    _down(staged, source, False)
    return _host_to_host(to, staged)


cdef int _across_any(Tensor to, Tensor source) except -1:
    """Between devices with another dtype or layout: convert where the source is."""
    cdef Tensor staged
    if to.scalar_type != source.scalar_type or not _flat(to, source):
        staged = new_like(to, source.device_index, to.scalar_type)
        _on_device(staged, source)
        source = staged
    if _flat(to, source):
        return _across(to, source)
    staged = new_like(to, to.device_index, to.scalar_type)
    _across(staged, source)
    return _on_device(to, staged)


cdef int copy_into(Tensor to, Tensor source, bint non_blocking) except -1:
    cdef int d
    cdef bint same_shape = to.ndim_ == source.ndim_
    if to is source:
        return 0
    for d in range(to.ndim_ if same_shape else 0):
        if to.sizes[d] != source.sizes[d]:
            same_shape = False
            break
    if not same_shape:
        source = _broadcast_source(to, source)
    if to.count == 0:
        return 0
    if to.device_index < 0:
        if source.device_index < 0:
            _host_to_host(to, source)
        else:
            _down_any(to, source, non_blocking)
    elif source.device_index < 0:
        _up_any(to, source, non_blocking)
    elif to.device_index == source.device_index:
        return _on_device(to, source)       # the operation counts the write itself
    else:
        _across_any(to, source)
    mark_written(to)
    return 0


cdef Tensor _broadcast_source(Tensor to, Tensor source):
    cdef int d, shift = to.ndim_ - source.ndim_
    if shift < 0:
        raise RuntimeError(
            f"output with shape {shape_text(to.ndim_, to.sizes)} doesn't match the broadcast shape "
            f"{shape_text(source.ndim_, source.sizes)}")
    for d in range(source.ndim_ - 1, -1, -1):
        if source.sizes[d] != 1 and source.sizes[d] != to.sizes[d + shift]:
            raise RuntimeError(
                f"The size of tensor a ({to.sizes[d + shift]}) must match the size of tensor b "
                f"({source.sizes[d]}) at non-singleton dimension {d + shift}")
    return expand_to(source, to.ndim_, to.sizes)


cdef int read_bytes(Tensor t, void* to, size_t bytes) except -1:
    cdef CUstream stream
    cdef CUresult status
    if t.device_index < 0:
        memcpy(to, t.data, bytes)
        return 0
    _state.check_sync("reading a CUDA tensor's value")
    _state.ensure_context(t.device_index)
    stream = _state.thread_state().streams[t.device_index]
    if _launch.observed:
        _tell_observers("item", (t,), _NOTHING, stream)
    with nogil:
        status = driver.MemcpyDtoHAsync(to, <CUdeviceptr>t.data, bytes, stream)
        if status == 0:
            status = driver.StreamSynchronize(stream)
    return check(status)


# -- filling -----------------------------------------------------------------------------------------

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
    if _launch.observed:
        _tell_observers("fill_", (), t, stream)
    if width == 1:
        check(driver.MemsetD8Async(<CUdeviceptr>t.data, <unsigned char>element[0], t.count * item, stream))
    elif width == 2:
        memcpy(&short_word, element, 2)
        check(driver.MemsetD16Async(<CUdeviceptr>t.data, short_word, t.count * item // 2, stream))
    else:
        memcpy(&word, element, 4)
        check(driver.MemsetD32Async(<CUdeviceptr>t.data, word, t.count * item // 4, stream))
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
    if _flat(t, t) and _memset(t, element):
        mark_written(t)
        return 0
    op = operators[SLOT_FILL]
    if op is None:
        raise NotImplementedError("this fill needs the operations that import flambeau installs")
    if _has_kernels(t.scalar_type):
        op(value, out=t)
    else:
        _fill_bits(t, op, element)
    return 0


cdef int _fill_bits(Tensor t, object op, const char* element) except -1:
    cdef Tensor bits = _as_integers(t)
    cdef int64_t words[2]
    cdef int item = item_bytes[t.scalar_type], part
    if item == 16:
        memcpy(words, element, 16)
        for part in range(2):
            op(words[part], out=bits.select(-1, part))
    else:
        op(load_int(element, bits.scalar_type), out=bits)
    return 0


# -- methods -----------------------------------------------------------------------------------------

def copy_(Tensor self, Tensor src not None, non_blocking=False):
    """Copy the elements of another tensor into this one, with conversion and broadcasting.

    Parameters
    ----------
    src
        Any dtype, any device; its shape must broadcast to this tensor's.
    non_blocking
        Return before a copy between host and device is done. Only pinned host memory makes it
        asynchronous.
    """
    copy_into(self, src, non_blocking)
    return self


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
        made.storage.version = 0
    if type(source) is Tensor:
        return made
    cls = result_class(type(source))
    return made if cls is Tensor else made.as_subclass(cls)


cdef Tensor _new_in_format(Tensor t, memory_format wanted):
    cdef int64_t strides[64]
    cdef int64_t step = 1
    cdef int i, dim
    if t.device_index >= 0:
        _state.ensure_context(t.device_index)
    if wanted.code == 0:
        return new_tensor(t.device_index, t.scalar_type, t.ndim_, t.sizes)
    rank = 4 if wanted.code == 2 else 5
    if t.ndim_ != rank:
        raise RuntimeError(f"required rank {rank} tensor to use {wanted.name} format, this one has rank {t.ndim_}")
    for i in range(rank):
        dim = 1 if i == 0 else (0 if i == rank - 1 else rank - i)
        strides[dim] = step
        step *= t.sizes[dim] if t.sizes[dim] > 1 else 1
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
    _like_strides(t, strides)
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


def record_stream(Tensor self, stream):
    """Declare that a stream works on this tensor too.

    When the tensor dies, its memory is given out again only after `stream` has passed the point
    that it has reached then. Without this only the stream that it was made on is waited for.

    Parameters
    ----------
    stream
        A `flambeau.cuda.Stream`, or an object with ``__cuda_stream__``.

    Raises
    ------
    RuntimeError
        The tensor is in host memory, or `stream` is no stream.
    """
    cdef CUstream handle
    cdef int device
    if self.device_index < 0:
        raise RuntimeError("record_stream is for tensors in device memory; this one is on the cpu, whose "
                           "memory needs no stream: keep the tensor until the copy is done")
    if stream is None:
        raise RuntimeError("record_stream needs a stream, not None; the current one is "
                           "torch.cuda.current_stream()")
    resolve_stream(stream, &handle, &device)
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


def cuda(Tensor self, device=None, non_blocking=False, memory_format=None):
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
    "copy_": copy_, "fill_": fill_, "zero_": zero_, "_assign": _assign, "clone": clone,
    "contiguous": contiguous, "pin_memory": pin_memory, "to": to, "cpu": cpu, "cuda": cuda, "type": type_,
    "type_as": type_as, "record_stream": record_stream,
    **{name: _converter(name, code) for name, code in {
        "float": _dtype.Float32, "half": _dtype.Float16, "bfloat16": _dtype.BFloat16, "double": _dtype.Float64,
        "int": _dtype.Int32, "long": _dtype.Int64, "short": _dtype.Int16, "char": _dtype.Int8,
        "byte": _dtype.UInt8, "bool": _dtype.Bool, "cfloat": _dtype.Complex64, "cdouble": _dtype.Complex128,
        "chalf": _dtype.Complex32}.items()},
})
