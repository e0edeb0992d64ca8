# SPDX-License-Identifier: Apache-2.0
"""A call of a library: its context, its stream, and scratch memory until it is queued."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.ops.common import THREADS, kernel, launch_linear
from flambeau.runtime import _cuda_device, _dtype, observers
from flambeau.runtime._stream import current_stream
from flambeau.runtime._tensor import empty

if TYPE_CHECKING:
    from types import TracebackType

    from flambeau.runtime._tensor import Tensor

__all__ = ["LibraryCall"]

_POINTERS = f"""#include "types.cuh"
FLAMBEAU_KERNEL({THREADS}) pointers(int64 *out, int64 first, int64 step, int64 n) {{
  FLAMBEAU_GRID_WAIT();
  const int64 i = blockIdx.x * (int64){THREADS} + threadIdx.x;
  if (i < n) out[i] = first + i * step;
}}
"""
_UINT8, _INT64 = _dtype.dtypes["uint8"], _dtype.dtypes["int64"]


class LibraryCall:
    """Work of this thread on a device's current stream; a context manager.

    Scratch memory is given back at the end of the block: only later work of the stream can get it.

    Parameters
    ----------
    device
        The index of a CUDA device, or -1 for the host.
    """

    def __init__(self, device: int) -> None:
        self._device = device
        self._guard = _cuda_device.DeviceGuard(device) if device >= 0 else None
        self._kept: list[Tensor] = []
        self._lent: dict[str, Tensor] = {}
        self.stream = 0

    def __enter__(self) -> LibraryCall:
        if self._guard is not None:
            self._guard.__enter__()
            self.stream = current_stream(self._device).cuda_stream
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kept.clear()
        self._lent.clear()
        if self._guard is not None:
            self._guard.__exit__(kind, error, trace)

    def _keep(self, tensor: Tensor) -> int:
        self._kept.append(tensor)
        return tensor.data_ptr()

    def scratch(self, size: int, use: str = "work") -> int:
        """Address of `size` bytes. Work is in order, so the next call's for one use is the same."""
        lent = self._lent.get(use)
        if lent is None or lent.numel() < size:
            where = f"cuda:{self._device}" if self._guard is not None else "cpu"
            lent = self._lent[use] = empty((size,), dtype=_UINT8, device=where)
        return lent.data_ptr()

    def addresses(self, first: int, step: int, count: int) -> int:
        """Address of `count` pointers, `step` bytes apart."""
        if self._guard is None:
            from flambeau.ops.sequences import arange

            return self._keep(arange(first, first + step * count, step, dtype=_INT64))
        pointers = empty((count,), dtype=_INT64, device=f"cuda:{self._device}")
        made = kernel(_POINTERS, "pointers", "Pqqq", self._device)
        launch_linear(made, self._device, count, pointers, first, step, count)
        return self._keep(pointers)

    def tell(self, name: str, read: tuple[Tensor, ...], written: tuple[Tensor, ...]) -> None:
        """Tell observers what was queued, and count the writes."""
        for tensor in written:
            tensor._mark_written()
        if self._guard is not None and observers.callbacks_of("operation"):
            observers.notify("operation", name, read, written, self.stream)
