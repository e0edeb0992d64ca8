# SPDX-License-Identifier: Apache-2.0
"""Handles of the math libraries, for programs that call these libraries themselves."""

from __future__ import annotations

from flambeau.ops.library_call import LibraryCall
from flambeau.runtime import _state

__all__ = ["current_blas_handle", "current_solver_handle"]


def current_blas_handle() -> int:
    """Give the ``cublasHandle_t`` of this thread for the current device.

    Returns
    -------
    int
        The handle, set to the current stream, with cuBLAS's own scratch memory. A thread has one
        for each device and all its streams; when the thread has ended, another one gets it.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.current_blas_handle() == torch.cuda.current_blas_handle()
    True
    """
    from flambeau import driver

    with LibraryCall(_state.current_device()) as call:
        return driver.current().libraries.blas.handle(call.stream)


def current_solver_handle() -> int:
    """Give the ``cusolverDnHandle_t`` of this thread for the current device.

    Returns
    -------
    int
        The handle, set to the current stream; kept as those of `current_blas_handle` are.
    """
    from flambeau import driver

    with LibraryCall(_state.current_device()) as call:
        return driver.current().libraries.solver.handle(call.stream)
