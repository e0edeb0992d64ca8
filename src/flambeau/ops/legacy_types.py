# SPDX-License-Identifier: Apache-2.0
"""The legacy classes, ``FloatTensor``, ``FloatStorage`` and their like: one per dtype and device.

No tensor is an instance of them by class; they answer ``isinstance`` by dtype and device, and
calling one makes an ordinary tensor or storage.
"""

from __future__ import annotations

import array
import functools
import sys
import warnings
from typing import TYPE_CHECKING, Any

from flambeau.runtime import _dtype
from flambeau.runtime._storage import UntypedStorage
from flambeau.runtime._tensor import Tensor, empty, from_buffer, from_sequence
from flambeau.runtime.typed_storage import TypedStorage

if TYPE_CHECKING:
    from flambeau.runtime._dtype import dtype

__all__ = ["LegacyStorageType", "LegacyTensorType", "legacy_type"]

_DTYPES = {
    _dtype.legacy_type_name(of): of
    for name, of in _dtype.dtypes.items()
    if name == of.name and not name.startswith(("float8", "uint1", "uint3", "uint6", "complex3"))
}


@functools.cache
def _warn_once(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=4)


def _place(is_cuda: bool) -> str:
    return "cuda" if is_cuda else "cpu"


class LegacyTensorType(type):
    """The class of ``FloatTensor`` and its like."""

    dtype: dtype
    is_cuda: bool
    is_sparse: bool
    layout: Any

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, Tensor)
            and instance.dtype == cls.dtype
            and instance.is_cuda == cls.is_cuda
            and instance.is_sparse == cls.is_sparse
        )

    def __call__(cls, *arguments: Any, device: Any = None) -> Tensor:
        """Make a tensor: ``FloatTensor(2, 3)`` by sizes, ``FloatTensor([1, 2])`` by data."""
        if cls.is_sparse:
            raise NotImplementedError(
                f"{cls.__module__}.{cls.__name__} cannot be made: there are no sparse tensors. "
                "Make a dense one with torch.tensor"
            )
        if cls.is_cuda:
            _warn_once(
                "The torch.cuda.*DtypeTensor constructors are no longer recommended. Make tensors "
                "with torch.tensor(data, dtype=..., device='cuda')."
            )
        place = _place(cls.is_cuda) if device is None else device
        if len(arguments) != 1 or isinstance(arguments[0], (_dtype.Size, int)):
            sizes = arguments[0] if len(arguments) == 1 else arguments or (0,)
            return empty(sizes, dtype=cls.dtype, device=place)
        return cls._of(arguments[0]).to(device=place, dtype=cls.dtype)

    def _of(cls, data: Any) -> Tensor:
        """The tensor, storage, array or sequence as a tensor; with its memory if it has one."""
        if isinstance(data, Tensor):
            return data
        if isinstance(data, TypedStorage):
            return data._elements()
        if isinstance(data, UntypedStorage):
            return TypedStorage(wrap_storage=data, dtype=cls.dtype)._elements()
        if isinstance(data, (list, tuple)):
            return from_sequence(data, cls.dtype)
        from flambeau.ops.creation import as_tensor

        return as_tensor(data)


class LegacyStorageType(type):
    """The class of ``FloatStorage`` and its like."""

    dtype: dtype
    _on_cuda: bool

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, TypedStorage)
            and instance.dtype == cls.dtype
            and instance.is_cuda == cls._on_cuda
        )

    def __call__(cls, *arguments: Any, wrap_storage: UntypedStorage | None = None) -> TypedStorage:
        """Make a storage: of a number of elements, of the elements of a sequence, or over bytes."""
        _warn_once(
            "TypedStorage is deprecated, and with it torch.FloatStorage and its like. Use "
            "torch.UntypedStorage, or a tensor."
        )
        if wrap_storage is not None:
            return TypedStorage(wrap_storage=wrap_storage, dtype=cls.dtype)
        if len(arguments) > 1:
            raise RuntimeError(
                f"{cls.__name__} takes a number of elements or a sequence, got {len(arguments)} "
                "arguments"
            )
        what = arguments[0] if arguments else 0
        if isinstance(what, int):
            made = empty((what,), dtype=cls.dtype, device=_place(cls._on_cuda))
        else:
            values = what.tolist() if isinstance(what, TypedStorage) else list(what)
            made = from_sequence(values, cls.dtype).to(_place(cls._on_cuda))
        stored: TypedStorage = made.storage()
        return stored

    def from_buffer(
        cls, buffer: Any, byte_order: str = "native", count: int = -1, offset: int = 0
    ) -> TypedStorage:
        """Make a storage with a copy of an object's bytes.

        Parameters
        ----------
        buffer
            ``bytes`` or another object with a buffer.
        byte_order
            ``"native"``, ``"little"`` or ``"big"``: how the elements lie in it.
        count
            How many elements; all if negative.
        offset
            Bytes to leave out at the front.
        """
        if byte_order not in {"native", "little", "big"}:
            raise ValueError(f"byte_order is 'native', 'little' or 'big', got {byte_order!r}")
        values = from_buffer(buffer, dtype=cls.dtype, count=count, offset=offset)
        part = cls.dtype.itemsize // (2 if cls.dtype.category == 3 else 1)
        if byte_order in {"native", sys.byteorder} or part == 1:
            values = values.clone()
        else:
            turned = array.array({2: "H", 4: "I", 8: "Q"}[part])
            turned.frombytes(memoryview(values.view(_dtype.dtypes["uint8"])))
            turned.byteswap()
            values = from_buffer(turned, dtype=cls.dtype)
        stored: TypedStorage = values.to(_place(cls._on_cuda)).storage()
        return stored


@functools.cache
def legacy_type(name: str, is_cuda: bool = False, is_sparse: bool = False) -> Any:
    """The legacy class of a name such as ``"FloatTensor"`` or ``"FloatStorage"``.

    Raises
    ------
    AttributeError
        There is none of this name.
    """
    kind = "Storage" if name.endswith("Storage") else "Tensor"
    of = _DTYPES.get(name.removesuffix(kind))
    if of is None or not name.endswith(kind) or (kind == "Tensor" and of.category == 3):
        raise AttributeError(f"there is no legacy class {name!r}")
    module = "flambeau" + (".cuda" if is_cuda else "") + (".sparse" if is_sparse else "")
    place = "a CUDA device" if is_cuda else "the host"
    common = {
        "dtype": of,
        "__module__": module,
        "__doc__": f"{'Sparse tensors' if is_sparse else kind + 's'} of {of!r} on {place}.",
    }
    if kind == "Storage":
        return LegacyStorageType(name, (TypedStorage,), {**common, "_on_cuda": is_cuda})
    layout = _dtype.constants["strided"]
    return LegacyTensorType(
        name, (), {**common, "is_cuda": is_cuda, "is_sparse": is_sparse, "layout": layout}
    )
