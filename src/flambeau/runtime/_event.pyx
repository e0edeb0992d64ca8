# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
# cython: embedsignature=False
"""Events: marks in the work of a stream."""
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy

from flambeau.driver._table cimport (
    CUDA_ERROR_NOT_READY, CUDA_SUCCESS, CUipcHandle, CUresult, CUstream, check, driver,
)
from flambeau.runtime cimport _state
from flambeau.runtime._device cimport KIND_CUDA, device as device_type, device_of, parse_device
from flambeau.runtime._dtype cimport set_public_name
from flambeau.runtime._stream cimport BaseStream, resolve_stream

cdef enum:
    BLOCKING_SYNC = 1
    DISABLE_TIMING = 2
    INTERPROCESS = 4
    IPC_HANDLE_BYTES = 64


cdef int flags_of(bint enable_timing, bint blocking, bint interprocess):
    return (
        (BLOCKING_SYNC if blocking else 0)
        | (0 if enable_timing else DISABLE_TIMING)
        | (INTERPROCESS if interprocess else 0))


cdef class BaseEvent:
    """Event(device=None, *, enable_timing=False, blocking=False, interprocess=False, external=False)\n--\n
    A mark in the work of a stream (``CUevent``); `torch.cuda.Event` is the same thing.

    Parameters
    ----------
    device : torch.device, str or int, optional
        The kind of device; only CUDA has events.
    enable_timing, blocking, interprocess : bool
        As for `torch.cuda.Event`.
    """

    def __cinit__(self, *args, **kwargs):
        self.index = -1
        self.flags = DISABLE_TIMING
        if type(self) is BaseEvent:
            set_up_generic(self, *args, **kwargs)

    def __dealloc__(self):
        if self.handle != NULL:
            _state.defer_event(self.handle, self.made_in)
            if _state.observed:
                tell("event_deletion", <uintptr_t>self.handle)

    # -- what it is --------------------------------------------------------------------------------

    @property
    def device(self):
        """The device it belongs to; None until it is first recorded."""
        return None if self.handle == NULL else device_of(self.index)

    @property
    def event_id(self):
        """The driver's handle; 0 until the event is first recorded."""
        return <uintptr_t>self.handle

    @property
    def cuda_event(self):
        """The driver's handle (``CUevent``); 0 until the event is first recorded."""
        return <uintptr_t>self.handle

    @property
    def _as_parameter_(self):
        import ctypes
        return ctypes.c_void_p(<uintptr_t>self.handle)

    def __repr__(self):
        if self.handle == NULL:
            return "<torch.cuda.Event uninitialized>"
        return f"<torch.cuda.Event 0x{<uintptr_t>self.handle:x}>"

    # -- using it ----------------------------------------------------------------------------------

    def record(self, stream=None):
        """record(stream=None)\n--\n
        Mark the present end of a stream's work (``cuEventRecord``). Recording again moves the mark.

        Parameters
        ----------
        stream : torch.cuda.Stream, optional
            The stream; the current one by default.

        Raises
        ------
        RuntimeError
            It is no stream, or the event belongs to another device.
        """
        cdef CUstream handle
        cdef int device
        resolve_stream(stream, &handle, &device)
        _state.note_call()
        if self.handle != NULL and self.index != device:
            raise RuntimeError(
                f"Event device {self.index} does not match recording stream's device {device}. "
                "An event belongs to the device of its first recording; use one per device.")
        _state.ensure_context(device)
        if self.handle == NULL:
            create(self, device)
        if self.external and is_capturing(handle):
            check(driver.EventRecordWithFlags(self.handle, handle, 1))  # CU_EVENT_RECORD_EXTERNAL
        else:
            check(driver.EventRecord(self.handle, handle))
        self.recorded = True
        if _state.thread_state().device != device:
            _state.restore_context()
        if _state.observed:
            tell("event_record", <uintptr_t>self.handle, <uintptr_t>handle, device)

    def wait(self, stream=None):
        """wait(stream=None)\n--\n
        Have a stream's later work wait for the mark (``cuStreamWaitEvent``). The host goes on.

        Parameters
        ----------
        stream : torch.cuda.Stream, optional
            The stream, of any device; the current one by default.
        """
        cdef CUstream handle
        cdef int device
        cdef unsigned flags
        resolve_stream(stream, &handle, &device)
        if self.handle == NULL:
            return
        _state.note_call()
        _state.ensure_context(device)
        flags = 1 if self.external and is_capturing(handle) else 0  # CU_EVENT_WAIT_EXTERNAL
        check(driver.StreamWaitEvent(handle, self.handle, flags))
        if _state.captures and is_capturing(handle):
            note_fork(handle)
        if _state.thread_state().device != device:
            _state.restore_context()
        if _state.observed:
            tell("event_wait", <uintptr_t>self.handle, <uintptr_t>handle, device)

    def query(self):
        """query()\n--\n
        Whether the marked work is done (``cuEventQuery``); True before the first recording."""
        cdef CUresult status
        if self.handle == NULL:
            return True
        _state.require_initialized()
        with nogil:
            status = driver.EventQuery(self.handle)
        if status == CUDA_ERROR_NOT_READY:
            return False
        check(status)
        if _state.observed:
            tell("event_completion", <uintptr_t>self.handle)
        return True

    def synchronize(self):
        """synchronize()\n--\n
        Wait until the marked work is done (``cuEventSynchronize``); other threads go on."""
        cdef CUresult status
        if self.handle == NULL:
            return
        _state.require_initialized()
        _state.note_call()
        if _state.sync_debug_mode:
            from flambeau.runtime import sync_debug
            sync_debug.report_explicit("Event.synchronize")
        if _state.observed:
            tell("event_synchronization", <uintptr_t>self.handle)
        with nogil:
            status = driver.EventSynchronize(self.handle)
        check(status)
        _state.note_call()

    def elapsed_time(self, BaseEvent other not None):
        """elapsed_time(other)\n--\n
        Milliseconds from this mark to another; as `torch.cuda.Event.elapsed_time`."""
        return milliseconds_between(self, other)

    # -- between processes -------------------------------------------------------------------------

    def ipc_handle(self):
        """ipc_handle()\n--\n
        64 bytes from which another process opens this event (``cuIpcGetEventHandle``).

        Raises
        ------
        AcceleratorError
            Error 400: it was made without ``interprocess=True``.
        """
        cdef CUipcHandle handle
        _state.require_initialized()
        if self.handle == NULL:
            _state.ensure_context(_state.thread_state().device)
            create(self, _state.thread_state().device)
        check(driver.IpcGetEventHandle(&handle, self.handle))
        return <bytes>(<const char*>&handle)[:IPC_HANDLE_BYTES]

    @classmethod
    def from_ipc_handle(cls, device, ipc_handle):
        """from_ipc_handle(device, ipc_handle)\n--\n
        Open an event of another process; as `torch.cuda.Event.from_ipc_handle`."""
        return open_handle(cls, device, ipc_handle)


cdef class Event(BaseEvent):
    """Event(enable_timing=False, blocking=False, interprocess=False, external=False)\n--\n
    A mark in the work of a stream (``CUevent``): to wait for, to ask about, to measure with.

    The driver's event is made at the first `record`, on the stream's device. Until then `query`
    is True and the waits do nothing.

    Parameters
    ----------
    enable_timing : bool
        Whether `elapsed_time` may be asked. Events without are cheaper.
    blocking : bool
        Whether `synchronize` lets the processor sleep instead of spinning.
    interprocess : bool
        Whether other processes may open it; not together with `enable_timing`.
    external : bool
        In a stream capture, whether recording and waiting become nodes of the graph.

    Examples
    --------
    >>> import flambeau as torch
    >>> start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    >>> start.record()
    >>> y = torch.ones(1000, device="cuda") * 2
    >>> end.record()
    >>> end.synchronize()
    >>> start.elapsed_time(end) > 0
    True
    """

    def __cinit__(
        self, bint enable_timing=False, bint blocking=False, bint interprocess=False,
        bint external=False,
    ):
        self.flags = flags_of(enable_timing, blocking, interprocess)
        self.external = external

    def elapsed_time(self, BaseEvent end_event not None):
        """elapsed_time(end_event)\n--\n
        Milliseconds from this mark to another (``cuEventElapsedTime``); negative if that is earlier.

        Parameters
        ----------
        end_event : torch.cuda.Event
            The other mark, on the same device.

        Raises
        ------
        ValueError
            One of the two was made without ``enable_timing=True`` or was never recorded.
        RuntimeError
            The work up to one of the two is not done.
        """
        return milliseconds_between(self, end_event)

    @classmethod
    def from_ipc_handle(cls, device, handle):
        """from_ipc_handle(device, handle)\n--\n
        Open an event of another process (``cuIpcOpenEventHandle``).

        Parameters
        ----------
        device : torch.device, str or int
            The device that it belongs to.
        handle : bytes
            What `ipc_handle` gave there.

        Raises
        ------
        RuntimeError
            The handle is not 64 bytes, or the device is not a CUDA device.
        """
        return open_handle(cls, device, handle)


set_public_name(BaseEvent, b"flambeau.Event")
set_public_name(Event, b"flambeau.cuda.streams.Event")


def set_up_generic(
    BaseEvent event, device=None, *, bint enable_timing=False, bint blocking=False,
    bint interprocess=False, bint external=False,
):
    if device is not None and parse_device(device).kind != KIND_CUDA:
        raise RuntimeError(f"only CUDA devices have events, got {device!r}")
    event.flags = flags_of(enable_timing, blocking, interprocess)
    event.external = external


cdef object milliseconds_between(BaseEvent start, BaseEvent end):
    cdef float milliseconds = 0
    cdef CUresult status
    if (start.flags | end.flags) & DISABLE_TIMING:
        raise ValueError("Both events must be created with argument 'enable_timing=True'.")
    if not (start.recorded and end.recorded):
        raise ValueError("Both events must be recorded before the time between them is known.")
    if not (start.query() and end.query()):
        raise RuntimeError(
            "Both events must be completed before the time between them is known; "
            "synchronize() the later one first.")
    with nogil:
        status = driver.EventElapsedTime(&milliseconds, start.handle, end.handle)
    check(status)
    return milliseconds


cdef object open_handle(cls, device, handle):
    cdef device_type where = parse_device(device)
    cdef BaseEvent event
    cdef CUipcHandle value
    cdef bytes data
    if where.kind != KIND_CUDA:
        raise RuntimeError(f"only CUDA devices have interprocess events, got {device!r}")
    if not isinstance(handle, (bytes, bytearray, memoryview)) or len(handle) != 64:
        raise RuntimeError(
            f"from_ipc_handle expects byte-like object of size {IPC_HANDLE_BYTES}, got {handle!r}")
    _state.require_initialized()
    data = bytes(handle)
    memcpy(&value, <const char*>data, IPC_HANDLE_BYTES)
    event = cls(interprocess=True)
    event.index = where.number if where.number >= 0 else _state.thread_state().device
    _state.check_device(event.index)
    _state.ensure_context(event.index)
    check(driver.IpcOpenEventHandle(&event.handle, value))
    event.made_in = _state.epoch
    event.recorded = True
    _state.restore_context()
    return event


cdef int create(BaseEvent event, int device) except -1:
    """Make the driver's event in the context that is current, the one of `device`."""
    check(driver.EventCreate(&event.handle, event.flags))
    event.index = device
    event.made_in = _state.epoch
    if _state.observed:
        tell("event_creation", <uintptr_t>event.handle)
    return 0


cdef int note_fork(CUstream stream) except -1:
    """Remember where a stream joined a capture."""
    from flambeau.runtime import capture_report
    capture_report.note_fork(<uintptr_t>stream)
    return 0


cdef bint is_capturing(CUstream stream) except -1:
    cdef int status = 0
    check(driver.StreamIsCapturing(stream, &status))
    return status == 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE


cdef int tell(str kind, uintptr_t event, uintptr_t stream=0, int device=-1) except -1:
    from flambeau.runtime import observers
    if device < 0:
        observers.notify(kind, event)
    else:
        observers.notify(kind, event, stream, device)
    return 0
