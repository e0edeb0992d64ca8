# SPDX-License-Identifier: Apache-2.0
"""Layer norm and RMS norm."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from flambeau.ops.codegen import cuda_type
from flambeau.ops.common import THREADS, kernel, new_like, same_device
from flambeau.ops.derivatives import differentiable
from flambeau.ops.once import refuse_second_derivative
from flambeau.ops.reductions import reduce
from flambeau.ops.rows import RowPlan, is_aligned, launch_rows, plan_rows, row_source
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._tensor import Tensor

__all__ = [
    "Normalized",
    "backward",
    "check",
    "forward",
    "layer_norm",
    "native_layer_norm",
    "rms_norm",
]

_SLICES = 64  # of rows, where columns are added up by themselves
_GROUPS_PER_PROCESSOR = 8
_HELD = 16  # elements of each of four rows that a thread of the backward kernel holds


class Normalized(NamedTuple):
    """What `forward` gives, and `backward` needs: the result, and figures of each row."""

    out: Tensor
    mean: Tensor
    scale: Tensor


def check(
    name: str,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
) -> int:
    """The number of elements that are normalised together.

    Raises
    ------
    RuntimeError
        `normalized_shape` is empty or not the end of the input's shape, or `weight` or `bias` has
        another shape or device.
    """
    shape = tuple(normalized_shape)
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
            "element, but got normalized_shape = []"
        )
    for what, given in (("weight", weight), ("bias", bias)):
        if given is None:
            continue
        if tuple(given.shape) != shape:
            raise RuntimeError(
                f"Expected {what} to be of same shape as normalized_shape, but got {what} of shape "
                f"{list(given.shape)} and normalized_shape = {list(shape)}"
            )
        same_device(input, given)
    if input.ndim < len(shape) or tuple(input.shape[input.ndim - len(shape) :]) != shape:
        wanted = ", ".join(["*", *map(str, shape)])
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [{wanted}], but got "
            f"input of size{list(input.shape)}"
        )
    if input.dtype.category != 2:
        legacy = _dtype.legacy_type_name(input.dtype)
        raise NotImplementedError(
            f"\"{name}\" not implemented for '{legacy}': it normalises floating-point tensors"
        )
    return prod(shape)


def _statistics_dtype(input: Tensor) -> _dtype.dtype:
    return _dtype.dtypes["float64" if input.dtype.name == "float64" else "float32"]


def forward(
    input: Tensor,
    n: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    rms: bool,
) -> Normalized:
    """Normalise rows of `n` elements, without a record for gradients.

    Parameters
    ----------
    input
        A floating-point tensor.
    n
        How many of its last elements are normalised together.
    weight, bias
        Factors and terms for each of them, or None.
    eps
        Added to the variance.
    rms
        Divide by the root of the mean square, and subtract nothing.
    """
    if not input.is_cuda:
        from flambeau.ops import host_normalization

        return host_normalization.forward(input, n, weight, bias, eps, rms)
    rows = input.numel() // n if n else 0
    of = _statistics_dtype(input)
    out = new_like(input, input.shape)
    mean, scale = (new_like(input, (rows,), of) for _ in range(2))
    if rows:
        x = input.contiguous()
        w, b = _parameters(weight, bias)
        plan = _plan(n, (x, out, w, b), 32)
        source = row_source(
            "normalization.cuh", "normalize_rows", _flag(rms), plan,
            "T *out, A *means, A *scales, const T *in, const W *weight, const W *bias, int64 rows, "
            "int64 n, double epsilon",
            "out, means, scales, in, weight, bias, rows, n, epsilon",
            **_types(x, w if b is None else b, of),
        )  # fmt: skip
        launch_rows(
            source, "PPPRRRqqd", plan, x.get_device(), plan.blocks(rows),
            out, None if rms else mean, scale, x, w, b, rows, n, eps,
        )  # fmt: skip
    return Normalized(out, mean, scale)


def backward(
    grad: Tensor,
    input: Tensor,
    n: int,
    mean: Tensor,
    scale: Tensor,
    weight: Tensor | None,
    rms: bool,
    wanted: tuple[bool, bool, bool] = (True, True, True),
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Compute the gradients of input, weight and bias.

    Parameters
    ----------
    grad
        Of the result's shape and dtype.
    input, n, weight, rms
        As for `forward`.
    mean, scale
        What `forward` gave beside the result.
    wanted
        Which gradients to compute; None is given for the others. Those of weight and bias are
        vectors of `n` elements in the weight's dtype, without a weight in the input's.
    """
    refuse_second_derivative("normalization_backward", grad, input, weight)
    if not input.is_cuda:
        from flambeau.ops import host_normalization

        return host_normalization.backward(grad, input, n, mean, scale, weight, rms, wanted)
    rows = input.numel() // n if n else 0
    like = input if weight is None else weight
    if not rows:
        zeros = [new_like(like, (n,)).zero_() if want else None for want in wanted[1:]]
        return new_like(input, input.shape) if wanted[0] else None, zeros[0], zeros[1]
    g, x = grad.contiguous(), input.contiguous()
    w, _ = _parameters(weight, None)
    out = new_like(input, input.shape) if wanted[0] else None
    plan = _plan(n, (g, x, out, w), _HELD)
    parts: list[Tensor | None] = [None, None]
    if plan.held:
        blocks = _backward_blocks(plan, rows, x.get_device())
        lines = blocks * (plan.block // plan.threads)
        parts = [new_like(mean, (lines, n)) if want else None for want in wanted[1:]]
    else:
        blocks = min(rows, 1 << 16)
        if any(wanted[1:]):
            parts = _column_parts(g, x, mean, scale, rows, n, rms, wanted[1:])
    if out is not None or plan.held:
        source = row_source(
            "normalization.cuh", "normalize_rows_backward", _flag(rms), plan,
            "T *out, A *weight_parts, A *bias_parts, const T *grad, const T *in, const W *weight, "
            "const A *means, const A *scales, int64 rows, int64 n",
            "out, weight_parts, bias_parts, grad, in, weight, means, scales, rows, n",
            **_types(x, w, mean.dtype),
        )  # fmt: skip
        held_parts = parts if plan.held else [None, None]
        launch_rows(
            source, "PPPRRRRRqq", plan, x.get_device(), blocks,
            out, *held_parts, g, x, w, mean, scale, rows, n,
        )  # fmt: skip
    sums = [None if part is None else _added_up(part, like.dtype.code) for part in parts]
    return out, sums[0], sums[1]


def _flag(rms: bool) -> str:
    return str(rms).lower()


def _types(input: Tensor, parameter: Tensor | None, of: _dtype.dtype) -> dict[str, int]:
    code = input.dtype.code if parameter is None else parameter.dtype.code
    return {"T": input.dtype.code, "W": code, "A": of.code}


def _plan(n: int, operands: Sequence[Tensor | None], held: int) -> RowPlan:
    itemsize = max(t.itemsize for t in operands if t is not None)
    return plan_rows(n, itemsize, aligned=is_aligned(*operands), shifted=False, most_held=held)


def _parameters(weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Weight and bias in row-major order and of one dtype."""
    w = None if weight is None else weight.contiguous()
    b = None if bias is None else bias.contiguous()
    return w, b if w is None or b is None else b.to(w.dtype)


def _backward_blocks(plan: RowPlan, rows: int, device: int) -> int:
    """Blocks that fill the device; each takes many rows, so that few partial sums are left."""
    from flambeau.cuda import get_device_properties

    processors = get_device_properties(device).multi_processor_count
    fitting = max(1, _GROUPS_PER_PROCESSOR * 128 // plan.block)
    return min(plan.blocks(rows), processors * fitting)


def _column_parts(
    grad: Tensor,
    input: Tensor,
    mean: Tensor,
    scale: Tensor,
    rows: int,
    n: int,
    rms: bool,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    slices = min(rows, _SLICES)
    parts = [new_like(mean, (slices, n)) if want else None for want in wanted]
    code, wide = cuda_type(input.dtype.code), cuda_type(mean.dtype.code)
    source = f"""#include "normalization.cuh"
FLAMBEAU_KERNEL({THREADS}) columns(
    {wide} *weight_parts, {wide} *bias_parts, const {code} *grad, const {code} *in,
    const {wide} *means, const {wide} *scales, int64 rows, int64 n) {{
  FLAMBEAU_GRID_WAIT();
  normalize_columns_backward<{_flag(rms)}>(
      weight_parts, bias_parts, grad, in, means, scales, rows, n);
}}
"""
    device = input.get_device()
    made = kernel(source, "columns", "PPRRRRqq", device)
    given = [0 if part is None else part for part in parts]
    grid = (-(-n // THREADS), slices, 1)
    made(device, grid, (THREADS, 1, 1), 0, *given, grad, input, mean, scale, rows, n)
    return parts


def _added_up(parts: Tensor, code: int) -> Tensor:
    total, _ = reduce("sum", parts, (0,), False, code)
    assert total is not None
    return total


_layer_norm = differentiable(
    lambda x, n, weight, bias, eps: tuple(forward(x, n, weight, bias, eps, False)),
    {
        ("x", "weight", "bias"): lambda grad, x, n, weight, bias_shape, out1, out2, needs: (
            _in_shape(backward(grad, x, n, out1, out2, weight, False, needs), x, weight, bias_shape)
        )
    },
    name="native_layer_norm",
)
_rms_norm = differentiable(
    lambda x, n, weight, eps: tuple(forward(x, n, weight, None, eps, True)),
    {
        ("x", "weight"): lambda grad, x, n, weight, out1, out2, needs: _in_shape(
            backward(grad, x, n, out1, out2, weight, True, (*needs, False)), x, weight
        )[:2]
    },
    name="rms_norm",
)


def _in_shape(
    grads: tuple[Tensor | None, Tensor | None, Tensor | None],
    input: Tensor,
    weight: Tensor | None,
    shape: Sequence[int] | None = None,
) -> tuple[Tensor | None, ...]:
    """Gradients of parameters in the parameters' shape."""
    shape = shape if weight is None else weight.shape
    return grads[0], *(g if g is None or shape is None else g.reshape(shape) for g in grads[1:])


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> Tensor:
    """Subtract the mean and divide by the standard deviation, over the last dimensions.

    Parameters
    ----------
    input
        A floating-point tensor.
    normalized_shape
        The shape of what is normalised together: the end of the input's shape.
    weight, bias
        Factors and terms of that shape, or None.
    eps
        Added to the variance.
    cudnn_enable
        Accepted and ignored.

    Returns
    -------
    Tensor
        Of the input's shape and dtype; computed in float32 for float16 and bfloat16.

    Raises
    ------
    RuntimeError
        Shapes do not fit.

    Examples
    --------
    >>> import flambeau as torch
    >>> x = torch.tensor([[1.0, 3.0]], device="cuda")
    >>> torch.layer_norm(x, (2,), eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    n = check("LayerNormKernelImpl", input, normalized_shape, weight, bias)
    out: Tensor = _layer_norm(input, n, weight, bias, eps)[0]
    return out


def native_layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Do `layer_norm`, and give mean and inverse standard deviation of each row too."""
    n = check("LayerNormKernelImpl", input, normalized_shape, weight, bias)
    out, mean, scale = _layer_norm(input, n, weight, bias, eps)
    shape = [*input.shape[: input.ndim - len(normalized_shape)], *[1] * len(normalized_shape)]
    return out, mean.detach().reshape(shape), scale.detach().reshape(shape)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divide by the root of the mean square over the last dimensions.

    Parameters
    ----------
    input, normalized_shape, weight
        As for `layer_norm`.
    eps
        Added to the mean square; by default the spacing of the numbers near 1 of the type that is
        computed in.
    """
    n = check("rms_norm", input, normalized_shape, weight, None)
    if eps is None:
        eps = float(_dtype.finfo(_statistics_dtype(input)).eps)
    out: Tensor = _rms_norm(input, n, weight, eps)[0]
    return out
