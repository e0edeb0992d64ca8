# SPDX-License-Identifier: Apache-2.0
"""What kernels can be compiled for, and which number formats a device multiplies itself."""

from __future__ import annotations

from flambeau.cuda._availability import is_available
from flambeau.cuda._device import get_device_capability
from flambeau.driver.errors import MissingExtraError

__all__ = ["get_arch_list", "get_gencode_flags", "is_bf16_supported", "is_tf32_supported"]

_AMPERE = (8, 0)


def get_arch_list() -> list[str]:
    """The architectures that kernels can be compiled for here.

    flambeau compiles its kernels when they are first needed, so this is what the compiler (NVRTC)
    knows. Neither initialises CUDA nor hinders a fork.

    Returns
    -------
    list of str
        Such as ``["sm_75", "sm_80", ...]``; empty if the compiler is not installed.

    Examples
    --------
    >>> import flambeau as torch
    >>> "sm_80" in torch.cuda.get_arch_list()
    True
    """
    from flambeau.kernels.compile import supported_architectures

    try:
        return [f"sm_{number}" for number in supported_architectures()]
    except MissingExtraError:
        return []


def get_gencode_flags() -> str:
    """``-gencode`` options of nvcc for each entry of `get_arch_list`.

    Returns
    -------
    str
        Such as ``"-gencode compute=compute_75,code=sm_75 -gencode ..."``; empty without a compiler.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.get_gencode_flags()[:17]
    '-gencode compute='
    """
    numbers = [name.removeprefix("sm_") for name in get_arch_list()]
    return " ".join(f"-gencode compute=compute_{n},code=sm_{n}" for n in numbers)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current device computes with bfloat16.

    Parameters
    ----------
    including_emulation
        Whether conversion to float32 and back counts. flambeau's kernels do that on every device,
        so the answer is then True wherever there is one.

    Returns
    -------
    bool
        Without emulation: whether the compute capability is 8.0 or more. False without a device.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.is_bf16_supported()
    True
    """
    return is_available() and (including_emulation or get_device_capability() >= _AMPERE)


def is_tf32_supported() -> bool:
    """Whether the current device multiplies float32 matrices as TF32: from capability 8.0 on.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.is_tf32_supported()
    True
    """
    return is_bf16_supported(including_emulation=False)
