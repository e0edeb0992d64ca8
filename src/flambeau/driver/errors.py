# SPDX-License-Identifier: Apache-2.0
"""The exceptions of flambeau, and the one place where a driver status becomes one.

::

    FlambeauError
    ├── AcceleratorError(RuntimeError)        the driver refused or a kernel faulted; .error_code
    ├── OutOfMemoryError(RuntimeError)        no device memory left
    ├── CudaError(RuntimeError)               what ``cuda.check_error`` raises
    ├── DeferredCudaCallError                 a call queued before initialisation failed
    ├── DriverNotFoundError(RuntimeError)     no driver, or no GPU
    ├── CollectiveError(RuntimeError)         NCCL refused, a rank is missing or has failed
    ├── MissingExtraError(ImportError)        an optional dependency is not installed
    ├── CompilationError(RuntimeError)        a kernel did not compile; .log
    ├── LinAlgError(RuntimeError)             a matrix cannot be factored; ``torch.linalg``'s
    └── UnsupportedPtxError(RuntimeError)     a virtual GPU met an instruction it does not know

Bad arguments raise Python's own ``ValueError``, ``TypeError``, ``IndexError`` and
``NotImplementedError``, or ``RuntimeError`` where torch does.
"""

from __future__ import annotations

import os

from flambeau.driver.status import describe

__all__ = [
    "AcceleratorError",
    "CollectiveError",
    "CompilationError",
    "CudaError",
    "DeferredCudaCallError",
    "DriverNotFoundError",
    "FlambeauError",
    "LinAlgError",
    "MissingExtraError",
    "OutOfMemoryError",
    "UnsupportedPtxError",
    "from_status",
]


class FlambeauError(Exception):
    """The root of everything that flambeau raises on its own account."""


class AcceleratorError(FlambeauError, RuntimeError):
    """A driver call failed, or work that ran earlier did.

    Attributes
    ----------
    error_code : int
        The CUDA status, for example 101 for an invalid device ordinal.
    """

    def __init__(self, message: str = "", error_code: int = 999) -> None:
        super().__init__(message)
        self.error_code = error_code

    def __reduce__(self) -> tuple[type[AcceleratorError], tuple[str, int]]:
        return type(self), (str(self), self.error_code)


class OutOfMemoryError(FlambeauError, RuntimeError):
    """The device has no memory left for a request."""


class CudaError(FlambeauError, RuntimeError):
    """A runtime call returned this code; the text is ``"out of memory (2)"``."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{describe(int(code)).text} ({int(code)})")
        self.code = int(code)

    def __reduce__(self) -> tuple[type[CudaError], tuple[int]]:
        return type(self), (self.code,)


class DeferredCudaCallError(FlambeauError):
    """A call that was queued before CUDA was initialised failed at initialisation."""


class DriverNotFoundError(FlambeauError, RuntimeError):
    """There is no CUDA driver, or it shows no GPU."""


class CollectiveError(FlambeauError, RuntimeError):
    """A collective cannot be done: NCCL refused, or a rank is missing or has failed."""


class MissingExtraError(FlambeauError, ImportError):
    """Something optional is needed and not installed; the text says what to install."""


class CompilationError(FlambeauError, RuntimeError):
    """A CUDA kernel did not compile.

    Attributes
    ----------
    log : str
        What the compiler said.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log

    def __reduce__(self) -> tuple[type[CompilationError], tuple[str, str]]:
        return type(self), (str(self), self.log)


class LinAlgError(FlambeauError, RuntimeError):
    """A matrix is singular or not positive-definite, or an iteration did not converge."""


class UnsupportedPtxError(FlambeauError, RuntimeError):
    """A virtual GPU was given PTX with an instruction that it cannot execute."""


_ASYNCHRONOUS_ADVICE = (
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace "
    "below might be incorrect.\nFor debugging, run with CUDA_LAUNCH_BLOCKING=1: the error is then "
    "raised at the launch that caused it."
)
_FAULTS = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719})


def from_status(code: int, detail: str | None = None) -> Exception:
    """Make the exception for a driver status.

    Parameters
    ----------
    code
        The status, not 0.
    detail
        What else is known: which kernel, thread and address, or what to do.

    Returns
    -------
    Exception
        `OutOfMemoryError` for 2, else `AcceleratorError`.
    """
    status = describe(code)
    lines = [f"CUDA error: {status.text}"]
    if detail:
        lines.append(detail)
    lines.append(f"The driver's status was {status.name} ({code}).")
    if code == 2:
        lines[0] = "CUDA out of memory. The driver has no memory left for this request."
        return OutOfMemoryError("\n".join(lines))
    if code in _FAULTS:
        if os.environ.get("CUDA_LAUNCH_BLOCKING") != "1":
            lines.append(_ASYNCHRONOUS_ADVICE)
        lines.append("The device's context is lost: every later CUDA call in this process fails.")
    return AcceleratorError("\n".join(lines), code)
