# SPDX-License-Identifier: Apache-2.0
"""Tensors to and from other libraries by the DLPack standard.

Pass a tensor to the other library's ``from_dlpack``, and the other library's array to this one::

    >>> import flambeau as torch
    >>> import numpy
    >>> numpy.from_dlpack(torch.ones(2)).tolist()
    [1.0, 1.0]
    >>> torch.from_dlpack(numpy.ones(2)).tolist()
    [1.0, 1.0]
"""

from __future__ import annotations

import enum

import flambeau.runtime._tensor  # noqa: F401  its parts import each other in this order
from flambeau.runtime._dlpack import from_dlpack, to_dlpack

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]


class DLDeviceType(enum.IntEnum):
    """The kinds of devices that DLPack numbers.

    Tensors are on ``kDLCPU``, ``kDLCUDA`` and, where their host memory is pinned, on
    ``kDLCUDAHost``.
    """

    kDLCPU = 1  # noqa: N815
    kDLCUDA = 2  # noqa: N815
    kDLCUDAHost = 3  # noqa: N815
    kDLOpenCL = 4  # noqa: N815
    kDLVulkan = 7  # noqa: N815
    kDLMetal = 8  # noqa: N815
    kDLVPI = 9  # noqa: N815
    kDLROCM = 10  # noqa: N815
    kDLROCMHost = 11  # noqa: N815
    kDLExtDev = 12  # noqa: N815
    kDLCUDAManaged = 13  # noqa: N815
    kDLOneAPI = 14  # noqa: N815
    kDLWebGPU = 15  # noqa: N815
    kDLHexagon = 16  # noqa: N815
    kDLMAIA = 17  # noqa: N815
    kDLTrn = 18  # noqa: N815
