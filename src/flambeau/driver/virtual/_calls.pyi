# SPDX-License-Identifier: Apache-2.0
"""Each raises what `flambeau.driver.errors.from_status` makes of the entry's status."""

from collections.abc import Callable, Sequence

def init(flags: int = 0) -> None:
    """``cuInit``."""

def driver_version() -> int:
    """``cuDriverGetVersion``."""

def device_count() -> int:
    """``cuDeviceGetCount``."""

def device_name(device: int) -> str:
    """``cuDeviceGetName``."""

def device_uuid(device: int) -> bytes:
    """``cuDeviceGetUuid``, 16 bytes."""

def device_total_mem(device: int) -> int:
    """``cuDeviceTotalMem``, in bytes."""

def device_attribute(attribute: int, device: int) -> int:
    """``cuDeviceGetAttribute``."""

def device_can_access_peer(device: int, peer: int) -> bool:
    """``cuDeviceCanAccessPeer``."""

def primary_ctx_retain(device: int) -> int:
    """``cuDevicePrimaryCtxRetain``."""

def primary_ctx_release(device: int) -> None:
    """``cuDevicePrimaryCtxRelease``."""

def primary_ctx_active(device: int) -> bool:
    """``cuDevicePrimaryCtxGetState``."""

def ctx_get_current() -> int:
    """``cuCtxGetCurrent``; 0 for none."""

def ctx_set_current(context: int) -> None:
    """``cuCtxSetCurrent``."""

def ctx_get_device() -> int:
    """``cuCtxGetDevice``."""

def ctx_synchronize() -> None:
    """``cuCtxSynchronize``."""

def ctx_stream_priority_range() -> tuple[int, int]:
    """``cuCtxGetStreamPriorityRange``: least, greatest."""

def ctx_enable_peer_access(peer: int, flags: int = 0) -> None:
    """``cuCtxEnablePeerAccess``."""

def ctx_disable_peer_access(peer: int) -> None:
    """``cuCtxDisablePeerAccess``."""

def mem_alloc(bytes: int) -> int:
    """``cuMemAlloc``."""

def mem_free(pointer: int) -> None:
    """``cuMemFree``."""

def mem_get_info() -> tuple[int, int]:
    """``cuMemGetInfo``: free, total bytes."""

def mem_host_alloc(bytes: int, flags: int = 0) -> int:
    """``cuMemHostAlloc``."""

def mem_free_host(pointer: int) -> None:
    """``cuMemFreeHost``."""

def mem_host_register(pointer: int, bytes: int, flags: int = 0) -> None:
    """``cuMemHostRegister``."""

def mem_host_unregister(pointer: int) -> None:
    """``cuMemHostUnregister``."""

def pointer_attribute(attribute: int, pointer: int) -> int:
    """``cuPointerGetAttribute``, the value as a number."""

def memcpy_htod_async(to: int, source: int, bytes: int, stream: int = 0) -> None:
    """``cuMemcpyHtoDAsync``."""

def memcpy_dtoh_async(to: int, source: int, bytes: int, stream: int = 0) -> None:
    """``cuMemcpyDtoHAsync``."""

def memcpy_dtod_async(to: int, source: int, bytes: int, stream: int = 0) -> None:
    """``cuMemcpyDtoDAsync``."""

def memcpy_peer_async(
    to: int,
    to_context: int,
    source: int,
    source_context: int,
    bytes: int,
    stream: int = 0,
) -> None:
    """``cuMemcpyPeerAsync``."""

def memset_d8_async(to: int, value: int, count: int, stream: int = 0) -> None:
    """``cuMemsetD8Async``."""

def memset_d16_async(to: int, value: int, count: int, stream: int = 0) -> None:
    """``cuMemsetD16Async``."""

def memset_d32_async(to: int, value: int, count: int, stream: int = 0) -> None:
    """``cuMemsetD32Async``."""

def stream_create(flags: int = 1, priority: int = 0) -> int:
    """``cuStreamCreateWithPriority``; non-blocking by default."""

def stream_destroy(stream: int) -> None:
    """``cuStreamDestroy``."""

def stream_query(stream: int = 0) -> bool:
    """``cuStreamQuery``."""

def stream_synchronize(stream: int = 0) -> None:
    """``cuStreamSynchronize``."""

def stream_wait_event(stream: int, event: int, flags: int = 0) -> None:
    """``cuStreamWaitEvent``."""

def stream_priority(stream: int) -> int:
    """``cuStreamGetPriority``."""

def stream_flags(stream: int) -> int:
    """``cuStreamGetFlags``."""

def stream_context(stream: int) -> int:
    """``cuStreamGetCtx``."""

def stream_is_capturing(stream: int = 0) -> int:
    """``cuStreamIsCapturing``."""

def exchange_capture_mode(mode: int) -> int:
    """``cuThreadExchangeStreamCaptureMode``: the mode before."""

def launch_host_function(stream: int, function: Callable[[], object]) -> None:
    """``cuLaunchHostFunc``; what it raises goes to ``sys.unraisablehook``."""

def event_create(flags: int = 0) -> int:
    """``cuEventCreate``."""

def event_destroy(event: int) -> None:
    """``cuEventDestroy``."""

def event_record(event: int, stream: int = 0) -> None:
    """``cuEventRecord``."""

def event_query(event: int) -> bool:
    """``cuEventQuery``."""

def event_synchronize(event: int) -> None:
    """``cuEventSynchronize``."""

def event_elapsed_time(start: int, end: int) -> float:
    """``cuEventElapsedTime``, in milliseconds."""

def ipc_get_event_handle(event: int) -> bytes:
    """``cuIpcGetEventHandle``, 64 bytes."""

def ipc_open_event_handle(data: bytes) -> int:
    """``cuIpcOpenEventHandle``."""

def ipc_get_mem_handle(pointer: int) -> bytes:
    """``cuIpcGetMemHandle``, 64 bytes."""

def ipc_open_mem_handle(data: bytes, flags: int = 1) -> int:
    """``cuIpcOpenMemHandle``."""

def ipc_close_mem_handle(pointer: int) -> None:
    """``cuIpcCloseMemHandle``."""

def func_get_attribute(attribute: int, function: int) -> int:
    """``cuFuncGetAttribute``."""

def func_set_attribute(function: int, attribute: int, value: int) -> None:
    """``cuFuncSetAttribute``."""

def occupancy(function: int, block_size: int, dynamic_shared: int = 0) -> int:
    """``cuOccupancyMaxActiveBlocksPerMultiprocessor``."""

def launch_kernel(
    function: int,
    grid: Sequence[int],
    block: Sequence[int],
    parameters: list[bytes],
    shared: int = 0,
    stream: int = 0,
) -> None:
    """``cuLaunchKernel``; each parameter as its bytes."""

def gemm(
    stream: int = 0,
    *,
    m: int,
    n: int,
    k: int,
    a: int,
    b: int,
    c: int,
    dtype: int,
    lda: int,
    ldb: int,
    ldc: int,
    batch: int = 1,
    stride_a: int = 0,
    stride_b: int = 0,
    stride_c: int = 0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    compute: int = 0,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: int = 0,
) -> None:
    """The matrix product of ``GemmArgs``."""

def spin(cycles: int, stream: int = 0) -> None:
    """Keep a stream busy for a number of clock cycles."""

def profiler_start() -> None:
    """``cuProfilerStart``."""

def profiler_stop() -> None:
    """``cuProfilerStop``."""
