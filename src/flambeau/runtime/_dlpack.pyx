# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""DLPack: tensors to and from other libraries without a copy, by the standard's version 1.3."""
from cpython.pycapsule cimport (
    PyCapsule_Destructor, PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyCapsule_SetName)
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t, uintptr_t

from flambeau.driver._table cimport CUDA_SUCCESS, CUdeviceptr, CUstream, driver
from flambeau.runtime cimport _allocator, _copy, _launch, _state
from flambeau.runtime._allocator cimport Storage
from flambeau.runtime._device cimport device_of, resolve_device
from flambeau.runtime._dtype cimport item_bytes
from flambeau.runtime._stream cimport make_stream
from flambeau.runtime._tensor cimport MAX_DIMS, Tensor, TensorExtra, new_tensor, set_dims

from flambeau.runtime import _tensor as _tensor_module

ctypedef void (*SetError)(void*, const char*, const char*) noexcept

cdef extern from "flambeau/runtime/_dlpack.hpp" namespace "flambeau::dlpack" nogil:
    const uint32_t MAJOR
    const uint32_t MINOR
    cdef enum DeviceType:
        CPU, CUDA, CUDA_HOST, CUDA_MANAGED
    cdef enum Flag:
        READ_ONLY, IS_COPIED
    cdef struct Version:
        uint32_t major, minor
    cdef struct Device:
        int32_t type, index
    cdef struct DataType:
        uint8_t code, bits
        uint16_t lanes
    cdef struct View:
        void* data
        Device device
        int32_t ndim
        DataType dtype
        int64_t* shape
        int64_t* strides
        uint64_t byte_offset
    cdef struct Managed:
        View view
    cdef struct ManagedVersioned:
        Version version
        uint64_t flags
        View view
        void (*deleter)(ManagedVersioned*)
    cdef struct ExchangeHeader:
        Version version
        ExchangeHeader* older
    cdef struct Exchange:
        ExchangeHeader header
        int (*allocate)(View*, ManagedVersioned**, void*, SetError) noexcept
        int (*from_object)(void*, ManagedVersioned**) except -1
        int (*to_object)(ManagedVersioned*, void**) except -1
        int (*view_of)(void*, View*) except -1
        int (*current_stream)(int32_t, int32_t, void**) except -1
    const DataType* data_types
    const char* UNUSED
    const char* USED
    const char* UNUSED_VERSIONED
    const char* USED_VERSIONED
    const char* EXCHANGE
    int scalar_type_of(const DataType&)
    Managed* export_legacy(Storage*, void*, Device, DataType, int, const int64_t*, const int64_t*, bint)
    ManagedVersioned* export_versioned(
        Storage*, void*, Device, DataType, int, const int64_t*, const int64_t*, bint, uint64_t)
    Storage* import_storage(void*, size_t, int, void*, bint)
    bint storage_is_read_only "flambeau::dlpack::is_read_only"(const Storage*)
    void end_legacy(object)
    void end_versioned(object)


cdef bint is_read_only(const Storage* storage) noexcept:
    return storage_is_read_only(storage)


# -- export ----------------------------------------------------------------------------------------

cdef Device _place_of(Tensor t) except *:
    cdef Device place
    place.index = 0
    if t.device_index >= 0:
        place.type, place.index = CUDA, t.device_index
    elif t.storage != NULL and t.data != NULL and (
            t.storage.pinned or _allocator.is_pinned_address(t.data)):
        place.type = CUDA_HOST
    else:
        place.type = CPU
    return place


cdef int _require_exportable(Tensor t) except -1:
    if isinstance(t.extra, TensorExtra) and (<TensorExtra>t.extra).requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    return 0


cdef ManagedVersioned* _export(Tensor t, Device place, bint copied) except NULL:
    cdef uint64_t flags = (<uint64_t>IS_COPIED if copied else 0) | (
        <uint64_t>READ_ONLY if storage_is_read_only(t.storage) else 0)
    cdef ManagedVersioned* made = export_versioned(
        t.storage, t.data, place, data_types[t.scalar_type], t.ndim_, t.sizes, t.strides,
        t.count == 0, flags)
    if made == NULL:
        raise MemoryError
    return made


cdef object _legacy_capsule(Tensor t, Device place):
    cdef Managed* made
    if storage_is_read_only(t.storage):
        raise BufferError(
            "this memory was imported as read-only, which a DLPack capsule before version 1 cannot say; "
            "pass max_version=(1, 0), or export a clone()")
    made = export_legacy(
        t.storage, t.data, place, data_types[t.scalar_type], t.ndim_, t.sizes, t.strides, t.count == 0)
    if made == NULL:
        raise MemoryError
    return PyCapsule_New(made, UNUSED, <PyCapsule_Destructor>end_legacy)


cdef int order_streams(int device, CUstream before, CUstream after) except -1:
    if before != after:
        make_stream(device, after, <int64_t><uintptr_t>after).wait_stream(
            make_stream(device, before, <int64_t><uintptr_t>before))
    return 0


def wait_for_stream(int device, uintptr_t number):
    """Have this thread's current stream of a device wait for a stream, as standards number it.

    Parameters
    ----------
    device
        Its index.
    number
        1 the default stream, 2 the per-thread default stream, else the handle (``CUstream``).
    """
    _state.require_initialized()
    _state.check_device(device)
    order_streams(
        device, <CUstream>(0 if number == 1 else number), _state.thread_state().streams[device])


def device_of_address(uintptr_t address):
    """The index of the device whose driver knows an address (``cuPointerGetAttribute``)."""
    cdef int device = 0
    _state.require_initialized()
    _state.ensure_context(_state.thread_state().device)
    # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL is 9. Unknown memory is an error.
    if driver.PointerGetAttribute(&device, 9, <CUdeviceptr>address) != CUDA_SUCCESS or device < 0:
        raise ValueError(f"pointer 0x{address:x} is not CUDA memory: no device knows it")
    return device


cdef int _order(Tensor t, object stream) except -1:
    """Have the consumer's stream, as the standard numbers it, wait for what was done to a tensor."""
    cdef uintptr_t number = 1
    if stream is not None:
        if not isinstance(stream, int) or isinstance(stream, bool):
            raise TypeError(f"stream must be ``int`` or ``none``, got {stream!r}")
        if stream == -1:
            return 0
        if t.device_index < 0:
            raise BufferError(f"stream should be None on cpu, got {stream}")
        if stream < -1 or stream == 0:
            raise BufferError(
                f"unsupported stream on CUDA: {stream}. The DLPack standard takes 1 for the default stream, "
                "2 for the per-thread one, -1 for no ordering, or a stream's handle")
        number = stream
    if t.device_index < 0:
        return 0
    return order_streams(
        t.device_index, _state.thread_state().streams[t.device_index],
        <CUstream>(0 if number == 1 else number))


cdef Tensor _moved(Tensor t, Device place, object dl_device, object copy, Device* target):
    """The tensor on the device that a consumer asks for; `t` itself if no copy is needed."""
    cdef int kind, index
    target[0] = place
    if dl_device is not None:
        kind, index = int(dl_device[0]), int(dl_device[1])
        if kind == CPU and t.device_index < 0:
            target.type = CPU                # pinned memory is the host's too
        elif kind != place.type or index != place.index:
            if kind != CPU and kind != CUDA:
                raise BufferError(
                    f"a tensor cannot be exported to the DLPack device ({kind}, {index}): only to the host "
                    "(1, 0) and to CUDA devices (2, index)")
            if copy is not None and not copy:
                raise BufferError(
                    f"cannot move DLPack tensor from {device_of(t.device_index)} to the DLPack device "
                    f"({kind}, {index}) without copying. Set copy=None or copy=True")
            target.type, target.index = kind, 0 if kind == CPU else index
            return (<object>t).to("cpu" if kind == CPU else f"cuda:{index}")
    if copy:
        target.type = CUDA if t.device_index >= 0 else CPU
        return (<object>t).clone()
    return t


def __dlpack__(Tensor self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """The tensor's memory as a DLPack capsule, for ``from_dlpack`` of another library.

    Parameters
    ----------
    stream
        What stream the consumer will use, as the standard numbers CUDA's: None or 1 the default stream,
        2 the per-thread default stream, or the handle (``CUstream``). It is made to wait for this
        thread's current stream of the tensor's device. -1: nothing is ordered. On the host None.
    max_version
        The highest version (major, minor) that the consumer reads. From (1, 0) on the capsule is a
        ``"dltensor_versioned"``; else, and by default, a ``"dltensor"``.
    dl_device
        The DLPack device (type, index) to export to: (1, 0) the host, (2, index) a CUDA device. By
        default the tensor's own, whether or not that is current.
    copy
        True: always copy. False: never. None: if `dl_device` needs it.

    Raises
    ------
    BufferError
        The tensor requires gradients; the device is of another kind; a copy is needed and refused; or
        `stream` is no stream.

    Examples
    --------
    >>> import flambeau as torch
    >>> import numpy
    >>> x = torch.arange(3)
    >>> numpy.from_dlpack(x).sum()
    np.int64(3)
    """
    cdef Device target
    cdef Tensor exported
    _require_exportable(self)
    exported = _moved(self, _place_of(self), dl_device, copy, &target)
    if self.device_index < 0 or exported.device_index >= 0:     # a copy to the host is complete
        _order(exported, stream)
    if _launch.observed and exported.device_index < 0:
        _copy.tell_host_access("dlpack", (exported,), ())
    if max_version is None or max_version[0] < 1:
        return _legacy_capsule(exported, target)
    return PyCapsule_New(
        _export(exported, target, exported is not self), UNUSED_VERSIONED,
        <PyCapsule_Destructor>end_versioned)


def __dlpack_device__(Tensor self):
    """The DLPack device (type, index): (1, 0) host, (2, index) CUDA, (3, 0) pinned host memory."""
    cdef Device place = _place_of(self)
    return (place.type, place.index)


# -- import ----------------------------------------------------------------------------------------

cdef int _device_of_import(Device place) except -2:
    if place.type == CPU or place.type == CUDA_HOST:
        return -1
    if place.type != CUDA and place.type != CUDA_MANAGED:
        raise BufferError(
            f"the DLPack device ({place.type}, {place.index}) is neither the host (1, 3) nor CUDA (2, 13)")
    _state.require_initialized()
    if not 0 <= place.index < _state.device_total:
        raise BufferError(
            f"the DLPack tensor is on CUDA device {place.index}, but there are {_state.device_total}")
    return place.index


cdef int64_t _reach(const View* view) except -1:
    """Elements from the first to the last."""
    cdef int64_t reach = 1
    cdef int i
    for i in range(view.ndim):
        if view.shape[i] < 0:
            raise BufferError(f"the DLPack tensor has the size {view.shape[i]} at dimension {i}")
        if view.strides != NULL and view.strides[i] < 0:
            raise BufferError(
                "tensors with negative strides are not supported; the DLPack tensor has stride "
                f"{view.strides[i]} at dimension {i}. Export a contiguous copy")
    for i in range(view.ndim):
        if view.shape[i] == 0:
            return 0
        if view.strides == NULL:
            reach *= view.shape[i]
        else:
            reach += (view.shape[i] - 1) * view.strides[i]
    return reach


cdef Tensor _import(const View* view, void* managed, bint versioned):
    """A tensor over what was imported, and from now on its owner. If this raises it is not."""
    cdef int type = scalar_type_of(view.dtype), device
    cdef size_t bytes
    cdef char* data = <char*>view.data
    cdef Tensor made
    if type < 0:
        raise BufferError(
            f"no dtype is the DLPack type of code {view.dtype.code} with {view.dtype.bits} bits and "
            f"{view.dtype.lanes} lanes")
    if not 0 <= view.ndim <= MAX_DIMS:
        raise BufferError(f"a tensor has 0 to {MAX_DIMS} dimensions, the DLPack tensor {view.ndim}")
    bytes = <size_t>_reach(view) * item_bytes[type]
    if bytes:
        data += view.byte_offset
        if <uintptr_t>data % <uintptr_t>min(item_bytes[type], 8):
            raise BufferError(
                f"the DLPack tensor's memory at 0x{<uintptr_t>data:x} is not aligned to its elements")
    device = _device_of_import(view.device)
    made = Tensor.__new__(Tensor)
    made.scalar_type = <int8_t>type
    made.device_index = <int16_t>device
    set_dims(made, view.ndim, view.shape, view.strides)
    made.storage = import_storage(data, bytes, device, managed, versioned)
    made.data = data
    return made


def _consume(capsule):
    """The tensor in a capsule, which is used up."""
    cdef Managed* legacy
    cdef ManagedVersioned* managed
    if PyCapsule_IsValid(capsule, UNUSED_VERSIONED):
        managed = <ManagedVersioned*>PyCapsule_GetPointer(capsule, UNUSED_VERSIONED)
        if managed.version.major != MAJOR:
            raise BufferError(
                f"the DLPack tensor has version {managed.version.major}.{managed.version.minor}; "
                f"{MAJOR}.x is understood. Ask its maker for max_version=({MAJOR}, {MINOR})")
        PyCapsule_SetName(capsule, USED_VERSIONED)      # now: another thread may have it too
        try:
            return _import(&managed.view, managed, True)
        except BaseException:
            PyCapsule_SetName(capsule, UNUSED_VERSIONED)
            raise
    if PyCapsule_IsValid(capsule, UNUSED):
        legacy = <Managed*>PyCapsule_GetPointer(capsule, UNUSED)
        PyCapsule_SetName(capsule, USED)
        try:
            return _import(&legacy.view, legacy, False)
        except BaseException:
            PyCapsule_SetName(capsule, UNUSED)
            raise
    raise RuntimeError(
        f"from_dlpack received an invalid capsule: {capsule!r}. DLTensor capsules can be consumed only "
        "once, so it may have been used already; make another one from the original")


cdef object _capsule_of(object producer, int device, object copy, bint to_host):
    """Ask an object for its capsule, for work on this thread's current stream."""
    cdef CUstream stream
    cdef dict arguments = {}
    if device >= 0:
        stream = _state.thread_state().streams[device]
        arguments["stream"] = 1 if stream == NULL else <uintptr_t>stream
    try:
        return producer.__dlpack__(
            **arguments, max_version=(MAJOR, MINOR),
            **({} if copy is None else {"copy": copy}), **({"dl_device": (1, 0)} if to_host else {}))
    except TypeError:
        if copy is not None or to_host:
            raise
        return producer.__dlpack__(**arguments)         # from before version 1


def from_dlpack(ext_tensor, *, device=None, copy=None):
    """A tensor over the memory of another library's.

    Parameters
    ----------
    ext_tensor
        An object with ``__dlpack__``, on the host or a CUDA device, or a DLPack capsule. An object's
        earlier work is waited for by this thread's current stream of that device; a capsule's is not.
    device
        Where the tensor shall be; by default where the memory is. Another device needs a copy.
    copy
        True: always copy. False: never. None: where needed.

    Returns
    -------
    Tensor
        It shares the memory unless a copy was made. Memory that its maker calls read-only must not be
        written; nothing prevents that.

    Raises
    ------
    BufferError
        The memory is on another kind of device, of a type that tensors lack, or has negative strides.
    RuntimeError
        The capsule was used before.
    ValueError
        ``copy=False`` with a device that needs a copy.

    Examples
    --------
    >>> import flambeau as torch
    >>> import numpy
    >>> a = numpy.arange(3)
    >>> x = torch.from_dlpack(a)
    >>> a[0] = 7
    >>> x.tolist()
    [7, 1, 2]
    """
    cdef Device place
    cdef int here, target
    cdef bint foreign
    if not hasattr(ext_tensor, "__dlpack__"):
        if type(ext_tensor).__name__ != "PyCapsule":
            raise TypeError(
                "from_dlpack takes an object with __dlpack__ and __dlpack_device__, or a DLPack capsule; "
                f"got {type(ext_tensor).__name__}")
        if device is not None or copy is not None:
            raise ValueError(
                "device and copy kwargs not supported when ext_tensor is already a DLPack capsule; "
                "use Tensor.to")
        return _consume(ext_tensor)
    kind, place.index = ext_tensor.__dlpack_device__()
    place.type = int(kind)
    foreign = place.type not in (CPU, CUDA, CUDA_HOST, CUDA_MANAGED) and device is not None
    here = -1 if foreign else _device_of_import(place)
    target = here if device is None else resolve_device(device)
    if target == here:
        try:
            return _consume(_capsule_of(ext_tensor, here, copy, foreign))
        except TypeError:
            if copy is None or not copy or foreign:
                raise
            return _consume(_capsule_of(ext_tensor, here, None, False)).clone()
    if copy is not None and not copy:
        raise ValueError(
            f"cannot move DLPack tensor from {device_of(here)} to {device_of(target)} without copying. "
            "Set copy=None or copy=True")
    return _consume(_capsule_of(ext_tensor, here, None, foreign)).to(device_of(target))


def to_dlpack(Tensor tensor not None):
    """The tensor's memory as a DLPack capsule from before version 1, without ordering streams.

    New code passes the tensor itself to the other library's ``from_dlpack``.
    """
    return __dlpack__(tensor, stream=-1)


# -- the table for compiled consumers: one per process, on the type ----------------------------------

cdef int _exchange_allocate(View* prototype, ManagedVersioned** out, void* context,
                            SetError set_error) noexcept with gil:
    cdef Tensor made
    cdef int type = scalar_type_of(prototype.dtype), device
    cdef bytes kind, message
    try:
        if type < 0 or not 0 <= prototype.ndim <= MAX_DIMS:
            raise BufferError("no tensor has this DLPack dtype or number of dimensions")
        device = _device_of_import(prototype.device)
        if device >= 0:
            _state.ensure_context(device)
        made = new_tensor(device, type, prototype.ndim, prototype.shape)
        if device >= 0:
            _state.restore_context()
        out[0] = _export(made, _place_of(made), False)
    except Exception as error:      # noqa: BLE001  there is no Python frame to raise into
        out[0] = NULL
        kind, message = _builtin_name(error).encode(), str(error).encode()
        set_error(context, kind, message)
        return -1
    return 0


cdef str _builtin_name(object error):
    """The name of the built-in exception class that an error is."""
    for cls in type(error).__mro__:
        if cls.__module__ == "builtins":
            return cls.__name__
    return "RuntimeError"


cdef int _exchange_from_object(void* value, ManagedVersioned** out) except -1:
    cdef Tensor t = <Tensor?><object>value
    out[0] = NULL
    _require_exportable(t)
    out[0] = _export(t, _place_of(t), False)
    return 0


cdef int _exchange_view_of(void* value, View* out) except -1:
    cdef Tensor t = <Tensor?><object>value
    _require_exportable(t)
    out.data = t.data if t.count else NULL
    out.device = _place_of(t)
    out.ndim = t.ndim_
    out.dtype = data_types[t.scalar_type]
    out.shape = t.sizes
    out.strides = t.strides
    out.byte_offset = 0
    return 0


cdef int _exchange_to_object(ManagedVersioned* managed, void** out) except -1:
    cdef Tensor made
    out[0] = NULL
    if managed.version.major != MAJOR:
        raise BufferError(f"the DLPack tensor has version {managed.version.major}, not {MAJOR}")
    made = _import(&managed.view, managed, True)
    Py_INCREF(made)
    out[0] = <void*>made
    return 0


cdef int _exchange_current_stream(int32_t type, int32_t index, void** out) except -1:
    cdef Device place
    cdef int device
    place.type, place.index = type, index
    device = _device_of_import(place)
    out[0] = NULL if device < 0 else <void*>_state.thread_state().streams[device]
    return 0


cdef Exchange exchange
exchange.header.version.major = MAJOR
exchange.header.version.minor = MINOR
exchange.header.older = NULL
exchange.allocate = _exchange_allocate
exchange.from_object = _exchange_from_object
exchange.to_object = _exchange_to_object
exchange.view_of = _exchange_view_of
exchange.current_stream = _exchange_current_stream

_tensor_module.install_methods({
    "__dlpack__": __dlpack__,
    "__dlpack_device__": __dlpack_device__,
    "__dlpack_c_exchange_api__": PyCapsule_New(&exchange, EXCHANGE, NULL),
})
