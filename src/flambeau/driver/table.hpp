// SPDX-License-Identifier: Apache-2.0
// The hot half of the driver contract: a table of function pointers with the CUDA Driver API's own
// names, argument orders and status codes. The NVIDIA driver fills it through cuGetProcAddress, the
// virtual driver with its own functions; everything above calls through it and cannot tell which.
// No cuda.h is needed: the types below are ABI-compatible with it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace flambeau {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUcontext = struct CUctx_st *;
using CUstream = struct CUstream_st *;
using CUevent = struct CUevent_st *;
using CUfunction = struct CUfunc_st *;
using CUgraph = struct CUgraph_st *;
using CUgraphNode = struct CUgraphNode_st *;
using CUgraphExec = struct CUgraphExec_st *;

struct CUuuid { unsigned char bytes[16]; };
struct CUipcHandle { unsigned char reserved[64]; };  // CUipcEventHandle and CUipcMemHandle

using CUhostFn = void (*)(void *user_data);

// CUDA_KERNEL_NODE_PARAMS_v2 and CUDA_HOST_NODE_PARAMS_v1: what a node of a graph does.
struct CUkernelNodeParams {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void **kernelParams, **extra;
  void *kern;
  CUcontext ctx;
};
// How one node waits for another: on which port, and of which type; all zero for the whole node.
struct CUgraphEdgeData { unsigned char from_port, to_port, type, reserved[5]; };
struct CUhostNodeParams {
  CUhostFn fn;
  void *userData;
};

// CUmemLocation, CUmemAllocationProp and CUmemAccessDesc: where physical memory is and who may use it.
using CUmemHandle = std::uint64_t;   // CUmemGenericAllocationHandle
using CUmemPool = struct CUmemPoolHandle_st *;
struct CUmemLocation {
  int type;  // 1 = CU_MEM_LOCATION_TYPE_DEVICE
  int id;
};
struct CUmemAllocationProp {
  int type;                  // 1 = CU_MEM_ALLOCATION_TYPE_PINNED
  int requestedHandleTypes;  // 1 = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  CUmemLocation location;
  void *win32HandleMetaData;
  unsigned char allocFlags[8];
};
struct CUmemAccessDesc {
  CUmemLocation location;
  int flags;  // 3 = CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

// The statuses that code compares with; driver/status.py has every code with its name and prose.
enum Status : CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_ILLEGAL_STATE = 401,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
  CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
  CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
  CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
  CUDA_ERROR_UNKNOWN = 999,
};

// CUlaunchConfig, with the one attribute that we use.
struct CUlaunchAttribute {
  int id;  // 6 = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
  char pad[4];
  union { char bytes[64]; int programmaticStreamSerializationAllowed; } value;
};
struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute *attrs;
  unsigned numAttrs;
};

// C (m x n, row-major, leading dimension ldc) = alpha * op(A) op(B) + beta * C, `batch` times.
// The library half of the contract has one such struct per call that sits on a hot path.
struct GemmArgs {
  std::int64_t m, n, k, batch;
  CUdeviceptr a, b, c;
  std::int64_t lda, ldb, ldc;                 // elements
  std::int64_t stride_a, stride_b, stride_c;  // elements between batches
  int transpose_a, transpose_b;
  int dtype;    // ScalarType of A, B and C (runtime/scalar_type.hpp)
  int compute;  // bits of gemm_options.hpp; 0 is the full precision of the dtype
  double alpha, beta;
  CUdeviceptr workspace;         // scratch memory the library may use on this stream, or 0
  std::size_t workspace_bytes;
  CUdeviceptr bias;              // n elements that are added to each row before it is rounded, or 0
};

// X(name, signature): name is the Driver API's without its `cu` prefix and `_v2` suffix.
#define FLAMBEAU_DRIVER_ENTRIES(X)                                                               \
  /* initialisation and devices */                                                               \
  X(Init, CUresult(unsigned flags))                                                              \
  X(DriverGetVersion, CUresult(int *version))                                                    \
  X(DeviceGetCount, CUresult(int *count))                                                        \
  X(DeviceGet, CUresult(CUdevice *device, int ordinal))                                          \
  X(DeviceGetName, CUresult(char *name, int length, CUdevice device))                            \
  X(DeviceGetUuid, CUresult(CUuuid *uuid, CUdevice device))                                      \
  X(DeviceTotalMem, CUresult(std::size_t *bytes, CUdevice device))                               \
  X(DeviceGetAttribute, CUresult(int *value, int attribute, CUdevice device))                    \
  X(DeviceCanAccessPeer, CUresult(int *can, CUdevice device, CUdevice peer))                     \
  /* contexts */                                                                                 \
  X(DevicePrimaryCtxRetain, CUresult(CUcontext *context, CUdevice device))                       \
  X(DevicePrimaryCtxRelease, CUresult(CUdevice device))                                          \
  X(DevicePrimaryCtxGetState, CUresult(CUdevice device, unsigned *flags, int *active))           \
  X(CtxGetCurrent, CUresult(CUcontext *context))                                                 \
  X(CtxSetCurrent, CUresult(CUcontext context))                                                  \
  X(CtxGetDevice, CUresult(CUdevice *device))                                                    \
  X(CtxSynchronize, CUresult())                                                                  \
  X(CtxGetStreamPriorityRange, CUresult(int *least, int *greatest))                              \
  X(CtxEnablePeerAccess, CUresult(CUcontext peer, unsigned flags))                               \
  X(CtxDisablePeerAccess, CUresult(CUcontext peer))                                              \
  /* memory */                                                                                   \
  X(MemAlloc, CUresult(CUdeviceptr *pointer, std::size_t bytes))                                 \
  X(MemFree, CUresult(CUdeviceptr pointer))                                                      \
  X(MemGetInfo, CUresult(std::size_t *free, std::size_t *total))                                 \
  X(MemHostAlloc, CUresult(void **pointer, std::size_t bytes, unsigned flags))                   \
  X(MemFreeHost, CUresult(void *pointer))                                                        \
  X(MemHostRegister, CUresult(void *pointer, std::size_t bytes, unsigned flags))                 \
  X(MemHostUnregister, CUresult(void *pointer))                                                  \
  X(PointerGetAttribute, CUresult(void *data, int attribute, CUdeviceptr pointer))               \
  X(MemcpyHtoDAsync, CUresult(CUdeviceptr to, const void *from, std::size_t bytes, CUstream s))  \
  X(MemcpyDtoHAsync, CUresult(void *to, CUdeviceptr from, std::size_t bytes, CUstream s))        \
  X(MemcpyDtoDAsync, CUresult(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream s))  \
  X(MemcpyPeerAsync, CUresult(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,            \
                              CUcontext from_context, std::size_t bytes, CUstream s))            \
  X(MemsetD8Async, CUresult(CUdeviceptr to, unsigned char value, std::size_t count, CUstream s)) \
  X(MemsetD16Async, CUresult(CUdeviceptr to, unsigned short value, std::size_t count, CUstream s)) \
  X(MemsetD32Async, CUresult(CUdeviceptr to, unsigned value, std::size_t count, CUstream s))     \
  /* streams */                                                                                  \
  X(StreamCreateWithPriority, CUresult(CUstream *s, unsigned flags, int priority))               \
  X(StreamDestroy, CUresult(CUstream s))                                                         \
  X(StreamQuery, CUresult(CUstream s))                                                           \
  X(StreamSynchronize, CUresult(CUstream s))                                                     \
  X(StreamWaitEvent, CUresult(CUstream s, CUevent e, unsigned flags))                            \
  X(StreamGetPriority, CUresult(CUstream s, int *priority))                                      \
  X(StreamGetFlags, CUresult(CUstream s, unsigned *flags))                                       \
  X(StreamGetCtx, CUresult(CUstream s, CUcontext *context))                                      \
  X(StreamIsCapturing, CUresult(CUstream s, int *status))                                        \
  X(ThreadExchangeStreamCaptureMode, CUresult(int *mode))                                        \
  X(LaunchHostFunc, CUresult(CUstream s, CUhostFn function, void *user_data))                    \
  /* events */                                                                                   \
  X(EventCreate, CUresult(CUevent *e, unsigned flags))                                           \
  X(EventDestroy, CUresult(CUevent e))                                                           \
  X(EventRecord, CUresult(CUevent e, CUstream s))                                                \
  X(EventRecordWithFlags, CUresult(CUevent e, CUstream s, unsigned flags))                       \
  X(EventQuery, CUresult(CUevent e))                                                             \
  X(EventSynchronize, CUresult(CUevent e))                                                       \
  X(EventElapsedTime, CUresult(float *milliseconds, CUevent start, CUevent end))                 \
  /* interprocess handles */                                                                     \
  X(IpcGetEventHandle, CUresult(CUipcHandle *handle, CUevent e))                                 \
  X(IpcOpenEventHandle, CUresult(CUevent *e, CUipcHandle handle))                                \
  X(IpcGetMemHandle, CUresult(CUipcHandle *handle, CUdeviceptr pointer))                         \
  X(IpcOpenMemHandle, CUresult(CUdeviceptr *pointer, CUipcHandle handle, unsigned flags))        \
  X(IpcCloseMemHandle, CUresult(CUdeviceptr pointer))                                            \
  /* kernels */                                                                                  \
  X(FuncGetAttribute, CUresult(int *value, int attribute, CUfunction f))                         \
  X(FuncSetAttribute, CUresult(CUfunction f, int attribute, int value))                          \
  X(OccupancyMaxActiveBlocksPerMultiprocessor,                                                   \
    CUresult(int *blocks, CUfunction f, int block_size, std::size_t dynamic_shared_bytes))       \
  X(LaunchKernel, CUresult(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,      \
                           unsigned block_x, unsigned block_y, unsigned block_z,                 \
                           unsigned dynamic_shared_bytes, CUstream s, void **parameters,         \
                           void **extra))                                                        \
  X(LaunchKernelEx, CUresult(const CUlaunchConfig *config, CUfunction f, void **parameters,      \
                             void **extra))                                                      \
  /* profiler control */                                                                         \
  X(ProfilerStart, CUresult())                                                                   \
  X(ProfilerStop, CUresult())                                                                    \
  /* library calls on hot paths; not Driver API, ours */                                         \
  X(Gemm, CUresult(const GemmArgs *args, CUstream s))                                            \
  X(Spin, CUresult(std::int64_t cycles, CUstream s))                                             \
  /* stream capture and graphs */                                                                \
  X(StreamBeginCapture, CUresult(CUstream s, int mode))                                          \
  X(StreamEndCapture, CUresult(CUstream s, CUgraph *graph))                                      \
  X(StreamGetCaptureInfo, CUresult(CUstream s, int *status, std::uint64_t *id, CUgraph *graph,   \
                                   const CUgraphNode **dependencies,                             \
                                   const CUgraphEdgeData **edges, std::size_t *count))           \
  X(GraphDestroy, CUresult(CUgraph graph))                                                       \
  X(GraphInstantiateWithFlags, CUresult(CUgraphExec *exec, CUgraph graph, std::uint64_t flags))  \
  X(GraphExecDestroy, CUresult(CUgraphExec exec))                                                \
  X(GraphLaunch, CUresult(CUgraphExec exec, CUstream s))                                         \
  X(GraphGetNodes, CUresult(CUgraph graph, CUgraphNode *nodes, std::size_t *count))              \
  X(GraphGetEdges, CUresult(CUgraph graph, CUgraphNode *from, CUgraphNode *to,                   \
                            CUgraphEdgeData *edges, std::size_t *count))                         \
  X(GraphNodeGetDependencies, CUresult(CUgraphNode node, CUgraphNode *found,                     \
                                       CUgraphEdgeData *edges, std::size_t *count))              \
  X(GraphNodeGetType, CUresult(CUgraphNode node, int *type))                                     \
  X(GraphKernelNodeGetParams, CUresult(CUgraphNode node, CUkernelNodeParams *parameters))        \
  X(GraphHostNodeGetParams, CUresult(CUgraphNode node, CUhostNodeParams *parameters))            \
  X(GraphEventRecordNodeGetEvent, CUresult(CUgraphNode node, CUevent *e))                        \
  X(GraphEventWaitNodeGetEvent, CUresult(CUgraphNode node, CUevent *e))                          \
  X(GraphDebugDotPrint, CUresult(CUgraph graph, const char *path, unsigned flags))               \
  X(FuncGetName, CUresult(const char **name, CUfunction f))                                      \
  /* the numbers that tools know graphs and nodes by, from driver 13.1 on */                     \
  X(GraphGetId, CUresult(CUgraph graph, unsigned *id))                                           \
  X(GraphExecGetId, CUresult(CUgraphExec exec, unsigned *id))                                    \
  X(GraphNodeGetLocalId, CUresult(CUgraphNode node, unsigned *id))                               \
  X(GraphNodeGetToolsId, CUresult(CUgraphNode node, unsigned long long *id))                     \
  /* where `block_bounds` is supported: what a caching allocator hands out of its memory (1), had \
     handed out before (2), takes back (0); `bytes` of the block's `size` were asked for */      \
  X(MemNoteBlock, CUresult(CUdeviceptr block, std::size_t bytes, std::size_t size, int state))   \
  /* virtual memory: address ranges and physical memory apart */                                 \
  X(MemGetAllocationGranularity, CUresult(std::size_t *bytes, const CUmemAllocationProp *prop,   \
                                          int option))                                           \
  X(MemAddressReserve, CUresult(CUdeviceptr *pointer, std::size_t bytes, std::size_t alignment,  \
                                CUdeviceptr wanted, unsigned long long flags))                   \
  X(MemAddressFree, CUresult(CUdeviceptr pointer, std::size_t bytes))                            \
  X(MemCreate, CUresult(CUmemHandle *handle, std::size_t bytes, const CUmemAllocationProp *prop, \
                        unsigned long long flags))                                               \
  X(MemRelease, CUresult(CUmemHandle handle))                                                    \
  X(MemMap, CUresult(CUdeviceptr pointer, std::size_t bytes, std::size_t offset,                 \
                     CUmemHandle handle, unsigned long long flags))                              \
  X(MemUnmap, CUresult(CUdeviceptr pointer, std::size_t bytes))                                  \
  X(MemSetAccess, CUresult(CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc *who,   \
                           std::size_t count))                                                   \
  X(MemExportToShareableHandle, CUresult(void *shared, CUmemHandle handle, int type,             \
                                         unsigned long long flags))                              \
  X(MemImportFromShareableHandle, CUresult(CUmemHandle *handle, void *shared, int type))         \
  /* memory pools: allocation in stream order */                                                 \
  X(DeviceGetDefaultMemPool, CUresult(CUmemPool *pool, CUdevice device))                         \
  X(MemPoolSetAttribute, CUresult(CUmemPool pool, int attribute, void *value))                   \
  X(MemPoolGetAttribute, CUresult(CUmemPool pool, int attribute, void *value))                   \
  X(MemPoolTrimTo, CUresult(CUmemPool pool, std::size_t keep))                                   \
  X(MemAllocAsync, CUresult(CUdeviceptr *pointer, std::size_t bytes, CUstream s))                \
  X(MemFreeAsync, CUresult(CUdeviceptr pointer, CUstream s))                                     \
  X(DeviceGraphMemTrim, CUresult(CUdevice device))                                               \
  /* memory that host and devices reach by one address */                                        \
  X(MemAllocManaged, CUresult(CUdeviceptr *pointer, std::size_t bytes, unsigned flags))          \
  /* of an executable graph: what its next launches pass */                                      \
  X(GraphExecKernelNodeSetParams,                                                                \
    CUresult(CUgraphExec exec, CUgraphNode node, const CUkernelNodeParams *parameters))          \
  /* conditional nodes; not Driver API, ours. The byte at `value` says whether the body runs      \
     (kind 0) or whether it runs again (1); `body` is captured into it until its capture ends */ \
  X(GraphBeginBody, CUresult(CUstream s, CUstream body, CUdeviceptr value, int kind,             \
                             std::uint64_t *handle))                                             \
  X(GraphSetConditional, CUresult(std::uint64_t handle, CUdeviceptr value, CUstream s))

namespace detail {
template <class Signature> struct pointer_to;
template <class R, class... A> struct pointer_to<R(A...)> { using type = R (*)(A...); };
}  // namespace detail

// A null entry means that this driver lacks it; callers get CUDA_ERROR_NOT_SUPPORTED instead,
// because DriverTable::fill_missing() puts a stand-in that returns it in every gap.
struct DriverTable {
#define FLAMBEAU_X(name, ...) detail::pointer_to<__VA_ARGS__>::type name = nullptr;
  FLAMBEAU_DRIVER_ENTRIES(FLAMBEAU_X)
#undef FLAMBEAU_X
};

enum Entry : int {
#define FLAMBEAU_X(name, ...) ENTRY_##name,
  FLAMBEAU_DRIVER_ENTRIES(FLAMBEAU_X)
#undef FLAMBEAU_X
      ENTRY_COUNT,
};

inline const char *entry_name(int entry) {
  static const char *const names[] = {
#define FLAMBEAU_X(name, ...) "cu" #name,
      FLAMBEAU_DRIVER_ENTRIES(FLAMBEAU_X)
#undef FLAMBEAU_X
  };
  return entry >= 0 && entry < ENTRY_COUNT ? names[entry] : "";
}

}  // namespace flambeau
