# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Products of small matrices: the kernel of each device, and its launch."""
from libc.stdint cimport uintptr_t

from flambeau.driver._table cimport CUdeviceptr, CUfunction, CUstream, GemmArgs
from flambeau.runtime cimport _launch, _state

cdef enum:
    TILE = 16                           # PRODUCT_TILE of product.cuh
    DEVICES = 64

# ProductShape of product.cuh.
cdef struct Shape:
    int m, n, k, lda, ldb, ldc
    int transpose_a, transpose_b

cdef object _compile = None
cdef uintptr_t[DEVICES] functions       # 0 where the library is used
cdef bint[DEVICES] known
cdef int _epoch = -1


def set_compiler(compile):
    global _compile, _epoch
    _compile = compile
    _epoch = -1


cdef uintptr_t function_of(int device) except? 0:
    global _epoch
    cdef int i
    if _epoch != _state.epoch:
        for i in range(DEVICES):
            known[i] = False
        _epoch = _state.epoch
    if not known[device]:
        functions[device] = 0 if _compile is None else _compile(device)
        known[device] = True
    return functions[device]


cdef bint launch_small(const GemmArgs* args, int device, CUstream stream) except -1:
    cdef uintptr_t function = function_of(device)
    cdef void* parameters[4]
    cdef Shape shape
    cdef CUdeviceptr a = args.a, b = args.b, c = args.c
    if not function:
        return False
    shape.m, shape.n, shape.k = <int>args.m, <int>args.n, <int>args.k
    shape.lda, shape.ldb, shape.ldc = <int>args.lda, <int>args.ldb, <int>args.ldc
    shape.transpose_a, shape.transpose_b = args.transpose_a, args.transpose_b
    parameters[0], parameters[1], parameters[2], parameters[3] = &c, &a, &b, &shape
    _launch.launch_overlapping(
        <CUfunction>function, <unsigned>((args.n + TILE - 1) // TILE), <unsigned>((args.m + TILE - 1) // TILE),
        1, TILE * TILE, 1, 1, 0, stream, parameters)
    return True
