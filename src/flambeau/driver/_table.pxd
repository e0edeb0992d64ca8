# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The driver table as Cython sees it. `cimport` this to call the active driver.

    from flambeau.driver._table cimport driver, check
    check(driver.EventRecord(event, stream))
"""
from libc.stdint cimport int64_t, uint64_t

cdef extern from "flambeau/driver/table.hpp" namespace "flambeau" nogil:
    ctypedef int CUresult
    ctypedef int CUdevice
    ctypedef uint64_t CUdeviceptr
    ctypedef struct CUctx_st:
        pass
    ctypedef struct CUstream_st:
        pass
    ctypedef struct CUevent_st:
        pass
    ctypedef struct CUfunc_st:
        pass
    ctypedef CUctx_st* CUcontext
    ctypedef CUstream_st* CUstream
    ctypedef CUevent_st* CUevent
    ctypedef CUfunc_st* CUfunction
    ctypedef struct CUgraph_st:
        pass
    ctypedef struct CUgraphNode_st:
        pass
    ctypedef struct CUgraphExec_st:
        pass
    ctypedef CUgraph_st* CUgraph
    ctypedef CUgraphNode_st* CUgraphNode
    ctypedef CUgraphExec_st* CUgraphExec
    ctypedef void (*CUhostFn)(void*) noexcept nogil
    cdef struct CUuuid:
        unsigned char* bytes
    cdef struct CUipcHandle:
        unsigned char* reserved
    cdef struct CUlaunchConfig:
        unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes
        CUstream hStream
    cdef struct GemmArgs:
        int64_t m, n, k, batch
        CUdeviceptr a, b, c
        int64_t lda, ldb, ldc
        int64_t stride_a, stride_b, stride_c
        int transpose_a, transpose_b, dtype, compute
        double alpha, beta
        CUdeviceptr workspace
        size_t workspace_bytes
        CUdeviceptr bias

    cdef struct CUkernelNodeParams:
        CUfunction func
        unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes
        void** kernelParams
    cdef struct CUgraphEdgeData:
        unsigned char from_port, to_port, type
    cdef struct CUhostNodeParams:
        CUhostFn fn
        void* userData

    ctypedef uint64_t CUmemHandle
    ctypedef struct CUmemPoolHandle_st:
        pass
    ctypedef CUmemPoolHandle_st* CUmemPool
    cdef struct CUmemLocation:
        int type, id
    cdef struct CUmemAllocationProp:
        int type, requestedHandleTypes
        CUmemLocation location
    cdef struct CUmemAccessDesc:
        CUmemLocation location
        int flags

    cdef enum Status:
        CUDA_SUCCESS
        CUDA_ERROR_INVALID_VALUE
        CUDA_ERROR_OUT_OF_MEMORY
        CUDA_ERROR_NOT_INITIALIZED
        CUDA_ERROR_DEINITIALIZED
        CUDA_ERROR_NO_DEVICE
        CUDA_ERROR_INVALID_DEVICE
        CUDA_ERROR_INVALID_IMAGE
        CUDA_ERROR_INVALID_CONTEXT
        CUDA_ERROR_INVALID_HANDLE
        CUDA_ERROR_ILLEGAL_STATE
        CUDA_ERROR_NOT_FOUND
        CUDA_ERROR_NOT_READY
        CUDA_ERROR_ILLEGAL_ADDRESS
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
        CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
        CUDA_ERROR_PEER_ACCESS_NOT_ENABLED
        CUDA_ERROR_ASSERT
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
        CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
        CUDA_ERROR_MISALIGNED_ADDRESS
        CUDA_ERROR_LAUNCH_FAILED
        CUDA_ERROR_NOT_PERMITTED
        CUDA_ERROR_NOT_SUPPORTED
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
        CUDA_ERROR_UNKNOWN
    cdef struct DriverTable:
        CUresult (*Init)(unsigned) noexcept nogil
        CUresult (*DriverGetVersion)(int*) noexcept nogil
        CUresult (*DeviceGetCount)(int*) noexcept nogil
        CUresult (*DeviceGet)(CUdevice*, int) noexcept nogil
        CUresult (*DeviceGetName)(char*, int, CUdevice) noexcept nogil
        CUresult (*DeviceGetUuid)(CUuuid*, CUdevice) noexcept nogil
        CUresult (*DeviceTotalMem)(size_t*, CUdevice) noexcept nogil
        CUresult (*DeviceGetAttribute)(int*, int, CUdevice) noexcept nogil
        CUresult (*DeviceCanAccessPeer)(int*, CUdevice, CUdevice) noexcept nogil
        CUresult (*DevicePrimaryCtxRetain)(CUcontext*, CUdevice) noexcept nogil
        CUresult (*DevicePrimaryCtxRelease)(CUdevice) noexcept nogil
        CUresult (*DevicePrimaryCtxGetState)(CUdevice, unsigned*, int*) noexcept nogil
        CUresult (*CtxGetCurrent)(CUcontext*) noexcept nogil
        CUresult (*CtxSetCurrent)(CUcontext) noexcept nogil
        CUresult (*CtxGetDevice)(CUdevice*) noexcept nogil
        CUresult (*CtxSynchronize)() noexcept nogil
        CUresult (*CtxGetStreamPriorityRange)(int*, int*) noexcept nogil
        CUresult (*CtxEnablePeerAccess)(CUcontext, unsigned) noexcept nogil
        CUresult (*CtxDisablePeerAccess)(CUcontext) noexcept nogil
        CUresult (*MemAlloc)(CUdeviceptr*, size_t) noexcept nogil
        CUresult (*MemFree)(CUdeviceptr) noexcept nogil
        CUresult (*MemGetInfo)(size_t*, size_t*) noexcept nogil
        CUresult (*MemHostAlloc)(void**, size_t, unsigned) noexcept nogil
        CUresult (*MemFreeHost)(void*) noexcept nogil
        CUresult (*MemHostRegister)(void*, size_t, unsigned) noexcept nogil
        CUresult (*MemHostUnregister)(void*) noexcept nogil
        CUresult (*PointerGetAttribute)(void*, int, CUdeviceptr) noexcept nogil
        CUresult (*MemcpyHtoDAsync)(CUdeviceptr, const void*, size_t, CUstream) noexcept nogil
        CUresult (*MemcpyDtoHAsync)(void*, CUdeviceptr, size_t, CUstream) noexcept nogil
        CUresult (*MemcpyDtoDAsync)(CUdeviceptr, CUdeviceptr, size_t, CUstream) noexcept nogil
        CUresult (*MemcpyPeerAsync)(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream) noexcept nogil
        CUresult (*MemsetD8Async)(CUdeviceptr, unsigned char, size_t, CUstream) noexcept nogil
        CUresult (*MemsetD16Async)(CUdeviceptr, unsigned short, size_t, CUstream) noexcept nogil
        CUresult (*MemsetD32Async)(CUdeviceptr, unsigned, size_t, CUstream) noexcept nogil
        CUresult (*StreamCreateWithPriority)(CUstream*, unsigned, int) noexcept nogil
        CUresult (*StreamDestroy)(CUstream) noexcept nogil
        CUresult (*StreamQuery)(CUstream) noexcept nogil
        CUresult (*StreamSynchronize)(CUstream) noexcept nogil
        CUresult (*StreamWaitEvent)(CUstream, CUevent, unsigned) noexcept nogil
        CUresult (*StreamGetPriority)(CUstream, int*) noexcept nogil
        CUresult (*StreamGetFlags)(CUstream, unsigned*) noexcept nogil
        CUresult (*StreamGetCtx)(CUstream, CUcontext*) noexcept nogil
        CUresult (*StreamIsCapturing)(CUstream, int*) noexcept nogil
        CUresult (*ThreadExchangeStreamCaptureMode)(int*) noexcept nogil
        CUresult (*LaunchHostFunc)(CUstream, CUhostFn, void*) noexcept nogil
        CUresult (*EventCreate)(CUevent*, unsigned) noexcept nogil
        CUresult (*EventDestroy)(CUevent) noexcept nogil
        CUresult (*EventRecord)(CUevent, CUstream) noexcept nogil
        CUresult (*EventRecordWithFlags)(CUevent, CUstream, unsigned) noexcept nogil
        CUresult (*EventQuery)(CUevent) noexcept nogil
        CUresult (*EventSynchronize)(CUevent) noexcept nogil
        CUresult (*EventElapsedTime)(float*, CUevent, CUevent) noexcept nogil
        CUresult (*IpcGetEventHandle)(CUipcHandle*, CUevent) noexcept nogil
        CUresult (*IpcOpenEventHandle)(CUevent*, CUipcHandle) noexcept nogil
        CUresult (*IpcGetMemHandle)(CUipcHandle*, CUdeviceptr) noexcept nogil
        CUresult (*IpcOpenMemHandle)(CUdeviceptr*, CUipcHandle, unsigned) noexcept nogil
        CUresult (*IpcCloseMemHandle)(CUdeviceptr) noexcept nogil
        CUresult (*FuncGetAttribute)(int*, int, CUfunction) noexcept nogil
        CUresult (*FuncSetAttribute)(CUfunction, int, int) noexcept nogil
        CUresult (*OccupancyMaxActiveBlocksPerMultiprocessor)(int*, CUfunction, int, size_t) noexcept nogil
        CUresult (*LaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**) noexcept nogil
        CUresult (*LaunchKernelEx)(const CUlaunchConfig*, CUfunction, void**, void**) noexcept nogil
        CUresult (*ProfilerStart)() noexcept nogil
        CUresult (*ProfilerStop)() noexcept nogil
        CUresult (*Gemm)(const GemmArgs*, CUstream) noexcept nogil
        CUresult (*Spin)(int64_t, CUstream) noexcept nogil
        CUresult (*StreamBeginCapture)(CUstream, int) noexcept nogil
        CUresult (*StreamEndCapture)(CUstream, CUgraph*) noexcept nogil
        CUresult (*StreamGetCaptureInfo)(CUstream, int*, uint64_t*, CUgraph*, const CUgraphNode**, const CUgraphEdgeData**, size_t*) noexcept nogil
        CUresult (*GraphDestroy)(CUgraph) noexcept nogil
        CUresult (*GraphInstantiateWithFlags)(CUgraphExec*, CUgraph, uint64_t) noexcept nogil
        CUresult (*GraphExecDestroy)(CUgraphExec) noexcept nogil
        CUresult (*GraphLaunch)(CUgraphExec, CUstream) noexcept nogil
        CUresult (*GraphGetNodes)(CUgraph, CUgraphNode*, size_t*) noexcept nogil
        CUresult (*GraphGetEdges)(CUgraph, CUgraphNode*, CUgraphNode*, CUgraphEdgeData*, size_t*) noexcept nogil
        CUresult (*GraphNodeGetDependencies)(CUgraphNode, CUgraphNode*, CUgraphEdgeData*, size_t*) noexcept nogil
        CUresult (*GraphNodeGetType)(CUgraphNode, int*) noexcept nogil
        CUresult (*GraphKernelNodeGetParams)(CUgraphNode, CUkernelNodeParams*) noexcept nogil
        CUresult (*GraphHostNodeGetParams)(CUgraphNode, CUhostNodeParams*) noexcept nogil
        CUresult (*GraphEventRecordNodeGetEvent)(CUgraphNode, CUevent*) noexcept nogil
        CUresult (*GraphEventWaitNodeGetEvent)(CUgraphNode, CUevent*) noexcept nogil
        CUresult (*GraphDebugDotPrint)(CUgraph, const char*, unsigned) noexcept nogil
        CUresult (*FuncGetName)(const char**, CUfunction) noexcept nogil
        CUresult (*GraphGetId)(CUgraph, unsigned*) noexcept nogil
        CUresult (*GraphExecGetId)(CUgraphExec, unsigned*) noexcept nogil
        CUresult (*GraphNodeGetLocalId)(CUgraphNode, unsigned*) noexcept nogil
        CUresult (*GraphNodeGetToolsId)(CUgraphNode, unsigned long long*) noexcept nogil
        CUresult (*MemNoteBlock)(CUdeviceptr, size_t, size_t, int) noexcept nogil
        CUresult (*MemGetAllocationGranularity)(size_t*, const CUmemAllocationProp*, int) noexcept nogil
        CUresult (*MemAddressReserve)(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long) noexcept nogil
        CUresult (*MemAddressFree)(CUdeviceptr, size_t) noexcept nogil
        CUresult (*MemCreate)(CUmemHandle*, size_t, const CUmemAllocationProp*, unsigned long long) noexcept nogil
        CUresult (*MemRelease)(CUmemHandle) noexcept nogil
        CUresult (*MemMap)(CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long) noexcept nogil
        CUresult (*MemUnmap)(CUdeviceptr, size_t) noexcept nogil
        CUresult (*MemSetAccess)(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) noexcept nogil
        CUresult (*MemExportToShareableHandle)(void*, CUmemHandle, int, unsigned long long) noexcept nogil
        CUresult (*MemImportFromShareableHandle)(CUmemHandle*, void*, int) noexcept nogil
        CUresult (*DeviceGetDefaultMemPool)(CUmemPool*, CUdevice) noexcept nogil
        CUresult (*MemPoolSetAttribute)(CUmemPool, int, void*) noexcept nogil
        CUresult (*MemPoolGetAttribute)(CUmemPool, int, void*) noexcept nogil
        CUresult (*MemPoolTrimTo)(CUmemPool, size_t) noexcept nogil
        CUresult (*MemAllocAsync)(CUdeviceptr*, size_t, CUstream) noexcept nogil
        CUresult (*MemFreeAsync)(CUdeviceptr, CUstream) noexcept nogil
        CUresult (*DeviceGraphMemTrim)(CUdevice) noexcept nogil
        CUresult (*MemAllocManaged)(CUdeviceptr*, size_t, unsigned) noexcept nogil
        CUresult (*GraphExecKernelNodeSetParams)(CUgraphExec, CUgraphNode, const CUkernelNodeParams*) noexcept nogil
        CUresult (*GraphBeginBody)(CUstream, CUstream, CUdeviceptr, int, uint64_t*) noexcept nogil
        CUresult (*GraphSetConditional)(uint64_t, CUdeviceptr, CUstream) noexcept nogil

cdef const DriverTable* driver

cdef int raise_status(CUresult status) except -1
cdef inline int check(CUresult status) except -1:
    """Turn a status into an exception: the only place where one becomes the other."""
    if status != CUDA_SUCCESS:
        return raise_status(status)
    return 0
