# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
# cython: embedsignature=False
"""Making a stream current for a while."""
cimport cython
from libc.stdint cimport int64_t

from flambeau.driver._table cimport CUstream
from flambeau.runtime cimport _state
from flambeau.runtime._dtype cimport set_public_name
from flambeau.runtime._stream cimport BaseStream, as_stream, set_current


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
    cdef _state.ThreadState* thread             # the one that entered

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

    def is_of_this_thread(self):
        """Whether the calling thread is the one that entered."""
        return self.thread == _state.thread_state()

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


set_public_name(StreamContext, b"flambeau.cuda.StreamContext")
