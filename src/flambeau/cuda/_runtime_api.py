# SPDX-License-Identifier: Apache-2.0
"""`cudart` and the checking of its statuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.driver.errors import CudaError
from flambeau.runtime import lazy_init

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["CudaError", "check_error", "cudaStatus", "cudart"]


class cudaStatus:  # noqa: N801 - torch's name
    """Two statuses by name, with the numbers that torch gives them."""

    SUCCESS: int = 0
    ERROR_NOT_READY: int = 34


def cudart() -> ModuleType:
    """The CUDA runtime calls, as a module. Initialises CUDA.

    Examples
    --------
    >>> import flambeau as torch
    >>> runtime = torch.cuda.cudart()
    >>> runtime.cudaGetErrorString(runtime.cudaError(2))
    'out of memory'
    """
    lazy_init.lazy_init()
    from flambeau.cuda import _cudart

    return _cudart


def check_error(res: int) -> None:
    """Raise unless a runtime call succeeded.

    Parameters
    ----------
    res
        What the call returned.

    Raises
    ------
    CudaError
        `res` is not 0; the text is like ``"out of memory (2)"``.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
    """
    if int(res) != 0:
        raise CudaError(int(res))
