# SPDX-License-Identifier: Apache-2.0
"""From tensors to plans: dimensions, lengths, padding, scaling."""

from __future__ import annotations

from math import prod, sqrt
from typing import TYPE_CHECKING, Any

from flambeau.driver.libraries import Transform
from flambeau.fft._plans import cache_of
from flambeau.ops.common import new_like, wrap_dim
from flambeau.ops.custom_gradient import with_gradient
from flambeau.ops.library_call import LibraryCall
from flambeau.ops.promotion import get_default_dtype
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._tensor import Tensor

MOST_DIMS = 3  # that one plan transforms
_COMPLEX = {"float16": "complex32", "float32": "complex64", "float64": "complex128"}
_REAL = {name: real for real, name in _COMPLEX.items()}
_HALF = {"float16", "complex32"}


def real_dtype(of: dtype) -> dtype:
    """The dtype of a complex number's parts."""
    return _dtype.dtypes[_REAL.get(of.name, of.name)]


def complex_dtype(of: dtype) -> dtype:
    """The dtype of complex numbers with these parts."""
    return _dtype.dtypes[_COMPLEX.get(of.name, of.name)]


def promoted(input: Tensor, complex_wanted: bool) -> Tensor:
    """The tensor as floating-point numbers, complex ones if they are wanted.

    Raises
    ------
    RuntimeError
        There is no transform of its dtype on its device.
    """
    if input.dtype.category < 2:
        input = input.to(get_default_dtype())
    known = input.dtype.name in {*_COMPLEX, *_REAL}
    if not known or (input.dtype.name in _HALF and input.device.type == "cpu"):
        raise RuntimeError(
            f"Unsupported dtype {_dtype.legacy_type_name(input.dtype)}: there are Fourier "
            "transforms of float32 and float64 and their complex types, and of float16 on CUDA"
        )
    return input.to(complex_dtype(input.dtype)) if complex_wanted else input


def check_lengths(lengths: Sequence[int]) -> None:
    """Refuse transforms of nothing.

    Raises
    ------
    RuntimeError
        A length is less than 1.
    """
    for n in lengths:
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")


def resized(input: Tensor, dims: Sequence[int], lengths: Sequence[int]) -> Tensor:
    """The tensor cut, or filled up with zeros, to these lengths."""
    for dim, n in zip(dims, lengths, strict=True):
        if input.shape[dim] > n:
            input = input.narrow(dim, 0, n)
    shape = list(input.shape)
    for dim, n in zip(dims, lengths, strict=True):
        shape[dim] = n
    if list(input.shape) == shape:
        return input
    padded = new_like(input, shape).fill_(0)
    target = padded
    for dim in dims:
        target = target.narrow(dim, 0, input.shape[dim])
    target.copy_(input)
    return padded


def scale_of(norm: str | None, forward: bool, lengths: Sequence[int]) -> float:
    """What a result is multiplied by.

    Raises
    ------
    RuntimeError
        There is no such normalisation.
    """
    if norm not in {None, "backward", "ortho", "forward"}:
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    count = prod(lengths)
    if norm == "ortho":
        return 1 / sqrt(count)
    return 1 / count if forward == (norm == "forward") else 1.0


def scaled(result: Tensor, scale: float) -> Tensor:
    """A fresh contiguous tensor, multiplied in place."""
    if scale != 1 and result.numel():
        parts = result.view(dtype=real_dtype(result.dtype)) if result.is_complex() else result
        parts.mul_(scale)
    return result


def _check_half(input: Tensor, lengths: Sequence[int]) -> None:
    if input.dtype.name in _HALF and any(n & (n - 1) for n in lengths):
        raise RuntimeError(
            "cuFFT only supports dimensions whose sizes are powers of two when computing in half "
            f"precision, but got a signal size of {list(lengths)}"
        )


def _run(
    kind: Literal["c2c", "r2c", "c2r"],
    input: Tensor,
    output: Tensor,
    lengths: tuple[int, ...],
    forward: bool,
) -> None:
    """Transform the last dimensions of contiguous tensors."""
    if output.numel() == 0:
        return
    _check_half(input, lengths)
    batch = prod(input.shape[: input.ndim - len(lengths)])
    transform = Transform(kind, real_dtype(input.dtype).name, lengths, batch)
    with LibraryCall(input.get_device()) as call:
        addresses = input.data_ptr(), output.data_ptr()
        if input.device.type == "cpu":
            from flambeau.driver.host_libraries import HostPlan

            HostPlan(transform).execute(call, *addresses, forward)
        else:
            cache_of(input.get_device()).execute(transform, call, *addresses, forward)
        call.tell(f"fft_{kind}", (input,), (output,))


def _last(input: Tensor, dims: Sequence[int]) -> Tensor:
    """Contiguous, with these dimensions at the end."""
    return input.movedim(tuple(dims), tuple(range(-len(dims), 0))).contiguous()


def _back(result: Tensor, dims: Sequence[int]) -> Tensor:
    return result.movedim(tuple(range(-len(dims), 0)), tuple(dims))


def complex_to_complex(input: Tensor, dims: Sequence[int], forward: bool, scale: float) -> Tensor:
    """Transform any number of dimensions of a complex tensor."""
    return _c2c(input, dims=tuple(dims), forward=forward, scale=scale)


def real_to_complex(input: Tensor, dims: Sequence[int], scale: float) -> Tensor:
    """Transform a real tensor forward; the last of `dims` keeps n // 2 + 1 of its frequencies."""
    return _r2c(input, dims=tuple(dims), scale=scale)


def complex_to_real(input: Tensor, dims: Sequence[int], n: int, scale: float) -> Tensor:
    """Transform backward to a real tensor with `n` elements in the last of `dims`."""
    return _c2r(input, dims=tuple(dims), n=n, scale=scale)


def _gradient_c2c(grads: Any, tensors: Any, results: Any, options: dict[str, Any]) -> Any:
    dims, forward, scale = (options[name] for name in ("dims", "forward", "scale"))
    return (complex_to_complex(grads[0], dims, not forward, scale),)


def _gradient_r2c(grads: Any, tensors: Any, results: Any, options: dict[str, Any]) -> Any:
    dims, last = options["dims"], options["dims"][-1]
    whole = resized(grads[0], (last,), (tensors[0].shape[last],))
    return (complex_to_complex(whole, dims, False, options["scale"]).real,)


def _gradient_c2r(grads: Any, tensors: Any, results: Any, options: dict[str, Any]) -> Any:
    """Frequencies that stand for their conjugates too count twice."""
    dims, n = options["dims"], options["n"]
    spectrum = real_to_complex(grads[0], dims, options["scale"]).movedim(dims[-1], -1)
    weights = new_like(grads[0], (n // 2 + 1,)).fill_(1)
    weights[1 : (n + 1) // 2].fill_(2)
    return ((spectrum * weights).movedim(-1, dims[-1]),)


@with_gradient(_gradient_c2c)
def _c2c(input: Tensor, *, dims: tuple[int, ...], forward: bool, scale: float) -> Tensor:
    if not dims:
        return input.clone()
    for first in range(0, len(dims), MOST_DIMS):
        some = dims[first : first + MOST_DIMS]
        given = _last(input, some)
        result = new_like(given, given.shape)
        _run("c2c", given, result, tuple(given.shape[-len(some) :]), forward)
        last = first + MOST_DIMS >= len(dims)
        input = _back(scaled(result, scale) if last else result, some)
    return input


@with_gradient(_gradient_r2c)
def _r2c(input: Tensor, *, dims: tuple[int, ...], scale: float) -> Tensor:
    rest, some = dims[:-MOST_DIMS], dims[-MOST_DIMS:]
    given = _last(input, some)
    lengths = tuple(given.shape[-len(some) :])
    shape = (*given.shape[:-1], lengths[-1] // 2 + 1)
    result = new_like(given, shape, complex_dtype(given.dtype))
    _run("r2c", given, result, lengths, True)
    if rest:
        return complex_to_complex(_back(result, some), rest, True, scale)
    return _back(scaled(result, scale), some)


@with_gradient(_gradient_c2r)
def _c2r(input: Tensor, *, dims: tuple[int, ...], n: int, scale: float) -> Tensor:
    rest, some = dims[:-MOST_DIMS], dims[-MOST_DIMS:]
    if rest:
        input = complex_to_complex(input, rest, False, 1.0)
    moved = input.movedim(tuple(some), tuple(range(-len(some), 0)))
    given = new_like(moved, moved.shape).copy_(moved)  # a library may write into it
    lengths = (*given.shape[given.ndim - len(some) : -1], n)
    result = new_like(given, (*given.shape[:-1], n), real_dtype(given.dtype))
    _run("c2r", given, result, lengths, False)
    return _back(scaled(result, scale), some)


def one_dim(input: Tensor, dim: int) -> int:
    """The number of the one dimension to transform."""
    if input.ndim == 0:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return wrap_dim(dim, input.ndim)


def dims_and_lengths(
    input: Tensor, s: Sequence[int] | int | None, dim: Sequence[int] | int | None
) -> tuple[list[int], list[int]]:
    """Which dimensions an n-dimensional transform takes, and how long each is made.

    Raises
    ------
    RuntimeError
        A dimension is named twice, or the lengths do not fit.
    """
    if isinstance(dim, int):
        dim = (dim,)
    if isinstance(s, int):
        s = (s,)
    if dim is not None:
        dims = [wrap_dim(d, input.ndim) for d in dim]
        if len(set(dims)) != len(dims):
            raise RuntimeError("FFT dims must be unique")
        if s is not None and len(s) != len(dims):
            raise RuntimeError(
                "When given, dim and shape arguments must have the same length, got "
                f"{len(dims)} and {len(s)}"
            )
    elif s is not None:
        if len(s) > input.ndim:
            raise RuntimeError(
                f"Got shape with {len(s)} values but input tensor only has {input.ndim} dimensions."
            )
        dims = list(range(input.ndim - len(s), input.ndim))
    else:
        dims = list(range(input.ndim))
    lengths = [input.shape[d] if s is None or s[i] == -1 else s[i] for i, d in enumerate(dims)]
    return dims, lengths
