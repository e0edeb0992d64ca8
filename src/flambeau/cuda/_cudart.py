# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802 - the CUDA runtime's own names
"""The few calls of the CUDA runtime that programs reach for; each answers with a `cudaError`.

A failed call leaves nothing behind: the next CUDA call does not report it again.
"""

from __future__ import annotations

import enum

from flambeau.driver.status import describe, runtime_name
from flambeau.runtime import _cuda_device

__all__ = [
    "cudaError",
    "cudaGetErrorString",
    "cudaHostRegister",
    "cudaHostUnregister",
    "cudaMemGetInfo",
    "cudaProfilerStart",
    "cudaProfilerStop",
    "cudaStreamCreate",
    "cudaStreamDestroy",
]


class cudaError(enum.IntEnum):  # noqa: N801
    """A status of the runtime. `success` is 0; any other number is a member named when it comes.

    Examples
    --------
    >>> cudaError(2).name
    'cudaErrorMemoryAllocation'
    """

    success = 0

    @classmethod
    def _missing_(cls, value: object) -> cudaError | None:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_ = runtime_name(value)
        member._value_ = value
        return member


def cudaGetErrorString(error: int) -> str:
    """The runtime's sentence for a status, such as ``"out of memory"`` for 2."""
    return describe(int(error)).text


def cudaProfilerStart() -> cudaError:
    """Start collection by an attached profiler (``cuProfilerStart``)."""
    return cudaError(_cuda_device.profiler_start())


def cudaProfilerStop() -> cudaError:
    """Stop collection by an attached profiler (``cuProfilerStop``)."""
    return cudaError(_cuda_device.profiler_stop())


def cudaHostRegister(pointer: int, size: int, flags: int) -> cudaError:
    """Pin `size` bytes of host memory at an address (``cuMemHostRegister``).

    Parameters
    ----------
    pointer
        The address.
    size
        Bytes.
    flags
        1 portable, 2 mapped, 4 I/O memory, 8 read-only; added up.
    """
    return cudaError(_cuda_device.host_register(pointer, size, flags))


def cudaHostUnregister(pointer: int) -> cudaError:
    """Undo a `cudaHostRegister` (``cuMemHostUnregister``)."""
    return cudaError(_cuda_device.host_unregister(pointer))


def cudaStreamCreate(pointer: int) -> cudaError:
    """Make a stream on the current device (``cuStreamCreate``).

    Parameters
    ----------
    pointer
        The address of 8 bytes that get the stream's handle.
    """
    return cudaError(_cuda_device.stream_create(pointer))


def cudaStreamDestroy(stream: int) -> cudaError:
    """Destroy a stream that `cudaStreamCreate` made (``cuStreamDestroy``)."""
    return cudaError(_cuda_device.stream_destroy(stream))


def cudaMemGetInfo(device: int) -> tuple[int, int]:
    """Free and total bytes of a device (``cuMemGetInfo``).

    Raises
    ------
    AcceleratorError
        There is no such device (101).
    """
    return _cuda_device.memory_info(device)
