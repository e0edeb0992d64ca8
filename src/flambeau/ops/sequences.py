# SPDX-License-Identifier: Apache-2.0
"""Vectors whose elements follow from their positions: ranges and evenly spaced numbers."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from flambeau.ops.codegen import cuda_type
from flambeau.ops.common import THREADS, kernel, launch_linear
from flambeau.ops.promotion import get_default_dtype
from flambeau.ops.registry import OPS, public
from flambeau.runtime import _dtype, _tensor
from flambeau.runtime._tensor import Tensor, empty

if TYPE_CHECKING:
    from flambeau.runtime._dtype import dtype

    Device = Any


@functools.cache
def _sequence_source(kind: str, code: int) -> str:
    # Integers are computed as int64, floats as double: exact starts, and steps that do not drift.
    wide = "int64" if _dtype.dtype_from_code(code).category < 2 else "double"
    numbers = {"arange": "start, step", "linspace": "start, end, step"}[kind]
    parameters = ", ".join(f"{wide} {name}" for name in numbers.split(", "))
    return f"""#include "fill.cuh"
FLAMBEAU_KERNEL({THREADS}) fill({cuda_type(code)} *out, {parameters}, int64 n) {{
  FLAMBEAU_GRID_WAIT();
  fill_{kind}(out, {numbers}, n);
}}
"""


def _fill_sequence(kind: str, out: Tensor, *numbers: float) -> Tensor:
    if out.numel() == 0:
        return out
    if out.device.type == "cpu":
        from flambeau.ops import host_sequences

        getattr(host_sequences, kind)(out, *numbers)
        return out
    integer = out.dtype.category < 2
    values = [int(x) if integer else float(x) for x in numbers]
    signature = "P" + ("q" if integer else "d") * len(values) + "q"
    device = out.get_device()
    made = kernel(_sequence_source(kind, out.dtype.code), "fill", signature, device)
    launch_linear(made, device, out.numel(), out, *values, out.numel())
    return out


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


def _sequence(
    size: int,
    out: Tensor | None,
    of: dtype,
    device: Device,
    pin_memory: bool,
) -> Tensor:
    if out is None:
        return _tensor.new_empty((size,), of, device, pin_memory)
    return empty((size,), out=out)


@public(method=False)
def arange(
    start: Any = 0,
    end: Any = None,
    step: Any = 1,
    *,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make the vector ``start, start + step, …`` up to but without `end`.

    Parameters
    ----------
    start, end, step
        Numbers. One alone is the end.
    out
        A tensor to resize and fill instead.
    dtype
        By default int64 for integers, else the default floating-point dtype.
    layout
        Accepted: tensors are strided.
    device
        By default the default device.
    requires_grad
        Whether gradients shall be recorded for it.
    pin_memory
        Put a host tensor into pinned memory.

    Raises
    ------
    RuntimeError
        The step is 0 or leads away from the end.

    Examples
    --------
    >>> import flambeau as torch
    >>> (torch.arange(3, device="cuda") + 1).tolist()
    [1, 2, 3]
    """
    if end is None:
        start, end = 0, start
    first, last, by = (_number(x) for x in (start, end, step))
    integer = all(isinstance(x, int) for x in (first, last, by))
    of = dtype or (out.dtype if out is not None else None)
    of = of or (_dtype.dtypes["int64"] if integer else get_default_dtype())
    if of.category < 2:
        first, last, by = (int(x) for x in (first, last, by))
    if by == 0:
        raise RuntimeError("step must be nonzero")
    if not all(math.isfinite(x) for x in (first, last)):
        raise RuntimeError(f"unsupported range: {first} -> {last}")
    if (last - first) * by < 0:
        raise RuntimeError(
            f"upper bound and lower bound inconsistent with step sign: {first} to {last} by {by}"
        )
    size = math.ceil((last - first) / by) if of.category == 2 else -((first - last) // by)
    made = _fill_sequence("arange", _sequence(size, out, of, device, pin_memory), first, by)
    return made.requires_grad_() if requires_grad else made


def _dtype_between(first: Any, last: Any) -> dtype:
    """The default dtype, its complex kind if one end is complex."""
    default = get_default_dtype()
    return default.to_complex() if complex in (type(first), type(last)) else default


def _spaced(
    name: str, start: Any, end: Any, steps: int, out: Any, of: Any, device: Any, pin: bool
) -> Tensor:
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, got {steps} in {name}()")
    first, last = _number(start), _number(end)
    made = _sequence(steps, out, of or _dtype_between(first, last), device, pin)
    if made.dtype.category == 3:
        for part, low, high in (
            (made.real, first.real, last.real), (made.imag, first.imag, last.imag)
        ):  # fmt: skip
            wide = _tensor.new_empty((steps,), part.dtype, made.device)
            part.copy_(_spaced_into(wide, low, high))
        return made
    if made.dtype.category < 2:
        wide = _tensor.new_empty((steps,), _dtype.dtypes["float64"], made.device)
        return made.copy_(_spaced_into(wide, first, last))
    return _spaced_into(made, first, last)


def _spaced_into(out: Tensor, first: float, last: float) -> Tensor:
    steps = out.numel()
    step = (last - first) / (steps - 1) if steps > 1 else 0.0
    return _fill_sequence("linspace", out, first, first if steps == 1 else last, step)


@public(method=False)
def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make a vector of `steps` numbers, evenly spaced from `start` to `end`, both included.

    Parameters
    ----------
    start, end
        Numbers.
    steps
        How many.
    out, dtype, layout, device, requires_grad, pin_memory
        As for `zeros`.
    """
    made = _spaced("linspace", start, end, steps, out, dtype, device, pin_memory)
    return made.requires_grad_() if requires_grad else made


@public(method=False)
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: Any = None,
    device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Make the powers of `base` with the exponents of `linspace`."""
    natural = _dtype_between(_number(start), _number(end))
    wide = _dtype.dtypes["complex128" if natural.category == 3 else "float64"]
    exponents = _spaced("logspace", start, end, steps, None, wide, device, pin_memory)
    powers = OPS["_pow"](base, exponents)
    made = _sequence(steps, out, dtype or natural, device, pin_memory).copy_(powers)
    return made.requires_grad_() if requires_grad else made
