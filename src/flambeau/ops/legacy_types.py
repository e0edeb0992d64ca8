# SPDX-License-Identifier: Apache-2.0
"""The legacy tensor classes, ``FloatTensor`` and its like: one per dtype and kind of device.

No tensor is an instance of them by class; they answer ``isinstance`` by dtype and device, and
calling one makes an ordinary tensor.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from flambeau.runtime import _dtype
from flambeau.runtime._tensor import Tensor, empty, from_sequence

if TYPE_CHECKING:
    from flambeau.runtime._dtype import dtype

__all__ = ["LegacyTensorType", "legacy_tensor_type"]

_NAMES = {
    f"{_dtype.legacy_type_name(of)}Tensor": of
    for name, of in _dtype.dtypes.items()
    if name == of.name and of.category < 3 and not name.startswith(("float8", "uint1", "uint3"))
}
_NAMES.pop("UInt64Tensor", None)


class LegacyTensorType(type):
    """The class of ``FloatTensor`` and its like."""

    dtype: dtype
    is_cuda: bool

    def __instancecheck__(cls, instance: object) -> bool:
        return (
            isinstance(instance, Tensor)
            and instance.dtype == cls.dtype
            and instance.is_cuda == cls.is_cuda
        )

    def __call__(cls, *arguments: Any) -> Tensor:
        """Make a tensor: ``FloatTensor(2, 3)`` by sizes, ``FloatTensor([1, 2])`` by data."""
        device = "cuda" if cls.is_cuda else "cpu"
        if len(arguments) == 1 and isinstance(arguments[0], Tensor):
            return arguments[0].to(device=device, dtype=cls.dtype)
        if len(arguments) == 1 and isinstance(arguments[0], (list, tuple)):
            if not isinstance(arguments[0], _dtype.Size):
                return from_sequence(arguments[0], cls.dtype).to(device)
            arguments = tuple(arguments[0])
        return empty(arguments or (0,), dtype=cls.dtype, device=device)


@functools.cache
def legacy_tensor_type(name: str, is_cuda: bool = False) -> LegacyTensorType:
    """The legacy class of a name such as ``"FloatTensor"``.

    Raises
    ------
    AttributeError
        There is none of this name.
    """
    of = _NAMES.get(name)
    if of is None:
        raise AttributeError(f"there is no legacy tensor class {name!r}")
    module = "flambeau.cuda" if is_cuda else "flambeau"
    return LegacyTensorType(
        name, (), {"dtype": of, "is_cuda": is_cuda, "__module__": module, "__doc__": f"{of!r}."}
    )
