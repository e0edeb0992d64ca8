# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
# cython: embedsignature=False
"""Streams: queues of work on a device, and which one is current."""
cimport cython
from libc.stdint cimport uintptr_t

from flambeau.driver._table cimport (
    CUDA_ERROR_NOT_READY, CUcontext, CUresult, check, driver,
)
from flambeau.runtime cimport _state, _stream_pool
from flambeau.runtime._device cimport device_of
from flambeau.runtime._dtype cimport set_public_name
from flambeau.runtime._cuda_device import index_of

cdef extern from *:
    """
    // Stream.__new__ without looking it up.
    #define flambeau_new_stream(type, arguments, keywords) \
      ((PyTypeObject *)(type))->tp_new((PyTypeObject *)(type), arguments, keywords)
    """
    object new_stream "flambeau_new_stream"(object type, object arguments, void* keywords)

cdef enum:
    CUDA_DEVICE_TYPE = 1

cdef object _bare = object()    # as the first argument: the maker fills the object in
cdef tuple _bare_arguments = (_bare,)
cdef object _event_class = None


# -- stream objects --------------------------------------------------------------------------------

cdef int fill(BaseStream stream, int device, CUstream handle, int64_t id) noexcept:
    stream.index = device
    stream.handle = handle
    stream.id = id
    return 0


cdef Stream make_stream(int device, CUstream handle, int64_t id):
    cdef Stream stream = new_stream(Stream, _bare_arguments, NULL)
    fill(stream, device, handle, id)
    return stream


cdef int take_from_pool(BaseStream stream, device, int priority) except -1:
    cdef int index = index_of(device, True)
    _state.require_initialized()
    stream.index = index if index >= 0 else _state.thread_state().device
    return _stream_pool.take(stream.index, priority, &stream.handle, &stream.id)


cdef class BaseStream:
    """Stream(device=None, priority=0, *, stream_id=None, device_index=None, device_type=None)\n--\n
    A queue of work on a device; `torch.cuda.Stream` is the same thing.

    Parameters
    ----------
    device : torch.device, str or int, optional
        The device; the current one by default.
    priority : int
        As for `torch.cuda.Stream`.
    """

    def __cinit__(
        self, device=None, priority=0, *, stream_id=None, device_index=None, device_type=None,
    ):
        if device is _bare:
            return
        if stream_id is not None:
            rebuild(self, stream_id, device_index, device_type)
        else:
            take_from_pool(self, device, priority)

    # -- what it is --------------------------------------------------------------------------------

    @property
    def device(self):
        """The device that it belongs to."""
        return device_of(self.index)

    @property
    def device_index(self):
        """The index of its device."""
        return self.index

    @property
    def device_type(self):
        """The number of the kind of device: 1 for CUDA."""
        return CUDA_DEVICE_TYPE

    @property
    def stream_id(self):
        """Its number among its device's streams; 0 is the default stream."""
        return self.id

    @property
    def cuda_stream(self):
        """The driver's handle (``CUstream``); 0 is the default stream."""
        return <uintptr_t>self.handle

    @property
    def native_handle(self):
        """The driver's handle, as `cuda_stream`."""
        return <uintptr_t>self.handle

    @property
    def priority(self):
        """Its priority (``cuStreamGetPriority``): 0, or below for work that goes first."""
        cdef int value = 0
        enter(self)
        check(driver.StreamGetPriority(self.handle, &value))
        leave(self)
        return value

    @property
    def _as_parameter_(self):
        import ctypes
        return ctypes.c_void_p(<uintptr_t>self.handle)

    def __cuda_stream__(self):
        """Version of the protocol and the handle, for other libraries."""
        return (0, <uintptr_t>self.handle)

    def __eq__(self, other):
        if not isinstance(other, BaseStream):
            return False
        return (
            self.handle == (<BaseStream>other).handle and self.index == (<BaseStream>other).index)

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash((<uintptr_t>self.handle, self.index))

    def __repr__(self):
        return (
            f"<torch.cuda.Stream device=cuda:{self.index} "
            f"cuda_stream=0x{<uintptr_t>self.handle:x}>")

    # -- waiting -----------------------------------------------------------------------------------

    def query(self):
        """query()\n--\n
        Whether all of its work is done (``cuStreamQuery``)."""
        cdef CUresult status
        enter(self)
        with nogil:
            status = driver.StreamQuery(self.handle)
        leave(self)
        if status == CUDA_ERROR_NOT_READY:
            return False
        check(status)
        if _state.observed:
            tell("stream_completion", self)
        return True

    def synchronize(self):
        """synchronize()\n--\n
        Wait until all of its work is done (``cuStreamSynchronize``); other threads go on."""
        cdef CUresult status
        _state.check_sync("Stream.synchronize")
        _state.note_call()
        enter(self)
        if _state.observed:
            tell("stream_synchronization", self)
        with nogil:
            status = driver.StreamSynchronize(self.handle)
        leave(self)
        check(status)
        _state.note_call()

    def is_capturing(self):
        """is_capturing()\n--\n
        Whether its work is being captured into a graph (``cuStreamIsCapturing``)."""
        cdef int status = 0
        enter(self)
        check(driver.StreamIsCapturing(self.handle, &status))
        leave(self)
        return status == 1

    def wait_event(self, event):
        """wait_event(event)\n--\n
        Have later work wait for an event. The host goes on.

        Parameters
        ----------
        event : torch.cuda.Event
            The mark to wait for.
        """
        event.wait(self)

    def wait_stream(self, other):
        """wait_stream(other)\n--\n
        Have later work wait for all work that another stream has so far. The host goes on.

        Parameters
        ----------
        other : torch.Stream
            The stream to wait for, of any device.
        """
        wait_for_stream(self, other)

    def record_event(self, event=None):
        """record_event(event=None)\n--\n
        Mark the present end of its work.

        Parameters
        ----------
        event : torch.cuda.Event, optional
            The event to record; a new one by default.

        Returns
        -------
        torch.cuda.Event
            The event.
        """
        if event is None:
            event = event_class()()
        event.record(self)
        return event

    # -- being current -----------------------------------------------------------------------------

    def __enter__(self):
        context = StreamContext(self)
        context.__enter__()
        if self.entered is None:
            self.entered = []
        self.entered.append(context)
        return self

    def __exit__(self, type, value, traceback):
        cdef Py_ssize_t i
        for i in range(len(self.entered) - 1, -1, -1):
            context = self.entered[i]
            if context.is_of_this_thread():  # others may be inside too
                del self.entered[i]
                context.__exit__(type, value, traceback)
                break


# A plain built-in: it binds to nothing, so the class and its instances call it alike.
@cython.binding(False)
def _priority_range():
    """priority_range()\n--\n
    The lowest and the highest priority, as numbers: ``(0, -3)`` or fewer steps."""
    _state.require_initialized()
    _state.ensure_context(_state.thread_state().device)
    return (0, _stream_pool.lowest_priority())


cdef class Stream(BaseStream):
    """Stream(device=None, priority=0, **kwargs)\n--\n
    A queue of work on a device (``CUstream``): in order inside, at the same time as others.

    Each device has 32 streams of each priority. They are handed out in turn, so the 33rd is the
    first again.

    Parameters
    ----------
    device : torch.device, str or int, optional
        The device; the current one by default.
    priority : int
        0, or negative for work that goes first; clamped to `priority_range`.

    Examples
    --------
    >>> import flambeau as torch
    >>> s = torch.cuda.Stream()
    >>> x = torch.ones(3, device="cuda")
    >>> s.wait_stream(torch.cuda.current_stream())
    >>> with torch.cuda.stream(s):
    ...     y = x + 1
    >>> torch.cuda.current_stream().wait_stream(s)
    >>> y.tolist()
    [2.0, 2.0, 2.0]
    """

    def wait_stream(self, stream):
        """wait_stream(stream)\n--\n
        Have later work wait for all work that another stream has so far. The host goes on.

        Parameters
        ----------
        stream : torch.cuda.Stream
            The stream to wait for, of any device.
        """
        wait_for_stream(self, stream)

    priority_range = _priority_range


cdef int wait_for_stream(BaseStream stream, other) except -1:
    event = event_class()()
    event.record(as_stream(other))
    event.wait(stream)
    return 0


class ExternalStream(Stream):
    """A stream that somebody else made and keeps alive.

    Parameters
    ----------
    stream_ptr : int, None, or object with ``__cuda_stream__``
        The ``CUstream`` handle; 0 or None is the default stream. An object stays alive with it.
    device : torch.device, str or int, optional
        The device that it belongs to; the current one by default.

    Raises
    ------
    RuntimeError
        A priority is given: an existing stream has its own.

    Examples
    --------
    >>> import flambeau as torch
    >>> s = torch.cuda.Stream()
    >>> torch.cuda.ExternalStream(s.cuda_stream) == s
    True
    """

    __module__ = "flambeau.cuda.streams"
    __qualname__ = "ExternalStream"

    def __new__(cls, stream_ptr, device=None, **kwargs):
        cdef BaseStream stream
        if kwargs.pop("priority", 0) != 0:
            raise RuntimeError(
                "Priority was explicitly set for an external stream; it has the priority that it "
                "was created with")
        if kwargs:
            raise TypeError(f"ExternalStream() got unexpected arguments {sorted(kwargs)}")
        stream = Stream.__new__(cls, *_bare_arguments)
        if hasattr(stream_ptr, "__cuda_stream__"):
            wrap_object(stream, stream_ptr, device)
        else:
            fill_external(stream, 0 if stream_ptr is None else stream_ptr, device)
        return stream


cdef int wrap_object(BaseStream stream, owner, device) except -1:
    cdef BaseStream found = as_stream(owner)
    cdef int index = found.index if device is None else index_of(device, True)
    if index != found.index:
        raise RuntimeError(f"{owner!r} belongs to cuda:{found.index}, not to cuda:{index}")
    fill(stream, found.index, found.handle, found.id)
    (<object>stream)._owner = owner
    return 0


cdef int fill_external(BaseStream stream, uintptr_t pointer, device) except -1:
    cdef int index = index_of(device, True)
    _state.require_initialized()
    if index < 0:
        index = _state.thread_state().device
    _state.check_device(index)
    fill(stream, index, <CUstream>pointer, <int64_t>pointer)
    return 0


cdef int rebuild(BaseStream stream, int64_t id, device_index, device_type) except -1:
    """A stream from its id, as torch writes it when it passes streams around."""
    cdef CUstream handle
    cdef int index
    if device_type is not None and device_type != CUDA_DEVICE_TYPE:
        raise RuntimeError(f"device_type {device_type} is not CUDA's, which is {CUDA_DEVICE_TYPE}")
    _state.require_initialized()
    index = _state.thread_state().device if device_index is None else device_index
    _state.check_device(index)
    _stream_pool.find_by_id(index, id, &handle)
    fill(stream, index, handle, id)
    return 0


# The default stream's null handle means one per context, so that context has to be current.
cdef int enter(BaseStream stream) except -1:
    _state.require_initialized()
    return _state.ensure_context(stream.index)


cdef int leave(BaseStream stream) except -1:
    if _state.thread_state().device != stream.index:
        _state.restore_context()
    return 0


# -- stream arguments ------------------------------------------------------------------------------

cdef BaseStream as_stream(object stream):
    """A stream argument as a stream; an object with ``__cuda_stream__`` is wrapped."""
    cdef CUcontext context = NULL
    cdef uintptr_t pointer
    cdef int device
    if isinstance(stream, BaseStream):
        return <BaseStream>stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        raise RuntimeError(
            f"expected stream to be a torch.Stream or an object with __cuda_stream__, got "
            f"{stream!r}")
    _state.require_initialized()
    pointer = handle_of(protocol() if callable(protocol) else protocol)
    device = _state.thread_state().device
    if pointer > 2:     # 0 to 2 are the default streams of the current context
        check(driver.StreamGetCtx(<CUstream>pointer, &context))
        if _state.device_of_context(context) >= 0:
            device = _state.device_of_context(context)
    return make_stream(device, <CUstream>pointer, <int64_t>pointer)


cdef uintptr_t handle_of(description) except? 0:
    """The handle in what ``__cuda_stream__`` gave: the protocol's version, which is 0, and the handle."""
    if not (isinstance(description, tuple) and len(description) == 2):
        raise RuntimeError(f"__cuda_stream__ gives (version, handle), not {description!r}")
    version, pointer = description
    if version != 0:
        raise RuntimeError(f"version {version} of __cuda_stream__ is not understood, only 0 is")
    return 0 if pointer == 1 else pointer   # both are the default stream


def stream_of(stream):
    return as_stream(stream)


cdef int resolve_stream(object stream, CUstream* handle, int* device) except -1:
    cdef _state.ThreadState* state
    cdef BaseStream found
    _state.require_initialized()
    if stream is None:
        state = _state.thread_state()
        device[0] = state.device
        handle[0] = state.streams[state.device]
        return 0
    found = as_stream(stream)
    device[0] = found.index
    handle[0] = found.handle
    return 0


cdef int index_within(device) except -1:
    """The device of a question about streams."""
    cdef int index
    if device is None:
        _state.require_initialized()
        return _state.thread_state().device
    index = index_of(device, True)
    _state.require_initialized()
    if not 0 <= index < _state.device_total:
        raise RuntimeError(
            f"Device index value {index} is out of index range [0, {_state.device_total})")
    return index


# -- the current stream ----------------------------------------------------------------------------

cdef int set_current(BaseStream stream) except -1:
    cdef _state.ThreadState* state = _state.thread_state()
    state.streams[stream.index] = stream.handle
    state.stream_ids[stream.index] = stream.id
    if state.device != stream.index:
        _state.switch_device(stream.index)
    return 0


def current_stream(device=None):
    """current_stream(device=None)\n--\n
    The stream on which this thread's work for a device goes.

    Parameters
    ----------
    device : torch.device, str or int, optional
        The device; the current one by default.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.current_stream() == torch.cuda.default_stream()
    True
    """
    cdef _state.ThreadState* state
    cdef int index = index_within(device)
    state = _state.thread_state()
    return make_stream(index, state.streams[index], state.stream_ids[index])


def default_stream(device=None):
    """default_stream(device=None)\n--\n
    The default stream of a device (the driver's null stream).

    Parameters
    ----------
    device : torch.device, str or int, optional
        The device; the current one by default.
    """
    return make_stream(index_within(device), NULL, 0)


def set_stream(stream):
    """set_stream(stream)\n--\n
    Make a stream current for its device, and its device current. A `stream` block undoes itself.

    Parameters
    ----------
    stream : torch.cuda.Stream or None
        The stream; None changes nothing.
    """
    if stream is not None:
        _state.require_initialized()
        set_current(as_stream(stream))


def get_stream_from_external(data_ptr, device=None):
    """get_stream_from_external(data_ptr, device=None)\n--\n
    A stream object for a handle that somebody else made and keeps alive.

    Parameters
    ----------
    data_ptr : int
        The ``CUstream`` handle; 0 is the default stream.
    device : torch.device, str or int, optional
        The device that it belongs to; the current one by default.
    """
    cdef Stream stream = new_stream(Stream, _bare_arguments, NULL)
    fill_external(stream, data_ptr, device)
    return stream


set_public_name(BaseStream, b"flambeau.Stream")
set_public_name(Stream, b"flambeau.cuda.streams.Stream")


cdef object event_class():
    """`Event`, whose module needs this one."""
    global _event_class
    if _event_class is None:
        from flambeau.runtime._event import Event
        _event_class = Event
    return _event_class



cdef int tell(str kind, BaseStream stream) except -1:
    from flambeau.runtime import observers
    observers.notify(kind, <uintptr_t>stream.handle, stream.index)
    return 0


from flambeau.runtime._stream_context import StreamContext, stream  # noqa: E402
