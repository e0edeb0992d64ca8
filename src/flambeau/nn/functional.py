# SPDX-License-Identifier: Apache-2.0
"""The functions of neural networks, ``torch.nn.functional``.

Examples
--------
>>> import flambeau as torch
>>> import flambeau.nn.functional as F
>>> F.softmax(torch.zeros(2, device="cuda"), dim=0).tolist()
[0.5, 0.5]
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from flambeau.nn.functional_activations import (
    celu,
    elu,
    elu_,
    gelu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    hardtanh_,
    leaky_relu,
    leaky_relu_,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    relu_,
    selu,
    selu_,
    sigmoid,
    silu,
    softplus,
    softshrink,
    softsign,
    tanh,
    tanhshrink,
    threshold,
)
from flambeau.nn.functional_losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from flambeau.ops import attention, normalization, sequences, statistics
from flambeau.ops import dropout as _dropout
from flambeau.ops import embedding as _embedding
from flambeau.ops import softmax as _softmax
from flambeau.ops.embedding import linear
from flambeau.runtime import _dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flambeau.runtime._dtype import dtype
    from flambeau.runtime._tensor import Tensor

__all__ = [
    "alpha_dropout",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "elu",
    "elu_",
    "embedding",
    "feature_alpha_dropout",
    "gelu",
    "glu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "log_softmax",
    "logsigmoid",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "scaled_dot_product_attention",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
]

dropout = _dropout.functional_dropout
scaled_dot_product_attention = attention.scaled_dot_product_attention


# -- softmax --------------------------------------------------------------------------------------


def _dim(name: str, dim: int | None, ndim: int) -> int:
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
        UserWarning,
        stacklevel=3,
    )
    return 0 if ndim in {0, 1, 3} else 1


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype | None = None
) -> Tensor:
    """Compute exponentials that sum to 1 along a dimension.

    Parameters
    ----------
    input
        A floating-point tensor.
    dim
        The dimension.
    _stacklevel
        Accepted and ignored.
    dtype
        The result's dtype; the input counts as converted to it first.
    """
    return _softmax.softmax(input, _dim("softmax", dim, input.ndim), dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype | None = None
) -> Tensor:
    """Compute the logarithm of `softmax`; arguments as there."""
    return _softmax.log_softmax(input, _dim("log_softmax", dim, input.ndim), dtype)


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: dtype | None = None
) -> Tensor:
    """Compute `softmax` of the negated input; arguments as there."""
    return _softmax.softmax(-input, _dim("softmin", dim, input.ndim), dtype)


# -- normalisation --------------------------------------------------------------------------------


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
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
    """
    return normalization.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divide by the root of the mean square over the last dimensions; as for `layer_norm`."""
    return normalization.rms_norm(input, normalized_shape, weight, eps)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Divide by the norm along a dimension.

    Parameters
    ----------
    input
        A floating-point tensor.
    p
        The norm's order.
    dim
        The dimension.
    eps
        The least number that is divided by.
    """
    result: Tensor = input / input.norm(p, dim, keepdim=True).clamp_min(eps)
    return result


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Compute the cosine of the angle between vectors.

    Parameters
    ----------
    x1, x2
        Floating-point tensors that broadcast together.
    dim
        The dimension that the vectors lie along.
    eps
        The least length.
    """
    dot = statistics.sum(x1 * x2, dim)
    lengths = x1.norm(2, dim).clamp_min(eps) * x2.norm(2, dim).clamp_min(eps)
    result: Tensor = dot / lengths
    return result


# -- dropout, embedding ---------------------------------------------------------------------------


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Drop elements to SELU's limit, then scale and shift so that mean and variance stay.

    Parameters
    ----------
    input
        A floating-point tensor.
    p
        The probability.
    training
        False gives the input itself.
    inplace
        Write into the input.
    """
    result = _dropout.alpha_dropout(input, p, training)
    return input.copy_(result) if inplace and result is not input else result


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Do `alpha_dropout` with whole features; arguments as there."""
    result = _dropout.feature_alpha_dropout(input, p, training)
    return input.copy_(result) if inplace and result is not input else result


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Look up rows of a table.

    Parameters
    ----------
    input
        Row numbers, int64 or int32.
    weight
        (rows, features).
    padding_idx
        A row that gets no gradient.
    max_norm
        Rows that are looked up and longer than this are shortened in place.
    norm_type
        The order of that norm.
    scale_grad_by_freq
        Divide each row's gradient by how often it is looked up.
    sparse
        Not offered: True raises.

    Returns
    -------
    Tensor
        The input's shape with the features behind.
    """
    if sparse:
        raise NotImplementedError("embedding: sparse gradients are not offered; use sparse=False")
    rows = weight.shape[0]
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= rows
    if max_norm is not None:
        _embedding.renormalize(weight, input, max_norm, norm_type)
    return _embedding.embedding(
        weight, input, -1 if padding_idx is None else padding_idx, scale_grad_by_freq
    )


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Give each class number a row with one 1.

    Parameters
    ----------
    tensor
        int64 class numbers.
    num_classes
        How many there are; -1 for one more than the greatest, which waits for the device.
    """
    if tensor.dtype.name != "int64":
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if num_classes == -1:
        num_classes = int(tensor.max().item()) + 1
    classes = sequences.arange(num_classes, device=tensor.device)
    result: Tensor = (tensor.unsqueeze(-1) == classes).to(_dtype.dtypes["int64"])
    return result


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'flambeau.nn.functional' has no attribute {name!r}")
