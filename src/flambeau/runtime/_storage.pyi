# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterable
from typing import Any

from flambeau.runtime._device import device
from flambeau.runtime._tensor import Tensor
from flambeau.runtime.typed_storage import TypedStorage

class UntypedStorage:
    """The bytes behind one or more tensors, as ``Tensor.untyped_storage()`` gives them, or new bytes.

    Parameters
    ----------
    contents
        How many bytes, which are not cleared; or a sequence of integers, of which each gives its
        lowest byte.
    device
        Where; the default device if left out.
    """

    def __init__(self, contents: int | Iterable[int] = 0, *, device: object = None) -> None: ...
    def data_ptr(self) -> int:
        """The address of the first byte."""
    def nbytes(self) -> int:
        """How many bytes."""
    def size(self) -> int:
        """How many bytes."""
    def __len__(self) -> int: ...
    @property
    def device(self) -> device:
        """Where the memory is."""
    @property
    def is_cuda(self) -> bool:
        """Whether the memory is a CUDA device's."""
    def get_device(self) -> int:
        """The CUDA device's index; -1 for host memory."""
    def is_pinned(self, device: object = None) -> bool:
        """Whether a device can reach this host memory directly."""
    def is_shared(self) -> bool:
        """Whether other processes can map this memory; device memory always."""

    def share_memory_(self) -> UntypedStorage:
        """The storage itself, if other processes can map it; host memory moves with its tensor only."""

    def _share_cuda_(self) -> tuple[Any, ...]:
        """What another process needs to hold this device memory too."""

    @staticmethod
    def _new_shared(size: int, *, device: object = "cpu") -> UntypedStorage:
        """A storage in memory that other processes can map."""

    @staticmethod
    def _new_shared_cuda(*shared: Any) -> UntypedStorage:
        """A storage over device memory of another process."""

    @staticmethod
    def _release_ipc_counter(counters: bytes, slot: int, device: object = None) -> None:
        """Say that what was sent under this counter is not needed."""

    @staticmethod
    def _release_ipc_counter_cuda(counters: bytes, slot: int, device: object = None) -> None:
        """Say that what was sent under this counter is not needed."""

    def resizable(self) -> bool:
        """Whether this memory may be replaced by a block of another size."""
    def element_size(self) -> int:
        """Always 1: a storage counts bytes."""
    @property
    def _cdata(self) -> int: ...
    def _bytes(self) -> Tensor: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def __setitem__(self, index: Any, value: Any, /) -> None: ...
    def tolist(self) -> list[int]:
        """The bytes as a list of ints."""
    def copy_(self, source: UntypedStorage, non_blocking: bool = False) -> UntypedStorage:
        """Copy all bytes of a storage of the same size into this one, and return it."""
    def fill_(self, value: int) -> UntypedStorage:
        """Set every byte, and return this storage."""
    def clone(self) -> UntypedStorage:
        """A copy of the bytes, on the same device."""
    def cpu(self) -> UntypedStorage:
        """The storage if it is the host's, else a copy there."""
    def cuda(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        """The storage if it is on that CUDA device, else a copy there."""

def untyped_storage(self: Tensor) -> UntypedStorage:
    """``Tensor.untyped_storage``."""

def storage(self: Tensor) -> TypedStorage:
    """``Tensor.storage``."""

def install_methods(table: dict[str, Callable[..., Any]]) -> None:
    """Add methods to `UntypedStorage`, by name."""

def share_memory_(self: Tensor) -> Tensor:
    """The tensor, in memory that other processes can map."""

def is_shared(self: Tensor) -> bool:
    """Whether other processes can map the tensor's memory; device memory always."""
