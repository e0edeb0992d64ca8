# SPDX-License-Identifier: Apache-2.0
"""Copying and pickling tensors and storages: what moves, what is shared."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from flambeau.runtime import _factory, _storage, _tensor
from flambeau.runtime._dtype import dtype_named

if TYPE_CHECKING:
    from flambeau.runtime._dtype import dtype

__all__: list[str] = []


def rebuild_storage(data: bytes, device: str) -> _storage.UntypedStorage:
    """A storage with these bytes on a device."""
    made = _factory.new_empty((len(data),), dtype_named("uint8"))
    if data:
        made.copy_(_factory.from_buffer(data, dtype=dtype_named("uint8")))
    return made.to(device).untyped_storage()


def rebuild_tensor(
    cls: type[_tensor.Tensor],
    storage: _storage.UntypedStorage,
    of: dtype,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    attributes: dict[str, Any],
) -> _tensor.Tensor:
    """A tensor of a class over a storage."""
    plain = _factory.new_empty((0,), of).set_(storage, offset, size, stride)
    made = plain if cls is _tensor.Tensor else plain.as_subclass(cls)
    made.requires_grad = requires_grad
    made.__dict__.update(attributes)
    return made


def _reduce_storage(self: _storage.UntypedStorage, protocol: int) -> tuple[Any, ...]:
    return rebuild_storage, (bytes(memoryview(self.cpu()._bytes())), str(self.device))


def _deepcopy_storage(
    self: _storage.UntypedStorage, memo: dict[Any, Any]
) -> _storage.UntypedStorage:
    key = ("storage", self._cdata)  # every view has a face of its own
    if key not in memo:
        memo[key] = self.clone()
    found: _storage.UntypedStorage = memo[key]
    return found


def _reduce_tensor(self: _tensor.Tensor, protocol: int) -> tuple[Any, ...]:
    return rebuild_tensor, (
        type(self),
        self.untyped_storage(),
        self.dtype,
        self.storage_offset(),
        tuple(self.shape),
        self.stride(),
        self.requires_grad,
        dict(self.__dict__),
    )


def _deepcopy_tensor(self: _tensor.Tensor, memo: dict[Any, Any]) -> _tensor.Tensor:
    if id(self) in memo:
        known: _tensor.Tensor = memo[id(self)]
        return known
    made = rebuild_tensor(
        type(self),
        copy.deepcopy(self.untyped_storage(), memo),
        self.dtype,
        self.storage_offset(),
        tuple(self.shape),
        self.stride(),
        self.requires_grad,
        {},
    )
    memo[id(self)] = made
    made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    if self.grad is not None:
        made.grad = copy.deepcopy(self.grad, memo)
    return made


_tensor.install_methods({"__reduce_ex__": _reduce_tensor, "__deepcopy__": _deepcopy_tensor})
_storage.install_methods({"__reduce_ex__": _reduce_storage, "__deepcopy__": _deepcopy_storage})
