# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Matrix products on CUDA tensors: one call of the driver table's Gemm."""
from libc.stdint cimport int64_t, uintptr_t

from flambeau.driver._table cimport CUdeviceptr, GemmArgs, check, driver
from flambeau.runtime cimport _state
from flambeau.runtime._tensor cimport Tensor, mark_written


def gemm(Tensor a not None, Tensor b not None, Tensor c not None, shape, leading, strides,
         bint transpose_a, bint transpose_b, double alpha=1.0, double beta=0.0, int compute=0):
    cdef GemmArgs args
    cdef int device = c.device_index
    if device < 0 or a.device_index != device or b.device_index != device:
        raise RuntimeError("gemm needs its three matrices on one CUDA device")
    args.m, args.n, args.k, args.batch = shape
    args.lda, args.ldb, args.ldc = leading
    args.stride_a, args.stride_b, args.stride_c = strides
    args.a = <CUdeviceptr><uintptr_t>a.data
    args.b = <CUdeviceptr><uintptr_t>b.data
    args.c = <CUdeviceptr><uintptr_t>c.data
    args.transpose_a = transpose_a
    args.transpose_b = transpose_b
    args.dtype = c.scalar_type
    args.compute = compute
    args.alpha = alpha
    args.beta = beta
    args.workspace = 0      # a library that needs scratch memory has its own
    args.workspace_bytes = 0
    _state.require_initialized()
    _state.note_call()
    _state.ensure_context(device)
    check(driver.Gemm(&args, _state.thread_state().streams[device]))
    mark_written(c)
