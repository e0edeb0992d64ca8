# SPDX-License-Identifier: Apache-2.0
from typing import Any

from flambeau.runtime._tensor import Tensor

def __dlpack__(  # noqa: N807
    self: Tensor,
    *,
    stream: int | None = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """The tensor's memory as a DLPack capsule, for ``from_dlpack`` of another library."""

def __dlpack_device__(self: Tensor) -> tuple[int, int]:  # noqa: N807
    """The DLPack device (type, index): (1, 0) host, (2, index) CUDA, (3, 0) pinned host memory."""

def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of another library's."""

def to_dlpack(tensor: Tensor) -> Any:
    """The tensor's memory as a DLPack capsule from before version 1, without ordering streams."""

def wait_for_stream(device: int, number: int) -> None:
    """Have this thread's current stream of a device wait for a stream, as standards number it.

    Parameters
    ----------
    device
        Its index.
    number
        1 the default stream, 2 the per-thread default stream, else the handle (``CUstream``).
    """

def device_of_address(address: int) -> int:
    """The index of the device whose driver knows an address (``cuPointerGetAttribute``)."""
