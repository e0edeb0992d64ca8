# SPDX-License-Identifier: Apache-2.0
"""The CUDA array interface, version 3: device arrays described by a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.runtime import _dtype, _tensor
from flambeau.runtime._dlpack import device_of_address, wait_for_stream
from flambeau.runtime._stream import current_stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flambeau.runtime._tensor import Tensor

__all__ = ["from_cuda_array_interface", "from_foreign"]

# Types that NumPy has no letter for travel as bytes without meaning, as ml_dtypes' do.
_TYPESTR = {
    "bool": "|b1",
    "uint8": "|u1",
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
    "float16": "<f2",
    "bfloat16": "<V2",
    "float32": "<f4",
    "float64": "<f8",
    "complex64": "<c8",
    "complex128": "<c16",
}
_NAMES = {typestr[1:]: name for name, typestr in _TYPESTR.items()}


def cuda_array_interface(self: Tensor) -> dict[str, Any]:
    """Describe a CUDA tensor to libraries that take the CUDA array interface.

    Returns
    -------
    dict
        ``shape``, ``typestr``, ``data`` (address, whether read-only), ``version`` 3, ``strides`` in
        bytes or None for a contiguous tensor, and ``stream``: what the consumer must order its work
        after, this thread's current stream of the device (1 for the default stream).

    Raises
    ------
    AttributeError
        It is a host tensor, or of a dtype that the interface cannot name.
    RuntimeError
        It requires gradients.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.ones(2, 3, device="cuda")
    >>> x.__cuda_array_interface__["typestr"]
    '<f4'
    """
    if not self.is_cuda:
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()}. If CUDA "
            "data is required use tensor.cuda() to copy tensor to device memory."
        )
    typestr = _TYPESTR.get(self.dtype.name)
    if typestr is None:
        raise AttributeError(
            f"__cuda_array_interface__ has no name for {self.dtype}; use DLPack, or "
            "tensor.view(torch.uint8)"
        )
    if self.requires_grad:
        raise RuntimeError(
            "Can't get __cuda_array_interface__ on a tensor that requires grad. Use "
            "tensor.detach() to get one that doesn't require grad."
        )
    strides = None
    if not self.is_contiguous():
        strides = tuple(step * self.element_size() for step in self.stride())
    return {
        "shape": tuple(self.shape),
        "typestr": typestr,
        "data": (self.data_ptr() if self.numel() else 0, False),
        "version": 3,
        "strides": strides,
        "stream": current_stream(self.device).cuda_stream or 1,
    }


def from_cuda_array_interface(obj: Any) -> Tensor:
    """Make a tensor over the memory of an object with ``__cuda_array_interface__``.

    This thread's current stream of the memory's device waits for the stream that the object names.

    Raises
    ------
    TypeError
        The object's type of elements is none of tensors', or of the other byte order.
    ValueError
        A stride is negative or no multiple of the item size, or the address is not CUDA's.
    """
    interface: Mapping[str, Any] = obj.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise TypeError("an array with a mask cannot become a tensor; fill or drop the masked part")
    of = _dtype_of(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if strides is not None:
        strides = _in_elements(strides, of.itemsize)
    address = interface["data"][0] or 0
    if 0 in shape:
        return _tensor.empty(shape, dtype=of, device="cuda")
    device = device_of_address(address)
    stream = interface.get("stream")
    if stream is not None:
        if stream == 0:
            raise ValueError(
                "__cuda_array_interface__ names stream 0, which the interface rules out: 1 is the "
                "default stream, 2 the per-thread one"
            )
        wait_for_stream(device, stream)
    return _tensor.wrap_foreign(address, obj, shape, strides, dtype=of, device=device)


def _dtype_of(typestr: str) -> _dtype.dtype:
    if typestr[0] == ">" and typestr[-1] != "1":
        raise TypeError(f"the array's byte order ({typestr}) is not the native one")
    name = _NAMES.get(typestr[1:])
    if name is None:
        raise TypeError(f"no dtype of tensors is the array's {typestr}; there are {list(_NAMES)}")
    return _dtype.dtypes[name]


def _in_elements(strides: tuple[int, ...], item: int) -> tuple[int, ...]:
    if any(step < 0 for step in strides):
        raise ValueError(f"tensors with negative strides are not supported, got {strides} bytes")
    if any(step % item for step in strides):
        raise ValueError(f"strides of {strides} bytes are no multiples of the item size, {item}")
    return tuple(step // item for step in strides)


def from_foreign(obj: Any) -> Tensor | None:
    """Make a tensor over another library's array; None if the object is no such array."""
    if getattr(obj, "__cuda_array_interface__", None) is not None:
        return from_cuda_array_interface(obj)
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        from flambeau.utils.dlpack import from_dlpack

        return from_dlpack(obj)
    return None


_tensor.install_methods({"__cuda_array_interface__": property(cuda_array_interface)})
