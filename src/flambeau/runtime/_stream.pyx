# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
# cython: embedsignature=False
"""Streams: queues of work on a device, and which one is current."""
cimport cython
from libc.stdint cimport uintptr_t

from flambeau.driver._table cimport (
    CUDA_ERROR_NOT_READY, CUcontext, CUresult, check, driver,
)
from flambeau.runtime cimport _state
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
    STREAMS_PER_POOL = 32
    POOLS = 4          # priorities 0, -1, -2, -3
    NON_BLOCKING = 1   # CU_STREAM_NON_BLOCKING: does not wait for the default stream
    CUDA_DEVICE_TYPE = 1

cdef CUstream pool_streams[64][POOLS][STREAMS_PER_POOL]
cdef int pool_count[64]         # priorities that the device has; 0 until its streams are made
cdef unsigned pool_next[64][POOLS]
cdef object _bare = object()    # as the first argument: the maker fills the object in
cdef tuple _bare_arguments = (_bare,)
cdef object _event_class = None


# -- the streams of a device -----------------------------------------------------------------------

cdef int make_pools(int device) except -1:
    """Make all pool streams of a device; its context must be current."""
    cdef int least = 0, greatest = 0, level, i
    check(driver.CtxGetStreamPriorityRange(&least, &greatest))
    for level in range(min(POOLS, least - greatest + 1)):
        for i in range(STREAMS_PER_POOL):
            if pool_streams[device][level][i] == NULL:
                check(driver.StreamCreateWithPriority(
                    &pool_streams[device][level][i], NON_BLOCKING, -level))
                if _state.observed:
                    tell("stream_creation", <uintptr_t>pool_streams[device][level][i])
    pool_count[device] = min(POOLS, least - greatest + 1)
    return 0


cdef int need_pools(int device) except -1:
    _state.require_initialized()
    _state.check_device(device)
    if pool_count[device] == 0:
        _state.ensure_context(device)
        make_pools(device)
        _state.restore_context()
    return 0


cdef int64_t pool_id(int level, int i) noexcept:
    return (i << 5) | ((1 + level) << 1) | 1


cdef int find_by_id(int device, int64_t id, CUstream* handle) except -1:
    """The handle that belongs to a stream id."""
    cdef int level, i
    if id == 0 or id & 1 == 0:
        handle[0] = <CUstream><uintptr_t>id
        return 0
    need_pools(device)
    level = <int>((id >> 1) & 15) - 1
    i = <int>(id >> 5)
    if not (0 <= level < pool_count[device] and 0 <= i < STREAMS_PER_POOL):
        raise RuntimeError(f"invalid StreamId {id}: device {device} has no such stream")
    handle[0] = pool_streams[device][level][i]
    return 0


def forget():
    """Every handle is void."""
    cdef int device, level, i
    for device in range(64):
        pool_count[device] = 0
        for level in range(POOLS):
            pool_next[device][level] = 0
            for i in range(STREAMS_PER_POOL):
                pool_streams[device][level][i] = NULL


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


cdef int take_from_pool(BaseStream stream, device, priority) except -1:
    cdef int index = index_of(device, True)
    cdef int level, turn
    _state.require_initialized()
    if index < 0:
        index = _state.thread_state().device
    need_pools(index)
    level = min(max(-int(priority), 0), pool_count[index] - 1)
    turn = pool_next[index][level] % STREAMS_PER_POOL
    pool_next[index][level] += 1
    fill(stream, index, pool_streams[index][level][turn], pool_id(level, turn))
    return 0


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
        return True

    def synchronize(self):
        """synchronize()\n--\n
        Wait until all of its work is done (``cuStreamSynchronize``); other threads go on."""
        cdef CUresult status
        _state.check_sync("Stream.synchronize")
        _state.note_call()
        enter(self)
        if _state.observed:
            tell("stream_synchronization", <uintptr_t>self.handle)
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
        cdef StreamContext context = StreamContext.__new__(StreamContext)
        context.stream = self
        context.enter()
        if self.entered is None:
            self.entered = []
        self.entered.append(context)
        return self

    def __exit__(self, type, value, traceback):
        cdef Py_ssize_t i
        cdef StreamContext context
        for i in range(len(self.entered) - 1, -1, -1):
            context = <StreamContext>self.entered[i]
            if context.thread == _state.thread_state():  # other threads may be inside too
                del self.entered[i]
                context.leave()
                break


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

    @staticmethod
    def priority_range():
        """priority_range()\n--\n
        The lowest and the highest priority, as numbers: ``(0, -3)`` or fewer steps."""
        cdef int least = 0, greatest = 0
        _state.require_initialized()
        _state.ensure_context(_state.thread_state().device)
        check(driver.CtxGetStreamPriorityRange(&least, &greatest))
        return (0, max(1 - POOLS, greatest))


cdef int wait_for_stream(BaseStream stream, other) except -1:
    event = event_class()()
    event.record(as_stream(other))
    event.wait(stream)
    return 0


class ExternalStream(Stream):
    """A stream that somebody else made and keeps alive.

    Parameters
    ----------
    stream_ptr : int or None
        The ``CUstream`` handle; 0 or None is the default stream.
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
        fill_external(stream, 0 if stream_ptr is None else stream_ptr, device)
        return stream


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
    find_by_id(index, id, &handle)
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
    pointer = protocol()[1]
    device = _state.thread_state().device
    if pointer:
        check(driver.StreamGetCtx(<CUstream>pointer, &context))
        if _state.device_of_context(context) >= 0:
            device = _state.device_of_context(context)
    return make_stream(device, <CUstream>pointer, <int64_t>pointer)


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


@cython.freelist(8)
cdef class StreamContext:
    """StreamContext(stream)\n--\n
    Context manager that makes a stream, and its device, current.

    Parameters
    ----------
    stream : torch.cuda.Stream or None
        The stream; None makes the manager do nothing.
    """

    cdef readonly BaseStream stream
    cdef CUstream own_stream, target_stream     # current before, on the old device and the stream's
    cdef int64_t own_id, target_id
    cdef int device                             # current before; -1 outside
    cdef _state.ThreadState* thread

    def __cinit__(self):
        self.device = -1

    def __init__(self, stream):
        _state.require_initialized()
        self.stream = None if stream is None else as_stream(stream)

    @property
    def idx(self):
        """The index of the device that was current at the last entry, else the current one."""
        return self.device if self.device >= 0 else _state.thread_state().device

    def __enter__(self):
        if self.stream is not None:
            self.enter()

    def __exit__(self, type, value, traceback):
        if self.stream is not None:
            self.leave()
        return False

    cdef int enter(self) except -1:
        cdef _state.ThreadState* state = _state.thread_state()
        cdef int target = self.stream.index
        _state.require_initialized()
        self.thread = state
        self.device = state.device
        self.own_stream = state.streams[self.device]
        self.own_id = state.stream_ids[self.device]
        self.target_stream = state.streams[target]
        self.target_id = state.stream_ids[target]
        return set_current(self.stream)

    cdef int leave(self) except -1:
        cdef _state.ThreadState* state = _state.thread_state()
        cdef int target = self.stream.index
        cdef int device = self.device
        if device < 0:
            return 0
        self.device = -1
        state.streams[target] = self.target_stream
        state.stream_ids[target] = self.target_id
        state.streams[device] = self.own_stream
        state.stream_ids[device] = self.own_id
        if state.device != device:
            _state.return_to_device(device)
        return 0


def stream(stream):
    """stream(stream)\n--\n
    Context manager that makes a stream, and its device, current; the old ones come back after it.

    Parameters
    ----------
    stream : torch.cuda.Stream or None
        The stream, or an object with ``__cuda_stream__``; None makes the manager do nothing.

    Examples
    --------
    >>> import flambeau as torch
    >>> s = torch.cuda.Stream()
    >>> with torch.cuda.stream(s):
    ...     torch.cuda.current_stream() == s
    True
    """
    cdef StreamContext context = StreamContext.__new__(StreamContext)
    _state.require_initialized()
    if stream is not None:
        context.stream = as_stream(stream)
    return context


set_public_name(BaseStream, b"flambeau.Stream")
set_public_name(Stream, b"flambeau.cuda.streams.Stream")
set_public_name(StreamContext, b"flambeau.cuda.StreamContext")


cdef object event_class():
    """`Event`, whose module needs this one."""
    global _event_class
    if _event_class is None:
        from flambeau.runtime._event import Event
        _event_class = Event
    return _event_class


cdef int tell(str kind, argument) except -1:
    from flambeau.runtime import observers
    observers.notify(kind, argument)
    return 0
