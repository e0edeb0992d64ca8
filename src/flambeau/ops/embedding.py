# SPDX-License-Identifier: Apache-2.0
"""Looking up rows of tables, and the affine map of a layer."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from flambeau.ops import matmul, sorting, statistics
from flambeau.ops.codegen import cuda_type
from flambeau.ops.common import THREADS, kernel, new_like, same_device
from flambeau.ops.derivatives import differentiable
from flambeau.ops.grad_mode import no_grad
from flambeau.ops.once import refuse_second_derivative
from flambeau.ops.registry import OPS
from flambeau.ops.rows import is_aligned
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from flambeau.runtime._tensor import Tensor

__all__ = ["backward", "embedding", "forward", "linear", "renormalize"]

_INT32 = _dtype.dtypes["int32"]
_PACKS = 2  # EMBEDDING_PACKS of embedding.cuh
_ACROSS = 32  # threads beside each other that copy a row
_MOST_PIECES = 65535  # of a grid's second dimension


def _check(weight: Tensor, indices: Tensor) -> None:
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, got {weight.ndim} dimensions")
    if indices.dtype.name not in {"int64", "int32"}:
        from flambeau.runtime._dtype import legacy_type_name

        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got {legacy_type_name(indices.dtype)} instead (while checking "
            "arguments for embedding)"
        )
    same_device(weight, indices)


def forward(weight: Tensor, indices: Tensor) -> Tensor:
    """Look up rows, without a record for gradients.

    Parameters
    ----------
    weight
        (rows, features).
    indices
        int64 or int32 row numbers of any shape.

    Raises
    ------
    IndexError
        A host tensor holds a number that is no row; on a device that is a device-side assertion.
    """
    _check(weight, indices)
    rows, features = weight.shape
    if not weight.is_cuda:
        from flambeau.ops import host

        numbers = host.array(indices)
        if numbers.size and (numbers.min() < 0 or numbers.max() >= rows):
            raise IndexError("index out of range in self")
        return host.tensor_of(host.array(weight)[numbers], weight.dtype.code)
    out = new_like(weight, (*indices.shape, features))
    if out.numel():
        table = weight.contiguous()
        width = 16 // weight.itemsize
        if features % width or not is_aligned(table, out):
            width = 1
        source = f"""#include "embedding.cuh"
FLAMBEAU_KERNEL({THREADS}) lookup(
    {cuda_type(weight.dtype.code)} *out, const {cuda_type(weight.dtype.code)} *table,
    const {cuda_type(indices.dtype.code)} *indices, int64 count, int64 rows, int64 features) {{
  FLAMBEAU_GRID_WAIT();
  embedding_forward<{width}>(out, table, indices, count, rows, features);
}}
"""
        made = kernel(source, "lookup", "PRRqqq", weight.get_device())
        count = indices.numel()
        packs = -(-features // width)
        across = min(_ACROSS, 1 << (-(-packs // _PACKS) - 1).bit_length())
        grid = (-(-count * across // THREADS), min(-(-packs // (_PACKS * across)), _MOST_PIECES), 1)
        made(
            weight.get_device(), grid, (across, THREADS // across, 1), 0, out, table,
            indices.contiguous(), count, rows, features,
        )  # fmt: skip
    return out


def backward(
    grad: Tensor, indices: Tensor, rows: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """Compute the gradient of the table from that of the rows looked up.

    Parameters
    ----------
    grad
        The indices' shape with the features behind.
    indices
        As for `forward`.
    rows
        How many the table has.
    padding_idx
        A row without a gradient; negative for none.
    scale_grad_by_freq
        Whether each row's gradient is divided by how often it was looked up.

    Returns
    -------
    Tensor
        (rows, features). Gradients are added up in the order of `indices`, always the same.
    """
    refuse_second_derivative("embedding_backward", grad)
    features, count = grad.shape[-1], indices.numel()
    if not grad.is_cuda:
        return _host_backward(grad, indices, rows, padding_idx, scale_grad_by_freq)
    out = new_like(grad, (rows, features)).zero_()
    if count and features:
        # Rows are fewer than 2 ** 31, and half as many bytes are sorted in half the time.
        ordered, places = sorting.sort(indices.reshape(-1).to(_INT32), stable=True)
        kind = cuda_type(grad.dtype.code)
        source = f"""#include "embedding.cuh"
FLAMBEAU_KERNEL({THREADS}) add_up(
    {kind} *out, const {kind} *grad, const int32 *ordered, const int64 *places, int64 count,
    int64 features, int64 padding, int by_frequency) {{
  FLAMBEAU_GRID_WAIT();
  embedding_backward(out, grad, ordered, places, count, features, padding, by_frequency);
}}
"""
        made = kernel(source, "add_up", "PRRRqqqi", grad.get_device())
        made(
            grad.get_device(), (count, -(-features // THREADS), 1), (THREADS, 1, 1), 0,
            out, grad.contiguous(), ordered, places, count, features, padding_idx,
            int(scale_grad_by_freq),
        )  # fmt: skip
    return out


def _host_backward(
    grad: Tensor, indices: Tensor, rows: int, padding_idx: int, by_frequency: bool
) -> Tensor:
    import numpy as np

    from flambeau.ops import host
    from flambeau.ops.host_softmax import values_of

    numbers = host.array(indices).reshape(-1)
    slopes = values_of(grad).reshape(len(numbers), -1)
    total = np.zeros((rows, slopes.shape[1]), slopes.dtype)
    np.add.at(total, numbers, slopes)
    if by_frequency:
        total /= np.maximum(np.bincount(numbers, minlength=rows), 1)[:, None]
    if padding_idx >= 0:
        total[padding_idx] = 0
    return host.tensor_of(total, grad.dtype.code)


def renormalize(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    """Shorten, in place, the rows that are looked up and longer than `max_norm`."""
    with no_grad():
        rows = indices.reshape(-1)
        found = forward(weight.detach(), rows)
        length = found.norm(norm_type, 1, keepdim=True)
        factor = OPS["_where"](length > max_norm, max_norm / (length + 1e-7), 1.0)
        weight.detach().index_copy_(0, rows, found * factor)


_embedding = differentiable(
    lambda weight, indices, padding_idx, by_frequency: forward(weight, indices),
    {
        "weight": lambda grad, indices, weight_shape, padding_idx, by_frequency: backward(
            grad, indices, weight_shape[0], padding_idx, by_frequency
        )
    },
    name="embedding",
)


def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Look up rows of a table.

    Parameters
    ----------
    weight
        (rows, features).
    indices
        int64 or int32 row numbers of any shape.
    padding_idx
        A row that gets no gradient; negative for none.
    scale_grad_by_freq
        Divide each row's gradient by how often it is looked up.
    sparse
        Not offered: True raises.

    Returns
    -------
    Tensor
        The indices' shape with the features behind.
    """
    if sparse:
        raise NotImplementedError("embedding: sparse gradients are not offered; use sparse=False")
    found: Tensor = _embedding(weight, indices, padding_idx, scale_grad_by_freq)
    return found


# -- the affine map -------------------------------------------------------------------------------


def linear_forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute `linear`, without a record for gradients."""
    if weight.ndim == 2 and x.ndim > 2 and x.is_contiguous() and x.numel():  # one tall product
        tall = linear_forward(x.reshape(-1, x.shape[-1]), weight, bias)
        return tall.reshape(*x.shape[:-1], weight.shape[0])
    matrix = weight if weight.ndim == 1 else weight.t()
    return matmul.matmul(x, matrix) if bias is None else matmul.affine(x, matrix, bias)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``input @ weight.T + bias``.

    Parameters
    ----------
    input
        (..., in_features).
    weight
        (out_features, in_features), or (in_features) for a result without that dimension.
    bias
        (out_features), or None.

    Raises
    ------
    RuntimeError
        Shapes, dtypes or devices do not fit.
    """
    made: Tensor = _linear(input, weight, bias)
    return made


def linear_backward(
    grad: Tensor, x: Tensor, weight: Tensor, needs: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Compute the gradients of `linear`'s input, weight and bias, those that are wanted."""
    if weight.ndim == 1:
        grad, weight2 = grad.unsqueeze(-1), weight.unsqueeze(0)
    else:
        weight2 = weight
    features = x.shape[-1]
    rows = grad.reshape(prod(grad.shape[:-1]), grad.shape[-1])
    flat = x.reshape(prod(x.shape[:-1]), features)
    of_input = matmul.mm(rows, weight2).reshape(x.shape) if needs[0] else None
    of_weight = matmul.mm(rows.t(), flat).reshape(weight.shape) if needs[1] else None
    of_bias = statistics.sum(rows, 0) if needs[2] else None
    if of_bias is not None and weight.ndim == 1:
        of_bias = of_bias.reshape(())
    return of_input, of_weight, of_bias


_linear = differentiable(
    linear_forward,
    {("x", "weight", "bias"): linear_backward},
    name="linear",
    holomorphic=True,
)
