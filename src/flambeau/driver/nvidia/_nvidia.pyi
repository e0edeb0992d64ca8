# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

def set_cublaslt_locator(locate: Callable[[], int]) -> None:
    """Set who finds cuBLASLt at the first matrix product; it returns a ``dlopen`` handle."""

def use_cublaslt(handle: int) -> None:
    """Take cuBLASLt's functions from a ``dlopen`` handle."""

def set_cublas_locator(locate: Callable[[], int]) -> None:
    """Set who finds cuBLAS when it is first needed; it returns a ``dlopen`` handle."""

def use_cublas() -> None:
    """Take cuBLAS's functions from the library that the locator finds, once."""

def blas_handle(stream: int) -> int:
    """``cublasHandle_t`` of the calling thread for the current device, set to a stream."""

def current_device() -> int:
    """``cuCtxGetDevice``."""

def cublaslt_version() -> int:
    """``cublasLtGetVersion``: 130100 for 13.1."""

def gemm_algorithms(
    problem: tuple[int, ...], requested: int, workspace: int
) -> list[tuple[int, int, tuple[int, ...]]]:
    """What may compute a product: number, bytes of scratch memory and settings of each.

    `problem` has the fields of ``GemmArgs`` but for addresses and factors, in their order;
    `requested` is how many the library's heuristic is asked for under each limit of scratch memory.
    """

def find_algorithm(
    problem: tuple[int, ...], settings: tuple[int, ...], workspace: int
) -> tuple[int, int, tuple[int, ...]] | None:
    """The algorithm with these settings; None if it cannot compute the product."""

def take_blas_trouble() -> tuple[str | None, int]:
    """Why cuBLASLt could not be loaded and its status when a product failed (0: none); forgets both."""

def driver_version() -> int:
    """``cuDriverGetVersion``: 13000 for CUDA 13.0."""

def device_count() -> int:
    """``cuDeviceGetCount``."""

def device_attribute(which: int, device: int) -> tuple[int, int]:
    """``cuDeviceGetAttribute``: status and value."""

def load(file: str) -> tuple[int, str, str]:
    """Load the driver library and fill the table.

    Returns
    -------
    tuple
        0, 1 (no library) or 2 (too old); why it failed; the entries that it lacks.
    """

def table() -> int:
    """The address of the ``DriverTable``."""

def load_module(image: bytes) -> tuple[int, int, str]:
    """``cuModuleLoadDataEx`` in the current context: status, handle, the compiler's error log."""

def module_function(module: int, name: str) -> int:
    """``cuModuleGetFunction``."""

def module_global(module: int, name: str) -> tuple[int, int]:
    """``cuModuleGetGlobal``: address and size in bytes."""

def unload_module(module: int) -> None:
    """``cuModuleUnload``."""
