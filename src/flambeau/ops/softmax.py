# SPDX-License-Identifier: Apache-2.0
"""Softmax and its logarithm."""

from __future__ import annotations

import functools
from math import prod
from typing import TYPE_CHECKING, Any

from flambeau.ops.codegen import cuda_type
from flambeau.ops.common import THREADS, kernel, new_like, store_out, wrap_dim
from flambeau.ops.registry import public
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._tensor import Tensor

__all__ = ["backward", "forward", "log_softmax", "softmax"]

_HALVES = ("float16", "bfloat16")


def forward(input: Tensor, dim: int, log: bool, of: dtype | None = None) -> Tensor:
    """Compute the softmax or its logarithm, without a record for gradients.

    Parameters
    ----------
    input
        A floating-point tensor.
    dim
        The dimension along which the exponentials sum to 1.
    log
        Whether the logarithm is wanted.
    of
        The result's dtype.
    """
    dim = wrap_dim(dim, input.ndim)
    of = of or input.dtype
    if of.category != 2:
        name = _dtype.legacy_type_name(of)
        raise NotImplementedError(
            f"\"host_softmax\" not implemented for '{name}': softmax is defined for floating-point "
            "tensors; pass dtype=torch.float32"
        )
    if input.dtype != of and not (input.dtype.name in _HALVES and of.name == "float32"):
        input = input.to(of)
    if not input.is_cuda:
        from flambeau.ops import host_softmax

        return host_softmax.forward(input, dim, log, of)
    result = new_like(input, input.shape, of)
    if result.numel():
        _launch_forward(input.contiguous(), result, dim, log)
    return result


def backward(grad: Tensor, result: Tensor, dim: int, log: bool, of: dtype | None = None) -> Tensor:
    """Compute the gradient of the input from that of the result and the result itself.

    Parameters
    ----------
    grad
        Of the result's shape and dtype.
    result
        What `forward` gave.
    dim, log
        As for `forward`.
    of
        The input's dtype, by default the result's.
    """
    dim = wrap_dim(dim, result.ndim)
    of = of or result.dtype
    if not result.is_cuda:
        from flambeau.ops import host_softmax

        return host_softmax.backward(grad, result, dim, log, of)
    out = new_like(result, result.shape, of)
    if out.numel():
        _launch_backward(grad.contiguous(), result.contiguous(), out, dim, log)
    return out


def _extents(shape: tuple[int, ...], dim: int) -> tuple[int, int, int]:
    """Elements before, along and behind a dimension."""
    n = shape[dim] if shape else 1
    return prod(shape[:dim]), n, prod(shape[dim + 1 :])


def _launch_forward(input: Tensor, out: Tensor, dim: int, log: bool) -> None:
    outer, n, inner = _extents(tuple(input.shape), dim)
    flag, types = str(log).lower(), {"In": input.dtype.code, "Out": out.dtype.code}
    device = input.get_device()
    if inner > 1:
        source = _columns_source("Out *out, const In *in", "out, in", "", flag, **types)
        _launch_columns(source, "PRqqq", device, outer * inner, out, input, n, inner)
        return
    from flambeau.ops.rows import is_aligned, launch_rows, plan_rows, row_source

    itemsize = max(input.itemsize, out.itemsize)
    plan = plan_rows(n, itemsize, aligned=is_aligned(input, out))
    source = row_source(
        "softmax.cuh", "softmax_rows", flag, plan,
        "Out *out, const In *in, int64 rows, int64 n", "out, in, rows, n", **types,
    )  # fmt: skip
    launch_rows(source, "PRqq", plan, device, plan.blocks(outer), out, input, outer, n)


def _launch_backward(grad: Tensor, result: Tensor, out: Tensor, dim: int, log: bool) -> None:
    outer, n, inner = _extents(tuple(result.shape), dim)
    flag, types = str(log).lower(), {"T": result.dtype.code, "In": out.dtype.code}
    device = result.get_device()
    names = ("In *out, const T *grad, const T *result", "out, grad, result")
    if inner > 1:
        source = _columns_source(*names, "_backward", flag, **types)
        _launch_columns(source, "PRRqqq", device, outer * inner, out, grad, result, n, inner)
        return
    from flambeau.ops.rows import is_aligned, launch_rows, plan_rows, row_source

    itemsize = max(result.itemsize, out.itemsize)
    plan = plan_rows(n, itemsize, aligned=is_aligned(grad, result, out))
    source = row_source(
        "softmax.cuh", "softmax_rows_backward", flag, plan,
        f"{names[0]}, int64 rows, int64 n", f"{names[1]}, rows, n", **types,
    )  # fmt: skip
    launch_rows(source, "PRRqq", plan, device, plan.blocks(outer), out, grad, result, outer, n)


@functools.cache
def _columns_source(parameters: str, arguments: str, suffix: str, flag: str, **types: int) -> str:
    lines = [f"typedef {cuda_type(code)} {name};" for name, code in types.items()]
    return "\n".join([
        '#include "softmax.cuh"',
        *lines,
        f"FLAMBEAU_KERNEL({THREADS}) columns({parameters}, int64 count, int64 n, int64 inner) {{",
        "  FLAMBEAU_GRID_WAIT();",
        f"  softmax_columns{suffix}<{flag}>({arguments}, count, n, inner);",
        "}",
        "",
    ])  # fmt: skip


def _launch_columns(
    source: str, signature: str, device: int, count: int, *arguments: object
) -> None:
    tensors, numbers = arguments[:-2], arguments[-2:]
    made = kernel(source, "columns", signature, device)
    made(device, (-(-count // THREADS), 1, 1), (THREADS, 1, 1), 0, *tensors, count, *numbers)


@functools.cache
def _recorded(log: bool) -> Callable[..., Tensor]:
    """`forward` with its derivative."""
    from flambeau.ops.derivatives import differentiable

    return differentiable(
        lambda x, dim, of: forward(x, dim, log, of),
        {
            "x": lambda grad, out, dim, x_dtype: _slope(log)(
                grad, out, dim, x_dtype if x_dtype.name in _HALVES else None
            )
        },
        name="log_softmax" if log else "softmax",
    )


@functools.cache
def _slope(log: bool) -> Callable[..., Tensor]:
    """`backward` with its derivative, for gradients of gradients."""
    from flambeau.ops.derivatives import differentiable

    def of_grad(slope: Any, result: Any, dim: int) -> Any:
        if log:
            return slope - (slope * result.exp()).sum(dim, keepdim=True)
        return result * (slope - (slope * result).sum(dim, keepdim=True))

    def of_result(slope: Any, grad: Any, result: Any, dim: int) -> Any:
        if log:
            return -(slope * result.exp()) * grad.sum(dim, keepdim=True)
        dot = (grad * result).sum(dim, keepdim=True)
        return slope * (grad - dot) - grad * (slope * result).sum(dim, keepdim=True)

    return differentiable(
        lambda grad, result, dim, of: backward(grad, result, dim, log, of),
        {
            ("grad", "result"): lambda slope, grad, result, dim: (
                of_grad(slope, result, dim),
                of_result(slope, grad, result, dim),
            )
        },
        name="log_softmax_backward" if log else "softmax_backward",
    )


@public()
def softmax(
    input: Tensor, dim: int, dtype: dtype | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Compute exponentials that sum to 1 along a dimension.

    Parameters
    ----------
    input
        A floating-point tensor; another one with `dtype`.
    dim
        The dimension.
    dtype
        The result's dtype; the input counts as converted to it first.
    out
        Where to store the result.

    Returns
    -------
    Tensor
        ``exp(x) / exp(x).sum(dim)``, computed in float32 for float16 and bfloat16, and without
        overflow. Where all of the input is -inf the result is NaN.

    Raises
    ------
    NotImplementedError
        The tensor is not floating-point and no `dtype` is given.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.tensor([0.0, 0.0, -torch.inf], device="cuda")
    >>> torch.softmax(x, 0).tolist()
    [0.5, 0.5, 0.0]
    """
    return store_out(_recorded(False)(input, dim, dtype), out)


@public()
def log_softmax(
    input: Tensor, dim: int, dtype: dtype | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Compute the logarithm of `softmax`, precise where that is close to 0.

    Parameters
    ----------
    input, dim, dtype, out
        As for `softmax`.
    """
    return store_out(_recorded(True)(input, dim, dtype), out)
