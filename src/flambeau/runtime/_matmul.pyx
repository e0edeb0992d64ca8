# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Matrix products on CUDA tensors: one call of the driver table's Gemm."""
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memset

from flambeau.driver._table cimport CUdeviceptr, CUstream, GemmArgs, check, driver
from flambeau.runtime cimport _allocator, _launch, _state
from flambeau.runtime._allocator cimport Storage
from flambeau.runtime._tensor cimport Tensor, mark_written, new_tensor

import os

cdef extern from "flambeau/runtime/scalar_type.hpp" namespace "flambeau" nogil:
    const int Float16
    const int BFloat16
    const int Float32
    const int Float64

cdef enum:
    SMALL = 1 << 21             # multiplications

cdef int64_t workspace_bytes = -1


cdef int64_t _workspace() except -1:
    """Scratch bytes per product: CUBLASLT_WORKSPACE_SIZE KiB, else 1 MiB."""
    global workspace_bytes
    if workspace_bytes < 0:
        text = os.environ.get("CUBLASLT_WORKSPACE_SIZE", "1024")
        if not text.isdecimal():
            raise ValueError(f"CUBLASLT_WORKSPACE_SIZE is a number of KiB, got {text!r}")
        workspace_bytes = int(text) << 10
    return workspace_bytes


cdef int _run(GemmArgs* args, Tensor a, Tensor b, Tensor c) except -1:
    """Multiply on the current stream of c's device, whose context is current."""
    cdef CUstream stream = _state.thread_state().streams[c.device_index]
    cdef Storage* scratch = NULL
    args.a = <CUdeviceptr><uintptr_t>a.data
    args.b = <CUdeviceptr><uintptr_t>b.data
    args.c = <CUdeviceptr><uintptr_t>c.data
    args.dtype = c.scalar_type
    args.workspace = 0
    # Small products gain nothing from being split, which is what scratch memory is for.
    args.workspace_bytes = _workspace() if args.m * args.n * args.k >= SMALL else 0
    if args.workspace_bytes:
        scratch = _allocator.allocate_device(c.device_index, args.workspace_bytes, stream)
        args.workspace = <CUdeviceptr><uintptr_t>scratch.data
    status = driver.Gemm(args, stream)
    if scratch != NULL:
        scratch.drop()  # only later work of this stream can get it
    check(status)
    return 0


def gemm(Tensor a not None, Tensor b not None, Tensor c not None, shape, leading, strides,
         bint transpose_a, bint transpose_b, double alpha=1.0, double beta=0.0, int compute=0):
    cdef GemmArgs args
    cdef int device = c.device_index
    if device < 0 or a.device_index != device or b.device_index != device:
        raise RuntimeError("gemm needs its three matrices on one CUDA device")
    args.m, args.n, args.k, args.batch = shape
    args.lda, args.ldb, args.ldc = leading
    args.stride_a, args.stride_b, args.stride_c = strides
    args.transpose_a = transpose_a
    args.transpose_b = transpose_b
    args.compute = compute
    args.alpha = alpha
    args.beta = beta
    _state.note_call()
    _state.ensure_context(device)
    _run(&args, a, b, c)
    mark_written(c)
    if _launch.observed:
        from flambeau.runtime import observers
        observers.notify("operation", "matmul", (a, b), (c,),
                         <uintptr_t>_state.thread_state().streams[device])


cdef inline bint _stored(Tensor t, int64_t* leading, int* transposed) noexcept:
    """Whether the matrix lies in memory as a library takes it: rows or columns without gaps."""
    if t.strides[1] == 1 and t.strides[0] >= t.sizes[1]:
        transposed[0] = 0
        leading[0] = t.strides[0]
        return True
    if t.strides[0] == 1 and t.strides[1] >= t.sizes[0]:
        transposed[0] = 1
        leading[0] = t.strides[1]
        return True
    return False


def product(a, b, int compute=0):
    cdef GemmArgs args
    cdef Tensor x, y, c
    cdef int64_t sizes[2]
    if type(a) is not Tensor or type(b) is not Tensor:
        return None
    x = <Tensor>a
    y = <Tensor>b
    if (x.device_index < 0 or x.device_index != y.device_index or x.scalar_type != y.scalar_type
            or x.ndim_ != 2 or y.ndim_ != 2 or x.sizes[1] != y.sizes[0]
            or x.count == 0 or y.count == 0 or _launch.observed):
        return None
    if not (Float16 <= x.scalar_type <= Float64):
        return None
    memset(&args, 0, sizeof(args))
    if not _stored(x, &args.lda, &args.transpose_a) or not _stored(y, &args.ldb, &args.transpose_b):
        return None
    args.m = x.sizes[0]
    args.k = x.sizes[1]
    args.n = y.sizes[1]
    args.batch = 1
    args.ldc = args.n
    args.alpha = 1.0
    args.compute = compute if x.scalar_type == Float32 else 0
    _state.note_call()
    _state.ensure_context(x.device_index)
    sizes[0] = args.m
    sizes[1] = args.n
    c = new_tensor(x.device_index, x.scalar_type, 2, sizes)
    _run(&args, x, y, c)
    return c
