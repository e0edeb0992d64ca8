# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Copies: between devices, dtypes and strides.

Between host and device a contiguous copy of one dtype is one ``cuMemcpy…Async`` on the device's current
stream; the blocking form then waits for that stream only. Large copies from and to pageable memory go
through pinned buffers that several threads fill.
"""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memcpy

from flambeau.driver._table cimport (
    CUDA_ERROR_NOT_FOUND, CUcontext, CUdeviceptr, CUevent, CUresult, CUstream, DriverTable, check,
    driver)
from flambeau.runtime cimport _allocator, _dtype, _launch, _state
from flambeau.runtime._dims cimport contiguous_strides, shape_text
from flambeau.runtime._dtype cimport item_bytes, type_category
from flambeau.runtime._elementwise cimport ElementwiseOp, call
from flambeau.runtime._tensor cimport (
    SLOT_COPY, Tensor, mark_written, new_strided, new_tensor, new_view, operators)
from flambeau.runtime._views cimport expand_to

from flambeau.runtime import _tensor as _tensor_module
from flambeau.runtime import lazy_init

cdef extern from "flambeau/runtime/_host_copy.hpp" namespace "flambeau" nogil:
    cdef cppclass Space:
        int ndim
        int operands
        int64_t sizes[64]
        int64_t strides[5][64]
        bint inner(int, int)
        void simplify()
    void host_copy(char* to, int to_type, const char* source, int from_type, const Space& space)

cdef extern from "flambeau/runtime/staging.hpp" namespace "flambeau" nogil:
    const size_t STAGING_WORTHWHILE "flambeau::Staging::WORTHWHILE"
    cdef cppclass Staging:
        CUresult up(const DriverTable*, CUdeviceptr to, const char* source, size_t bytes, CUstream)
        CUresult down(const DriverTable*, char* to, CUdeviceptr source, size_t bytes, CUstream)
        void forget()
    Staging& staging_of(int device)

cdef extern from "flambeau/runtime/polled_read.hpp" namespace "flambeau" nogil:
    const size_t POLLED_LEAST "flambeau::PolledReads::LEAST"
    const size_t POLLED_MOST "flambeau::PolledReads::MOST"
    cdef cppclass PolledReads:
        CUresult read(const DriverTable*, void* to, CUdeviceptr source, size_t bytes, CUstream)
        void forget()

cdef PolledReads polled_reads
cdef int polling = -1                   # whether the host sees what a device writes; -1: not asked yet
cdef Tensor _NOTHING = Tensor.__new__(Tensor)     # stands for host memory that is no tensor's


def _forget_handles():
    """Every handle is void: drop staging buffers and polled reads, and ask again whether to poll."""
    global polling
    for device in range(64):
        staging_of(device).forget()
    polled_reads.forget()
    polling = -1


lazy_init.on_forget(_forget_handles)

cdef enum:
    EVENT_DISABLE_TIMING = 2
    RELEASE_GIL_BYTES = 1 << 16


# -- layouts ---------------------------------------------------------------------------------------

cdef void like_strides(Tensor t, int64_t* strides) noexcept:
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
    like_strides(t, strides)
    return new_strided(device, scalar_type, t.ndim_, t.sizes, strides)


cdef bint flat(Tensor a, Tensor b) noexcept:
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
    like_strides(a, dense)
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
    if _launch.observed:
        tell_host_access("copy_", (source,), (to,))
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


cdef int tell_observers(str name, tuple read, Tensor written, CUstream stream) except -1:
    from flambeau.runtime import observers
    observers.notify("operation", name, read, (written,) if written.device_index >= 0 else (),
                     <uintptr_t>stream)
    return 0


cdef int _tell_copy(Tensor to, Tensor source, CUstream stream, int device, str waited) except -1:
    """Tell of a copy on a device's stream, and then how the host waited for it, if it did."""
    from flambeau.runtime import observers
    read = (source,) if source.device_index >= 0 or _pinned(source) else ()
    written = (to,) if to.device_index >= 0 or _pinned(to) else ()
    try:
        observers.notify("operation", "copy_", read, written, <uintptr_t>stream)
    finally:
        if waited is not None:
            observers.notify(waited, <uintptr_t>stream, device)
    return 0


cdef int tell_host_access(str name, tuple read, tuple written) except -1:
    from flambeau.runtime import observers
    observers.notify("host_access", name, read, written)
    return 0


cdef bint _pinned(Tensor t) except -1:
    return t.storage.pinned or _allocator.is_pinned_address(t.data)


cdef int _wait(CUstream stream) except -1:
    cdef CUresult status
    with nogil:
        status = driver.StreamSynchronize(stream)
    return check(status)


cdef int _refuse_pageable(Tensor host, CUstream stream) except -1:
    """A graph cannot hold a copy of memory that the operating system may move."""
    if _state.is_captured(stream) and not _pinned(host):
        raise RuntimeError(
            "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is "
            "pinned. Use pin_memory() and non_blocking=True, or copy before the capture.")
    return 0


cdef int _use_pinned(Tensor host, CUstream stream) except -1:
    """Pinned memory stays until a stream has passed, or as long as a graph that copies it."""
    if _state.is_captured(stream):
        from flambeau.runtime import _graph
        _graph.keep(host._alias(Tensor))
        return 0
    return _allocator.record_pinned_use(host.storage, stream)


cdef int _up(Tensor to, Tensor source, bint non_blocking) except -1:
    """Host to device, one block of bytes."""
    cdef CUstream stream
    cdef CUresult status
    cdef size_t bytes = <size_t>to.count * item_bytes[to.scalar_type]
    if not non_blocking:
        _state.check_sync("a blocking copy to a CUDA device")
    stream = _state.thread_state().streams[to.device_index]
    if _state.captures:
        _refuse_pageable(source, stream)
    cdef bint pinned = (non_blocking or bytes >= STAGING_WORTHWHILE) and _pinned(source)
    _state.ensure_context(to.device_index)  # the default stream is that of the current context
    if non_blocking and pinned:
        check(driver.MemcpyHtoDAsync(<CUdeviceptr>to.data, source.data, bytes, stream))
        if source.storage.pinned:
            _use_pinned(source, stream)
        if _launch.observed:
            _tell_copy(to, source, stream, to.device_index, None)
        return 0
    with nogil:
        if bytes >= STAGING_WORTHWHILE and not pinned:
            status = staging_of(to.device_index).up(
                driver, <CUdeviceptr>to.data, source.data, bytes, stream)
        else:
            status = driver.MemcpyHtoDAsync(<CUdeviceptr>to.data, source.data, bytes, stream)
    check(status)
    if not non_blocking:
        _wait(stream)
    if _launch.observed:
        _tell_copy(to, source, stream, to.device_index,
                   None if non_blocking else "stream_synchronization")
    return 0


cdef int _down(Tensor to, Tensor source, bint non_blocking) except -1:
    """Device to host, one block of bytes."""
    cdef CUstream stream
    cdef CUresult status
    cdef size_t bytes = <size_t>to.count * item_bytes[to.scalar_type]
    if not non_blocking:
        _state.check_sync("a blocking copy from a CUDA device")
    stream = _state.thread_state().streams[source.device_index]
    if _state.captures:
        _refuse_pageable(to, stream)
    cdef bint pinned = (non_blocking or bytes >= STAGING_WORTHWHILE) and _pinned(to)
    _state.ensure_context(source.device_index)  # the default stream is that of the current context
    if non_blocking and pinned:
        check(driver.MemcpyDtoHAsync(to.data, <CUdeviceptr>source.data, bytes, stream))
        if to.storage.pinned:
            _use_pinned(to, stream)
        if _launch.observed:
            _tell_copy(to, source, stream, source.device_index, None)
        return 0
    with nogil:
        if bytes >= STAGING_WORTHWHILE and not pinned:
            status = staging_of(source.device_index).down(
                driver, to.data, <CUdeviceptr>source.data, bytes, stream)
        else:
            status = driver.MemcpyDtoHAsync(to.data, <CUdeviceptr>source.data, bytes, stream)
    check(status)
    if not non_blocking:
        _wait(stream)
    if _launch.observed:
        _tell_copy(to, source, stream, source.device_index,
                   "stream_completion" if non_blocking else "stream_synchronization")
    return 0


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
    check(status)
    if _launch.observed:
        from flambeau.runtime import observers
        observers.notify("stream_wait", <uintptr_t>stream, device, <uintptr_t>other_stream, other)
    return 0


cdef int _across(Tensor to, Tensor source) except -1:
    """Device to another device, one block of bytes, on the source's stream and ordered with both."""
    cdef int here = to.device_index, there = source.device_index
    cdef CUstream to_stream = _state.thread_state().streams[here]
    cdef CUstream from_stream = _state.thread_state().streams[there]
    cdef CUcontext to_context = _state.context_of(here), from_context = _state.context_of(there)
    cdef size_t bytes = <size_t>to.count * item_bytes[to.scalar_type]
    _wait_for(there, from_stream, here, to_stream)
    _state.ensure_context(there)
    check(driver.MemcpyPeerAsync(<CUdeviceptr>to.data, to_context, <CUdeviceptr>source.data, from_context,
                                 bytes, from_stream))
    try:
        if _launch.observed:
            _tell_copy(to, source, from_stream, there, None)
    finally:
        _wait_for(here, to_stream, there, from_stream)
    return 0


cdef bint has_kernels(int scalar_type) noexcept:
    """Whether operations are generated for a type; the others are moved as integers of their size."""
    return type_category[scalar_type] != 3 and scalar_type not in (
        _dtype.UInt16, _dtype.UInt32, _dtype.UInt64) and scalar_type < _dtype.Float8E4M3FN


cdef Tensor as_integers(Tensor t):
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
    if to.scalar_type == source.scalar_type and not has_kernels(to.scalar_type):
        to, source = as_integers(to), as_integers(source)
    if type(op) is ElementwiseOp:
        operands[0] = <PyObject*>source
        call(<ElementwiseOp>op, operands, to, True, ())
        return 0
    if op is not None:
        op(source, out=to)
        return 0
    if to.scalar_type != source.scalar_type or not flat(to, source):
        raise NotImplementedError("copies between layouts or dtypes on a device need the operations that "
                                  "import flambeau installs")
    _state.ensure_context(to.device_index)
    return check(driver.MemcpyDtoDAsync(
        <CUdeviceptr>to.data, <CUdeviceptr>source.data, <size_t>to.count * item_bytes[to.scalar_type],
        _state.thread_state().streams[to.device_index]))


cdef int _up_any(Tensor to, Tensor source, bint non_blocking) except -1:
    """Host to device with another dtype or layout: through a block in the target's order."""
    cdef Tensor staged
    cdef bint same_order = flat(to, source)
    if same_order and to.scalar_type == source.scalar_type:
        return _up(to, source, non_blocking)
    if non_blocking:        # convert on the device: the copy itself stays asynchronous
        if not same_order:
            staged = new_like(to, -1, source.scalar_type)
            _host_to_host(staged, source)
            source = staged
        staged = new_like(source, to.device_index, source.scalar_type)
        _up(staged, source, True)
        return _on_device(to, staged)
    staged = new_like(to, -1, to.scalar_type)
    _host_to_host(staged, source)
    if flat(to, staged):
        return _up(to, staged, False)
    source = new_like(to, to.device_index, to.scalar_type)
    _up(source, staged, False)
    return _on_device(to, source)


cdef int _down_any(Tensor to, Tensor source, bint non_blocking) except -1:
    """Device to host with another dtype or layout."""
    cdef Tensor staged
    cdef bint same_order = flat(to, source)
    if same_order and to.scalar_type == source.scalar_type:
        return _down(to, source, non_blocking)
    if non_blocking and flat(to, to):
        staged = new_like(to, source.device_index, to.scalar_type)
        _on_device(staged, source)
        return _down(to, staged, True)
    if not flat(source, source):
        staged = new_like(source, source.device_index, source.scalar_type)
        _on_device(staged, source)
        source = staged
    staged = new_like(source, -1, source.scalar_type)
    _down(staged, source, False)
    return _host_to_host(to, staged)


cdef int _across_any(Tensor to, Tensor source) except -1:
    """Between devices with another dtype or layout: convert where the source is."""
    cdef Tensor staged
    if to.scalar_type != source.scalar_type or not flat(to, source):
        staged = new_like(to, source.device_index, to.scalar_type)
        _on_device(staged, source)
        source = staged
    if flat(to, source):
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


cdef int ask_whether_to_poll() except -1:
    global polling
    from flambeau import driver as drivers
    polling = drivers.current().supports("visible_writes")
    return 0


cdef int read_bytes(Tensor t, void* to, size_t bytes) except -1:
    cdef CUstream stream
    cdef CUresult status
    if t.device_index < 0:
        memcpy(to, t.data, bytes)
        return 0
    _state.check_sync("reading a CUDA tensor's value")
    _state.ensure_context(t.device_index)
    stream = _state.thread_state().streams[t.device_index]
    if polling < 0:
        ask_whether_to_poll()
    status = CUDA_ERROR_NOT_FOUND
    with nogil:
        if polling and POLLED_LEAST <= bytes <= POLLED_MOST and not _state.captures:
            status = polled_reads.read(driver, to, <CUdeviceptr>t.data, bytes, stream)
        if status == CUDA_ERROR_NOT_FOUND:
            status = driver.MemcpyDtoHAsync(to, <CUdeviceptr>t.data, bytes, stream)
            if status == 0:
                status = driver.StreamSynchronize(stream)
    check(status)
    if _launch.observed:
        from flambeau.runtime import observers
        try:
            tell_observers("item", (t,), _NOTHING, stream)
        finally:
            observers.notify("stream_synchronization", <uintptr_t>stream, t.device_index)
    return 0


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


_tensor_module.install_methods({"copy_": copy_})
