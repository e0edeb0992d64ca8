# SPDX-License-Identifier: Apache-2.0
"""A storage seen as elements of one dtype: what ``Tensor.storage()`` gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.runtime._dtype import dtype, legacy_type_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flambeau.runtime._device import device
    from flambeau.runtime._storage import UntypedStorage
    from flambeau.runtime._tensor import Tensor

__all__ = ["TypedStorage"]


class TypedStorage:
    """The memory behind a tensor as a flat array of its elements.

    Parameters
    ----------
    wrap_storage
        The bytes.
    dtype
        The element type.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.ones(2, 2)[1].storage().tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    __module__ = "flambeau"

    def __init__(self, *, wrap_storage: UntypedStorage, dtype: dtype) -> None:
        self._untyped = wrap_storage
        self.dtype = dtype

    def _elements(self) -> Tensor:
        """All elements as a tensor over this memory."""
        whole = self.nbytes() // self.dtype.itemsize * self.dtype.itemsize
        return self._untyped._bytes()[:whole].view(self.dtype)

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return self._untyped

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._untyped.data_ptr()

    def nbytes(self) -> int:
        """How many bytes."""
        return self._untyped.nbytes()

    def size(self) -> int:
        """How many elements."""
        return self.nbytes() // self.dtype.itemsize

    def __len__(self) -> int:
        return self.size()

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def device(self) -> device:
        """Where the memory is."""
        return self._untyped.device

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is a CUDA device's."""
        return self._untyped.is_cuda

    def get_device(self) -> int:
        """The CUDA device's index; -1 for host memory."""
        return self._untyped.get_device()

    def is_pinned(self) -> bool:
        """Whether a device can reach this host memory directly."""
        return self._untyped.is_pinned()

    @property
    def _cdata(self) -> int:
        return self._untyped._cdata

    def type(self) -> str:
        """The name of the legacy class: ``"torch.cuda.FloatStorage"``."""
        return f"torch.{'cuda.' if self.is_cuda else ''}{legacy_type_name(self.dtype)}Storage"

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            raise RuntimeError(
                "slices are only supported in UntypedStorage.__getitem__; slice a tensor instead"
            )
        return self._elements()[index].item()

    def __setitem__(self, index: int | slice, value: complex) -> None:
        self._elements()[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """The elements as a list of Python numbers. Waits for the device."""
        listed: list[Any] = self._elements().tolist()
        return listed

    def copy_(self, source: TypedStorage, non_blocking: bool = False) -> TypedStorage:
        """Copy the elements of a storage of the same length, with conversion; return this one."""
        self._elements().copy_(source._elements(), non_blocking)
        return self

    def fill_(self, value: complex) -> TypedStorage:
        """Set every element, and return this storage."""
        self._elements().fill_(value)
        return self

    def clone(self) -> TypedStorage:
        """A copy on the same device."""
        return TypedStorage(wrap_storage=self._untyped.clone(), dtype=self.dtype)

    def cpu(self) -> TypedStorage:
        """The storage if it is the host's, else a copy there."""
        return TypedStorage(wrap_storage=self._untyped.cpu(), dtype=self.dtype)

    def cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        """The storage if it is on that CUDA device, else a copy there."""
        moved = self._untyped.cuda(device, non_blocking)
        return TypedStorage(wrap_storage=moved, dtype=self.dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TypedStorage):
            return NotImplemented
        return self._untyped == other._untyped and self.dtype is other.dtype

    def __hash__(self) -> int:
        return hash((self._untyped, self.dtype))

    def __repr__(self) -> str:
        rows = "".join(f" {value}\n" for value in self.tolist())
        return (
            f"{rows}[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) "
            f"of size {len(self)}]"
        )
