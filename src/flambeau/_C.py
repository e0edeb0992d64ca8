# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N802, N812, N999 - torch's names
"""What programs reach for in ``torch._C`` and flambeau has an answer to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.cuda._gpu_trace import activate as _activate_gpu_trace
from flambeau.cuda._memory_history import (
    _attach_out_of_memory_observer as _cuda_attach_out_of_memory_observer,
)
from flambeau.cuda.memory import empty_host_cache as _host_emptyCache
from flambeau.cuda.streams import current_stream
from flambeau.runtime import _allocator_settings

if TYPE_CHECKING:
    from flambeau.runtime._device import device as _Device

__all__ = [
    "_accelerator_setAllocatorSettings",
    "_activate_gpu_trace",
    "_cuda_attach_out_of_memory_observer",
    "_cuda_clearCublasWorkspaces",
    "_cuda_getCurrentRawStream",
    "_host_emptyCache",
]


def _accelerator_setAllocatorSettings(env: str) -> None:
    """Change the caching allocator's options, written as in ``PYTORCH_CUDA_ALLOC_CONF``."""
    _allocator_settings.set_(env)


def _cuda_getCurrentRawStream(device: int | _Device) -> int:
    """The ``cudaStream_t`` of a device's current stream, as an integer."""
    return current_stream(device).cuda_stream


def _cuda_clearCublasWorkspaces() -> None:
    """Give up scratch memory that is kept for matrix products.

    There is some only with ``TORCH_CUBLAS_WORKSPACE_CACHE=1``: else each product borrows its
    scratch memory from the caching allocator and returns it at once.
    """
    from flambeau.runtime import _matmul

    _matmul.clear_workspaces()


def __getattr__(name: str) -> object:
    raise AttributeError(f"module 'flambeau._C' has no attribute {name!r}")
