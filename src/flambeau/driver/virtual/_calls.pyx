# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""The entries of the active driver table as Python functions: for tests and tools, not for speed."""
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memcpy, memset

from flambeau.driver._table cimport (
    CUcontext,
    CUdeviceptr,
    CUevent,
    CUfunction,
    CUipcHandle,
    CUresult,
    CUstream,
    CUuuid,
    GemmArgs,
    check,
    driver,
)

import sys


cdef void _call_host_function(void* data) noexcept with gil:
    function = <object>data
    try:
        function()
    except BaseException:  # noqa: BLE001 - nobody is above this frame
        sys.unraisablehook(_Unraisable(*sys.exc_info(), function))
    finally:
        Py_DECREF(function)


class _Unraisable:
    def __init__(self, exc_type, exc_value, exc_traceback, obj):
        self.exc_type = exc_type
        self.exc_value = exc_value
        self.exc_traceback = exc_traceback
        self.err_msg = "a host function raised"
        self.object = obj


def init(unsigned flags=0):
    check(driver.Init(flags))


def driver_version():
    cdef int version = 0
    check(driver.DriverGetVersion(&version))
    return version


def device_count():
    cdef int count = 0
    check(driver.DeviceGetCount(&count))
    return count


def device_name(int device):
    cdef char name[256]
    check(driver.DeviceGetName(name, 256, device))
    return (<bytes>name).decode()


def device_uuid(int device):
    cdef CUuuid uuid
    check(driver.DeviceGetUuid(&uuid, device))
    return (<char*>&uuid)[:16]


def device_total_mem(int device):
    cdef size_t total = 0
    check(driver.DeviceTotalMem(&total, device))
    return total


def device_attribute(int attribute, int device):
    cdef int value = 0
    check(driver.DeviceGetAttribute(&value, attribute, device))
    return value


def device_can_access_peer(int device, int peer):
    cdef int can = 0
    check(driver.DeviceCanAccessPeer(&can, device, peer))
    return bool(can)


def primary_ctx_retain(int device):
    cdef CUcontext context = NULL
    check(driver.DevicePrimaryCtxRetain(&context, device))
    return <uintptr_t>context


def primary_ctx_release(int device):
    cdef CUresult status
    with nogil:
        status = driver.DevicePrimaryCtxRelease(device)
    check(status)


def primary_ctx_active(int device):
    cdef unsigned flags = 0
    cdef int active = 0
    check(driver.DevicePrimaryCtxGetState(device, &flags, &active))
    return bool(active)


def ctx_get_current():
    cdef CUcontext context = NULL
    check(driver.CtxGetCurrent(&context))
    return <uintptr_t>context


def ctx_set_current(uintptr_t context):
    check(driver.CtxSetCurrent(<CUcontext>context))


def ctx_get_device():
    cdef int device = 0
    check(driver.CtxGetDevice(&device))
    return device


def ctx_synchronize():
    cdef CUresult status
    with nogil:
        status = driver.CtxSynchronize()
    check(status)


def ctx_stream_priority_range():
    cdef int least = 0, greatest = 0
    check(driver.CtxGetStreamPriorityRange(&least, &greatest))
    return least, greatest


def ctx_enable_peer_access(uintptr_t peer, unsigned flags=0):
    check(driver.CtxEnablePeerAccess(<CUcontext>peer, flags))


def ctx_disable_peer_access(uintptr_t peer):
    cdef CUresult status
    with nogil:
        status = driver.CtxDisablePeerAccess(<CUcontext>peer)
    check(status)


def mem_alloc(size_t bytes):
    cdef CUdeviceptr pointer = 0
    cdef CUresult status
    with nogil:
        status = driver.MemAlloc(&pointer, bytes)
    check(status)
    return pointer


def mem_free(CUdeviceptr pointer):
    cdef CUresult status
    with nogil:
        status = driver.MemFree(pointer)
    check(status)


def mem_get_info():
    cdef size_t free = 0, total = 0
    check(driver.MemGetInfo(&free, &total))
    return free, total


def mem_host_alloc(size_t bytes, unsigned flags=0):
    cdef void* pointer = NULL
    cdef CUresult status
    with nogil:
        status = driver.MemHostAlloc(&pointer, bytes, flags)
    check(status)
    return <uintptr_t>pointer


def mem_free_host(uintptr_t pointer):
    cdef CUresult status
    with nogil:
        status = driver.MemFreeHost(<void*>pointer)
    check(status)


def mem_host_register(uintptr_t pointer, size_t bytes, unsigned flags=0):
    check(driver.MemHostRegister(<void*>pointer, bytes, flags))


def mem_host_unregister(uintptr_t pointer):
    cdef CUresult status
    with nogil:
        status = driver.MemHostUnregister(<void*>pointer)
    check(status)


def pointer_attribute(int attribute, CUdeviceptr pointer):
    cdef uintptr_t value = 0
    check(driver.PointerGetAttribute(&value, attribute, pointer))
    return value


def memcpy_htod_async(CUdeviceptr to, uintptr_t source, size_t bytes, uintptr_t stream=0):
    cdef CUresult status
    with nogil:
        status = driver.MemcpyHtoDAsync(to, <const void*>source, bytes, <CUstream>stream)
    check(status)


def memcpy_dtoh_async(uintptr_t to, CUdeviceptr source, size_t bytes, uintptr_t stream=0):
    cdef CUresult status
    with nogil:
        status = driver.MemcpyDtoHAsync(<void*>to, source, bytes, <CUstream>stream)
    check(status)


def memcpy_dtod_async(CUdeviceptr to, CUdeviceptr source, size_t bytes, uintptr_t stream=0):
    check(driver.MemcpyDtoDAsync(to, source, bytes, <CUstream>stream))


def memcpy_peer_async(CUdeviceptr to, uintptr_t to_context, CUdeviceptr source,
                      uintptr_t source_context, size_t bytes, uintptr_t stream=0):
    check(driver.MemcpyPeerAsync(to, <CUcontext>to_context, source, <CUcontext>source_context,
                                 bytes, <CUstream>stream))


def memset_d8_async(CUdeviceptr to, unsigned char value, size_t count, uintptr_t stream=0):
    check(driver.MemsetD8Async(to, value, count, <CUstream>stream))


def memset_d16_async(CUdeviceptr to, unsigned short value, size_t count, uintptr_t stream=0):
    check(driver.MemsetD16Async(to, value, count, <CUstream>stream))


def memset_d32_async(CUdeviceptr to, unsigned value, size_t count, uintptr_t stream=0):
    check(driver.MemsetD32Async(to, value, count, <CUstream>stream))


def stream_create(unsigned flags=1, int priority=0):
    cdef CUstream stream = NULL
    check(driver.StreamCreateWithPriority(&stream, flags, priority))
    return <uintptr_t>stream


def stream_destroy(uintptr_t stream):
    check(driver.StreamDestroy(<CUstream>stream))


def stream_query(uintptr_t stream=0):
    cdef CUresult status
    with nogil:
        status = driver.StreamQuery(<CUstream>stream)
    if status == 600:
        return False
    check(status)
    return True


def stream_synchronize(uintptr_t stream=0):
    cdef CUresult status
    with nogil:
        status = driver.StreamSynchronize(<CUstream>stream)
    check(status)


def stream_wait_event(uintptr_t stream, uintptr_t event, unsigned flags=0):
    check(driver.StreamWaitEvent(<CUstream>stream, <CUevent>event, flags))


def stream_priority(uintptr_t stream):
    cdef int priority = 0
    check(driver.StreamGetPriority(<CUstream>stream, &priority))
    return priority


def stream_flags(uintptr_t stream):
    cdef unsigned flags = 0
    check(driver.StreamGetFlags(<CUstream>stream, &flags))
    return flags


def stream_context(uintptr_t stream):
    cdef CUcontext context = NULL
    check(driver.StreamGetCtx(<CUstream>stream, &context))
    return <uintptr_t>context


def stream_is_capturing(uintptr_t stream=0):
    cdef int status = 0
    check(driver.StreamIsCapturing(<CUstream>stream, &status))
    return status


def exchange_capture_mode(int mode):
    check(driver.ThreadExchangeStreamCaptureMode(&mode))
    return mode


def launch_host_function(uintptr_t stream, function):
    Py_INCREF(function)
    cdef CUresult status = driver.LaunchHostFunc(
        <CUstream>stream, <void (*)(void*) noexcept nogil>_call_host_function, <void*>function)
    if status != 0:
        Py_DECREF(function)
    check(status)


def event_create(unsigned flags=0):
    cdef CUevent event = NULL
    check(driver.EventCreate(&event, flags))
    return <uintptr_t>event


def event_destroy(uintptr_t event):
    check(driver.EventDestroy(<CUevent>event))


def event_record(uintptr_t event, uintptr_t stream=0):
    check(driver.EventRecord(<CUevent>event, <CUstream>stream))


def event_query(uintptr_t event):
    cdef CUresult status
    with nogil:
        status = driver.EventQuery(<CUevent>event)
    if status == 600:
        return False
    check(status)
    return True


def event_synchronize(uintptr_t event):
    cdef CUresult status
    with nogil:
        status = driver.EventSynchronize(<CUevent>event)
    check(status)


def event_elapsed_time(uintptr_t start, uintptr_t end):
    cdef float milliseconds = 0
    check(driver.EventElapsedTime(&milliseconds, <CUevent>start, <CUevent>end))
    return milliseconds


def ipc_get_event_handle(uintptr_t event):
    cdef CUipcHandle handle
    check(driver.IpcGetEventHandle(&handle, <CUevent>event))
    return (<char*>&handle)[:64]


cdef CUipcHandle _handle(bytes data):
    cdef CUipcHandle handle
    memset(&handle, 0, 64)
    memcpy(&handle, <char*>data, min(64, len(data)))
    return handle


def ipc_open_event_handle(bytes data):
    cdef CUevent event = NULL
    check(driver.IpcOpenEventHandle(&event, _handle(data)))
    return <uintptr_t>event


def ipc_get_mem_handle(CUdeviceptr pointer):
    cdef CUipcHandle handle
    check(driver.IpcGetMemHandle(&handle, pointer))
    return (<char*>&handle)[:64]


def ipc_open_mem_handle(bytes data, unsigned flags=1):
    cdef CUdeviceptr pointer = 0
    check(driver.IpcOpenMemHandle(&pointer, _handle(data), flags))
    return pointer


def ipc_close_mem_handle(CUdeviceptr pointer):
    cdef CUresult status
    with nogil:
        status = driver.IpcCloseMemHandle(pointer)
    check(status)


def func_get_attribute(int attribute, uintptr_t function):
    cdef int value = 0
    check(driver.FuncGetAttribute(&value, attribute, <CUfunction>function))
    return value


def func_set_attribute(uintptr_t function, int attribute, int value):
    check(driver.FuncSetAttribute(<CUfunction>function, attribute, value))


def occupancy(uintptr_t function, int block_size, size_t dynamic_shared=0):
    cdef int blocks = 0
    check(driver.OccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, <CUfunction>function, block_size, dynamic_shared))
    return blocks


def launch_kernel(uintptr_t function, grid, block, list parameters, size_t shared=0,
                  uintptr_t stream=0):
    cdef void* addresses[256]
    cdef bytes parameter
    if len(parameters) > 256:
        raise ValueError("at most 256 parameters")
    for i in range(len(parameters)):
        parameter = parameters[i]
        addresses[i] = <char*>parameter
    cdef unsigned gx = grid[0], gy = grid[1], gz = grid[2]
    cdef unsigned bx = block[0], by = block[1], bz = block[2]
    check(driver.LaunchKernel(<CUfunction>function, gx, gy, gz, bx, by, bz, <unsigned>shared,
                              <CUstream>stream, addresses, NULL))


def gemm(uintptr_t stream=0, *, int64_t m, int64_t n, int64_t k, CUdeviceptr a, CUdeviceptr b,
         CUdeviceptr c, int dtype, int64_t lda, int64_t ldb, int64_t ldc, int64_t batch=1,
         int64_t stride_a=0, int64_t stride_b=0, int64_t stride_c=0, bint transpose_a=False,
         bint transpose_b=False, int compute=0, double alpha=1.0, double beta=0.0, CUdeviceptr bias=0):
    cdef GemmArgs args
    args.m, args.n, args.k, args.batch = m, n, k, batch
    args.a, args.b, args.c = a, b, c
    args.lda, args.ldb, args.ldc = lda, ldb, ldc
    args.stride_a, args.stride_b, args.stride_c = stride_a, stride_b, stride_c
    args.transpose_a, args.transpose_b = transpose_a, transpose_b
    args.dtype, args.compute = dtype, compute
    args.alpha, args.beta, args.bias = alpha, beta, bias
    check(driver.Gemm(&args, <CUstream>stream))


def spin(int64_t cycles, uintptr_t stream=0):
    check(driver.Spin(cycles, <CUstream>stream))


def profiler_start():
    check(driver.ProfilerStart())


def profiler_stop():
    check(driver.ProfilerStop())
