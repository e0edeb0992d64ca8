# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

from flambeau.runtime._dtype import dtype as _dtype
from flambeau.runtime._dtype import layout as _layout
from flambeau.runtime._dtype import memory_format as _memory_format
from flambeau.runtime._tensor import Tensor

def set_default_dtype(d: _dtype) -> None:
    """Set the dtype of floats that come without one."""

def get_default_dtype() -> _dtype:
    """The dtype of floats that come without one."""

def empty(
    size: int | Sequence[int] | None = None,
    size1: int | None = None,
    size2: int | None = None,
    size3: int | None = None,
    size4: int | None = None,
    size5: int | None = None,
    size6: int | None = None,
    size7: int | None = None,
    size8: int | None = None,
    size9: int | None = None,
    *,
    out: Tensor | None = None,
    dtype: _dtype | None = None,
    layout: _layout | None = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: _memory_format | None = None,
) -> Tensor:
    """A tensor whose memory is not cleared.

    Parameters
    ----------
    size, size1, …
        The sizes: ``empty(2, 3)`` or ``empty((2, 3))``.
    out
        A tensor to give these sizes instead.
    dtype
        The element type; by default `get_default_dtype`.
    device
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, an index or a `device`; by default the default device.
    pin_memory
        Put a host tensor into pinned memory, which initialises CUDA.
    memory_format
        The order of the dimensions in memory.

    Raises
    ------
    RuntimeError
        A size is negative.
    OutOfMemoryError
        The device has no memory left.
    """

def new_empty(
    sizes: int | Sequence[int],
    dtype: _dtype | None = None,
    device: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """`empty` with the sizes as one sequence: what other factories build on."""

def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: _dtype | None = None,
    layout: _layout | None = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor with these sizes and strides (in elements), memory not cleared."""

def empty_like(
    input: Tensor,
    *,
    dtype: _dtype | None = None,
    layout: _layout | None = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: _memory_format | None = None,
) -> Tensor:
    """A tensor with the shape, dtype, device and order of dimensions of another, not cleared."""

def from_sequence(data: Any, dtype: _dtype | None = None) -> Tensor:
    """A host tensor with the numbers of nested lists or tuples, or of one number.

    Raises
    ------
    ValueError
        The nesting is ragged.
    RuntimeError
        A number does not fit the dtype, or something is not a number.
    """

def wrap_foreign(
    address: int,
    owner: object,
    sizes: Sequence[int],
    strides: Sequence[int] | None = None,
    *,
    dtype: _dtype,
    device: int = -1,
    nbytes: int = 0,
) -> Tensor:
    """A tensor over memory that something else owns.

    Parameters
    ----------
    address
        Of element 0, in host memory or in that of the CUDA device.
    owner
        Any object; it is kept alive as long as the memory is used.
    sizes, strides
        In elements; row-major without strides.
    dtype
        The element type.
    device
        A CUDA index, or -1 for the host.
    nbytes
        Size of the memory from `address` on; computed from the sizes when 0.
    """

def from_buffer(buffer: Any, *, dtype: _dtype, count: int = -1, offset: int = 0) -> Tensor:
    """A one-dimensional host tensor over the memory of an object with a buffer."""

def resize_(self: Tensor, *sizes: Any, memory_format: _memory_format | None = None) -> Tensor:
    """``Tensor.resize_``."""

def set_(
    self: Tensor,
    source: Any = None,
    storage_offset: int | None = None,
    size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
) -> Tensor:
    """``Tensor.set_``."""
