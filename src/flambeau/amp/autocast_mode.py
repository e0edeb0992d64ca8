# SPDX-License-Identifier: Apache-2.0
"""Regions in which products run in a lower precision and delicate operations in float32.

``ops.casts`` has the table: by an operation's name, whether its operands are cast to the region's
dtype, to float32, or to the widest dtype among them. Every other operation takes what it gets.
"""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from flambeau.ops.casts import CAST_TO_FLOAT32, CAST_TO_LOWER, CAST_TO_WIDEST
from flambeau.runtime import _dtype
from flambeau.runtime._recording import set_autocast, set_caster
from flambeau.runtime._tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from flambeau.runtime._dtype import dtype

F = TypeVar("F", bound="Callable[..., Any]")

__all__ = [
    "autocast",
    "autocast_decrement_nesting",
    "autocast_increment_nesting",
    "clear_autocast_cache",
    "custom_bwd",
    "custom_fwd",
    "get_autocast_cpu_dtype",
    "get_autocast_dtype",
    "get_autocast_gpu_dtype",
    "is_autocast_available",
    "is_autocast_cache_enabled",
    "is_autocast_cpu_enabled",
    "is_autocast_enabled",
    "set_autocast_cache_enabled",
    "set_autocast_cpu_dtype",
    "set_autocast_cpu_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
    "set_autocast_gpu_dtype",
]

_FLOAT32, _FLOAT64 = _dtype.dtypes["float32"], _dtype.dtypes["float64"]
_HALF, _BFLOAT16 = _dtype.dtypes["float16"], _dtype.dtypes["bfloat16"]
_SUPPORTED = {"cuda": (_HALF, _BFLOAT16, _FLOAT32), "cpu": (_HALF, _BFLOAT16)}


class _State(threading.local):
    """What one thread casts: by device type, whether and to what."""

    def __init__(self) -> None:
        self.enabled = {"cuda": False, "cpu": False}
        self.dtypes = {"cuda": _HALF, "cpu": _BFLOAT16}
        self.cache_enabled = True
        self.nesting = 0
        self.cache: dict[tuple[int, str], tuple[weakref.ref[Tensor], Tensor]] = {}


_state = _State()


def _known(device_type: str) -> str:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if device_type not in _state.enabled:
        raise RuntimeError(
            f"User specified an unsupported autocast device_type '{device_type}'; there are 'cuda' "
            "and 'cpu'"
        )
    return device_type


# -- casting --------------------------------------------------------------------------------------


def _map(value: Any, cast: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return cast(value)
    if type(value) in {list, tuple}:
        return type(value)(_map(one, cast) for one in value)
    return value


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            found.append(value)
        elif type(value) in {list, tuple}:
            found += [one for one in value if isinstance(one, Tensor)]
    return found


def _cached(tensor: Tensor, to: dtype) -> Tensor:
    """A cast, kept until the outermost region ends if the tensor is a leaf that requires grad."""
    if not (_state.cache_enabled and tensor.requires_grad and tensor.is_leaf) or tensor._is_view():
        return tensor.to(to)
    key = (id(tensor), to.name)
    kept = _state.cache.get(key)
    if kept is not None and kept[0]() is tensor:
        return kept[1]
    made = tensor.to(to)
    _state.cache[key] = (weakref.ref(tensor), made)
    return made


def _cast_operands(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `set_caster` asks for: new arguments, or None."""
    if name in CAST_TO_LOWER:
        wanted: dtype | None = None
    elif name in CAST_TO_FLOAT32:
        wanted = _FLOAT32
    elif name in CAST_TO_WIDEST:
        wanted = _FLOAT64  # stands for the widest
    else:
        return None
    tensors = _tensors(args, kwargs)
    device_type = next((t.device.type for t in tensors if _state.enabled[t.device.type]), None)
    if device_type is None or kwargs.get("out") is not None:
        return None
    lower = wanted is None
    if wanted is None:
        wanted = _state.dtypes[device_type]
    elif wanted is _FLOAT64:
        widths = {t.dtype for t in tensors if _eligible(t, device_type)}
        if len(widths) < 2:
            return args, kwargs
        wanted = _FLOAT32
    to = wanted

    def cast(tensor: Tensor) -> Tensor:
        if not _eligible(tensor, device_type) or tensor.dtype == to:
            return tensor
        return _cached(tensor, to) if lower else tensor.to(to)

    return (
        tuple(_map(value, cast) for value in args),
        {key: _map(value, cast) for key, value in kwargs.items()},
    )


def _eligible(tensor: Tensor, device_type: str) -> bool:
    return tensor.device.type == device_type and tensor.dtype in {_FLOAT32, _HALF, _BFLOAT16}


set_caster(_cast_operands)


def _follow() -> bool:
    """Tell the recording functions whether to ask for casts; returns what was so before."""
    return set_autocast(any(_state.enabled.values()))


# -- the state, piece by piece --------------------------------------------------------------------


def is_autocast_available(device_type: str) -> bool:
    """Whether `autocast` knows a device type.

    Parameters
    ----------
    device_type
        Such as ``"cuda"``.

    Examples
    --------
    >>> import flambeau as torch
    >>> torch.amp.is_autocast_available("cuda")
    True
    """
    return device_type in _state.enabled


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether operands on a device type, ``"cuda"`` unless given, are cast in this thread."""
    return _state.enabled[_known(device_type or "cuda")]


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Switch casting on a device type on or off; with one argument on CUDA devices."""
    if isinstance(device_type, bool):
        _state.enabled["cuda"] = device_type
    else:
        _state.enabled[_known(device_type)] = bool(enabled)
    _follow()


def get_autocast_dtype(device_type: str) -> dtype:
    """Look up the lower precision of a device type."""
    return _state.dtypes[_known(device_type)]


def set_autocast_dtype(device_type: str, dtype: dtype) -> None:
    """Set the lower precision of a device type."""
    _state.dtypes[_known(device_type)] = dtype


def get_autocast_gpu_dtype() -> dtype:
    """Look up the lower precision of CUDA devices."""
    return get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype: dtype) -> None:
    """Set the lower precision of CUDA devices."""
    set_autocast_dtype("cuda", dtype)


def is_autocast_cpu_enabled() -> bool:
    """Whether operands on the host are cast."""
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Switch casting on the host on or off."""
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype() -> dtype:
    """Look up the lower precision of the host."""
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype: dtype) -> None:
    """Set the lower precision of the host."""
    set_autocast_dtype("cpu", dtype)


def is_autocast_cache_enabled() -> bool:
    """Whether casts of parameters are kept inside a region."""
    return _state.cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Keep casts of parameters inside a region, or do not."""
    _state.cache_enabled = enabled


def autocast_increment_nesting() -> int:
    """Count a region that begins; gives how many are open."""
    _state.nesting += 1
    return _state.nesting


def autocast_decrement_nesting() -> int:
    """Count a region that ends; gives how many are still open."""
    _state.nesting -= 1
    return _state.nesting


def clear_autocast_cache() -> None:
    """Drop the casts that are kept."""
    _state.cache.clear()


# -- regions --------------------------------------------------------------------------------------


class autocast:  # noqa: N801 - torch's name
    """Region in which operations choose their precision; a context manager and a decorator.

    Matrix products run in the lower precision, operations that need range or precision in float32.
    Casts of parameters are kept until the outermost region ends: a weight used twice is cast once.
    Do the forward and the loss inside, the backward outside.

    Parameters
    ----------
    device_type
        ``"cuda"`` or ``"cpu"``.
    dtype
        The lower precision: float16 on CUDA devices and bfloat16 on the host unless set.
    enabled
        False switches casting off inside.
    cache_enabled
        Whether casts of parameters are kept; as outside unless given.

    Raises
    ------
    RuntimeError
        The device type is unknown.

    Examples
    --------
    >>> import flambeau as torch
    >>> a = torch.ones(2, 2, device="cuda")
    >>> with torch.autocast("cuda"):
    ...     product, total = a @ a, (a @ a).sum()
    >>> product.dtype, total.dtype
    (torch.float16, torch.float32)
    """

    def __init__(
        self,
        device_type: str,
        dtype: dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        self.device = _known(device_type)
        self.fast_dtype = get_autocast_dtype(self.device) if dtype is None else dtype
        if dtype is not None and not isinstance(dtype, _dtype.dtype):
            raise ValueError(f"Expected `dtype` of type `torch.dtype`, got: `{type(dtype)}`")
        self._cache_enabled = _state.cache_enabled if cache_enabled is None else cache_enabled
        if enabled and self.fast_dtype not in _SUPPORTED[self.device]:
            names = ", ".join(str(one) for one in _SUPPORTED[self.device])
            warnings.warn(
                f"In {self.device.upper()} autocast, but the target dtype is not supported. "
                f"Disabling autocast. {self.device.upper()} Autocast only supports dtype of "
                f"{names} currently.",
                stacklevel=2,
            )
            enabled = False
        self._enabled = enabled
        self._before: list[tuple[bool, _dtype.dtype, bool, bool]] = []

    def __enter__(self) -> autocast:
        device = self.device
        outer = (_state.enabled[device], _state.dtypes[device], _state.cache_enabled)
        _state.enabled[device], _state.dtypes[device] = self._enabled, self.fast_dtype
        _state.cache_enabled = self._cache_enabled
        autocast_increment_nesting()
        self._before.append((*outer, _follow()))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        enabled, lower, cache, active = self._before.pop()
        if autocast_decrement_nesting() == 0:
            clear_autocast_cache()
        _state.enabled[self.device], _state.dtypes[self.device] = enabled, lower
        _state.cache_enabled = cache
        set_autocast(active)

    def __call__(self, func: F) -> F:
        """Wrap a function so that it runs in the region."""

        @functools.wraps(func)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return decorated  # type: ignore[return-value]


# -- functions with their own derivative ----------------------------------------------------------


def _cast(value: Any, device_type: str, to: dtype) -> Any:
    if isinstance(value, Tensor):
        fits = value.is_floating_point() and value.device.type == device_type
        return value.to(to) if fits and value.dtype != _FLOAT64 else value
    if isinstance(value, dict):
        return {key: _cast(one, device_type, to) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cast(one, device_type, to) for one in value)
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None,
    *,
    device_type: str,
    cast_inputs: dtype | None = None,
) -> Any:
    """Decorate the ``forward`` of an `autograd.Function` for use under `autocast`.

    Parameters
    ----------
    fwd
        The forward; left out, a decorator is returned.
    device_type
        ``"cuda"`` or ``"cpu"``.
    cast_inputs
        Cast floating-point tensors to this dtype and run the forward without autocast; None runs it
        as it is.

    Examples
    --------
    >>> import flambeau as torch
    >>> class Double(torch.autograd.Function):
    ...     @staticmethod
    ...     @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    ...     def forward(ctx, x):
    ...         return x * 2
    ...
    ...     @staticmethod
    ...     @torch.amp.custom_bwd(device_type="cuda")
    ...     def backward(ctx, grad):
    ...         return grad * 2
    >>> with torch.autocast("cuda"):
    ...     Double.apply(torch.ones(1, device="cuda").half()).dtype
    torch.float32
    """
    _known(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        ctx._dtype = get_autocast_dtype(device_type)
        active = is_autocast_enabled(device_type)
        if cast_inputs is None:
            ctx._fwd_used_autocast = active
            return fwd(*args, **kwargs)
        ctx._fwd_used_autocast = False
        if not active:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(
                *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs)
            )

    return decorated


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Any:
    """Decorate the ``backward`` that belongs to a `custom_fwd`: it runs under the same autocast.

    Parameters
    ----------
    bwd
        The backward; left out, a decorator is returned.
    device_type
        ``"cuda"`` or ``"cpu"``.

    Examples
    --------
    >>> import flambeau as torch
    >>> class Double(torch.autograd.Function):
    ...     @staticmethod
    ...     @torch.amp.custom_fwd(device_type="cuda")
    ...     def forward(ctx, x):
    ...         return x * 2
    ...
    ...     @staticmethod
    ...     @torch.amp.custom_bwd(device_type="cuda")
    ...     def backward(ctx, grad):
    ...         return grad * 2
    >>> x = torch.ones(1, device="cuda", requires_grad=True)
    >>> Double.apply(x).backward(torch.ones(1, device="cuda"))
    >>> x.grad.tolist()
    [2.0]
    """
    _known(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        with autocast(device_type, ctx._dtype, ctx._fwd_used_autocast):
            return bwd(*args, **kwargs)

    return decorated
