# SPDX-License-Identifier: Apache-2.0
# distutils: language = c++
"""NVIDIA's driver: the filled function table, modules, and cuBLASLt's functions."""
from libc.stdint cimport int64_t, uintptr_t
from libcpp.string cimport string

from flambeau.driver._table cimport (
    CUdeviceptr, CUfunction, CUresult, DriverTable, GemmArgs, CUstream, check,
    CUDA_ERROR_NOT_FOUND,
)

cdef extern from *:
    """
    #include "flambeau/driver/nvidia/loader.hpp"
    #include "flambeau/driver/nvidia/spin.hpp"
    #include "flambeau/driver/nvidia/blas.hpp"
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

cdef extern from "flambeau/driver/nvidia/blas.hpp" namespace "flambeau::nvidia" nogil:
    cdef cppclass CublasLt:
        bint ready
        int last_status
    CublasLt& cublaslt()
    CUresult gemm(const GemmArgs*, CUstream) noexcept
    const char* resolve_cublaslt(void*)

_locate_cublaslt = None


_blas_trouble = None  # why cuBLASLt could not be loaded, for explain()


cdef CUresult gemm_entry(const GemmArgs* args, CUstream stream) noexcept nogil:
    if not cublaslt().ready:
        with gil:
            find_cublaslt()
        if not cublaslt().ready:
            return CUDA_ERROR_NOT_FOUND
    return gemm(args, stream)


cdef int find_cublaslt() noexcept:
    """Ask Python where the library is. The caller is C, so what goes wrong is kept as text."""
    global _blas_trouble
    try:
        use_cublaslt(_locate_cublaslt())
    except (ImportError, OSError, RuntimeError) as error:
        _blas_trouble = str(error)
    return 0


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
