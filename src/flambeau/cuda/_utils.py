# SPDX-License-Identifier: Apache-2.0
"""Device arguments of public functions; compiled kernels under torch's names for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from flambeau.runtime import _cuda_device

if TYPE_CHECKING:
    from flambeau.runtime._device import device as _device_type

    DeviceArgument: TypeAlias = int | str | _device_type | _cuda_device.device | None

__all__ = ["_get_device_index"]


def _get_device_index(
    device: DeviceArgument, optional: bool = False, allow_cpu: bool = False
) -> int:
    """The ordinal that a device argument means.

    Parameters
    ----------
    device
        An int is passed through, negative ones too. A str is parsed, as ``"cuda:1"``. A
        `torch.cuda.device` gives its number.
    optional
        Whether None and ``"cuda"`` mean the current device, which initialises CUDA.
    allow_cpu
        Whether the CPU is accepted; it gives -1.

    Raises
    ------
    ValueError
        Another kind of device, or no number where one is needed.
    RuntimeError
        A string that is no device.
    TypeError
        Something that is no device at all, where None would do.
    """
    return _cuda_device.index_of(device, optional, allow_cpu)


_COMPILED = {"_CudaKernel", "_CudaModule", "_cuda_load_module", "_nvrtc_compile"}


def __getattr__(name: str) -> Any:
    if name not in _COMPILED:
        raise AttributeError(f"module 'flambeau.cuda._utils' has no attribute {name!r}")
    from flambeau.cuda import _compiled_kernel

    return getattr(_compiled_kernel, name)
