# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""Matrix products on CUDA tensors: one call of the driver table's Gemm."""
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memset

from flambeau.driver._table cimport CUdeviceptr, CUstream, GemmArgs, check, driver
from flambeau.runtime cimport _allocator, _launch, _state
from flambeau.runtime._allocator cimport Storage
from flambeau.runtime._small_product cimport is_small, launch_small
from flambeau.runtime._tensor cimport Tensor, mark_written, new_tensor

import os
import threading

from flambeau.runtime import _dtype

cdef extern from "flambeau/runtime/scalar_type.hpp" namespace "flambeau" nogil:
    const int Float16
    const int BFloat16
    const int Float64

cdef extern from "flambeau/driver/gemm_options.hpp" namespace "flambeau" nogil:
    const int GEMM_AS_GIVEN
    const int GEMM_ALGORITHM_SHIFT

cdef extern from "flambeau/runtime/_tuned.hpp" namespace "flambeau" nogil:
    cdef cppclass TunedChoice:
        int number
        size_t workspace
    cdef cppclass TunedProducts:
        const TunedChoice* find(const GemmArgs&, int)
        void put(const GemmArgs&, int, TunedChoice)
        void clear()
    bint well_aligned(const GemmArgs&)

cdef enum:
    # In multiplications. Small products gain nothing from being split, which is what scratch memory
    # is for; large ones get as much of it as cuBLAS itself would take.
    SMALL = 1 << 21
    LARGE = 1 << 26
    TYPES = 32
    NOT_SUPPORTED = 801  # CUDA_ERROR_NOT_SUPPORTED

cdef int64_t workspace_bytes = -1
cdef int compute_of[TYPES]      # GemmArgs.compute by scalar type, as the settings say
memset(compute_of, 0, sizeof(compute_of))
cdef object tuner = None        # who is asked for a product that is not among:
cdef TunedProducts tuned
cdef int64_t cublas_workspace_bytes = -1
cdef bint plain_cublaslt = False
cdef bint keeping = os.environ.get("TORCH_CUBLAS_WORKSPACE_CACHE") == "1"
cdef dict kept_workspaces = {}  # by thread, device and stream
cdef bint started = False       # whether the environment has been looked at


cdef int _start() except -1:
    """Take what environment variables say of products, at the first one."""
    global started
    started = True
    if "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE" in os.environ or "TORCH_BLAS_PREFER_CUBLASLT" in os.environ:
        from flambeau.backends import _precision, cuda  # noqa: F401 - applies what it reads
        _precision.apply()
    if os.environ.get("PYTORCH_TUNABLEOP_ENABLED") == "1":
        from flambeau.cuda import tunable
        tunable.apply()
    return 0


cdef int64_t _workspace() except -1:
    """Scratch bytes of cuBLASLt: CUBLASLT_WORKSPACE_SIZE KiB, else 1 MiB."""
    global workspace_bytes
    if workspace_bytes < 0:
        text = os.environ.get("CUBLASLT_WORKSPACE_SIZE", "1024")
        if not text.isdecimal():
            raise ValueError(f"CUBLASLT_WORKSPACE_SIZE is a number of KiB, got {text!r}")
        workspace_bytes = int(text) << 10
    return workspace_bytes


def get_workspace_bytes():
    return _workspace()


def set_workspace_bytes(int64_t size):
    global workspace_bytes
    workspace_bytes = size


cdef int64_t _cublas_workspace() except -1:
    if cublas_workspace_bytes < 0:
        from flambeau.backends import cuda
        cuda.cublas_workspace_size()  # calls set_cublas_workspace_bytes
    return cublas_workspace_bytes


def set_plain_cublaslt(bint on):
    global plain_cublaslt
    plain_cublaslt = on


def set_cublas_workspace_bytes(int64_t size):
    global cublas_workspace_bytes
    cublas_workspace_bytes = size


def clear_workspaces():
    kept_workspaces.clear()


cdef size_t _lend_workspace(int device, CUstream stream) except? 0:
    """Scratch memory that this thread keeps for a stream: its address; `cublas_workspace_bytes`."""
    _cublas_workspace()
    key = (threading.get_ident(), device, <uintptr_t>stream)
    kept = kept_workspaces.get(key)
    if kept is None:
        from flambeau.runtime import lazy_init
        from flambeau.runtime._factory import empty
        if not kept_workspaces:
            lazy_init.on_forget(clear_workspaces)
        kept = empty((cublas_workspace_bytes,), dtype=_dtype.dtypes["uint8"], device=f"cuda:{device}")
        kept_workspaces[key] = kept
    return <size_t><uintptr_t>(<Tensor>kept).data


def set_compute(int scalar_type, int compute):
    if not 0 <= scalar_type < TYPES:
        raise ValueError(f"no scalar type has the number {scalar_type}")
    compute_of[scalar_type] = compute


def get_compute(int scalar_type):
    return compute_of[scalar_type] if 0 <= scalar_type < TYPES else 0


def set_tuner(choose):
    global tuner
    tuner = choose
    tuned.clear()


def forget_tuned():
    tuned.clear()


cdef int _choose(GemmArgs* args, Tensor c) except -1:
    """Put the algorithm that tuning found, or finds now, into a product that is well aligned."""
    cdef TunedChoice made
    cdef const TunedChoice* choice = tuned.find(args[0], c.device_index)
    if choice == NULL:
        answer = tuner(c.device_index, (
            args.m, args.n, args.k, args.batch, args.lda, args.ldb, args.ldc, args.stride_a,
            args.stride_b, args.stride_c, args.transpose_a, args.transpose_b, args.dtype,
            args.compute, args.bias != 0))
        if answer is None:  # not settled
            return 0
        made.number, made.workspace = answer
        tuned.put(args[0], c.device_index, made)
        choice = tuned.find(args[0], c.device_index)
    if choice.number:
        args.compute |= choice.number << GEMM_ALGORITHM_SHIFT
        args.workspace_bytes = choice.workspace
    return 0


cdef int64_t _workspace_for(const GemmArgs* args) except -1:
    """Scratch bytes that a product is lent."""
    cdef int64_t multiplications = args.m * args.n * args.k
    if multiplications < SMALL:
        return 0
    if plain_cublaslt or multiplications < LARGE:
        return _workspace()
    return _cublas_workspace()


cdef int _run(GemmArgs* args, Tensor a, Tensor b, Tensor c) except -1:
    """Multiply on the current stream of c's device, whose context is current.

    Returns 1, and has done nothing, if the library cannot add this bias.
    """
    cdef CUstream stream = _state.thread_state().streams[c.device_index]
    cdef Storage* scratch = NULL
    cdef size_t kept
    cdef bint tuned_one = False
    if not started:
        _start()
    args.a = <CUdeviceptr><uintptr_t>a.data
    args.b = <CUdeviceptr><uintptr_t>b.data
    args.c = <CUdeviceptr><uintptr_t>c.data
    args.dtype = c.scalar_type
    args.workspace = 0
    if is_small(args) and tuner is None and args.workspace_bytes == 0:
        if launch_small(args, c.device_index, stream):
            return 0
    if args.workspace_bytes == 0:
        args.workspace_bytes = _workspace_for(args)
    if args.compute & GEMM_AS_GIVEN:
        args.compute ^= GEMM_AS_GIVEN
    elif tuner is not None and args.m > 1 and args.n > 1 and well_aligned(args[0]):
        args.compute &= 0xff
        _choose(args, c)
        tuned_one = True
    if keeping and args.workspace_bytes:
        kept = _lend_workspace(c.device_index, stream)
        if args.workspace_bytes <= <size_t>cublas_workspace_bytes:
            args.workspace = <CUdeviceptr><uintptr_t>kept
    if args.workspace_bytes and not args.workspace:
        scratch = _allocator.allocate_device(c.device_index, args.workspace_bytes, stream)
        args.workspace = <CUdeviceptr><uintptr_t>scratch.data
    status = driver.Gemm(args, stream)
    if status and tuned_one:  # this product's memory is not what tuning had
        args.compute &= 0xff
        status = driver.Gemm(args, stream)
    if scratch != NULL:
        scratch.drop()  # only later work of this stream can get it
    if status == NOT_SUPPORTED and args.bias:
        return 1
    check(status)
    return 0


def gemm(Tensor a not None, Tensor b not None, Tensor c not None, shape, leading, strides,
         bint transpose_a, bint transpose_b, double alpha=1.0, double beta=0.0, int compute=-1,
         size_t workspace_bytes=0, Tensor bias=None):
    cdef GemmArgs args
    cdef int device = c.device_index
    if device < 0 or a.device_index != device or b.device_index != device:
        raise RuntimeError("gemm needs its three matrices on one CUDA device")
    args.m, args.n, args.k, args.batch = shape
    args.lda, args.ldb, args.ldc = leading
    args.stride_a, args.stride_b, args.stride_c = strides
    args.transpose_a = transpose_a
    args.transpose_b = transpose_b
    args.compute = compute if compute >= 0 else compute_of[c.scalar_type]
    args.workspace_bytes = workspace_bytes
    args.alpha = alpha
    args.beta = beta
    args.bias = 0 if bias is None else <CUdeviceptr><uintptr_t>bias.data
    _state.note_call()
    _state.ensure_context(device)
    if _run(&args, a, b, c):
        return False
    mark_written(c)
    if _launch.observed:
        from flambeau.runtime import observers
        observers.notify("operation", "matmul", (a, b) if bias is None else (a, b, bias), (c,),
                         <uintptr_t>_state.thread_state().streams[device])
    return True


cdef inline bint _stored(const int64_t* sizes, const int64_t* strides, int64_t* leading,
                         int* transposed) noexcept:
    """Whether a matrix lies in memory as a library takes it: rows or columns without gaps."""
    if strides[1] == 1 and strides[0] >= sizes[1]:
        transposed[0] = 0
        leading[0] = strides[0]
        return True
    if strides[0] == 1 and strides[1] >= sizes[0]:
        transposed[0] = 1
        leading[0] = strides[1]
        return True
    return False


cdef bint _takes_bias(Tensor x, Tensor bias, int64_t n) noexcept:
    """Whether the library adds it to the rows of products of x: it reads 16 bytes at a time."""
    return (bias.ndim_ == 1 and bias.sizes[0] == n and bias.strides[0] == 1
            and bias.scalar_type == x.scalar_type and bias.device_index == x.device_index
            and not <uintptr_t>bias.data & 15
            and compute_of[x.scalar_type] & 0xf <= 1)


def product(a, b, bias=None):
    cdef GemmArgs args
    cdef Tensor x, y, c
    cdef int64_t sizes[3]
    cdef int batched
    if type(a) is not Tensor or type(b) is not Tensor:
        return None
    x = <Tensor>a
    y = <Tensor>b
    batched = x.ndim_ - 2
    if (x.device_index < 0 or x.device_index != y.device_index or x.scalar_type != y.scalar_type
            or x.ndim_ != y.ndim_ or batched < 0 or batched > 1
            or x.sizes[batched + 1] != y.sizes[batched] or (batched and x.sizes[0] != y.sizes[0])
            or x.count == 0 or y.count == 0 or _launch.observed):
        return None
    if not (Float16 <= x.scalar_type <= Float64):
        return None
    memset(&args, 0, sizeof(args))
    if (not _stored(x.sizes + batched, x.strides + batched, &args.lda, &args.transpose_a)
            or not _stored(y.sizes + batched, y.strides + batched, &args.ldb, &args.transpose_b)):
        return None
    args.m = x.sizes[batched]
    args.k = x.sizes[batched + 1]
    args.n = y.sizes[batched + 1]
    args.batch = 1
    if batched and x.sizes[0] > 1:
        args.batch = x.sizes[0]
        args.stride_a = x.strides[0]
        args.stride_b = y.strides[0]
        args.stride_c = args.m * args.n
    args.ldc = args.n
    args.alpha = 1.0
    args.compute = compute_of[x.scalar_type]
    if bias is not None:
        if type(bias) is not Tensor or not _takes_bias(x, <Tensor>bias, args.n) or args.m < 2 or args.n < 2:
            return None
        args.bias = <CUdeviceptr><uintptr_t>(<Tensor>bias).data
    _state.note_call()
    _state.ensure_context(x.device_index)
    sizes[0] = x.sizes[0]
    sizes[batched] = args.m
    sizes[batched + 1] = args.n
    c = new_tensor(x.device_index, x.scalar_type, 2 + batched, sizes)
    return None if _run(&args, x, y, c) else c
