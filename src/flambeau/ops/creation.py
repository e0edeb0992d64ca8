# SPDX-License-Identifier: Apache-2.0
"""Making tensors: from data, filled, and as sequences."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from flambeau.interop import array_interface
from flambeau.ops.promotion import get_default_dtype
from flambeau.ops.registry import FUNCTIONS, public
from flambeau.runtime import _dtype, _tensor
from flambeau.runtime._device import get_default_device
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._dtype import dtype

    Device = Any

empty = _tensor.empty
for _name in ("empty", "empty_like", "empty_strided"):
    FUNCTIONS[_name] = getattr(_tensor, _name)


# -- from data -------------------------------------------------------------------------------------


def _is_array(data: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(data, (numpy.ndarray, numpy.generic))


def _finished(made: Tensor, device: Device, pin_memory: bool, requires_grad: bool) -> Tensor:
    made = made.to(get_default_device() if device is None else device)
    if pin_memory:
        made = made.pin_memory()
    return made.requires_grad_() if requires_grad else made


@public(method=False)
def tensor(
    data: Any,
    *,
    dtype: dtype | None = None,
    device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a tensor with a copy of some data.

    Parameters
    ----------
    data
        A number, nested sequences of numbers, a NumPy array, a tensor, or another library's array:
        an object with ``__cuda_array_interface__`` or ``__dlpack__``.
    dtype
        By default what the data need: bool, int64, the default floating-point dtype, or the
        array's own.
    device
        By default the default device, for a tensor or another library's array its own.
    requires_grad
        Whether gradients shall be recorded for it.
    pin_memory
        Put a host tensor into pinned memory.

    Raises
    ------
    ValueError
        Sequences are ragged.
    RuntimeError
        A number does not fit the dtype.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.tensor([[1, 2], [3, 4]], device="cuda")
    tensor([[1, 2],
            [3, 4]], device='cuda:0')
    """
    if isinstance(data, Tensor):
        made = data.detach().to(device=device, dtype=dtype, copy=True)
        return made.requires_grad_() if requires_grad else made
    if _is_array(data):
        from flambeau.ops import host

        made = host.tensor_of(data, None if dtype is None else dtype.code)
    elif (foreign := _from_foreign(data)) is not None:
        made = foreign.to(device=device, dtype=dtype, copy=True)
        return _finished(made, made.device, pin_memory, requires_grad)
    else:
        made = _tensor.from_sequence(data, dtype)
    return _finished(made, device, pin_memory, requires_grad)


@public(method=False)
def as_tensor(data: Any, dtype: dtype | None = None, device: Device = None) -> Tensor:
    """Make a tensor, sharing memory with `data` where possible.

    Parameters
    ----------
    data
        A tensor, a NumPy array, another library's, or what `tensor` takes.
    dtype, device
        Where these differ from the data's own a copy is made.
    """
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype)
    if not _is_array(data) and (foreign := _from_foreign(data)) is not None:
        return foreign.to(device=device, dtype=dtype)
    if _is_array(data) and data.ndim:
        return from_numpy(data).to(
            device=get_default_device() if device is None else device, dtype=dtype
        )
    return tensor(data, dtype=dtype, device=device)


@public(method=False)
def asarray(
    obj: Any,
    *,
    dtype: dtype | None = None,
    device: Device = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a tensor, sharing the memory of `obj` where possible.

    Parameters
    ----------
    obj
        A tensor, a NumPy array, another library's array, a DLPack capsule, an object with a buffer
        (its bytes are taken as elements of `dtype`), or what `tensor` takes.
    dtype, device
        By default the object's own.
    copy
        True: always copy. False: never. None: where needed.
    requires_grad
        Whether gradients shall be recorded for it.

    Raises
    ------
    ValueError
        ``copy=False``, and this object, dtype or device needs a copy.
    """
    source = _shared(obj, dtype)
    if source is None:
        if copy is False:
            raise ValueError(
                f"can't alias arbitrary sequence into a tensor: a {type(obj).__name__} has no "
                "memory to share, and copy=False was given"
            )
        made = tensor(obj, dtype=dtype, device=device)
    else:
        made = source.to(device=device, dtype=dtype, copy=bool(copy))
        if copy is False and made is not source:
            raise ValueError(
                f"can't alias tensor with dtype {source.dtype} on {source.device} into dtype "
                f"{made.dtype} on {made.device}, and copy=False was given"
            )
    return made.requires_grad_() if requires_grad else made


def _shared(obj: Any, dtype: dtype | None) -> Tensor | None:
    """Make a tensor over an object's memory; None if it has none."""
    if isinstance(obj, Tensor):
        return obj
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(obj, numpy.ndarray):
        return from_numpy(obj)
    if _is_array(obj):  # a scalar
        return None
    foreign = _from_foreign(obj)
    if foreign is None and type(obj).__name__ == "PyCapsule":
        from flambeau.utils.dlpack import from_dlpack

        foreign = from_dlpack(obj)
    if foreign is None and not isinstance(obj, (list, tuple, str, int, float, complex)):
        try:
            view = memoryview(obj)
        except TypeError:
            return None
        return frombuffer(view, dtype=dtype or get_default_dtype())
    return foreign


def _from_foreign(data: Any) -> Tensor | None:
    """Make a tensor over another library's array; None if it is no such thing."""
    if isinstance(data, (list, tuple, int, float, complex)):
        return None
    return array_interface.from_foreign(data)


@public(method=False)
def from_numpy(ndarray: Any) -> Tensor:
    """Make a host tensor that shares memory with a NumPy array.

    Parameters
    ----------
    ndarray
        An array with non-negative strides that are multiples of its item size.

    Raises
    ------
    TypeError
        It is no array, or its dtype has no counterpart.
    ValueError
        A stride is negative.
    """
    if not _is_array(ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    from flambeau.ops import host

    code = host.scalar_type(ndarray.dtype)
    item = ndarray.dtype.itemsize
    if any(step < 0 for step in ndarray.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            "strides are not supported; pass array.copy()"
        )
    if any(step % item for step in ndarray.strides):
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size; pass array.copy()"
        )
    return _tensor.wrap_foreign(
        ndarray.__array_interface__["data"][0],
        ndarray,
        ndarray.shape,
        tuple(step // item for step in ndarray.strides),
        dtype=_dtype.dtype_from_code(code),
    )


@public(method=False)
def frombuffer(
    buffer: Any,
    *,
    dtype: dtype,
    count: int = -1,
    offset: int = 0,
    requires_grad: bool = False,
) -> Tensor:
    """Make a host vector that shares memory with an object's buffer; see `bytes`-like objects."""
    made = _tensor.from_buffer(buffer, dtype=dtype, count=count, offset=offset)
    return made.requires_grad_() if requires_grad else made


@public(method=False)
def scalar_tensor(
    s: complex,
    *,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a tensor without dimensions from a number, of the default dtype."""
    return tensor(
        s,
        dtype=dtype or get_default_dtype(),
        device=device,
        requires_grad=requires_grad,
        pin_memory=pin_memory,
    )


# -- filled ----------------------------------------------------------------------------------------


def _sizes(size: tuple[Any, ...]) -> Any:
    """``zeros(2, 3)`` or ``zeros((2, 3))``."""
    return size[0] if len(size) == 1 else size


def _made(
    size: Any,
    value: complex,
    out: Tensor | None,
    dtype: dtype | None,
    device: Device,
    requires_grad: bool,
    pin_memory: bool,
) -> Tensor:
    if out is not None:
        made = empty(size, out=out)
    else:
        made = _tensor.new_empty(size, dtype, device, pin_memory)
    made.fill_(value)
    return made.requires_grad_() if requires_grad else made


@public(method=False)
def zeros(
    *size: Any,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a tensor of zeros.

    Parameters
    ----------
    size
        ``zeros(2, 3)`` or ``zeros((2, 3))``.
    out
        A tensor to resize and fill instead.
    dtype
        By default the default floating-point dtype.
    layout
        Accepted: tensors are strided.
    device
        By default the default device.
    requires_grad
        Whether gradients shall be recorded for it.
    pin_memory
        Put a host tensor into pinned memory.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.zeros(2, device="cuda")
    tensor([0., 0.], device='cuda:0')
    """
    return _made(_sizes(size), 0, out, dtype, device, requires_grad, pin_memory)


@public(method=False)
def ones(
    *size: Any,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a tensor of ones; parameters as for `zeros`."""
    return _made(_sizes(size), 1, out, dtype, device, requires_grad, pin_memory)


def _dtype_of_value(value: Any) -> dtype:
    if isinstance(value, Tensor):
        return value.dtype
    if isinstance(value, bool):
        return _dtype.dtypes["bool"]
    if isinstance(value, int):
        return _dtype.dtypes["int64"]
    return get_default_dtype().to_complex() if isinstance(value, complex) else get_default_dtype()


@public(method=False)
def full(
    size: Sequence[int],
    fill_value: Any,
    *,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a tensor filled with a number; its type decides the dtype unless given."""
    of = dtype or _dtype_of_value(fill_value)
    return _made(size, fill_value, out, of, device, requires_grad, pin_memory)


def _like(input: Tensor, value: Any, options: dict[str, Any]) -> Tensor:
    return _tensor.empty_like(input, **options).fill_(value)


@public(method=False)
def zeros_like(input: Tensor, **options: Any) -> Tensor:
    """Make zeros of a tensor's shape, dtype and device; options as for `empty_like`."""
    return _like(input, 0, options)


@public(method=False)
def ones_like(input: Tensor, **options: Any) -> Tensor:
    """Make ones of a tensor's shape, dtype and device; options as for `empty_like`."""
    return _like(input, 1, options)


@public(method=False)
def full_like(input: Tensor, fill_value: Any, **options: Any) -> Tensor:
    """Fill a tensor of another's shape, dtype and device; options as for `empty_like`."""
    return _like(input, fill_value, options)


@public(method=False)
def eye(
    n: int,
    m: int | None = None,
    *,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a matrix (n, m) with ones on the diagonal and zeros elsewhere."""
    columns = n if m is None else m
    if n < 0 or columns < 0:
        raise RuntimeError(f"n must be greater or equal to 0, got {min(n, columns)}")
    made = _made((n, columns), 0, out, dtype, device, False, pin_memory)
    made.diagonal().fill_(1)
    return made.requires_grad_() if requires_grad else made


# -- Tensor.new_… ----------------------------------------------------------------------------------


def _new(self: Tensor, dtype: dtype | None, device: Device) -> dict[str, Any]:
    return {"dtype": dtype or self.dtype, "device": self.device if device is None else device}


@public(function=False)
def new_empty(
    self: Tensor, *size: Any, dtype: Any = None, device: Any = None, **more: Any
) -> Tensor:
    """Make a tensor with uncleared memory, by default of this one's dtype and device."""
    return empty(_sizes(size), **_new(self, dtype, device), **more)


@public(function=False)
def new_zeros(
    self: Tensor, *size: Any, dtype: Any = None, device: Any = None, **more: Any
) -> Tensor:
    """Make a tensor of zeros, by default of this one's dtype and device."""
    return zeros(_sizes(size), **_new(self, dtype, device), **more)


@public(function=False)
def new_ones(
    self: Tensor, *size: Any, dtype: Any = None, device: Any = None, **more: Any
) -> Tensor:
    """Make a tensor of ones, by default of this one's dtype and device."""
    return ones(_sizes(size), **_new(self, dtype, device), **more)


@public(function=False)
def new_full(
    self: Tensor, size: Any, fill_value: Any, dtype: Any = None, device: Any = None, **more: Any
) -> Tensor:
    """Make a filled tensor, by default of this one's dtype and device."""
    return full(size, fill_value, **_new(self, dtype, device), **more)


@public(function=False)
def new_tensor(
    self: Tensor, data: Any, dtype: Any = None, device: Any = None, **more: Any
) -> Tensor:
    """Make a tensor with a copy of some data, by default of this one's dtype and device."""
    return tensor(data, **_new(self, dtype, device), **more)


@public(function=False)
def numpy(self: Tensor, *, force: bool = False) -> Any:
    """View a host tensor's memory as a NumPy array.

    Parameters
    ----------
    force
        Copy what NumPy cannot see: a CUDA tensor to the host.

    Raises
    ------
    TypeError
        The tensor is on a CUDA device, or NumPy has no such dtype.
    RuntimeError
        The tensor requires gradients.
    """
    if force:
        return numpy(self.detach().cpu())
    if self.device.type != "cpu":
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy "
            "the tensor to host memory first."
        )
    if self.requires_grad:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    if self.dtype.name == "bfloat16":
        raise TypeError("Got unsupported ScalarType BFloat16: NumPy has none, use .float().numpy()")
    from flambeau.ops import host

    return host.array(self)


@public(function=False)
def __array__(self: Tensor, dtype: Any = None, copy: Any = None) -> Any:  # noqa: N807
    """What ``numpy.asarray`` asks; shares memory where it can."""
    found = numpy(self)
    if dtype is not None and found.dtype != dtype:
        if copy is False:
            raise ValueError(
                f"a tensor of {found.dtype} becomes an array of {dtype} only by a copy, and "
                "copy=False was given"
            )
        return found.astype(dtype)
    return found.copy() if copy else found
