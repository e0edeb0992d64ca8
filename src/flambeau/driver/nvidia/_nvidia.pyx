# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""NVIDIA's driver: the filled function table, modules, and cuBLASLt's functions."""
from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memset
from libcpp.string cimport string
from libcpp.vector cimport vector

from flambeau.driver._table cimport (
    CUdeviceptr, CUfunction, CUresult, DriverTable, GemmArgs, CUstream, check,
    CUDA_ERROR_NOT_FOUND,
)

cdef extern from *:
    """
    #include "flambeau/driver/nvidia/loader.hpp"
    #include "flambeau/driver/nvidia/conditional.hpp"
    #include "flambeau/driver/nvidia/spin.hpp"
    #include "flambeau/driver/nvidia/cublas.hpp"
    """

cdef extern from "flambeau/driver/nvidia/loader.hpp" namespace "flambeau::nvidia" nogil:
    cdef struct Extra:
        CUresult (*ModuleLoadDataEx)(void**, const void*, unsigned, int*, void**) noexcept nogil
        CUresult (*ModuleGetFunction)(CUfunction*, void*, const char*) noexcept nogil
        CUresult (*ModuleGetGlobal)(CUdeviceptr*, size_t*, void*, const char*) noexcept nogil
        CUresult (*ModuleUnload)(void*) noexcept nogil
    cdef cppclass Library:
        void* handle
        DriverTable table
        Extra extra
        string error
        string missing
    Library& library()
    int load_library "flambeau::nvidia::load"(Library&, const char*)

cdef extern from "flambeau/driver/nvidia/spin.hpp" namespace "flambeau::nvidia" nogil:
    CUresult spin(int64_t cycles, CUstream stream) noexcept

cdef extern from "flambeau/driver/nvidia/conditional.hpp" namespace "flambeau::nvidia" nogil:
    CUresult begin_body(
        CUstream s, CUstream body, CUdeviceptr value, int kind, uint64_t* handle) noexcept
    CUresult set_conditional(uint64_t handle, CUdeviceptr value, CUstream s) noexcept

cdef extern from "flambeau/driver/nvidia/blas.hpp" namespace "flambeau::nvidia" nogil:
    cdef cppclass CublasLt:
        bint ready
        int last_status
    CublasLt& cublaslt()
    CUresult gemm(const GemmArgs*, CUstream) noexcept
    const char* resolve_cublaslt(void*)

cdef extern from "flambeau/driver/nvidia/cublas.hpp" namespace "flambeau::nvidia" nogil:
    const int CUBLAS_ALGORITHM
    const int SETTINGS
    cdef cppclass AlgorithmSettings:
        uint32_t* value
    cdef cppclass Candidate:
        AlgorithmSettings settings
        size_t workspace
        int index
    CUresult list_algorithms(const GemmArgs&, int, vector[Candidate]&)
    CUresult find_algorithm_of "flambeau::nvidia::find_algorithm"(const GemmArgs&, const AlgorithmSettings&, Candidate&)
    size_t lt_version "flambeau::nvidia::cublaslt().GetVersion"()
    cdef cppclass Cublas:
        bint ready
    Cublas& cublas()
    const char* resolve_cublas(void*)
    CUresult cublas_handle(CUstream, void**)
    CUresult cublas_gemm(const GemmArgs&, CUstream) noexcept

cdef extern from "flambeau/driver/gemm_options.hpp" namespace "flambeau" nogil:
    int gemm_algorithm(int)

_locate_cublaslt = None
_locate_cublas = None


_blas_trouble = None  # why cuBLASLt could not be loaded, for explain()


cdef CUresult gemm_entry(const GemmArgs* args, CUstream stream) noexcept nogil:
    if not cublaslt().ready:
        with gil:
            find_cublaslt()
        if not cublaslt().ready:
            return CUDA_ERROR_NOT_FOUND
    if gemm_algorithm(args.compute) != CUBLAS_ALGORITHM:
        return gemm(args, stream)
    if not cublas().ready:
        with gil:
            find_cublas()
        if not cublas().ready:
            return CUDA_ERROR_NOT_FOUND
    return cublas_gemm(args[0], stream)


cdef int find_cublaslt() noexcept:
    """Ask Python where the library is. The caller is C, so what goes wrong is kept as text."""
    global _blas_trouble
    try:
        use_cublaslt(_locate_cublaslt())
    except (ImportError, OSError, RuntimeError) as error:
        _blas_trouble = str(error)
    return 0


cdef int find_cublas() noexcept:
    """As `find_cublaslt`."""
    global _blas_trouble
    try:
        use_cublas()
    except (ImportError, OSError, RuntimeError) as error:
        _blas_trouble = str(error)
    return 0


def set_cublas_locator(locate):
    global _locate_cublas
    _locate_cublas = locate


def use_cublas():
    if cublas().ready:
        return
    cdef uintptr_t handle = _locate_cublas()
    cdef const char* missing = resolve_cublas(<void*>handle)
    if missing != NULL:
        raise RuntimeError(f"this cuBLAS has no function {(<bytes>missing).decode()}")


def blas_handle(uintptr_t stream):
    cdef void* handle = NULL
    use_cublas()
    check(cublas_handle(<CUstream>stream, &handle))
    return <uintptr_t>handle


def current_device():
    cdef int device = 0
    check(library().table.CtxGetDevice(&device))
    return device


def cublaslt_version():
    if not cublaslt().ready:
        use_cublaslt(_locate_cublaslt())
    return lt_version()


cdef int _fill(GemmArgs* args, tuple problem, size_t workspace) except -1:
    """A problem without its matrices, which lie at multiples of 16."""
    if not cublaslt().ready:
        use_cublaslt(_locate_cublaslt())
    memset(args, 0, sizeof(GemmArgs))
    (args.m, args.n, args.k, args.batch, args.lda, args.ldb, args.ldc, args.stride_a, args.stride_b,
     args.stride_c, args.transpose_a, args.transpose_b, args.dtype, args.compute, bias) = problem
    args.a = args.b = args.c = 16
    args.bias = 16 if bias else 0
    args.workspace = 256 if workspace else 0
    args.workspace_bytes = workspace
    return 0


cdef tuple _told(const Candidate& candidate):
    return candidate.index, candidate.workspace, tuple([candidate.settings.value[i] for i in range(SETTINGS)])


def gemm_algorithms(tuple problem, int requested, size_t workspace):
    cdef GemmArgs args
    cdef vector[Candidate] found
    _fill(&args, problem, workspace)
    check(list_algorithms(args, requested, found))
    return [_told(candidate) for candidate in found]


def find_algorithm(tuple problem, settings, size_t workspace):
    cdef GemmArgs args
    cdef AlgorithmSettings wanted
    cdef Candidate found
    _fill(&args, problem, workspace)
    for i in range(SETTINGS):
        wanted.value[i] = settings[i]
    cdef CUresult status = find_algorithm_of(args, wanted, found)
    return _told(found) if status == 0 else None


def set_cublaslt_locator(locate):
    global _locate_cublaslt
    _locate_cublaslt = locate


def use_cublaslt(uintptr_t handle):
    cdef const char* missing = resolve_cublaslt(<void*>handle)
    if missing != NULL:
        raise RuntimeError(f"this cuBLASLt has no function {(<bytes>missing).decode()}")


def take_blas_trouble():
    global _blas_trouble
    cdef int status = cublaslt().last_status
    trouble = _blas_trouble
    cublaslt().last_status = 0
    _blas_trouble = None
    return trouble, status


def driver_version():
    cdef int version = 0
    check(library().table.DriverGetVersion(&version))
    return version


def device_count():
    cdef int count = 0
    check(library().table.DeviceGetCount(&count))
    return count


def device_attribute(int which, int device):
    cdef int value = 0
    cdef CUresult status = library().table.DeviceGetAttribute(&value, which, device)
    return status, value


def load(str file):
    cdef bytes name = file.encode()
    cdef int outcome = load_library(library(), name)
    if outcome == 0:
        library().table.Gemm = gemm_entry
        library().table.Spin = spin
        library().table.GraphBeginBody = begin_body
        library().table.GraphSetConditional = set_conditional
    return outcome, library().error.decode(), library().missing.decode()


def table():
    return <uintptr_t>&library().table


def load_module(bytes image):
    """Handle of the loaded image; on failure the compiler's log is the second item."""
    cdef void* module = NULL
    cdef char log[4096]
    cdef int options[2]
    cdef void* values[2]
    cdef CUresult status
    cdef const char* data = image  # bytes end with a NUL, which PTX text needs
    log[0] = 0
    options[0] = 5  # CU_JIT_ERROR_LOG_BUFFER
    options[1] = 6  # CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
    values[0] = <void*>log
    values[1] = <void*><uintptr_t>sizeof(log)
    cdef int capture_mode = 2  # relaxed: a kernel may be first needed while a graph is captured
    library().table.ThreadExchangeStreamCaptureMode(&capture_mode)
    with nogil:
        status = library().extra.ModuleLoadDataEx(&module, data, 2, options, values)
    library().table.ThreadExchangeStreamCaptureMode(&capture_mode)
    return status, <uintptr_t>module, (<bytes>log).decode(errors="replace")


def module_function(uintptr_t module, str name):
    cdef CUfunction function = NULL
    cdef bytes encoded = name.encode()
    check(library().extra.ModuleGetFunction(&function, <void*>module, encoded))
    return <uintptr_t>function


def module_global(uintptr_t module, str name):
    cdef CUdeviceptr pointer = 0
    cdef size_t size = 0
    cdef bytes encoded = name.encode()
    check(library().extra.ModuleGetGlobal(&pointer, &size, <void*>module, encoded))
    return pointer, size


def unload_module(uintptr_t module):
    cdef CUresult status
    with nogil:
        status = library().extra.ModuleUnload(<void*>module)
    check(status)
