# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Initialisation, the current device and the current streams: the state behind every call."""
from libcpp.vector cimport vector

from flambeau.driver._table cimport CUdevice, CUresult, CUuuid, check, driver

cdef extern from *:
    """
    #include "flambeau/runtime/thread_state.hpp"
    namespace flambeau {
    inline ThreadState *this_thread() {
      static thread_local ThreadState state;
      return &state;
    }
    }
    """
    ThreadState* this_thread "flambeau::this_thread"() nogil

cdef enum:
    INVALID_DEVICE = 101

cdef CUcontext contexts[64]
cdef vector[CUevent] deferred_events
cdef list deferred_calls = []
cdef list deferred_errors = []
cdef bint deferred = False

initialized = False
device_total = 0
observed = False
captures = 0
sync_debug_mode = 0
epoch = 0


cdef ThreadState* thread_state() noexcept nogil:
    return this_thread()


# -- initialisation --------------------------------------------------------------------------------

cdef int require_initialized() except -1:
    if not initialized:
        from flambeau.runtime import lazy_init
        lazy_init.lazy_init()
    return 0


def start():
    """Start the driver and count its devices. Called by `lazy_init` only."""
    global device_total
    cdef int count = 0
    cdef CUresult status
    with nogil:
        status = driver.Init(0)
        if status == 0:
            status = driver.DeviceGetCount(&count)
    if status == 100:
        count = 0
    else:
        check(status)
    device_total = min(count, MAX_DEVICES)
    return device_total


def finish():
    """Initialisation is complete. Called by `lazy_init` only."""
    global initialized
    initialized = True


def forget():
    """Go back to the state before initialisation, without a driver call."""
    global initialized, device_total, deferred, epoch, captures
    cdef int i
    cdef ThreadState* state = this_thread()
    epoch += 1
    captures = 0
    initialized = False
    device_total = 0
    for i in range(MAX_DEVICES):
        contexts[i] = NULL
        state.streams[i] = NULL
        state.stream_ids[i] = 0
    state.device = 0
    state.context_device = -1
    deferred_events.clear()
    deferred_calls.clear()
    deferred_errors.clear()
    deferred = False


def is_initialized():
    return initialized


# -- contexts --------------------------------------------------------------------------------------

cdef int check_device(int device) except -1:
    if device < 0 or device >= device_total:
        return refuse_device(device)
    return 0


cdef int refuse_device(int device) except -1:
    from flambeau.driver import errors
    indices = f"{device_total} devices, 0 to {device_total - 1}" if device_total > 1 else "device 0 only"
    raise errors.from_status(
        INVALID_DEVICE,
        f"Device {device} was asked for; this process sees {indices}. CUDA_VISIBLE_DEVICES may "
        "hide more.")


cdef CUcontext context_of(int device) except? NULL:
    cdef CUdevice handle
    cdef CUcontext context = NULL
    cdef CUresult status
    if not 0 <= device < MAX_DEVICES or contexts[device] == NULL:
        require_initialized()
        check_device(device)
        with nogil:
            status = driver.DeviceGet(&handle, device)
            if status == 0:
                status = driver.DevicePrimaryCtxRetain(&context, handle)
        check(status)
        contexts[device] = context
    return contexts[device]


cdef int device_of_context(CUcontext context) noexcept:
    cdef int i
    for i in range(device_total):
        if contexts[i] == context and context != NULL:
            return i
    return -1


cdef int ensure_context(int device) except -1:
    # Other libraries switch contexts behind our back; asking costs 9 ns, so ask every time.
    cdef CUcontext wanted = contexts[device]
    cdef CUcontext now = NULL
    if wanted == NULL:
        wanted = context_of(device)
    check(driver.CtxGetCurrent(&now))
    if now != wanted:
        check(driver.CtxSetCurrent(wanted))
    this_thread().context_device = device
    return 0


cdef int restore_context() except -1:
    cdef ThreadState* state = this_thread()
    if state.context_device != state.device and contexts[state.device] != NULL:
        return ensure_context(state.device)
    return 0


def has_context(int device):
    return 0 <= device < MAX_DEVICES and contexts[device] != NULL


def device_uuid(int device):
    cdef CUdevice handle
    cdef CUuuid uuid
    require_initialized()
    check_device(device)
    check(driver.DeviceGet(&handle, device))
    check(driver.DeviceGetUuid(&uuid, handle))
    text = (<bytes>uuid.bytes[:16]).hex()
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


# -- the current device ----------------------------------------------------------------------------

cdef int switch_device(int device) except -1:
    require_initialized()
    check_device(device)
    ensure_context(device)
    this_thread().device = device
    return 0


cdef int return_to_device(int device) except -1:
    require_initialized()
    check_device(device)
    if contexts[device] != NULL:
        ensure_context(device)
    this_thread().device = device
    return 0


def current_device():
    require_initialized()
    return this_thread().device


def set_device(int device):
    if device >= 0:
        switch_device(device)


def exchange_device(int device):
    cdef int old
    if device < 0:
        return -1
    require_initialized()
    old = this_thread().device
    switch_device(device)
    return old


def maybe_exchange_device(int device):
    cdef int old
    if device < 0:
        return -1
    require_initialized()
    old = this_thread().device
    return_to_device(device)
    return old


def count_devices():
    require_initialized()
    return device_total


def synchronize(int device=-1):
    cdef CUresult status
    require_initialized()
    note_call()
    if device < 0:
        device = this_thread().device
    check_device(device)
    ensure_context(device)
    if observed:
        from flambeau.runtime import observers
        observers.notify("device_synchronization", device)
    with nogil:
        status = driver.CtxSynchronize()
    restore_context()
    check(status)
    note_call()


# -- what must not happen where it is noticed ------------------------------------------------------

cdef void defer_event(CUevent event, int made_in) noexcept:
    global deferred
    if initialized and made_in == epoch:
        deferred_events.push_back(event)
        deferred = True


def defer_call(call):
    """Have the next entry make this call: for finalizers, which must not call the driver."""
    global deferred
    deferred_calls.append(call)
    deferred = True


def defer_error(error):
    """Have the next entry raise this: for host callbacks, which have nobody to raise to."""
    global deferred
    deferred_errors.append(error)
    deferred = True


cdef int note_call() except -1:
    if deferred:
        return drain()
    return 0


cdef int drain() except -1:
    global deferred
    cdef vector[CUevent] events
    deferred = False
    events.swap(deferred_events)
    for event in events:
        driver.EventDestroy(event)  # its failure concerns nobody: the owner is gone
    calls = deferred_calls[:]
    del deferred_calls[:len(calls)]
    for call in calls:
        call()
    if deferred_errors:
        error = deferred_errors.pop(0)
        deferred = bool(deferred_errors)
        raise error
    return 0


def note_pending():
    note_call()


# -- stream captures -------------------------------------------------------------------------------

cdef bint is_captured(CUstream stream) except -1:
    cdef int status = 0
    if captures:
        check(driver.StreamIsCapturing(stream, &status))
    return status != 0


def captures_under_way():
    return captures


# -- observation and the synchronisation debug mode ------------------------------------------------

def set_observed(bint on):
    global observed
    observed = on


def set_sync_debug_mode(int mode):
    global sync_debug_mode
    sync_debug_mode = mode


def get_sync_debug_mode():
    return sync_debug_mode


cdef int check_sync(str what) except -1:
    if sync_debug_mode:
        from flambeau.runtime import sync_debug
        sync_debug.report(what, sync_debug_mode)
    return 0


def check_synchronizing(str what):
    check_sync(what)
