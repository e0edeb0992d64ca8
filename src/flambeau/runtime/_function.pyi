# SPDX-License-Identifier: Apache-2.0
from typing import Final

MAX_THREADS_PER_BLOCK: Final[int]
STATIC_SHARED_BYTES: Final[int]
LOCAL_BYTES: Final[int]
REGISTERS: Final[int]
MAX_DYNAMIC_SHARED_BYTES: Final[int]

def use_context(device: int) -> None:
    """Make a device's primary context current in this thread's driver, as loading code needs.

    The thread's current device stays what it is. Initialises CUDA.

    Raises
    ------
    AcceleratorError
        Error 101: there is no such device.
    """

def get_attribute(function: int, attribute: int) -> int:
    """An attribute of a ``CUfunction`` (``cuFuncGetAttribute``)."""

def set_attribute(function: int, attribute: int, value: int) -> None:
    """Set an attribute of a ``CUfunction`` (``cuFuncSetAttribute``).

    Raises
    ------
    AcceleratorError
        Error 1: the value is out of range for the device.
    """
