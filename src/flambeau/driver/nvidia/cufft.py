# SPDX-License-Identifier: Apache-2.0
"""cuFFT: plans of up to three dimensions, each with the scratch memory it is lent."""

from __future__ import annotations

import ctypes
from math import prod
from typing import TYPE_CHECKING

from flambeau.driver.nvidia._shared_library import SharedLibrary, pointer_of

if TYPE_CHECKING:
    from flambeau.driver.libraries import Call, Plan, Transform

__all__ = ["NvidiaFft"]

_CUFFT = SharedLibrary(
    "cufft",
    {
        1: "CUFFT_INVALID_PLAN",
        2: "CUFFT_ALLOC_FAILED",
        3: "CUFFT_INVALID_TYPE",
        4: "CUFFT_INVALID_VALUE",
        5: "CUFFT_INTERNAL_ERROR",
        6: "CUFFT_EXEC_FAILED",
        7: "CUFFT_SETUP_FAILED",
        8: "CUFFT_INVALID_SIZE",
        9: "CUFFT_UNALIGNED_DATA",
        11: "CUFFT_INVALID_DEVICE",
        13: "CUFFT_NO_WORKSPACE",
        14: "CUFFT_NOT_IMPLEMENTED",
        16: "CUFFT_NOT_SUPPORTED",
    },
)

# cudaDataType of real and complex numbers.
_REAL = {"float16": 2, "float32": 0, "float64": 1}
_COMPLEX = {"float16": 6, "float32": 4, "float64": 5}
_FORWARD, _INVERSE = -1, 1


class _CufftPlan:
    """A ``cufftHandle``."""

    def __init__(self, transform: Transform) -> None:
        self._handle = ctypes.c_int(0)
        _CUFFT.call("cufftCreate", ctypes.byref(self._handle))
        _CUFFT.call("cufftSetAutoAllocation", self._handle, 0)
        rank = len(transform.sizes)
        real, complex_ = _REAL[transform.precision], _COMPLEX[transform.precision]
        full, half = transform.sizes, (*transform.sizes[:-1], transform.sizes[-1] // 2 + 1)
        longs = ctypes.c_longlong * rank
        given, made = {"c2c": (full, full), "r2c": (full, half), "c2r": (half, full)}[
            transform.kind
        ]
        size = ctypes.c_size_t(0)
        _CUFFT.call(
            "cufftXtMakePlanMany",
            self._handle,
            rank,
            longs(*transform.sizes),
            longs(*given),
            ctypes.c_longlong(1),
            ctypes.c_longlong(prod(given)),
            real if transform.kind == "r2c" else complex_,
            longs(*made),
            ctypes.c_longlong(1),
            ctypes.c_longlong(prod(made)),
            real if transform.kind == "c2r" else complex_,
            ctypes.c_longlong(transform.batch),
            ctypes.byref(size),
            complex_,
        )
        self.workspace_bytes = size.value

    def execute(self, call: Call, input: int, output: int, forward: bool) -> None:
        """Transform on the call's stream."""
        _CUFFT.call("cufftSetStream", self._handle, pointer_of(call.stream))
        if self.workspace_bytes:
            scratch = call.scratch(self.workspace_bytes)
            _CUFFT.call("cufftSetWorkArea", self._handle, pointer_of(scratch))
        direction = _FORWARD if forward else _INVERSE
        addresses = pointer_of(input), pointer_of(output)
        _CUFFT.call("cufftXtExec", self._handle, *addresses, direction)

    def destroy(self) -> None:
        """Give the plan back."""
        _CUFFT.call("cufftDestroy", self._handle)


class NvidiaFft:
    """Plans of the current device."""

    def plan(self, transform: Transform) -> Plan:
        """Make a plan."""
        return _CufftPlan(transform)
