# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
# cython: embedsignature=False
"""What the driver says about devices, and the thread's current one.

Device numbers here are ordinals that the caller has checked or that the driver checks; the rules
for device arguments of public functions are in `index_of`.
"""
from libc.stdint cimport int64_t, uintptr_t
from flambeau.driver._table cimport (
    CUstream, CUuuid, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, check, driver,
)
from flambeau.runtime cimport _state
from flambeau.runtime._device cimport KIND_CPU, KIND_CUDA, device as device_type
from flambeau.runtime._dtype cimport set_public_name


# --- device arguments ----------------------------------------------------------------------------

cpdef int index_of(object device, bint optional=False, bint allow_cpu=False) except? -1:
    if type(device) is int:
        return device
    if device is None:
        if optional:
            return current_device()
        raise _index_needed(device)
    if isinstance(device, int):  # bool and enumerations too
        return int(device)
    if isinstance(device, DeviceGuard):
        return (<DeviceGuard>device).idx
    if isinstance(device, str):
        device = device_type(device)
    if isinstance(device, device_type):
        if (<device_type>device).kind == KIND_CPU and allow_cpu:
            return -1
        if (<device_type>device).kind != KIND_CUDA:
            raise ValueError(
                f"Expected a cuda device, but got: {device}"
                + (" (a cpu device is accepted as well)" if allow_cpu else ""))
        if (<device_type>device).number >= 0:
            return (<device_type>device).number
        if optional:
            return current_device()
        raise _index_needed(device)
    if optional:
        raise TypeError(
            "Expected a cuda device: an int, a str such as 'cuda:0', a torch.device, a "
            f"torch.cuda.device or None, but got: {device!r}")
    raise _index_needed(device)


cdef _index_needed(device):
    return ValueError(
        "Expected a torch.device with a specified index or an integer, but got:"
        f"{device}. This call does not fall back on the current device.")


# --- the current device --------------------------------------------------------------------------

cpdef int current_device() except -1:
    """The ordinal of the calling thread's current device. Initialises CUDA.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.current_device()
    0
    """
    _state.require_initialized()
    return _state.thread_state().device


cdef class DeviceGuard:
    """_DeviceGuard(index)\n--\n\nContext manager that makes a device current by its number.

    Parameters
    ----------
    index : int
        The device; below 0 for no change.

    Attributes
    ----------
    idx : int
        The device.
    prev_idx : int
        What was current before entry; -1 outside.
    """
    cdef public int idx
    cdef public int prev_idx

    def __init__(self, int index):
        self.idx = index
        self.prev_idx = -1

    def __enter__(self):
        if self.idx >= 0:
            _state.require_initialized()
            self.prev_idx = _state.thread_state().device
            _state.switch_device(self.idx)

    def __exit__(self, type, value, traceback):
        if self.idx >= 0 and _state.thread_state().device != self.prev_idx:
            _state.return_to_device(self.prev_idx)
        return False


cdef class device(DeviceGuard):
    """device(device)\n--\n\nContext manager that makes a device current, for the calling thread.

    Entry creates the device's context if it has none (``cuDevicePrimaryCtxRetain``); exit makes the
    previous device current again and creates nothing.

    Parameters
    ----------
    device : int, str, torch.device, torch.cuda.device or None
        The device; None and ``"cuda"`` mean the current one and initialise CUDA. A negative number
        makes the manager do nothing.

    Attributes
    ----------
    idx : int
        The device's ordinal.
    prev_idx : int
        What was current before entry; -1 outside.

    Raises
    ------
    AcceleratorError
        At entry: there is no such device (error 101).

    Examples
    --------
    >>> import flambeau as torch
    >>> with torch.cuda.device("cuda:0"):
    ...     torch.cuda.current_device()
    0
    """

    def __init__(self, device):
        self.idx = device if type(device) is int else index_of(device, optional=True)
        self.prev_idx = -1


set_public_name(DeviceGuard, b"flambeau.cuda._DeviceGuard")
set_public_name(device, b"flambeau.cuda.device")


# --- what a device is ----------------------------------------------------------------------------

def count_devices():
    """Ask the driver itself. Starts it, so a fork afterwards cannot use it."""
    cdef int count = 0
    cdef int status
    with nogil:
        status = driver.Init(0)
    check(status)
    check(driver.DeviceGetCount(&count))
    return count


def attribute(int device, int which):
    cdef int value = 0
    check(driver.DeviceGetAttribute(&value, which, device))
    return value


def name(int device):
    cdef char text[256]
    check(driver.DeviceGetName(text, 256, device))
    return (<bytes>text).decode()


def uuid(int device):
    cdef CUuuid value
    check(driver.DeviceGetUuid(&value, device))
    return bytes((<const unsigned char*>&value)[:16])


def total_memory(int device):
    cdef size_t total = 0
    check(driver.DeviceTotalMem(&total, device))
    return total


def can_access_peer(int device, int peer):
    cdef int can = 0
    check(driver.DeviceCanAccessPeer(&can, device, peer))
    return can != 0


def has_context(int device):
    cdef unsigned flags = 0
    cdef int active = 0
    check(driver.DevicePrimaryCtxGetState(device, &flags, &active))
    return active != 0


def device_total():
    return _state.device_total


def epoch():
    return _state.epoch


def require_device(int device):
    _state.require_initialized()
    _state.check_device(device)


# --- calls that act on a device ------------------------------------------------------------------

def memory_info(int device):
    cdef _state.ThreadState* state = _state.thread_state()
    cdef size_t free = 0
    cdef size_t total = 0
    cdef int status
    _state.require_initialized()
    _state.check_device(device)
    _state.ensure_context(device)
    with nogil:
        status = driver.MemGetInfo(&free, &total)
    _state.return_to_device(state.device)
    check(status)
    return free, total


def spin(int64_t cycles):
    _state.require_initialized()
    cdef _state.ThreadState* state = _state.thread_state()
    _state.ensure_context(state.device)
    check(driver.Spin(cycles, state.streams[state.device]))


def capture_status():
    cdef _state.ThreadState* state = _state.thread_state()
    cdef int status = 0
    _state.require_initialized()
    if has_context(state.device):
        _state.ensure_context(state.device)
        check(driver.StreamIsCapturing(state.streams[state.device], &status))
    return status


# --- calls that answer with a status, for cudart() -----------------------------------------------

def profiler_start():
    _state.require_initialized()
    _state.ensure_context(_state.thread_state().device)
    return driver.ProfilerStart()


def profiler_stop():
    _state.require_initialized()
    _state.ensure_context(_state.thread_state().device)
    return driver.ProfilerStop()


def host_register(uintptr_t pointer, size_t size, unsigned flags):
    cdef int status
    _state.require_initialized()
    _state.ensure_context(_state.thread_state().device)
    with nogil:
        status = driver.MemHostRegister(<void*>pointer, size, flags)
    return status


def host_unregister(uintptr_t pointer):
    cdef int status
    _state.require_initialized()
    _state.ensure_context(_state.thread_state().device)
    with nogil:
        status = driver.MemHostUnregister(<void*>pointer)
    return status


def stream_create(uintptr_t address):
    cdef CUstream stream = NULL
    if address == 0:
        return CUDA_ERROR_INVALID_VALUE
    _state.require_initialized()
    _state.ensure_context(_state.thread_state().device)
    status = driver.StreamCreateWithPriority(&stream, 0, 0)
    if status == CUDA_SUCCESS:
        (<CUstream*>address)[0] = stream
    return status


def stream_destroy(uintptr_t handle):
    cdef int status
    if handle == 0:
        return CUDA_ERROR_INVALID_HANDLE
    _state.require_initialized()
    with nogil:
        status = driver.StreamDestroy(<CUstream>handle)
    return status
