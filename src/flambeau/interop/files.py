# SPDX-License-Identifier: Apache-2.0
"""Host tensors over files."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING, Any

from flambeau.runtime import _tensor

if TYPE_CHECKING:
    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._tensor import Tensor

__all__ = ["from_file"]


def from_file(
    filename: str | os.PathLike[str],
    shared: bool | None = None,
    size: int = 0,
    *,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    r"""Make a host vector over a file that is mapped into memory.

    Parameters
    ----------
    filename
        The file.
    shared
        True: what is written to the tensor goes to the file, which is made or grown as needed.
        Else the file stays as it is, and must be long enough.
    size
        How many elements.
    dtype
        By default the default floating-point dtype.
    layout
        Accepted: tensors are strided.
    device
        A device to copy to; by default the host.
    pin_memory
        Copy into pinned memory.

    Raises
    ------
    RuntimeError
        The file is too short.
    OSError
        The file cannot be opened.

    Examples
    --------
    >>> import flambeau as torch
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     x = torch.from_file(file.name, shared=True, size=4, dtype=torch.int32)
    ...     _ = x.fill_(7)
    ...     file.read()[:4]
    b'\x07\x00\x00\x00'
    """
    of = dtype or _tensor.get_default_dtype()
    needed = size * of.itemsize
    if size < 0:
        raise RuntimeError(f"size is a number of elements, got {size}")
    if needed == 0:
        return _tensor.empty((0,), dtype=of, device=device)
    made = _tensor.from_buffer(_map(filename, bool(shared), needed), dtype=of, count=size)
    if pin_memory:
        made = made.pin_memory()
    return made if device is None else made.to(device)


def _map(filename: str | os.PathLike[str], shared: bool, needed: int) -> mmap.mmap:
    flags = os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY
    file = os.open(filename, flags | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        present = os.fstat(file).st_size
        if present < needed and not shared:
            raise RuntimeError(
                f"{os.fspath(filename)} has {present} bytes, and {needed} are needed; pass "
                "shared=True to have it grown, or a smaller size"
            )
        if present < needed:
            os.ftruncate(file, needed)
        access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
        return mmap.mmap(file, needed, access=access)
    finally:
        os.close(file)
